/*
 * A wall that bills, for tests: its provider is a folder, PLIMSOLL_STANDINPAID_DIR, with a file for each sandbox that
 * exists. Nothing of it is in the role, so what the role's death leaves is seen from outside. The file is named by the
 * stamp and holds one line: installation, ID, creation (wall ms), visible from (wall ms), how deleting it goes, how
 * often it has gone that way.
 *
 * Acts, as lines "standin: paid VERB ..." before the others (standin.c):
 *   - create fail: refused, certainly nothing was made
 *   - create lost: made, and the answer never comes: the run fails, and may have run
 *   - create late MS: the same, and for so long nothing shows it
 *   - create slow MS: answered that much later
 *   - delete fail N | lie N | hang N: the first N deletions answer an error, answer "gone" without doing it, or answer
 *     nothing
 *   - delete rude: answers an error, and does it
 * PLIMSOLL_STANDINPAID holds words as PLIMSOLL_STANDIN1 does, and unseen=MS (how long after its create a sandbox may
 * still show up; 5000), attempt=MS (how long a deletion waits for its answer; 1000).
 * Fault points: paid.create (before anything is sent), paid.created (made, not yet told), paid.delete, paid.deleted.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/co.h"
#include "core/fault.h"
#include "core/mem.h"
#include "loadtest/standin/standin.h"

enum {
    PAID_MAGIC = 0x70616964,
    LINE_BYTES = 512,
    PATH_BYTES = 4096 + 64,
    WORD_BYTES = 16,
    ID_BYTES = 32,
    LIFE_MARGIN_MS = 60 * 1000,
    UNSEEN_DEFAULT_MS = 5000,
    ATTEMPT_DEFAULT_MS = 1000,
};

typedef struct {
    unsigned magic;
    void *inner; /* plays the runs */
    const backend_host_t *host;
    const char *dir;
    char problem[BACKEND_TEXT_MAX];
} paid_t;

/* One sandbox as the provider has it. */
typedef struct {
    char installation[LEDGER_STAMP + 1], id[ID_BYTES + 1], deletion[WORD_BYTES + 1];
    long long created_ms, visible_ms;
    int left; /* deletions that still go that way */
} sandbox_t;

/* What a run's lines ask for. */
typedef struct {
    char create[WORD_BYTES + 1], deletion[WORD_BYTES + 1];
    int create_ms, deletions;
} acts_t;

static uint32_t attempt_ms = ATTEMPT_DEFAULT_MS;
static backend_sandboxes_t sandboxes;

static paid_t *check(void *self)
{
    paid_t *paid = self;
    if (paid->magic != PAID_MAGIC)
        mem_fatal("not the stand-in that bills");
    return paid;
}

/* --- the provider --- */

static void path_of(const paid_t *paid, const char *stamp, const char *suffix, char out[PATH_BYTES])
{
    snprintf(out, PATH_BYTES, "%s/%s%s", paid->dir, stamp, suffix);
}

static bool sandbox_read(const paid_t *paid, const char *stamp, sandbox_t *out)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    path_of(paid, stamp, "", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, line, sizeof(line) - 1);
    close(fd);
    line[n > 0 ? n : 0] = '\0';
    return sscanf(line, "%32s %32s %lld %lld %16s %d", out->installation, out->id, &out->created_ms, &out->visible_ms,
                  out->deletion, &out->left) == 6;
}

static void sandbox_write(const paid_t *paid, const char *stamp, const sandbox_t *sandbox)
{
    char part[PATH_BYTES], path[PATH_BYTES], line[LINE_BYTES];
    path_of(paid, stamp, ".part", part);
    path_of(paid, stamp, "", path);
    int len = snprintf(line, sizeof(line), "%s %s %lld %lld %s %d\n", sandbox->installation, sandbox->id,
                       sandbox->created_ms, sandbox->visible_ms, sandbox->deletion, sandbox->left);
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, line, (size_t)len) != len || close(fd) != 0 || rename(part, path) != 0)
        mem_fatal("PLIMSOLL_STANDINPAID_DIR cannot be written");
}

static bool is_visible(const sandbox_t *sandbox)
{
    return clock_wall_ms() >= sandbox->visible_ms;
}

/* GET by ID or stamp. */
static bool provider_has(const paid_t *paid, const char *stamp, sandbox_t *out)
{
    return sandbox_read(paid, stamp, out) && is_visible(out);
}

