/* The role's ledger with a wall that only says what it is told, over a real Redis: what is asked for, removed, taken
 * over and taken in, and what happens while Redis is away. */
#include "tests/unit/store_fixture.h"

#include "backends/meters.h"
#include "backends/role_ledger_internal.h"
#include "config/options.h"

#define HASH "plimsoll:2:{default}:ledger:standinpaid"
#define STAMP_KEY "plimsoll:2:{default}:stamp"
#define DEAD "dddddddddddddddd"
#define OURS "55555555555555555555555555555555"

/* --- a wall --- */

enum { WALL_LIST_MAX = JANITOR_LISTED_MAX + 1 };

static struct {
    unsigned removals, condemned, lists;
    sandbox_removal_t answer; /* to each removal */
    unsigned answers_left;    /* that many times; then SANDBOX_GONE */
    const char *found_id, *why;
    char last[LEDGER_STAMP + 1], last_id[LEDGER_PROVIDER_ID_MAX + 1];
    size_t listed; /* sandboxes of the listing: stamps of a counter */
    bool is_listing_whole, is_alive;
} wall;

static sandbox_removal_t wall_remove(void *self, const ledger_entry_t *entry, char id[LEDGER_PROVIDER_ID_MAX + 1],
                                     char why[LEDGER_ERROR_MAX + 1])
{
    assert_ptr_equal(self, &wall);
    ++wall.removals;
    memcpy(wall.last, entry->stamp, sizeof(wall.last));
    memcpy(wall.last_id, entry->id, sizeof(wall.last_id));
    if (wall.found_id != NULL)
        snprintf(id, LEDGER_PROVIDER_ID_MAX + 1, "%s", wall.found_id);
    if (wall.answers_left == 0)
        return SANDBOX_GONE;
    --wall.answers_left;
    snprintf(why, LEDGER_ERROR_MAX + 1, "%s", wall.why != NULL ? wall.why : "no");
    return wall.answer;
}

static void stamp_of(size_t i, char out[LEDGER_STAMP + 1])
{
    snprintf(out, LEDGER_STAMP + 1, "%032zx", i + 1);
}

static bool wall_list(void *self, const char *installation, sandbox_seen_cb found, void *data,
                      char why[LEDGER_ERROR_MAX + 1])
{
    (void)self;
    assert_true(ledger_is_stamp(installation));
    ++wall.lists;
    for (size_t i = 0; i < wall.listed; ++i) {
        sandbox_seen_t seen = {.id = "sb"};
        stamp_of(i, seen.stamp);
        found(data, &seen);
    }
    snprintf(why, LEDGER_ERROR_MAX + 1, "a page was missing");
    return wall.is_listing_whole;
}

static bool wall_is_alive(void *self, const char *instance)
{
    (void)self, (void)instance;
    return wall.is_alive;
}

static void wall_condemn(void *self, const ledger_entry_t *entry)
{
    (void)self;
    ++wall.condemned;
    memcpy(wall.last, entry->stamp, sizeof(wall.last));
}

static const backend_sandboxes_t BILLED = {.unseen_ms = 500, .settle_ms = 0, .remove = wall_remove, .list = wall_list};
static const backend_sandboxes_t LOCAL = {.is_local = true, .condemn = wall_condemn, .is_alive = wall_is_alive};

/* --- the role around it --- */

static role_ledger_t *ledger;
static bool is_over;

static bool ledger_up(void)
{
    return ledger->is_up;
}

static void open_ledger(const backend_sandboxes_t *sandboxes, bool is_billed, const char *down)
{
    problems_t problems = {0};
    char url[160], why[LEDGER_ERROR_MAX + 1];
    role_ledger_settings_t settings = {.backend = "standinpaid", .is_billed = is_billed, .sandboxes = sandboxes};
    snprintf(url, sizeof(url), "redis+unix://%s", fx.sock);
    setenv("PLIMSOLL_REDIS_URL", url, 1);
    setenv("PLIMSOLL_REDIS_DOWN", down, 1);
    options_load_role(ROLE_BACKEND | ROLE_LEDGER, &problems, NULL);
    assert_int_equal(problems.count, 0);
    random_hex(settings.instance, LEDGER_INSTANCE / 2);
    ledger = role_ledger_create(fx.loop, &settings, why);
    assert_non_null(ledger);
    role_ledger_begin(ledger, &wall);
}

static void ended(void *arg)
{
    (void)arg;
    is_over = true;
}

static bool over(void)
{
    return is_over;
}

