#include "config/options_budgets.h"

#include <inttypes.h>
#include <string.h>

#include "config/decimal.h"
#include "config/prices.h"
#include "config/quote.h"

static void check_cost(problems_t *problems, option_id_t id)
{
    const char *text = option_str(id);
    char quoted[QUOTE_BYTES];
    uint64_t micro;

    if (!decimal_parse(text, strlen(text), COST_PLACES, COST_MAX, &micro))
        problems_add(problems, "%s is %s: it takes a decimal number from 0 to 1000000000, with at most %d places",
                     OPTIONS[id].name, quote(quoted, text, strlen(text)), COST_PLACES);
    else if (micro != 0 && !option_is_set(OPT_PLIMSOLL_PRICES_FILE))
        problems_add(problems, "%s is set without PLIMSOLL_PRICES_FILE: without prices no cost is known",
                     OPTIONS[id].name);
}

static void check_whole_seconds(problems_t *problems, option_id_t id)
{
    if (option_int(id) % 1000 != 0)
        problems_add(problems, "%s is %" PRId64 "ms: it takes whole seconds", OPTIONS[id].name, option_int(id));
}

/* A caller's cap above the total of all callers could never be reached. */
static void check_below_total(problems_t *problems, option_id_t own, option_id_t total)
{
    if (option_int(own) > 0 && option_int(total) > 0 && option_int(own) > option_int(total))
        problems_add(problems, "%s is %" PRId64 ", above %s, which is %" PRId64, OPTIONS[own].name, option_int(own),
                     OPTIONS[total].name, option_int(total));
}

void options_budget_rules(problems_t *problems)
{
    check_cost(problems, OPT_PLIMSOLL_COST_PER_DAY);
    check_cost(problems, OPT_PLIMSOLL_TOTAL_COST_PER_DAY);
    check_whole_seconds(problems, OPT_PLIMSOLL_RUNS_WINDOW);
    check_whole_seconds(problems, OPT_PLIMSOLL_RUN_RETENTION);
    check_whole_seconds(problems, OPT_PLIMSOLL_ANSWER_RETENTION);
    check_below_total(problems, OPT_PLIMSOLL_RUNS_PER_WINDOW, OPT_PLIMSOLL_TOTAL_RUNS_PER_WINDOW);
    check_below_total(problems, OPT_PLIMSOLL_SECONDS_PER_DAY, OPT_PLIMSOLL_TOTAL_SECONDS_PER_DAY);
    if (option_int(OPT_PLIMSOLL_TOTAL_RATE_PER_MIN) == 0 && option_int(OPT_PLIMSOLL_TOTAL_RATE_BURST) > 0)
        problems_add(problems, "PLIMSOLL_TOTAL_RATE_BURST is set without PLIMSOLL_TOTAL_RATE_PER_MIN, which makes the "
                               "rate it is a burst of");
    if (option_int(OPT_PLIMSOLL_ANSWER_RETENTION) > option_int(OPT_PLIMSOLL_RUN_RETENTION))
        problems_add(problems, "PLIMSOLL_ANSWER_RETENTION is longer than PLIMSOLL_RUN_RETENTION: an answer would "
                               "outlive the run's record");
}