/* DELETE: true when the answer is "gone". */
static bool provider_delete(const paid_t *paid, const char *stamp, sandbox_t *sandbox)
{
    char path[PATH_BYTES];
    path_of(paid, stamp, "", path);
    if (strcmp(sandbox->deletion, "rude") == 0) {
        unlink(path);
        return false;
    }
    if (sandbox->left > 0) {
        --sandbox->left;
        sandbox_write(paid, stamp, sandbox);
        if (strcmp(sandbox->deletion, "hang") == 0)
            co_sleep(attempt_ms);
        return strcmp(sandbox->deletion, "lie") == 0;
    }
    unlink(path);
    return true;
}

/* --- what the janitor asks --- */

static sandbox_removal_t paid_remove(void *self, const ledger_entry_t *entry, char id[LEDGER_PROVIDER_ID_MAX + 1],
                                     char why[LEDGER_ERROR_MAX + 1])
{
    paid_t *paid = check(self);
    sandbox_t sandbox;
    if (!provider_has(paid, entry->stamp, &sandbox))
        return entry->id[0] != '\0' ? SANDBOX_GONE : SANDBOX_UNSEEN;
    snprintf(id, LEDGER_PROVIDER_ID_MAX + 1, "%s", sandbox.id);
    if (role_ledger_is_foreign(paid->host->ledger, sandbox.installation)) {
        snprintf(why, LEDGER_ERROR_MAX + 1, "another installation's");
        return SANDBOX_THERE;
    }
    if (fault_point("paid.delete")) {
        snprintf(why, LEDGER_ERROR_MAX + 1, "fault point");
        return SANDBOX_THERE;
    }
    bool is_told = provider_delete(paid, entry->stamp, &sandbox);
    fault_point("paid.deleted");
    if (!provider_has(paid, entry->stamp, &sandbox))
        return SANDBOX_GONE;
    snprintf(why, LEDGER_ERROR_MAX + 1, "%s",
             is_told ? "still there after its deletion" : "HTTP 500, key e2b_0123456789abcdef0123");
    return SANDBOX_THERE;
}

static bool paid_list(void *self, const char *installation, sandbox_seen_cb found, void *data,
                      char why[LEDGER_ERROR_MAX + 1])
{
    paid_t *paid = check(self);
    sandbox_seen_t seen = {.id = ""};
    sandbox_t sandbox;
    const struct dirent *file;
    DIR *dir = opendir(paid->dir);
    if (dir == NULL) {
        snprintf(why, LEDGER_ERROR_MAX + 1, "%s", strerror(errno));
        return false;
    }
    while ((file = readdir(dir)) != NULL) {
        if (!ledger_is_stamp(file->d_name) || !provider_has(paid, file->d_name, &sandbox) ||
            strcmp(sandbox.installation, installation) != 0)
            continue;
        snprintf(seen.stamp, sizeof(seen.stamp), "%s", file->d_name);
        snprintf(seen.id, sizeof(seen.id), "%s", sandbox.id);
        found(data, &seen);
    }
    closedir(dir);
    return true;
}

static backend_sandboxes_t sandboxes = {
    .unseen_ms = UNSEEN_DEFAULT_MS,
    .remove = paid_remove,
    .list = paid_list,
};

bool standin_paid_takes(const char *word)
{
    unsigned ms;
    if (sscanf(word, "unseen=%u", &ms) == 1)
        sandboxes.unseen_ms = ms;
    else if (sscanf(word, "attempt=%u", &ms) == 1)
        attempt_ms = ms;
    else
        return false;
    return true;
}

/* --- the wall --- */

static void *paid_setup(const backend_host_t *host)
{
    paid_t *paid = mem_alloc(sizeof(*paid));
    paid->magic = PAID_MAGIC;
    paid->host = host;
    paid->inner = standin_create(STANDINPAID_BACKEND.name, "standinpaid.prove", "standinpaid.prove.hang",
                                 OPT_PLIMSOLL_STANDINPAID, TIER_VM);
    paid->dir = option_str(OPT_PLIMSOLL_STANDINPAID_DIR);
    if (paid->dir == NULL)
        snprintf(paid->problem, sizeof(paid->problem), "PLIMSOLL_STANDINPAID_DIR is not set");
    return paid;
}

static const char *paid_problem(void *self)
{
    paid_t *paid = check(self);
    return paid->problem[0] != '\0' ? paid->problem : standin_problem(paid->inner);
}