static void in_coroutine(void (*fn)(void *), void *arg)
{
    is_over = false;
    co_start(fx.loop, fn, arg, ended);
    turn_until(over);
}

static void end_main(void *arg)
{
    (void)arg;
    role_ledger_end(ledger);
    role_ledger_leave(ledger);
}

static int each(void **state)
{
    (void)state;
    memset(&wall, 0, sizeof(wall));
    wall.is_listing_whole = true;
    direct_do("FLUSHALL");
    return 0;
}

static int close_each(void **state)
{
    (void)state;
    in_coroutine(end_main, NULL);
    role_ledger_destroy(ledger);
    ledger = NULL;
    return 0;
}

typedef struct {
    role_ledger_ask_t ask;
    bool is_granted;
    char stamp[LEDGER_STAMP + 1], why[LEDGER_ERROR_MAX + 1];
} asking_t;

static void ask_main(void *arg)
{
    asking_t *asking = arg;
    asking->is_granted = role_ledger_ask(ledger, &asking->ask, asking->stamp, asking->why);
}

static asking_t ask(bool is_trial)
{
    asking_t asking = {.ask = {.life_ms = 60000,
                               .run = "0123456789abcdef0123456789abcdef",
                               .caller = "team",
                               .price_micro = 7,
                               .is_trial = is_trial}};
    in_coroutine(ask_main, &asking);
    return asking;
}

static bool is_empty(void)
{
    return ledger->item_count == 0;
}

static ledger_entry_t stored(const char *stamp)
{
    ledger_entry_t e = {.created_ms = 0};
    redisReply *reply = direct("HGET " HASH " %s", stamp);
    if (reply->type == REDIS_REPLY_STRING)
        assert_true(ledger_entry_parse(reply->str, reply->len, &e));
    freeReplyObject(reply);
    return e;
}

static void store(const char *stamp, const char *instance, const char *host)
{
    char line[LEDGER_VALUE_MAX];
    ledger_entry_t e = {.state = LEDGER_NAMED, .created_ms = 1000, .deadline_ms = 2000, .id = "sb-left"};
    snprintf(e.instance, sizeof(e.instance), "%s", instance);
    snprintf(e.host, sizeof(e.host), "%s", host);
    ledger_entry_format(&e, line);
    direct_do("HSET " HASH " %s %s", stamp, line);
}

/* --- one sandbox --- */

static void it_stands_there_before_its_create_and_until_its_absence(void **state)
{
    (void)state;
    open_ledger(&BILLED, true, "refuse");
    turn_until(ledger_up);
    asking_t asking = ask(false);
    assert_true(asking.is_granted);
    ledger_entry_t e = stored(asking.stamp);
    assert_int_equal(e.state, LEDGER_ASKED);
    assert_string_equal(e.caller, "team");
    /* printf team | sha256sum */
    assert_string_equal(e.tag, "ca8b22d0db83a22db163b560b3e4e515");
    assert_int_equal(e.price_micro, 7);
    assert_true(e.is_billed && e.host[0] == '\0');
    role_ledger_name(ledger, asking.stamp, "sb-1");
    role_ledger_report(ledger, asking.stamp, 1234);
    turn_for(50);
    e = stored(asking.stamp);
    assert_true(e.state == LEDGER_NAMED && e.reported_ms == 1234);
    role_ledger_release(ledger, asking.stamp);
    turn_until(is_empty);
    assert_int_equal(wall.removals, 1);
    assert_string_equal(wall.last_id, "sb-1");
    assert_int_equal(direct_int("HLEN " HASH), 0);
}

static void what_is_not_confirmed_is_tried_again(void **state)
{
    (void)state;
    open_ledger(&BILLED, true, "refuse");
    asking_t asking = ask(false);
    wall.answer = SANDBOX_THERE;
    wall.answers_left = 1;
    wall.why = "key e2b_0123456789abcdef0123 is not known\n";
    uint64_t began = clock_mono_ms();
    role_ledger_name(ledger, asking.stamp, "sb-1");
    role_ledger_release(ledger, asking.stamp);
    turn_for(200);
    ledger_entry_t e = stored(asking.stamp);
    assert_true(e.state == LEDGER_CONDEMNED && e.tries == 1 && e.condemned_ms > 0);
    assert_string_equal(e.error, "key [...] is not known?");
    turn_until(is_empty);
    assert_int_equal(wall.removals, 2);
    assert_true(clock_mono_ms() - began >= JANITOR_RETRY_MIN_MS / 2);
}

