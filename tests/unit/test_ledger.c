/* The ledger's form, its scripts over a real Redis, and what the janitor takes over. */
#include "tests/unit/store_fixture.h"

#include "backends/role_ledger_internal.h"
#include "records/ledger.h"

#define HASH "plimsoll:2:{test}:ledger:docker"
#define A "aaaaaaaaaaaaaaaa"
#define B "bbbbbbbbbbbbbbbb"

static ledger_t *ledger;
static char stamp[LEDGER_STAMP + 1];

/* --- the form --- */

static ledger_entry_t full_entry(void)
{
    ledger_entry_t e = {.state = LEDGER_CONDEMNED,
                        .instance = A,
                        .host = "0a1b2c3d-0000-1111-2222-333344445555.4026531840",
                        .place = "ABCD:EFGH",
                        .created_ms = 1795984800000,
                        .deadline_ms = 1795984900000,
                        .is_billed = true,
                        .run = "0123456789abcdef0123456789abcdef",
                        .tag = "fedcba9876543210fedcba9876543210",
                        .caller = "team a/\xc3\xa9-%",
                        .id = "i0123-x",
                        .price_micro = 108900,
                        .reported_ms = 4210,
                        .tries = 3,
                        .condemned_ms = 1795984850000,
                        .error = "HTTP 500: no"};
    return e;
}

static void an_entry_reads_back_as_it_was_written(void **state)
{
    char line[LEDGER_VALUE_MAX];
    ledger_entry_t e = full_entry(), got;
    (void)state;
    size_t len = ledger_entry_format(&e, line);
    assert_string_equal(line,
                        "1 condemned " A " 0a1b2c3d-0000-1111-2222-333344445555.4026531840 ABCD:EFGH 1795984800000 "
                        "1795984900000 1 0123456789abcdef0123456789abcdef fedcba9876543210fedcba9876543210 "
                        "team%20a/%C3%A9-%25 i0123-x 3 1795984850000 108900 4210 HTTP%20500:%20no");
    assert_int_equal(len, strlen(line));
    memset(&got, 0, sizeof(got));
    assert_true(ledger_entry_parse(line, len, &got));
    assert_string_equal(got.caller, e.caller);
    assert_string_equal(got.error, e.error);
    assert_string_equal(got.host, e.host);
    assert_int_equal(got.tries, 3);
    assert_int_equal(got.price_micro, 108900);
    assert_int_equal(got.reported_ms, 4210);
    assert_true(got.is_billed && got.state == LEDGER_CONDEMNED);
}

static void the_longest_entry_fits(void **state)
{
    char line[LEDGER_VALUE_MAX];
    ledger_entry_t e = full_entry(), got;
    (void)state;
    memset(e.host, '\x01', LEDGER_HOST_MAX);
    memset(e.place, '\x01', LEDGER_PLACE_MAX);
    memset(e.caller, '\xff', LEDGER_CALLER_MAX);
    memset(e.id, ' ', LEDGER_PROVIDER_ID_MAX);
    memset(e.error, '%', LEDGER_ERROR_MAX);
    e.created_ms = e.deadline_ms = e.condemned_ms = LEDGER_TIME_MAX;
    e.price_micro = e.reported_ms = (uint64_t)LEDGER_TIME_MAX;
    e.tries = LEDGER_TRIES_MAX;
    size_t len = ledger_entry_format(&e, line);
    assert_true(len < LEDGER_VALUE_MAX);
    assert_true(ledger_entry_parse(line, len, &got));
    assert_memory_equal(got.caller, e.caller, LEDGER_CALLER_MAX);
    assert_int_equal(strlen(got.error), LEDGER_ERROR_MAX);
}

/* A dash alone means nothing; one in a text, or a text that is one, does not. */
static void a_dash_is_told_from_nothing(void **state)
{
    char line[LEDGER_VALUE_MAX];
    ledger_entry_t e = full_entry(), got;
    (void)state;
    strcpy(e.id, "-");
    strcpy(e.place, "");
    strcpy(e.error, "--");
    size_t len = ledger_entry_format(&e, line);
    assert_true(ledger_entry_parse(line, len, &got));
    assert_string_equal(got.id, "-");
    assert_string_equal(got.place, "");
    assert_string_equal(got.error, "--");
}

