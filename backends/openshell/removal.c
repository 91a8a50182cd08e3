/* Sandboxes at their end, and those that somebody left: what the ledger's janitor asks of this wall (spec 4.4). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/openshell/openshell_internal.h"
#include "core/clock.h"

static const call_t CALL_REMOVE = {.method = "DeleteSandbox",
                                   .kind = CALL_DELETE,
                                   .limit_ms = OPENSHELL_DELETE_MS,
                                   .answer_max = OPENSHELL_SANDBOX_MAX},
                    CALL_LIST = {.method = "ListSandboxes",
                                 .kind = CALL_READ,
                                 .limit_ms = OPENSHELL_READ_MS,
                                 .answer_max = GRPC_MESSAGE_MAX};

static void say(char why[LEDGER_ERROR_MAX + 1], const cloud_trouble_t *trouble)
{
    snprintf(why, LEDGER_ERROR_MAX + 1, "%s", trouble->detail[0] != '\0' ? trouble->detail : trouble->message);
}

/* --- what is there under the name --- */

typedef enum {
    SEEN_OURS,    /* the one of the entry */
    SEEN_NONE,    /* there is none */
    SEEN_OTHER,   /* the name is another's by now: ours is gone */
    SEEN_FOREIGN, /* another installation's: not to be touched */
    SEEN_UNKNOWN, /* the gateway did not say */
} seen_t;

static seen_t judge(const openshell_t *openshell, const ledger_entry_t *entry,
                    const Plimsoll__Openshell__Sandbox *sandbox, char id[LEDGER_PROVIDER_ID_MAX + 1])
{
    char stamp[LEDGER_STAMP + 1], found[OPENSHELL_ID_MAX + 1], installation[LEDGER_STAMP + 1];
    const ProtobufCBinaryData *label = label_of(sandbox, "plimsoll.installation");
    if (!id_of(sandbox, found))
        return SEEN_FOREIGN;
    if (entry->id[0] != '\0' && strcmp(entry->id, found) != 0)
        return SEEN_OTHER;
    if (!stamp_of(sandbox, stamp) || strcmp(stamp, entry->stamp) != 0 || label == NULL)
        return SEEN_FOREIGN;
    bytes_text(*label, installation, sizeof(installation));
    if (role_ledger_is_foreign(openshell->host->ledger, installation))
        return SEEN_FOREIGN;
    snprintf(id, LEDGER_PROVIDER_ID_MAX + 1, "%s", found);
    return SEEN_OURS;
}

static seen_t look(openshell_t *openshell, const ledger_entry_t *entry, const char *name, uint64_t until_us,
                   char id[LEDGER_PROVIDER_ID_MAX + 1], char why[LEDGER_ERROR_MAX + 1])
{
    cloud_trouble_t trouble = {.fault = CLOUD_FINE};
    Plimsoll__Openshell__Sandbox *sandbox = openshell_get(openshell, name, until_us, &trouble);
    if (sandbox == NULL) {
        say(why, &trouble);
        return trouble.fault == CLOUD_MISSING ? SEEN_NONE : SEEN_UNKNOWN;
    }
    seen_t seen = judge(openshell, entry, sandbox, id);
    if (seen == SEEN_FOREIGN)
        snprintf(why, LEDGER_ERROR_MAX + 1, "the sandbox of that name is another installation's");
    protobuf_c_message_free_unpacked(&sandbox->base, NULL);
    return seen;
}

/* --- one try --- */

bool openshell_delete(openshell_t *openshell, const char *name, uint64_t until_us, bool *is_over,
                      cloud_trouble_t *trouble)
{
    buffer_t request, answer;
    buffer_init(&request, OPENSHELL_REQUEST_MAX);
    buffer_init(&answer, CALL_REMOVE.answer_max);
    message_delete(&openshell->shape, name, &request);
    bool is_taken = openshell_call(openshell, &CALL_REMOVE, &request, until_us, &answer, trouble);
    int outcome = is_taken ? read_deletion(&answer) : 0;
    if (is_taken && outcome != DELETION_COMPLETED && outcome != DELETION_ACCEPTED && outcome != DELETION_ABSENT) {
        char detail[32];
        snprintf(detail, sizeof(detail), "DeleteSandbox: outcome %d", outcome);
        is_taken = cloud_trouble(trouble, CLOUD_UNKNOWN, "the OpenShell gateway did not say that it deletes", detail);
    }
    *is_over = outcome == DELETION_COMPLETED || outcome == DELETION_ABSENT;
    buffer_dispose(&request);
    buffer_dispose(&answer);
    return is_taken;
}

static sandbox_removal_t await_gone(openshell_t *openshell, const ledger_entry_t *entry, const char *name,
                                    uint64_t until_us, char id[LEDGER_PROVIDER_ID_MAX + 1],
                                    char why[LEDGER_ERROR_MAX + 1])
{
    for (;;) {
        seen_t seen = look(openshell, entry, name, until_us, id, why);
        if (seen == SEEN_NONE || seen == SEEN_OTHER)
            return SANDBOX_GONE;
        if (seen != SEEN_OURS)
            return SANDBOX_THERE;
        if (!cloud_sleep_ms(OPENSHELL_GONE_POLL_MS, until_us) || clock_mono_us() >= until_us) {
            snprintf(why, LEDGER_ERROR_MAX + 1, "still there after its deletion");
            return SANDBOX_THERE;
        }
    }
}

