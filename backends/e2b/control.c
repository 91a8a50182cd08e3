/* The control plane: a sandbox is asked for, read back, and found again by its stamps (1.1 to 1.10). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/e2b/e2b_internal.h"
#include "config/version.h"
#include "core/clock.h"
#include "core/mem.h"
#include "core/random.h"

enum { CONTROL_PATH_MAX = 4 * 1024, CONTROL_BODY_MAX = 4 * 1024 };

bool e2b_control(e2b_t *e2b, const char *method, const char *path, const buffer_t *body, cloud_repeat_t repeat,
                 uint32_t limit_ms, uint64_t deadline_us, size_t response_max, cloud_answer_t *answer,
                 cloud_trouble_t *trouble)
{
    cloud_header_t key;
    buffer_t url;
    buffer_init(&url, BASE_URL_MAX + CONTROL_PATH_MAX);
    if (!buffer_append_str(&url, e2b->api) || !buffer_append_str(&url, path))
        mem_fatal("a path of the control plane is too long");
    cloud_header_make(&key, "X-API-Key: ", e2b->key);
    const char *headers[] = {key.line, "User-Agent: plimsoll/" PLIMSOLL_VERSION, "Content-Type: application/json"};
    cloud_request_t request = {
        .method = method,
        .url = (const char *)url.base,
        .headers = headers,
        .header_count = body != NULL ? 3 : 2,
        .body = body != NULL ? body->base : NULL,
        .body_len = body != NULL ? body->len : 0,
        .repeat = repeat,
        .limit_ms = limit_ms,
        .deadline_us = deadline_us,
        .response_max = response_max,
    };
    bool is_fine = cloud_call(e2b->http, &request, answer, trouble);
    cloud_header_wipe(&key);
    buffer_dispose(&url);
    return is_fine;
}

/* Another success than the promised one is none: something in between may say "accepted", or send a part. False, with
 * the trouble told. */
static bool is_promised(const cloud_answer_t *answer, int status, cloud_trouble_t *trouble)
{
    char text[CLOUD_TEXT_CALLER_MAX];
    if (answer->http.status == status)
        return true;
    snprintf(text, sizeof(text), "the backend answered %d where %d is promised", answer->http.status, status);
    return cloud_trouble(trouble, CLOUD_PROTOCOL, text, NULL);
}

/* --- create --- */

static void keep_token(e2b_box_t *own, const e2b_created_t *created)
{
    own->token = mem_strdup(created->token);
    own->version = created->version;
    own->transfer_left = E2B_TRANSFER_MAX;
}

static bool take_created(e2b_t *e2b, cloud_box_t *box, const http_response_t *http, cloud_trouble_t *trouble)
{
    char why[E2B_TEXT_MAX];
    e2b_created_rules_t rules = {
        .domain = e2b->domain, .more_domains = e2b->other_domains, .needs_label = e2b->sandboxes[0] == '\0'};
    e2b_created_t *created = mem_alloc(sizeof(*created)); /* 4 KiB: not for a coroutine's stack */
    e2b_created_end_t end = e2b_created_read(http->body.base, http->body.len, &rules, created, why);
    bool is_usable = false;

    /* A sandbox of another run's: whatever this answer is, it is not ours. */
    if (end != E2B_CREATED_UNREADABLE && cloud_box_is_known(box, created->id)) {
        end = E2B_CREATED_UNREADABLE;
        snprintf(why, sizeof(why), "the answer to the creation names a sandbox of another run");
    }
    if (end != E2B_CREATED_UNREADABLE && !cloud_box_name(box, created->id)) {
        end = E2B_CREATED_UNREADABLE;
        snprintf(why, sizeof(why), "the answer to the creation names no sandbox");
    }
    switch (end) {
    case E2B_CREATED_USABLE:
        keep_token(box->own, created);
        is_usable = true;
        break;
    case E2B_CREATED_FLAWED:
        cloud_trouble(trouble, CLOUD_PROTOCOL, "the backend's new sandbox cannot be used", why);
        break;
    case E2B_CREATED_UNREADABLE:
        cloud_trouble(trouble, CLOUD_UNKNOWN, "the backend's answer to the creation of a sandbox makes no sense", why);
        break;
    }
    explicit_bzero(created, sizeof(*created));
    free(created);
    return is_usable;
}

static uint32_t retry_after_of(const cloud_answer_t *answer)
{
    uint32_t ms = 0;
    const char *value = cloud_answer_header(answer, "retry-after");
    return value != NULL && cloud_retry_after(value, clock_wall_ms(), &ms) ? ms : 0;
}