static void refuses(const char *from, const char *to)
{
    char line[LEDGER_VALUE_MAX], changed[2 * LEDGER_VALUE_MAX];
    ledger_entry_t e = full_entry(), got;
    ledger_entry_format(&e, line);
    char *at = strstr(line, from);
    assert_non_null(at);
    snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - line), line, to, at + strlen(from));
    if (ledger_entry_parse(changed, strlen(changed), &got))
        fail_msg("taken: %s", changed);
}

static void what_is_not_an_entry_is_none(void **state)
{
    char line[LEDGER_VALUE_MAX];
    ledger_entry_t e = full_entry(), got;
    (void)state;
    refuses("1 condemned", "2 condemned");
    refuses("1 condemned", "01 condemned");
    refuses("condemned", "gone");
    refuses("condemned", "named"); /* with a time of condemnation */
    refuses(A, "aaaaaaaaaaaaaaa");
    refuses(A, "aaaaaaaaaaaaaaaA");
    refuses("ABCD:EFGH", "");
    refuses("1795984800000", "-1");
    refuses("1795984800000", "1000000000000000");
    refuses("1795984900000", "1795984799999"); /* a deadline before its creation */
    refuses(" 1 0123456789abcdef", " 2 0123456789abcdef");
    refuses("fedcba9876543210fedcba9876543210", "-"); /* a caller without its tag */
    refuses("team%20a", "team%2");
    refuses("team%20a", "team%41a"); /* another way to write an A */
    refuses("team%20a", "team%00a");
    refuses("team%20a", "team%c3a");
    refuses("team%20a", "team+a");
    refuses(" 3 ", " 1000001 ");
    refuses("%20no", "%20no ");
    size_t len = ledger_entry_format(&e, line);
    for (size_t cut = 0; cut < len; ++cut) /* cut anywhere it is none, or one with a shorter last word */
        if (ledger_entry_parse(line, cut, &got))
            assert_true(cut > len - strlen("HTTP%20500:%20no"));
    assert_false(ledger_entry_parse("", 0, &got));
}

static void a_word_is_taken_at_its_limit(void **state)
{
    char line[LEDGER_VALUE_MAX], id[LEDGER_PROVIDER_ID_MAX + 2];
    ledger_entry_t e = full_entry(), got;
    (void)state;
    for (size_t n = LEDGER_PROVIDER_ID_MAX - 1; n <= LEDGER_PROVIDER_ID_MAX + 1; ++n) {
        char changed[2 * LEDGER_VALUE_MAX];
        ledger_entry_format(&e, line);
        memset(id, 'x', n);
        id[n] = '\0';
        char *at = strstr(line, "i0123-x");
        snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - line), line, id, at + strlen("i0123-x"));
        assert_int_equal(ledger_entry_parse(changed, strlen(changed), &got), n <= LEDGER_PROVIDER_ID_MAX);
    }
}

static void what_a_provider_says_is_cut_and_scrubbed(void **state)
{
    char out[LEDGER_ERROR_MAX + 1], text[400];
    (void)state;
    ledger_scrub("Error killing sandbox, key e2b_0123456789abcdef0123 refused", out);
    assert_string_equal(out, "Error killing sandbox, key [...] refused");
    ledger_scrub("a\nb\x7f\xc3\xa9", out);
    assert_string_equal(out, "a?b???");
    ledger_scrub("internationalization", out); /* 20 letters and no digit: a word */
    assert_string_equal(out, "internationalization");
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    ledger_scrub(text, out);
    assert_int_equal(strlen(out), LEDGER_ERROR_MAX);
    memset(text, ' ', LEDGER_ERROR_MAX - 2);
    strcpy(text + LEDGER_ERROR_MAX - 2, "0123456789abcdefghijk");
    ledger_scrub(text, out);
    assert_int_equal(strlen(out), LEDGER_ERROR_MAX);
    assert_null(strstr(out, "01"));
}

/* --- over Redis --- */

typedef struct {
    unsigned calls;
    ledger_answer_t answer;
} noted_t;

static void note(void *data, const ledger_answer_t *answer)
{
    noted_t *noted = data;
    ++noted->calls;
    noted->answer = *answer;
}

static bool ledger_up(void)
{
    return ledger_is_up(ledger);
}

