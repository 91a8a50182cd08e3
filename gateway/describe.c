#include "gateway/describe.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "config/options.h"
#include "core/mem.h"
#include "gateway/answer.h"
#include "gateway/connect.h"
#include "gateway/link.h"
#include "gateway/placement.h"
#include "records/plimsoll.pb-c.h"

enum { DESCRIBE_MAX = 64 * 1024 };

/* One rendered answer for each backend and codec; good while the announcement and the tier by age are what they were.
 */
typedef struct {
    bool valid;
    uint64_t version;
    tier_t tier;
    buffer_t bytes;
} rendered_t;

struct describe_cache {
    rendered_t rendered[WALLS_MAX][2];
};

struct describe_cache *describe_cache_create(void)
{
    struct describe_cache *c = mem_alloc(sizeof(*c));
    for (size_t i = 0; i < WALLS_MAX; i++)
        for (int k = 0; k < 2; k++)
            buffer_init(&c->rendered[i][k].bytes, DESCRIBE_MAX);
    return c;
}

void describe_cache_destroy(struct describe_cache *c)
{
    for (size_t i = 0; i < WALLS_MAX; i++)
        for (int k = 0; k < 2; k++)
            buffer_dispose(&c->rendered[i][k].bytes);
    free(c);
}

static void environment(Plimsoll__V1__PayloadEnvironment *out, const Plimsoll__Backend__Kind *kind)
{
    plimsoll__v1__payload_environment__init(out);
    if (kind == NULL || !kind->supported)
        return;
    out->identity = kind->environment;
    out->software_identity = kind->software_identity;
    out->max_timeout_ms = kind->max_timeout_ms > RUN_CEILING_MS ? RUN_CEILING_MS : kind->max_timeout_ms;
    out->n_languages = kind->n_languages;
    out->languages = kind->languages;
}

static void render(lane_t *lane, size_t i, codec_t codec, rendered_t *out)
{
    const Plimsoll__Backend__Announce *a = link_announce(lane->links[i]);
    Plimsoll__V1__DescribeResponse r = PLIMSOLL__V1__DESCRIBE_RESPONSE__INIT;
    Plimsoll__V1__PayloadEnvironment javascript, project, module;
    Plimsoll__V1__RunResources resources = PLIMSOLL__V1__RUN_RESOURCES__INIT;
    environment(&javascript, a != NULL ? a->javascript : NULL);
    environment(&project, a != NULL ? a->project : NULL);
    environment(&module, a != NULL ? a->module : NULL);
    r.sandbox = (char *)lane->front->backend_names[i];
    r.isolation = (char *)tier_name(out->tier);
    r.protocol = PROTOCOL_NEWEST;
    r.javascript_environment = &javascript;
    r.project_environment = &project;
    r.module_environment = &module;
    r.resources = &resources;
    if (a != NULL) {
        r.supports_project = a->project->supported;
        r.supports_module = a->module->supported;
        resources.memory_mb = a->memory_mb;
        resources.cpus = a->cpus;
        resources.pids = a->pids;
        resources.disk_mb = a->disk_mb;
        r.policy = a->policy;
    }
    buffer_clear(&out->bytes);
    out->valid = connect_encode(codec, &r.base, &out->bytes);
}

