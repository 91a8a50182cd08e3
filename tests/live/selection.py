"""Which tests of the conformance suite go to a real service, and how many of each test's parameters: what tells most for the least. Left out are those
that need a stand-in's faults, that kill the gateway's own processes, and those that only look at the gateway."""
CONFORMANCE = "tests/integration/conformance/test_conformance_"
SELECTION = {
    "results": {"test_a_result": 1, "test_the_record_of_every_outcome_holds_and_is_kept": 1, "test_both_forms_carry_the_same_bytes": 1,
                "test_a_character_is_cut_only_by_the_limit_and_never_replaced": 1, "test_a_character_that_comes_in_two_writes": 1, "test_bytes_that_are_no_text": 2,
                "test_output_at_the_limit": 3, "test_errors_at_the_limit": 1, "test_endless_output_is_cut_and_ends": 1, "test_both_streams_are_told_apart": 1,
                "test_no_output_at_all": 1, "test_exit_codes_are_the_programs_own": 6, "test_an_uncaught_error": 1, "test_code_at_its_limit": 1},
    "time": {"test_a_deadline_answers_in_time_with_what_was_printed": 1, "test_what_ignores_every_signal_ends_all_the_same": 1, "test_a_quiet_run_is_not_cut_off": 1,
             "test_after_a_deadline_the_sandbox_is_gone": 1, "test_a_caller_that_leaves_ends_the_run": 1, "test_what_is_left_running_ends_with_the_run": 1},
    "refusals": {"test_a_floor_is_met_or_refused": 4, "test_software_it_cannot_show_to_have": 1, "test_software_it_shows_to_have": 1, "test_a_grant_nobody_gave": 1},
    "projects": {"test_files_steps_and_artifacts": 1, "test_it_stops_at_the_first_failure_and_still_collects": 1, "test_exit_codes_of_steps": 2, "test_a_signal_is_a_failure": 1,
                 "test_the_budget_ends_a_step_with_what_it_printed": 1, "test_all_steps_together_are_bounded": 1, "test_artifacts_at_their_budget": 2,
                 "test_links_and_what_is_no_file_are_no_artifacts": 1, "test_files_are_stored_whole": 1, "test_names_are_only_names": 2,
                 "test_it_speaks_the_languages_it_says": 1},
    "once": {"test_the_cap": 1, "test_one_request_id_joins_and_replays": 1},
}
SANDBOXES = 60              # about as many are made by all of it
SECONDS_EACH = 12           # billed, of one of them, with the longer ones evened out


def chosen(items):
    """(those that run, the others)."""
    taken, run, others = {}, [], []
    for item in items:
        file, name = item.path.stem.removeprefix("test_conformance_"), item.originalname
        most = SELECTION.get(file, {}).get(name, 0)
        is_one = taken.get((file, name), 0) < most
        taken[file, name] = taken.get((file, name), 0) + is_one
        (run if is_one else others).append(item)
    return run, others