static sandbox_removal_t remove_one(void *self, const ledger_entry_t *entry, char id[LEDGER_PROVIDER_ID_MAX + 1],
                                    char why[LEDGER_ERROR_MAX + 1])
{
    openshell_t *openshell = openshell_check(self);
    cloud_trouble_t trouble = {.fault = CLOUD_FINE};
    char name[OPENSHELL_NAME + 1];
    uint64_t until_us = clock_mono_us() + JANITOR_ATTEMPT_MS * UINT64_C(1000);
    if (openshell->channel == NULL) {
        snprintf(why, LEDGER_ERROR_MAX + 1, "%s", openshell->wall.problem);
        return SANDBOX_THERE;
    }
    openshell_name(entry->stamp, name);
    switch (look(openshell, entry, name, until_us, id, why)) {
    case SEEN_NONE:
        if (entry->id[0] == '\0')
            return SANDBOX_UNSEEN;
        /* a single answer about one that was there is not believed: its deletion is asked for all the same */
        snprintf(id, LEDGER_PROVIDER_ID_MAX + 1, "%s", entry->id);
        break;
    case SEEN_OTHER:
        return SANDBOX_GONE;
    case SEEN_OURS:
        break;
    case SEEN_FOREIGN:
    case SEEN_UNKNOWN:
        return SANDBOX_THERE;
    }
    bool is_over;
    if (!openshell_delete(openshell, name, until_us, &is_over, &trouble)) {
        say(why, &trouble);
        return SANDBOX_THERE;
    }
    if (is_over)
        until_us = clock_mono_us() + OPENSHELL_OVER_MS * UINT64_C(1000);
    /* of one whose ID was just found, another of that name is not ours either */
    ledger_entry_t found = *entry;
    snprintf(found.id, sizeof(found.id), "%s", id);
    return await_gone(openshell, &found, name, until_us, id, why);
}

/* --- all of them --- */

typedef struct {
    const char *installation;
    openshell_seen_cb found;
    void *data;
} listing_t;

/* False when the listing ends here. `token` is the next page's. */
static bool list_page(openshell_t *openshell, const listing_t *listing, buffer_t *token, uint64_t until_us,
                      char why[LEDGER_ERROR_MAX + 1])
{
    cloud_trouble_t trouble = {.fault = CLOUD_FINE};
    buffer_t request, answer;
    buffer_init(&request, OPENSHELL_REQUEST_MAX);
    buffer_init(&answer, CALL_LIST.answer_max);
    message_list(&openshell->shape, listing->installation, token->base, token->len, &request);
    bool is_read = openshell_call(openshell, &CALL_LIST, &request, until_us, &answer, &trouble);
    Plimsoll__Openshell__ListResponse *page = is_read ? read_list(&answer) : NULL;
    if (!is_read)
        say(why, &trouble);
    else if (page == NULL)
        snprintf(why, LEDGER_ERROR_MAX + 1, "ListSandboxes: an answer that cannot be read");
    buffer_dispose(&request);
    buffer_dispose(&answer);
    if (page == NULL)
        return false;
    for (size_t i = 0; i < page->n_sandboxes; ++i)
        listing->found(listing->data, page->sandboxes[i]);
    buffer_clear(token);
    bool fits = buffer_append(token, page->next_page_token.data, page->next_page_token.len);
    protobuf_c_message_free_unpacked(&page->base, NULL);
    if (!fits)
        snprintf(why, LEDGER_ERROR_MAX + 1, "ListSandboxes: a page's token is too long");
    return fits;
}

bool openshell_walk(openshell_t *openshell, const char *installation, openshell_seen_cb found, void *data,
                    char why[LEDGER_ERROR_MAX + 1])
{
    enum { TOKEN_MAX = 4096 };
    listing_t listing = {.installation = installation, .found = found, .data = data};
    uint64_t until_us = clock_mono_us() + JANITOR_ATTEMPT_MS * UINT64_C(1000);
    buffer_t token;
    bool is_whole = false;
    if (openshell->channel == NULL) {
        snprintf(why, LEDGER_ERROR_MAX + 1, "%s", openshell->wall.problem);
        return false;
    }
    buffer_init(&token, TOKEN_MAX);
    for (int pages = 0; !is_whole && pages < OPENSHELL_PAGES_MAX; ++pages) {
        if (!list_page(openshell, &listing, &token, until_us, why))
            goto End;
        is_whole = token.len == 0;
    }
    if (!is_whole)
        snprintf(why, LEDGER_ERROR_MAX + 1, "ListSandboxes: more than %d pages", OPENSHELL_PAGES_MAX);
End:
    buffer_dispose(&token);
    return is_whole;
}

typedef struct {
    const char *installation;
    sandbox_seen_cb found;
    void *data;
} own_t;

static void on_own(void *data, const Plimsoll__Openshell__Sandbox *sandbox)
{
    const own_t *own = data;
    const ProtobufCBinaryData *label = label_of(sandbox, "plimsoll.installation");
    char id[OPENSHELL_ID_MAX + 1];
    sandbox_seen_t seen = {.id = ""};
    /* what the selector asked for is looked at here too */
    if (label == NULL || !bytes_are(*label, own->installation) || !stamp_of(sandbox, seen.stamp) || !id_of(sandbox, id))
        return;
    snprintf(seen.id, sizeof(seen.id), "%s", id);
    own->found(own->data, &seen);
}

static bool list_all(void *self, const char *installation, sandbox_seen_cb found, void *data,
                     char why[LEDGER_ERROR_MAX + 1])
{
    openshell_t *openshell = openshell_check(self);
    own_t own = {.installation = installation, .found = found, .data = data};
    if (!openshell_walk(openshell, installation, on_own, &own, why))
        return false;
    openshell_reap(openshell, installation);
    return true;
}

backend_sandboxes_t OPENSHELL_SANDBOXES = {
    .unseen_ms = OPENSHELL_UNSEEN_MS,
    .settle_ms = OPENSHELL_SETTLE_MS,
    .workers = OPENSHELL_WORKERS,
    .remove = remove_one,
    .list = list_all,
};