/* What cloud_call made of it by its status, said more exactly; the detail it set stays. */
static void tell(cloud_trouble_t *trouble, cloud_fault_t fault, uint32_t retry_after_ms, const char *message)
{
    trouble->fault = fault;
    trouble->retry_after_ms = retry_after_ms;
    snprintf(trouble->message, sizeof(trouble->message), "%s", message);
}

/* One create was answered with something else than a success. */
static e2b_create_end_t judge(const cloud_answer_t *answer, cloud_trouble_t *trouble)
{
    uint32_t retry_ms = retry_after_of(answer);
    int status = answer->http.status;
    e2b_create_end_t end = e2b_create_judge(status, answer->http.body.base, answer->http.body.len, retry_ms);
    char text[CLOUD_TEXT_CALLER_MAX];
    switch (end) {
    case E2B_CREATE_ANSWERED:
        break;
    case E2B_CREATE_FULL:
        tell(trouble, CLOUD_BUSY, retry_ms > 0 ? retry_ms : CLOUD_BUSY_MS,
             "the backend's own limit of sandboxes at once is reached");
        break;
    case E2B_CREATE_THROTTLED:
        tell(trouble, CLOUD_BUSY, retry_ms, "the backend's own limit of requests is reached");
        break;
    case E2B_CREATE_DENIED:
        tell(trouble, CLOUD_DENIED, 0,
             status == 404 ? "the backend does not know what it was asked for"
                           : "the backend did not accept the gateway's request");
        break;
    case E2B_CREATE_UNKNOWN:
        snprintf(text, sizeof(text), "the backend answered %d to the creation of a sandbox", status);
        tell(trouble, CLOUD_UNKNOWN, 0, text);
        break;
    }
    return end;
}

/* Whether the next try may come: the pause that was asked for, cut, with a quarter of jitter. */
static bool pause_before_next(cloud_box_t *box, uint32_t retry_after_ms)
{
    uint32_t ms = retry_after_ms < E2B_RETRY_AFTER_MAX_MS ? retry_after_ms : E2B_RETRY_AFTER_MAX_MS;
    ms += random_below(ms / 4 + 1);
    return ms < cloud_left_ms(box->deadline_us) && cloud_sleep_ms(ms, box->deadline_us);
}

bool e2b_create(void *self, cloud_box_t *box, cloud_trouble_t *trouble)
{
    e2b_t *e2b = e2b_check(self);
    cloud_answer_t answer;
    buffer_t body;
    bool is_made = false, goes_on = true;
    e2b_create_request_t request = {.flavour = e2b->flavour,
                                    .template = e2b->template,
                                    .life_s = (uint32_t)((box->life_ms + 999) / 1000),
                                    .installation = cloud_box_installation(box),
                                    .stamp = box->stamp,
                                    .kind = box->kind};
    buffer_init(&body, CONTROL_BODY_MAX);
    if (!e2b_create_body(&request, &body))
        mem_fatal("a create that cannot be written");
    for (int tries = 1; goes_on; ++tries) {
        goes_on = false;
        if (e2b_control(e2b, "POST", e2b_create_path(e2b->flavour), &body, CLOUD_ONCE, E2B_CREATE_MS, box->deadline_us,
                        E2B_OBJECT_MAX, &answer, trouble)) {
            if (answer.http.status == 201)
                is_made = take_created(e2b, box, &answer.http, trouble);
            else
                judge(&answer, trouble);
        } else if (answer.http.outcome == HTTP_DONE) {
            goes_on = judge(&answer, trouble) == E2B_CREATE_THROTTLED && tries < E2B_CREATE_TRIES &&
                      pause_before_next(box, trouble->retry_after_ms);
        } else if (trouble->fault == CLOUD_BUSY) {
            /* a 429 whose body did not come: who said it, and of what, is not known */
            tell(trouble, CLOUD_UNKNOWN, 0, "the backend answered 429 to the creation of a sandbox");
        }
        cloud_answer_dispose(&answer);
    }
    buffer_dispose(&body);
    return is_made;
}

/* --- read back --- */

static bool is_new_enough(const e2b_box_t *own)
{
    return e2b_version_reaches(&own->version, 0, 5, 2);
}