static ledger_entry_t entry_of(const char *instance)
{
    ledger_entry_t e = {.place = "ENGINE", .host = "here.1"};
    memcpy(e.stamp, stamp, sizeof(e.stamp));
    strcpy(e.instance, instance);
    return e;
}

static ledger_answer_t put_new(const ledger_entry_t *e, bool is_new)
{
    noted_t noted = {.calls = 0};
    ledger_put(ledger, "docker", e, 250, 60000, is_new, note, &noted);
    assert_int_equal(noted.calls, 0);
    await_calls(&noted.calls);
    return noted.answer;
}

static ledger_answer_t put(const ledger_entry_t *e)
{
    return put_new(e, false);
}

static ledger_answer_t removed(uint64_t unreleased_ms)
{
    noted_t noted = {.calls = 0};
    ledger_remove(ledger, "docker", stamp, unreleased_ms, false, note, &noted);
    await_calls(&noted.calls);
    return noted.answer;
}

static ledger_status_t adopted(const ledger_entry_t *e, const char *by, bool is_dead)
{
    noted_t noted = {.calls = 0};
    ledger_adopt(ledger, "docker", e, by, "there.2", is_dead, note, &noted);
    await_calls(&noted.calls);
    return noted.answer.status;
}

static ledger_entry_t stored(void)
{
    ledger_entry_t e;
    redisReply *reply = direct("HGET " HASH " %s", stamp);
    assert_int_equal(reply->type, REDIS_REPLY_STRING);
    assert_true(ledger_entry_parse(reply->str, reply->len, &e));
    freeReplyObject(reply);
    return e;
}

static int each(void **state)
{
    (void)state;
    direct_do("FLUSHALL");
    random_hex(stamp, LEDGER_STAMP / 2);
    return 0;
}

static void an_entry_is_made_named_and_removed(void **state)
{
    ledger_entry_t e = entry_of(A);
    (void)state;
    ledger_answer_t made = put_new(&e, true);
    assert_int_equal(made.status, LEDGER_DONE);
    assert_int_equal(made.created_ms, made.now_ms - 250);
    assert_int_equal(stored().state, LEDGER_ASKED);
    assert_int_equal(stored().deadline_ms, made.created_ms + 60000);
    long long lease = direct_int("PTTL plimsoll:2:{test}:instance:" A);
    assert_true(lease > LEDGER_LEASE_MS - 5000 && lease <= LEDGER_LEASE_MS);
    strcpy(e.id, "sb-1");
    assert_int_equal(put(&e).created_ms, made.created_ms);
    assert_int_equal(stored().state, LEDGER_NAMED);
    /* a write that does not know the ID does not take it away */
    e.id[0] = '\0';
    put(&e);
    assert_string_equal(stored().id, "sb-1");
    ledger_answer_t end = removed(40);
    assert_int_equal(end.status, LEDGER_DONE);
    assert_true(end.existed_ms >= 250 && end.unreleased_ms == 40);
    assert_int_equal(removed(40).status, LEDGER_ABSENT);
    assert_int_equal(direct_int("EXISTS " HASH), 0);
}

static void condemned_is_for_ever(void **state)
{
    noted_t noted = {.calls = 0};
    ledger_entry_t e = entry_of(A);
    (void)state;
    put(&e);
    ledger_condemn(ledger, "docker", stamp, note, &noted);
    await_calls(&noted.calls);
    assert_int_equal(noted.answer.status, LEDGER_DONE);
    int64_t since = stored().condemned_ms;
    assert_true(since > 0);
    strcpy(e.id, "sb-1");
    assert_true(put(&e).is_condemned);
    assert_int_equal(stored().state, LEDGER_CONDEMNED);
    assert_int_equal(stored().condemned_ms, since);
    usleep(30000);
    assert_true(removed(0).unreleased_ms >= 30);
    noted = (noted_t){.calls = 0};
    ledger_condemn(ledger, "docker", stamp, note, &noted);
    await_calls(&noted.calls);
    assert_int_equal(noted.answer.status, LEDGER_ABSENT);
}