void describe_answer(h2o_req_t *req, gate_t *gate, const char *body, size_t len)
{
    lane_t *lane = gate->lane;
    refusal_t refusal;
    ProtobufCMessage *request =
        connect_decode(lane, &gate->intake, &plimsoll__v1__describe_request__descriptor, body, len, &refusal);
    intake_release_slot(lane, &gate->intake);
    if (request == NULL) {
        answer_refusal(req, &refusal);
        return;
    }
    protobuf_c_message_free_unpacked(request, NULL);
    size_t i = placement_default(lane);
    for (size_t k = 0; gate->intake.route.pinned && k < lane->front->backend_count; k++)
        if (strcmp(gate->intake.route.backend, lane->front->backend_names[k]) == 0)
            i = k;
    codec_t codec = gate->intake.codec;
    rendered_t *cached = &lane->describe->rendered[i][codec];
    tier_t tier = placement_tier(lane, i);
    uint64_t version = link_version(lane->links[i]);
    if (!cached->valid || cached->version != version || cached->tier != tier) {
        cached->version = version;
        cached->tier = tier;
        render(lane, i, codec, cached);
    }
    answer_header_text(req, "Plimsoll-Backend", lane->front->backend_names[i]);
    answer_copy(req, 200, connect_media_type(codec), cached->bytes.base, cached->bytes.len);
}

static const char *state_name(const Plimsoll__Backend__Announce *a)
{
    if (a == NULL)
        return "absent";
    switch (a->state) {
    case PLIMSOLL__BACKEND__STATE__STATE_READY:
        return "ready";
    case PLIMSOLL__BACKEND__STATE__STATE_FAILED:
        return "failed";
    case PLIMSOLL__BACKEND__STATE__STATE_DRAINING:
        return "draining";
    default:
        return "starting";
    }
}

static void add_kind(json_t *kinds, const char *name, const Plimsoll__Backend__Kind *kind)
{
    if (!kind->supported)
        return;
    json_t *languages = json_array();
    for (size_t i = 0; i < kind->n_languages; i++)
        json_array_append_new(languages, json_string(kind->languages[i]));
    json_object_set_new(kinds, name,
                        json_pack("{s:i,s:i,s:s,s:s,s:o}", "max_timeout_ms", (int)kind->max_timeout_ms,
                                  "default_timeout_ms", (int)kind->default_timeout_ms, "environment", kind->environment,
                                  "software_identity", kind->software_identity, "languages", languages));
}

static json_t *backend_json(lane_t *lane, size_t i)
{
    const Plimsoll__Backend__Announce *a = link_announce(lane->links[i]);
    tier_t tier = placement_tier(lane, i);
    uint64_t age = link_evidence_age(lane->links[i]);
    json_t *kinds = json_object();
    json_t *limits = json_object();
    if (a != NULL) {
        add_kind(kinds, "javascript", a->javascript);
        add_kind(kinds, "project", a->project);
        add_kind(kinds, "module", a->module);
        json_object_set_new(limits, "memory_mb", json_integer(a->memory_mb));
        json_object_set_new(limits, "cpus", json_real(a->cpus));
        json_object_set_new(limits, "pids", json_integer(a->pids));
        json_object_set_new(limits, "disk_mb", json_integer(a->disk_mb));
        json_object_set_new(limits, "concurrent", json_integer(a->capacity));
    }
    return json_pack("{s:s,s:s,s:s,s:o,s:o,s:b,s:o,s:o}", "name", lane->front->backend_names[i], "state", state_name(a),
                     "isolation", tier_name(tier), "evidence",
                     a == NULL || tier == TIER_UNKNOWN ? json_null() : json_string(a->evidence), "evidence_age_ms",
                     age == UINT64_MAX ? json_null() : json_integer((json_int_t)age), "billed", a != NULL && a->billed,
                     "kinds", kinds, "limits", limits);
}

void backends_answer(h2o_req_t *req, gate_t *gate)
{
    lane_t *lane = gate->lane;
    json_t *list = json_array();
    for (size_t i = 0; i < lane->front->backend_count; i++)
        json_array_append_new(list, backend_json(lane, i));
    json_t *all =
        json_pack("{s:o,s:s}", "backends", list, "note",
                  "in the operator's order of preference; a tier is evidence of configuration and startup tests, "
                  "not attestation");
    char *text = json_dumps(all, JSON_COMPACT);
    json_decref(all);
    if (text == NULL)
        mem_fatal("out of memory");
    answer_text(req, 200, "application/json", text);
    free(text);
}