static void paid_describe(void *self, backend_facts_t *facts)
{
    standin_describe(check(self)->inner, facts);
}

static bool paid_prove(void *self, backend_facts_t *facts, char failure[BACKEND_TEXT_MAX])
{
    paid_t *paid = check(self);
    if (paid->problem[0] != '\0') {
        snprintf(failure, BACKEND_TEXT_MAX, "%s", paid->problem);
        return false;
    }
    return standin_prove(paid->inner, facts, failure);
}

static void read_acts(const backend_run_t *run, acts_t *acts)
{
    const char *at = standin_code(run->request);
    *acts = (acts_t){.create = "-", .deletion = "-"};
    while (strncmp(at, STANDIN_PREFIX, strlen(STANDIN_PREFIX)) == 0) {
        at += strlen(STANDIN_PREFIX);
        if (sscanf(at, "paid create %16s %d", acts->create, &acts->create_ms) == 0)
            sscanf(at, "paid delete %16s %d", acts->deletion, &acts->deletions);
        at += strcspn(at, "\n");
        at += *at == '\n';
    }
}

static bool refuse(backend_run_t *run, const char *detail)
{
    run->retry_after_ms = 1000;
    backend_run_refuse(run, PLIMSOLL__BACKEND__REFUSAL__REFUSAL_CAPACITY, "no sandbox could be started", detail);
    return false;
}

/* POST: false when the run was answered. Whatever may have been made is the janitor's then. */
static bool paid_create(paid_t *paid, backend_run_t *run, const char *stamp, const acts_t *acts)
{
    role_ledger_t *ledger = paid->host->ledger;
    sandbox_t sandbox = {.created_ms = clock_wall_ms(), .left = acts->deletions};
    bool is_late = strcmp(acts->create, "late") == 0;

    if (fault_point("paid.create") || strcmp(acts->create, "fail") == 0) {
        role_ledger_void(ledger, stamp);
        return refuse(run, "HTTP 429");
    }
    snprintf(sandbox.installation, sizeof(sandbox.installation), "%s", role_ledger_installation(ledger));
    snprintf(sandbox.id, sizeof(sandbox.id), "sb-%.12s", stamp);
    snprintf(sandbox.deletion, sizeof(sandbox.deletion), "%s", acts->deletion);
    sandbox.visible_ms = sandbox.created_ms + (is_late ? acts->create_ms : 0);
    sandbox_write(paid, stamp, &sandbox);
    if (strcmp(acts->create, "slow") == 0)
        co_sleep((uint64_t)acts->create_ms);
    if (fault_point("paid.created") || is_late || strcmp(acts->create, "lost") == 0) {
        role_ledger_release(ledger, stamp);
        backend_run_fail(run, "unavailable", "the create was not answered", NULL);
        return false;
    }
    role_ledger_name(ledger, stamp, sandbox.id);
    return true;
}

static void paid_run(void *self, backend_run_t *run)
{
    paid_t *paid = check(self);
    role_ledger_t *ledger = paid->host->ledger;
    char stamp[LEDGER_STAMP + 1], why[LEDGER_ERROR_MAX + 1];
    role_ledger_ask_t ask = {.life_ms = (run->deadline_us - run->started_us) / 1000 + LIFE_MARGIN_MS,
                             .run = run->run_id,
                             .caller = run->caller,
                             .price_micro = run->price_micro_hour};
    acts_t acts;
    read_acts(run, &acts);
    if (!role_ledger_ask(ledger, &ask, stamp, why)) {
        refuse(run, why);
        return;
    }
    if (!paid_create(paid, run, stamp, &acts))
        return;
    standin_run(paid->inner, run);
    run->billable_ms = role_ledger_age_ms(ledger, stamp);
    if (run->outcome == RUN_DONE)
        role_ledger_report(ledger, stamp, run->billable_ms);
    role_ledger_release(ledger, stamp);
}

static void paid_stop(void *self)
{
    paid_t *paid = check(self);
    standin_stop(paid->inner);
    paid->magic = 0;
    free(paid);
}

const backend_ops_t STANDINPAID_BACKEND = {
    .name = "standinpaid",
    .billed = true,
    .sandboxes = &sandboxes,
    .setup = paid_setup,
    .check = paid_problem,
    .describe = paid_describe,
    .prove = paid_prove,
    .run = paid_run,
    .stop = paid_stop,
};