static void an_entry_is_adopted_when_its_instance_is_dead_and_once(void **state)
{
    ledger_entry_t e = entry_of(A);
    (void)state;
    put(&e);
    ledger_entry_t read = stored();
    memcpy(read.stamp, stamp, sizeof(read.stamp));
    assert_int_equal(adopted(&read, B, false), LEDGER_ALIVE);
    direct_do("DEL plimsoll:2:{test}:instance:" A);
    assert_int_equal(adopted(&read, B, false), LEDGER_DONE);
    assert_int_equal(adopted(&read, "cccccccccccccccc", false), LEDGER_TAKEN);
    assert_string_equal(stored().instance, B);
    assert_string_equal(stored().host, "there.2");
    assert_int_equal(stored().state, LEDGER_CONDEMNED);
    assert_int_equal(direct_int("EXISTS plimsoll:2:{test}:instance:" B), 1);
    /* the one that was taken for dead comes back: it is told, and changes nothing */
    strcpy(e.id, "sb-late");
    assert_int_equal(put(&e).status, LEDGER_TAKEN);
    assert_string_equal(stored().id, "");
}

/* A liveness socket that refuses says more than a lease that has not ended yet. */
static void a_death_that_is_sure_need_not_wait_for_the_lease(void **state)
{
    ledger_entry_t e = entry_of(A);
    (void)state;
    put(&e);
    assert_int_equal(adopted(&e, B, true), LEDGER_DONE);
}

static void data_that_redis_lost_is_written_again(void **state)
{
    ledger_entry_t e = entry_of(A);
    (void)state;
    strcpy(e.id, "sb-1");
    put(&e);
    direct_do("FLUSHALL");
    ledger_answer_t again = put(&e);
    assert_int_equal(again.status, LEDGER_DONE);
    assert_int_equal(again.created_ms, again.now_ms - 250); /* by its age, not anew */
    assert_string_equal(stored().id, "sb-1");
}

static void a_corrupt_value_is_left_as_it_is(void **state)
{
    static const char *const values[] = {"", "1 named", "1 condemned " A " - - x 2 0 - - - - 0 1 0 0 -"};
    ledger_entry_t e = entry_of(A);
    (void)state;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); ++i) {
        noted_t noted = {.calls = 0};
        direct_do("HSET " HASH " %s %b", stamp, values[i], strlen(values[i]));
        assert_int_equal(put(&e).status, LEDGER_CORRUPT);
        assert_int_equal(removed(0).status, LEDGER_CORRUPT);
        assert_int_equal(adopted(&e, B, true), LEDGER_CORRUPT);
        ledger_condemn(ledger, "docker", stamp, note, &noted);
        await_calls(&noted.calls);
        assert_int_equal(noted.answer.status, LEDGER_CORRUPT);
        redisReply *left = direct("HGET " HASH " %s", stamp);
        assert_string_equal(left->str, values[i]);
        freeReplyObject(left);
    }
    direct_do("DEL " HASH);
    direct_do("SET " HASH " x");
    assert_int_equal(put(&e).status, LEDGER_CORRUPT);
}

static void a_full_ledger_takes_no_further_sandbox(void **state)
{
    (void)state;
    direct_do("EVAL %s 1 " HASH, "for i = 1, 16383 do redis.call('HSET', KEYS[1], string.format('%032x', i), 'x') end");
    ledger_entry_t e = entry_of(A);
    assert_int_equal(LEDGER_ENTRIES_MAX, 16384);
    assert_int_equal(put_new(&e, true).status, LEDGER_DONE); /* the last there is room for */
    assert_int_equal(put_new(&e, true).status, LEDGER_DONE); /* it is there already */
    ledger_entry_t more = e;
    memset(more.stamp, 'f', LEDGER_STAMP);
    assert_int_equal(put_new(&more, true).status, LEDGER_FULL);
    assert_int_equal(put_new(&more, false).status, LEDGER_DONE); /* one that exists must be written down */
}

typedef struct {
    unsigned calls;
    bool is_read;
    uint64_t next;
    size_t count, corrupt;
    char first[LEDGER_STAMP + 1];
} page_t;

static void note_page(void *data, const ledger_page_t *page)
{
    page_t *out = data;
    ++out->calls;
    out->is_read = page->is_read;
    out->next = page->next_cursor;
    out->count = page->count;
    out->corrupt = page->corrupt;
    if (page->count > 0)
        memcpy(out->first, page->entries[0].stamp, sizeof(out->first));
}

