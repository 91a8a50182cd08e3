/*
 * The wall in the ledger: how a sandbox ends, and how those are found whose ID was never told (1.7, 1.9, 1.10).
 *
 * Its stamps are on the sandbox. An ID is deleted only when a record has shown our stamps under it. That a sandbox is
 * not there is believed at once when it was ours and no deletion of it went wrong; else only when its time, or the
 * provider's own sweep of machines that lost their record, is over: a deletion that was answered with a 5xx may have
 * taken the record away and left the machine.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/e2b/e2b_internal.h"
#include "core/clock.h"
#include "core/mem.h"

enum {
    REMOVE_MS = JANITOR_ATTEMPT_MS - 1000,
    NEVER_MS = INT32_MAX,
    WORKERS = 64,
    PROVEN_MAX = 2 * ROLE_LEDGER_ITEMS_MAX,
};

/* --- those proven ours --- */

static const e2b_proven_t *proven_by_id(const e2b_t *e2b, const char *id)
{
    const e2b_proven_t *at = e2b->proven;
    while (at != NULL && strcmp(at->id, id) != 0)
        at = at->next;
    return at;
}

static bool is_proven(const e2b_t *e2b, const char *stamp, const char *id)
{
    const e2b_proven_t *proven = proven_by_id(e2b, id);
    return proven != NULL && strcmp(proven->stamp, stamp) == 0;
}

/* Those that another process deletes are never heard of again. */
static void forget_oldest(e2b_t *e2b)
{
    e2b_proven_t **at = &e2b->proven;
    while ((*at)->next != NULL)
        at = &(*at)->next;
    free(*at);
    *at = NULL;
    --e2b->proven_count;
}

void e2b_prove_ours(e2b_t *e2b, const char *stamp, const char *id)
{
    if (is_proven(e2b, stamp, id))
        return;
    if (e2b->proven_count == PROVEN_MAX)
        forget_oldest(e2b);
    ++e2b->proven_count;
    e2b_proven_t *proven = mem_alloc(sizeof(*proven));
    snprintf(proven->stamp, sizeof(proven->stamp), "%s", stamp);
    snprintf(proven->id, sizeof(proven->id), "%s", id);
    proven->next = e2b->proven;
    e2b->proven = proven;
}

static void forget(e2b_t *e2b, const char *stamp)
{
    for (e2b_proven_t **at = &e2b->proven; *at != NULL;) {
        e2b_proven_t *proven = *at;
        if (strcmp(proven->stamp, stamp) == 0) {
            *at = proven->next;
            free(proven);
            --e2b->proven_count;
        } else {
            at = &proven->next;
        }
    }
}

void e2b_forget_all(e2b_t *e2b)
{
    while (e2b->proven != NULL)
        forget(e2b, e2b->proven->stamp);
}

/* --- one removal --- */

typedef struct {
    e2b_t *e2b;
    const ledger_entry_t *entry;
    char id[E2B_ID_MAX + 1]; /* "" = not known */
    uint64_t deadline_us;
    uint64_t age_ms, life_ms;
    /* Its age when a deletion last went wrong in a way that may have left the machine without a record; 0 = none did.
     * Kept in the ledger's text of the last error, and so across the end of this process. */
    uint64_t doubt_ms;
    char why[E2B_TEXT_MAX];
} removal_t;

#define DOUBT "unconfirmed at "