bool e2b_read_back(void *self, cloud_box_t *box, cloud_trouble_t *trouble)
{
    e2b_t *e2b = e2b_check(self);
    char path[sizeof("/sandboxes/") + E2B_ID_MAX], why[E2B_TEXT_MAX];
    cloud_answer_t answer;
    e2b_size_t size;
    bool is_right = false;
    e2b_expected_t expected = {.id = box->id,
                               .installation = cloud_box_installation(box),
                               .stamp = box->stamp,
                               .cpus_max = e2b->cpus_max,
                               .memory_max_mb = e2b->memory_max_mb,
                               .disk_max_mb = e2b->disk_max_mb};
    snprintf(path, sizeof(path), "/sandboxes/%s", box->id);
    bool is_read = e2b_control(e2b, "GET", path, NULL, CLOUD_READ, E2B_READ_MS, box->deadline_us, E2B_OBJECT_MAX,
                               &answer, trouble) &&
                   is_promised(&answer, 200, trouble);
    if (is_read) {
        switch (e2b_detail_read(answer.http.body.base, answer.http.body.len, &expected, &size, why)) {
        case E2B_DETAIL_RIGHT:
            e2b_prove_ours(e2b, box->stamp, box->id);
            is_right = is_new_enough(box->own) ||
                       cloud_trouble(trouble, CLOUD_DIFFERS, "the backend's sandbox is not what was asked for",
                                     "the template's daemon (envd) is older than 0.5.2");
            break;
        case E2B_DETAIL_DIFFERS:
            cloud_trouble(trouble, CLOUD_DIFFERS, "the backend's sandbox is not what was asked for", why);
            break;
        case E2B_DETAIL_UNREADABLE:
            cloud_trouble(trouble, CLOUD_PROTOCOL, "the backend's record of the sandbox makes no sense", why);
            break;
        }
    } else if (trouble->fault == CLOUD_MISSING) {
        tell(trouble, CLOUD_LOST, 0, "the backend lost the sandbox");
    }
    if (is_right && box->run == NULL)
        e2b->size = size;
    cloud_answer_dispose(&answer);
    return is_right;
}

/* --- listing --- */

/* The next page's token; false when it is the one just used, or none that could be. */
static bool next_cursor(const cloud_answer_t *answer, char cursor[E2B_CURSOR_MAX + 1], char why[E2B_TEXT_MAX])
{
    const char *next = cloud_answer_header(answer, "x-next-token");
    if (next == NULL || next[0] == '\0') {
        cursor[0] = '\0';
        return true;
    }
    if (strlen(next) > E2B_CURSOR_MAX || strcmp(next, cursor) == 0) {
        snprintf(why, E2B_TEXT_MAX, "the listing's pages do not end");
        return false;
    }
    snprintf(cursor, E2B_CURSOR_MAX + 1, "%s", next);
    return true;
}

bool e2b_list_all(e2b_t *e2b, const char *stamp, uint64_t deadline_us, e2b_listed_cb found, void *data,
                  char why[E2B_TEXT_MAX])
{
    const char *installation = role_ledger_installation(e2b->host->ledger);
    char cursor[E2B_CURSOR_MAX + 1] = "";
    cloud_answer_t answer;
    cloud_trouble_t trouble;
    buffer_t path;
    bool is_whole = false, goes_on = true;

    buffer_init(&path, CONTROL_PATH_MAX);
    for (int page = 0; goes_on && page < E2B_PAGES_MAX; ++page) {
        buffer_clear(&path);
        if (!e2b_list_path(installation, stamp, cursor, &path)) {
            snprintf(why, E2B_TEXT_MAX, "there is no listing without the installation's identity");
            break;
        }
        goes_on = e2b_control(e2b, "GET", (const char *)path.base, NULL, CLOUD_READ, E2B_READ_MS, deadline_us,
                              E2B_PAGE_MAX, &answer, &trouble) &&
                  is_promised(&answer, 200, &trouble);
        if (!goes_on)
            snprintf(why, E2B_TEXT_MAX, "%s", trouble.detail[0] != '\0' ? trouble.detail : trouble.message);
        else
            goes_on =
                e2b_page_read(answer.http.body.base, answer.http.body.len, installation, stamp, found, data, why) &&
                next_cursor(&answer, cursor, why);
        cloud_answer_dispose(&answer);
        is_whole = goes_on && cursor[0] == '\0';
        goes_on = goes_on && !is_whole;
    }
    if (goes_on)
        snprintf(why, E2B_TEXT_MAX, "the listing has more than %d pages", E2B_PAGES_MAX);
    buffer_dispose(&path);
    return is_whole;
}

/* --- what costs nothing --- */

bool e2b_preflight(void *self, uint64_t deadline_us, cloud_trouble_t *trouble)
{
    e2b_t *e2b = e2b_check(self);
    cloud_answer_t answer;
    bool is_fine = e2b_control(e2b, "GET", "/v2/sandboxes?state=running&limit=1", NULL, CLOUD_READ, E2B_READ_MS,
                               deadline_us, E2B_PAGE_MAX, &answer, trouble) &&
                   is_promised(&answer, 200, trouble);
    if (!is_fine && trouble->fault == CLOUD_MISSING)
        tell(trouble, CLOUD_DENIED, 0, "the address is not that of E2B's API");
    cloud_answer_dispose(&answer);
    return is_fine;
}