static page_t scan(uint64_t cursor)
{
    page_t page = {.calls = 0};
    ledger_scan(ledger, "docker", cursor, note_page, &page);
    await_calls(&page.calls);
    return page;
}

static void a_look_shows_entries_and_counts_what_is_none(void **state)
{
    ledger_entry_t e = entry_of(A);
    (void)state;
    page_t page = scan(0);
    assert_true(page.is_read && page.count == 0 && page.next == 0);
    put(&e);
    direct_do("HSET " HASH " %s %s", "not-a-stamp", "x");
    direct_do("HSET " HASH " %s %s", "00000000000000000000000000000000", "1 named");
    page = scan(0);
    assert_true(page.is_read && page.count == 1 && page.corrupt == 2 && page.next == 0);
    assert_string_equal(page.first, stamp);
    direct_do("DEL " HASH);
    direct_do("SET " HASH " x");
    assert_false(scan(0).is_read);
}

static void every_entry_of_a_large_ledger_is_shown(void **state)
{
    size_t shown = 0, pages = 0;
    uint64_t cursor = 0;
    (void)state;
    for (int i = 0; i < 1500; ++i) {
        ledger_entry_t e = entry_of(A);
        random_hex(e.stamp, LEDGER_STAMP / 2);
        put(&e);
    }
    do {
        page_t page = scan(cursor);
        shown += page.count;
        cursor = page.next;
        ++pages;
    } while (cursor != 0);
    assert_true(shown >= 1500 && pages > 3);
}

static void note_instances(void *data, const bool *alive, size_t count)
{
    page_t *out = data;
    ++out->calls;
    out->count = count;
    out->is_read = alive != NULL && alive[0] && !alive[1];
}

static void instances_live_as_long_as_their_lease(void **state)
{
    const char ids[2][LEDGER_INSTANCE + 1] = {A, B};
    page_t page = {.calls = 0};
    noted_t left = {.calls = 0};
    (void)state;
    ledger_beat(ledger, A);
    ledger_instances(ledger, ids, 2, note_instances, &page);
    await_calls(&page.calls);
    assert_true(page.is_read);
    ledger_leave(ledger, A, note, &left);
    await_calls(&left.calls);
    assert_int_equal(direct_int("EXISTS plimsoll:2:{test}:instance:" A), 0);
}

static char identity[LEDGER_STAMP + 1];
static unsigned identity_calls;

static void note_identity(void *data, const char *text)
{
    (void)data;
    ++identity_calls;
    snprintf(identity, sizeof(identity), "%s", text != NULL ? text : "");
}

static const char *identity_now(const char *known)
{
    identity_calls = 0;
    ledger_identity(ledger, known, note_identity, NULL);
    await_calls(&identity_calls);
    return identity;
}

static void the_identity_is_made_once(void **state)
{
    char first[LEDGER_STAMP + 1];
    (void)state;
    snprintf(first, sizeof(first), "%s", identity_now(""));
    assert_true(ledger_is_stamp(first));
    assert_string_equal(identity_now(""), first);
    direct_do("FLUSHALL");
    assert_string_equal(identity_now(first), first); /* put back into a Redis that lost it */
    direct_do("SET plimsoll:2:{test}:stamp short");
    assert_string_equal(identity_now(""), "");
}

/* --- what the janitor takes over --- */

static void a_dead_instances_entry_is_due_where_it_can_be_reached(void **state)
{
    ledger_entry_t e = {.host = "here.1", .place = "E", .created_ms = 1000000, .deadline_ms = 1060000};
    janitor_view_t view = {
        .host = "here.1", .place = "E", .is_local = true, .is_lease_over = true, .now_ms = 1010000, .settle_ms = 5000};
    (void)state;
    assert_true(janitor_is_due(&e, &view));
    view.is_lease_over = false;
    assert_false(janitor_is_due(&e, &view));
    view.is_surely_dead = true;
    assert_true(janitor_is_due(&e, &view));
    /* its creation may be under way still */
    view.now_ms = 1004999;
    assert_false(janitor_is_due(&e, &view));
    view.now_ms = 1005000;
    assert_true(janitor_is_due(&e, &view));
    /* a clock that was set back by a day had its sandbox left for a day */
    view.now_ms = 995000;
    assert_false(janitor_is_due(&e, &view));
    view.now_ms = 994999;
    assert_true(janitor_is_due(&e, &view));
    view.now_ms = 1000000 - 24 * 3600 * 1000;
    assert_true(janitor_is_due(&e, &view));
    view.now_ms = 1005000;
    /* another Engine's, or it is not known yet which one answers */
    view.place = "F";
    assert_false(janitor_is_due(&e, &view));
    view.place = "";
    assert_false(janitor_is_due(&e, &view));
    view.place = "E";
    assert_true(janitor_is_due(&e, &view));
    /* another machine's */
    view.host = "there.1";
    assert_false(janitor_is_due(&e, &view));
    view.is_local = false;
    assert_true(janitor_is_due(&e, &view));
}