static uint64_t doubt_of(const char *error)
{
    uint64_t seconds;
    return sscanf(error, DOUBT "%9" SCNu64 " s", &seconds) == 1 ? seconds * 1000 : 0;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* It is not seen: from when on it cannot be there any more. */
static sandbox_removal_t not_seen(const removal_t *removal)
{
    uint64_t end_ms = removal->doubt_ms != 0 ? later(removal->life_ms, removal->doubt_ms + E2B_SWEPT_MS)
                                             : E2B_COMING_MS + later(removal->life_ms, E2B_SWEPT_MS);
    return removal->age_ms >= cloud_unseen_ms(end_ms < UINT32_MAX ? (uint32_t)end_ms : UINT32_MAX) ? SANDBOX_GONE
                                                                                                   : SANDBOX_UNSEEN;
}

static sandbox_removal_t there(removal_t *removal, const cloud_trouble_t *trouble)
{
    bool is_doubtful = trouble->is_sent && (trouble->status == 0 || trouble->status >= 500);
    if (is_doubtful)
        removal->doubt_ms = later(removal->age_ms, 1000);
    snprintf(removal->why, sizeof(removal->why), "%s", trouble->detail[0] != '\0' ? trouble->detail : trouble->message);
    return SANDBOX_THERE;
}

static void on_found(void *data, const char *id, const char *stamp)
{
    removal_t *removal = data;
    (void)stamp; /* the one asked for */
    snprintf(removal->id, sizeof(removal->id), "%s", id);
}

/* True when it is to be deleted under removal->id; else `end`. */
static bool find(removal_t *removal, sandbox_removal_t *end)
{
    removal->id[0] = '\0';
    *end = SANDBOX_THERE;
    bool is_whole =
        e2b_list_all(removal->e2b, removal->entry->stamp, removal->deadline_us, on_found, removal, removal->why);
    if (removal->id[0] != '\0') {
        e2b_prove_ours(removal->e2b, removal->entry->stamp, removal->id);
        return true;
    }
    /* a listing that is not whole says nothing of what is not in it */
    if (is_whole)
        *end = not_seen(removal);
    return false;
}

/* The ID was told by an answer that nothing has borne out yet. */
static bool is_ours(removal_t *removal, sandbox_removal_t *end)
{
    char path[sizeof("/sandboxes/") + E2B_ID_MAX];
    cloud_answer_t answer;
    cloud_trouble_t trouble;
    e2b_expected_t expected = {.id = removal->id,
                               .installation = role_ledger_installation(removal->e2b->host->ledger),
                               .stamp = removal->entry->stamp};
    *end = SANDBOX_THERE;
    snprintf(path, sizeof(path), "/sandboxes/%s", removal->id);
    bool is_read = e2b_control(removal->e2b, "GET", path, NULL, CLOUD_READ, E2B_READ_MS, removal->deadline_us,
                               E2B_OBJECT_MAX, &answer, &trouble);
    bool is_found = is_read && e2b_detail_is_ours(answer.http.body.base, answer.http.body.len, &expected, removal->why);
    if (is_found)
        e2b_prove_ours(removal->e2b, removal->entry->stamp, removal->id);
    else if (!is_read && trouble.fault != CLOUD_MISSING)
        snprintf(removal->why, sizeof(removal->why), "%s",
                 trouble.detail[0] != '\0' ? trouble.detail : trouble.message);
    bool goes_on = is_found || (!is_read && trouble.fault != CLOUD_MISSING);
    cloud_answer_dispose(&answer);
    /* Nothing of ours under that ID: there may be one under another. */
    return goes_on ? is_found : find(removal, end);
}

/* 204, or a 404 that E2B itself says: a page of something in between says nothing of a sandbox. */
static bool is_told_gone(const http_response_t *http)
{
    e2b_error_t error;
    if (http->outcome != HTTP_DONE)
        return false;
    if (http->status == 204)
        return true;
    e2b_error_read(http->body.base, http->body.len, NULL, &error);
    return http->status == 404 && error.is_shaped;
}

static sandbox_removal_t end_one(removal_t *removal)
{
    char path[sizeof("/sandboxes/") + E2B_ID_MAX];
    cloud_answer_t answer;
    cloud_trouble_t trouble;
    sandbox_removal_t end = SANDBOX_GONE;
    snprintf(path, sizeof(path), "/sandboxes/%s", removal->id);
    bool is_success = e2b_control(removal->e2b, "DELETE", path, NULL, CLOUD_ONCE, E2B_DELETE_MS, removal->deadline_us,
                                  E2B_OBJECT_MAX, &answer, &trouble);
    if (!is_told_gone(&answer.http)) {
        end = SANDBOX_THERE;
        if (is_success)
            snprintf(removal->why, sizeof(removal->why), "HTTP %d to a deletion", answer.http.status);
        else
            end = there(removal, &trouble);
    } else if (removal->doubt_ms != 0) {
        end = not_seen(removal);
    }
    cloud_answer_dispose(&answer);
    return end;
}

static sandbox_removal_t remove_one(removal_t *removal)
{
    sandbox_removal_t end;
    /* After a doubtful deletion the record is gone, machine or not: only a listing can show it again. */
    if (removal->id[0] == '\0' || removal->doubt_ms != 0)
        return find(removal, &end) ? end_one(removal) : end;
    if (!is_proven(removal->e2b, removal->entry->stamp, removal->id) && !is_ours(removal, &end))
        return end;
    return end_one(removal);
}

static sandbox_removal_t sandbox_remove(void *self, const ledger_entry_t *entry, char id[LEDGER_PROVIDER_ID_MAX + 1],
                                        char why[LEDGER_ERROR_MAX + 1])
{
    e2b_t *e2b = e2b_check(self);
    removal_t removal = {
        .e2b = e2b,
        .entry = entry,
        .deadline_us = clock_mono_us() + (uint64_t)REMOVE_MS * 1000,
        .age_ms = role_ledger_age_ms(e2b->host->ledger, entry->stamp),
        .life_ms = entry->deadline_ms > entry->created_ms ? (uint64_t)(entry->deadline_ms - entry->created_ms) : 0,
        .doubt_ms = doubt_of(entry->error)};
    /* What the ledger holds goes into a path. */
    snprintf(removal.id, sizeof(removal.id), "%s", e2b_is_id(entry->id) ? entry->id : "");
    sandbox_removal_t end = remove_one(&removal);
    snprintf(id, LEDGER_PROVIDER_ID_MAX + 1, "%s", removal.id);
    if (removal.doubt_ms != 0)
        snprintf(why, LEDGER_ERROR_MAX + 1, DOUBT "%" PRIu64 " s: %.100s", removal.doubt_ms / 1000, removal.why);
    else
        snprintf(why, LEDGER_ERROR_MAX + 1, "%.150s", removal.why);
    if (end == SANDBOX_GONE)
        forget(e2b, entry->stamp);
    return end;
}

/* --- all of the installation's --- */

typedef struct {
    sandbox_seen_cb found;
    void *data;
} lister_t;

static void on_listed(void *data, const char *id, const char *stamp)
{
    const lister_t *lister = data;
    sandbox_seen_t seen;
    snprintf(seen.stamp, sizeof(seen.stamp), "%s", stamp);
    snprintf(seen.id, sizeof(seen.id), "%s", id);
    lister->found(lister->data, &seen);
}

static bool sandbox_list(void *self, const char *installation, sandbox_seen_cb found, void *data,
                         char why[LEDGER_ERROR_MAX + 1])
{
    e2b_t *e2b = e2b_check(self);
    lister_t lister = {.found = found, .data = data};
    char text[E2B_TEXT_MAX] = "";
    if (strcmp(installation, role_ledger_installation(e2b->host->ledger)) != 0) {
        snprintf(why, LEDGER_ERROR_MAX + 1, "the listing asked for is another installation's");
        return false;
    }
    bool is_whole =
        e2b_list_all(e2b, NULL, clock_mono_us() + (uint64_t)JANITOR_ATTEMPT_MS * 1000, on_listed, &lister, text);
    snprintf(why, LEDGER_ERROR_MAX + 1, "%.150s", text);
    return is_whole;
}

/* The bound for what is not seen is each sandbox's own: not_seen says so itself, also of one whose create a dead
 * process had just sent. */
const backend_sandboxes_t E2B_SANDBOXES = {
    .unseen_ms = NEVER_MS,
    .workers = WORKERS,
    .remove = sandbox_remove,
    .list = sandbox_list,
};