/* A create that was not answered: looked for by the stamp until it cannot come any more. */
static void what_is_not_seen_is_gone_only_when_it_cannot_come(void **state)
{
    (void)state;
    open_ledger(&BILLED, true, "refuse");
    asking_t asking = ask(false);
    wall.answer = SANDBOX_UNSEEN;
    wall.answers_left = 1000;
    uint64_t began = clock_mono_ms();
    role_ledger_release(ledger, asking.stamp);
    turn_for(100);
    assert_int_equal(wall.removals, 1);
    assert_int_equal(direct_int("HLEN " HASH), 1);
    turn_until(is_empty); /* at the next look, which is past unseen_ms */
    assert_true(clock_mono_ms() - began >= BILLED.unseen_ms && wall.removals == 2);
}

static void an_id_found_by_the_stamp_is_kept(void **state)
{
    (void)state;
    open_ledger(&BILLED, true, "refuse");
    asking_t asking = ask(false);
    wall.answer = SANDBOX_THERE;
    wall.answers_left = 1;
    wall.found_id = "sb-found";
    role_ledger_release(ledger, asking.stamp);
    turn_until(is_empty);
    assert_int_equal(wall.removals, 2);
    assert_string_equal(wall.last_id, "sb-found");
}

static co_t *canceled;

static void cancel_soon(loop_timer_t *timer)
{
    (void)timer;
    co_cancel(canceled);
}

static void an_ask_that_is_canceled_leaves_no_entry(void **state)
{
    asking_t asking = {.ask = {.life_ms = 1000}};
    loop_timer_t timer;
    (void)state;
    open_ledger(&BILLED, true, "refuse");
    turn_until(ledger_up);
    kill(fx.pid, SIGSTOP);
    loop_timer_init(&timer, cancel_soon, NULL);
    is_over = false;
    canceled = co_start(fx.loop, ask_main, &asking, ended);
    loop_timer_start(fx.loop, &timer, 20);
    turn_until(over);
    kill(fx.pid, SIGCONT);
    assert_false(asking.is_granted);
    turn_until(is_empty);
    assert_int_equal(direct_int("HLEN " HASH), 0);
    assert_int_equal(wall.removals, 0);
}

/* --- Redis away --- */

static bool ledger_down(void)
{
    return !ledger->is_up;
}