/* After a boot the machine has another name, and the Engine the same containers. */
static void what_a_boot_left_is_anybodys_of_that_engine_some_time_after_its_deadline(void **state)
{
    ledger_entry_t e = {.host = "before.1", .place = "E", .created_ms = 1000000, .deadline_ms = 1060000};
    janitor_view_t view = {.host = "after.1", .place = "E", .is_local = true, .is_lease_over = true};
    (void)state;
    view.now_ms = 1060000 + JANITOR_EXPIRED_MARGIN_MS;
    assert_false(janitor_is_due(&e, &view));
    ++view.now_ms;
    assert_true(janitor_is_due(&e, &view));
    view.place = "F";
    assert_false(janitor_is_due(&e, &view));
    e.place[0] = '\0';
    view.place = "";
    assert_false(janitor_is_due(&e, &view));
    view.host = "";
    e.host[0] = '\0';
    assert_false(janitor_is_due(&e, &view)); /* two that do not know where they are are not in one place */
}

static void removals_are_tried_again_ever_later(void **state)
{
    (void)state;
    assert_int_equal(removal_pause_ms(0), 1000);
    assert_int_equal(removal_pause_ms(1), 1000);
    assert_int_equal(removal_pause_ms(2), 2000);
    assert_int_equal(removal_pause_ms(6), 32000);
    assert_int_equal(removal_pause_ms(7), 60000);
    assert_int_equal(removal_pause_ms(UINT32_MAX), 60000);
    for (int i = 0; i < 1000; ++i) {
        uint32_t ms = role_ledger_jitter(1000);
        assert_true(ms >= 500 && ms <= 1000);
    }
}

static int begin(void **state)
{
    int status = fixture_setup(state);
    ledger = ledger_create(fx.loop, &fx.address, "test", NULL, NULL);
    turn_until(ledger_up);
    return status;
}

static int end(void **state)
{
    ledger_destroy(ledger);
    return fixture_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_entry_reads_back_as_it_was_written),
        cmocka_unit_test(the_longest_entry_fits),
        cmocka_unit_test(a_dash_is_told_from_nothing),
        cmocka_unit_test(what_is_not_an_entry_is_none),
        cmocka_unit_test(a_word_is_taken_at_its_limit),
        cmocka_unit_test(what_a_provider_says_is_cut_and_scrubbed),
        cmocka_unit_test_setup(an_entry_is_made_named_and_removed, each),
        cmocka_unit_test_setup(condemned_is_for_ever, each),
        cmocka_unit_test_setup(an_entry_is_adopted_when_its_instance_is_dead_and_once, each),
        cmocka_unit_test_setup(a_death_that_is_sure_need_not_wait_for_the_lease, each),
        cmocka_unit_test_setup(data_that_redis_lost_is_written_again, each),
        cmocka_unit_test_setup(a_corrupt_value_is_left_as_it_is, each),
        cmocka_unit_test_setup(a_full_ledger_takes_no_further_sandbox, each),
        cmocka_unit_test_setup(a_look_shows_entries_and_counts_what_is_none, each),
        cmocka_unit_test_setup(every_entry_of_a_large_ledger_is_shown, each),
        cmocka_unit_test_setup(instances_live_as_long_as_their_lease, each),
        cmocka_unit_test_setup(the_identity_is_made_once, each),
        cmocka_unit_test(a_dead_instances_entry_is_due_where_it_can_be_reached),
        cmocka_unit_test(what_a_boot_left_is_anybodys_of_that_engine_some_time_after_its_deadline),
        cmocka_unit_test(removals_are_tried_again_ever_later),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