static void without_redis_only_labels_can_stand_in(void **state)
{
    static const struct {
        const backend_sandboxes_t *sandboxes;
        bool is_billed;
        const char *down;
        bool run, trial;
    } cases[] = {
        {&BILLED, true, "refuse", false, false}, {&BILLED, true, "serve", false, false},
        {&LOCAL, true, "serve", false, false},   {&LOCAL, false, "refuse", false, true},
        {&LOCAL, false, "serve", true, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        open_ledger(cases[i].sandboxes, cases[i].is_billed, cases[i].down);
        turn_until(ledger_up);
        kill(fx.pid, SIGSTOP);
        turn_until(ledger_down);
        asking_t run = ask(false), trial = ask(true);
        assert_int_equal(run.is_granted, cases[i].run);
        assert_int_equal(trial.is_granted, cases[i].trial);
        if (!run.is_granted)
            assert_non_null(strstr(run.why, "Redis"));
        kill(fx.pid, SIGCONT);
        turn_until(ledger_up);
        turn_for(50);
        /* the entries of those that stand on labels follow */
        assert_int_equal(direct_int("HLEN " HASH), cases[i].run + cases[i].trial);
        for (size_t j = 0; j < 2; ++j)
            role_ledger_gone(ledger, j == 0 ? run.stamp : trial.stamp);
        turn_until(is_empty);
        close_each(NULL);
    }
    open_ledger(&LOCAL, false, "refuse"); /* for close_each */
}

static void a_removal_waits_for_redis(void **state)
{
    (void)state;
    open_ledger(&BILLED, true, "refuse");
    asking_t asking = ask(false);
    kill(fx.pid, SIGSTOP);
    turn_until(ledger_down);
    role_ledger_release(ledger, asking.stamp);
    turn_for(300);
    assert_int_equal(wall.removals, 1);
    assert_int_equal(ledger->item_count, 1);
    kill(fx.pid, SIGCONT);
    turn_until(is_empty);
    assert_int_equal(direct_int("HLEN " HASH), 0);
}

static const char *lost_stamp;

static bool is_back(void)
{
    return direct_int("HEXISTS " HASH " %s", lost_stamp) == 1;
}

static void what_redis_lost_is_written_again(void **state)
{
    char identity[LEDGER_STAMP + 1];
    (void)state;
    open_ledger(&BILLED, true, "refuse");
    asking_t asking = ask(false);
    role_ledger_name(ledger, asking.stamp, "sb-1");
    snprintf(identity, sizeof(identity), "%s", role_ledger_installation(ledger));
    turn_for(100);
    int64_t created_ms = stored(asking.stamp).created_ms;
    direct_do("FLUSHALL");
    lost_stamp = asking.stamp;
    janitor_look(ledger);
    turn_until(is_back);
    assert_string_equal(stored(asking.stamp).id, "sb-1");
    assert_true(llabs(stored(asking.stamp).created_ms - created_ms) < 50);
    while (direct_int("EXISTS " STAMP_KEY) == 0) /* with the next beat */
        turn_for(50);
    redisReply *reply = direct("GET " STAMP_KEY);
    assert_string_equal(reply->str, identity);
    freeReplyObject(reply);
    role_ledger_release(ledger, asking.stamp);
    turn_until(is_empty);
}

/* --- what others left --- */

static void a_dead_instances_sandbox_is_adopted_and_a_living_ones_is_not(void **state)
{
    char dead[LEDGER_STAMP + 1], living[LEDGER_STAMP + 1];
    (void)state;
    random_hex(dead, LEDGER_STAMP / 2);
    random_hex(living, LEDGER_STAMP / 2);
    store(dead, DEAD, "");
    store(living, "eeeeeeeeeeeeeeee", "");
    direct_do("SET plimsoll:2:{default}:instance:eeeeeeeeeeeeeeee 1");
    open_ledger(&BILLED, true, "refuse");
    turn_until(ledger_up);
    while (wall.removals == 0)
        turn_for(10);
    turn_until(is_empty);
    assert_string_equal(wall.last, dead);
    assert_string_equal(wall.last_id, "sb-left");
    assert_int_equal(direct_int("HEXISTS " HASH " %s", dead), 0);
    assert_int_equal(direct_int("HEXISTS " HASH " %s", living), 1);
    assert_int_equal(wall.removals, 1);
}

/* The lease has ended, and the socket says that it lives: it was only not heard. */
static void a_local_instance_that_answers_is_not_dead(void **state)
{
    char host[LEDGER_HOST_MAX + 1], stamp[LEDGER_STAMP + 1];
    (void)state;
    wall.is_alive = true;
    open_ledger(&LOCAL, false, "refuse");
    snprintf(host, sizeof(host), "%s", ledger->host);
    turn_until(ledger_up);
    turn_for(100);
    random_hex(stamp, LEDGER_STAMP / 2);
    store(stamp, DEAD, host);
    janitor_look(ledger);
    turn_for(300);
    assert_int_equal(wall.condemned, 0);
    wall.is_alive = false;
    direct_do("SET plimsoll:2:{default}:instance:" DEAD " 1"); /* and the socket that refuses is believed before it */
    janitor_look(ledger);
    turn_for(300);
    assert_int_equal(wall.condemned, 1);
    assert_string_equal(wall.last, stamp);
    assert_string_equal(stored(stamp).instance, ledger->settings.instance);
    role_ledger_gone(ledger, stamp);
    turn_until(is_empty);
}

static void what_an_operator_condemns_goes(void **state)
{
    (void)state;
    open_ledger(&BILLED, true, "refuse");
    asking_t asking = ask(false);
    role_ledger_name(ledger, asking.stamp, "sb-1");
    turn_for(50);
    redisReply *reply = direct("HGET " HASH " %s", asking.stamp);
    ledger_entry_t e;
    char line[LEDGER_VALUE_MAX];
    assert_true(ledger_entry_parse(reply->str, reply->len, &e));
    freeReplyObject(reply);
    e.state = LEDGER_CONDEMNED;
    e.condemned_ms = e.created_ms;
    ledger_entry_format(&e, line);
    direct_do("HSET " HASH " %s %s", asking.stamp, line);
    janitor_look(ledger);
    turn_until(is_empty);
    assert_int_equal(wall.removals, 1);
}

static void what_no_ledger_knows_is_taken_in(void **state)
{
    char stamp[LEDGER_STAMP + 1];
    (void)state;
    wall.listed = 3;
    stamp_of(1, stamp);
    store(stamp, "eeeeeeeeeeeeeeee", ""); /* somebody living has it */
    direct_do("SET plimsoll:2:{default}:instance:eeeeeeeeeeeeeeee 1");
    wall.is_listing_whole = false; /* what it does show is there all the same */
    open_ledger(&BILLED, true, "refuse");
    while (wall.removals < 2)
        turn_for(10);
    turn_until(is_empty);
    turn_for(100);
    assert_int_equal(wall.removals, 2);
    assert_int_equal(direct_int("HLEN " HASH), 1);
    assert_int_equal(meters_values()[METER_ADOPTED] >= 2, 1);
}

static void a_listing_is_looked_at_up_to_its_limit(void **state)
{
    (void)state;
    for (size_t n = JANITOR_LISTED_MAX - 1; n <= JANITOR_LISTED_MAX + 1; ++n) {
        size_t most = n < JANITOR_LISTED_MAX ? n : JANITOR_LISTED_MAX;
        each(NULL);
        wall.listed = n;
        open_ledger(&BILLED, true, "refuse");
        while (ledger->item_count == 0)
            turn_for(1);
        assert_int_equal(ledger->item_count, most);
        wall.listed = 0;
        turn_until(is_empty);
        if (n <= JANITOR_LISTED_MAX)
            close_each(NULL);
    }
}

static void so_many_sandboxes_and_no_more(void **state)
{
    (void)state;
    open_ledger(&LOCAL, false, "serve");
    turn_until(ledger_up);
    kill(fx.pid, SIGSTOP);
    turn_until(ledger_down);
    for (size_t i = 0; i < ROLE_LEDGER_ITEMS_MAX; ++i) {
        char stamp[LEDGER_STAMP + 1];
        if (i + 1 < ROLE_LEDGER_ITEMS_MAX) {
            stamp_of(i, stamp);
            assert_non_null(role_ledger_item(ledger, stamp));
        }
    }
    assert_int_equal(ledger->item_count, ROLE_LEDGER_ITEMS_MAX - 1);
    assert_true(ask(false).is_granted);
    asking_t more = ask(false);
    assert_false(more.is_granted);
    assert_non_null(strstr(more.why, "too many"));
    kill(fx.pid, SIGCONT);
    turn_until(ledger_up);
}

static void an_identity_tells_whose_it_is(void **state)
{
    (void)state;
    direct_do("SET " STAMP_KEY " " OURS);
    open_ledger(&LOCAL, false, "refuse");
    assert_string_equal(role_ledger_installation(ledger), "");
    assert_false(role_ledger_is_foreign(ledger, "66666666666666666666666666666666"));
    turn_until(ledger_up);
    assert_string_equal(role_ledger_installation(ledger), OURS);
    assert_true(role_ledger_is_foreign(ledger, "66666666666666666666666666666666"));
    assert_false(role_ledger_is_foreign(ledger, OURS));
    /* without a ledger nothing is asked of it */
    role_ledger_name(NULL, OURS, "x");
    role_ledger_release(NULL, OURS);
    role_ledger_gone(NULL, OURS);
    role_ledger_void(NULL, OURS);
    assert_string_equal(role_ledger_installation(NULL), "");
    /* one that this role never knew, as the reaper finds them */
    store(OURS, DEAD, "elsewhere.1");
    role_ledger_gone(ledger, OURS);
    turn_until(is_empty);
    assert_int_equal(direct_int("HLEN " HASH), 0);
    role_ledger_gone(ledger, "not-a-stamp");
    assert_true(is_empty());
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, each, close_each)
    const struct CMUnitTest tests[] = {
        TEST(it_stands_there_before_its_create_and_until_its_absence),
        TEST(what_is_not_confirmed_is_tried_again),
        TEST(what_is_not_seen_is_gone_only_when_it_cannot_come),
        TEST(an_id_found_by_the_stamp_is_kept),
        TEST(an_ask_that_is_canceled_leaves_no_entry),
        TEST(without_redis_only_labels_can_stand_in),
        TEST(a_removal_waits_for_redis),
        TEST(what_redis_lost_is_written_again),
        TEST(a_dead_instances_sandbox_is_adopted_and_a_living_ones_is_not),
        TEST(a_local_instance_that_answers_is_not_dead),
        TEST(what_an_operator_condemns_goes),
        TEST(what_no_ledger_knows_is_taken_in),
        TEST(a_listing_is_looked_at_up_to_its_limit),
        TEST(so_many_sandboxes_and_no_more),
        TEST(an_identity_tells_whose_it_is),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
