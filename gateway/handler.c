#include "gateway/handler.h"

#include <string.h>

#include "core/mem.h"
#include "gateway/answer.h"
#include "gateway/by_key.h"
#include "gateway/connect.h"
#include "gateway/describe.h"
#include "gateway/front_spool.h"
#include "gateway/log_page.h"
#include "gateway/metrics.h"
#include "gateway/run.h"
#include "gateway/runs_page.h"
#include "gateway/usage_page.h"
#include "gateway/validate.h"

static void on_dispose(void *data)
{
    gate_request_done(*(gate_t **)data);
}

static void answer_health(h2o_req_t *req, gate_t *gate)
{
    if (gate->intake.route.kind == ROUTE_HEALTHZ)
        answer_text(req, 200, "text/plain; charset=utf-8", "ok\n");
    else if (front_is_ready(gate->lane))
        answer_text(req, 200, "text/plain; charset=utf-8", "ready\n");
    else
        answer_text(req, 503, "text/plain; charset=utf-8", "not ready\n");
}

static void answer_metrics(h2o_req_t *req, const front_t *front)
{
    enum { METRICS_MAX = 1024 * 1024 };
    buffer_t text;
    buffer_init(&text, METRICS_MAX);
    front_spool_measure(front);
    metrics_print(&text);
    answer_send(req, 200, "text/plain; version=0.0.4", &text);
}

/* Sessions: decoded and checked as far as a server without them checks, then refused. */
static void answer_session(h2o_req_t *req, gate_t *gate, const char *body, size_t len)
{
    static const ProtobufCMessageDescriptor *const descriptors[] = {
        [ROUTE_OPEN_SESSION] = &plimsoll__v1__open_session_request__descriptor,
        [ROUTE_SESSION_RUN] = &plimsoll__v1__session_run_request__descriptor,
        [ROUTE_CLOSE_SESSION] = &plimsoll__v1__close_session_request__descriptor,
    };
    refusal_t refusal;
    route_kind_t kind = gate->intake.route.kind;
    ProtobufCMessage *m = connect_decode(gate->lane, &gate->intake, descriptors[kind], body, len, &refusal);
    intake_release_slot(gate->lane, &gate->intake);
    if (m != NULL) {
        if (kind == ROUTE_OPEN_SESSION)
            validate_open_session((Plimsoll__V1__OpenSessionRequest *)m, &refusal);
        else if (kind == ROUTE_SESSION_RUN)
            validate_session_run((Plimsoll__V1__SessionRunRequest *)m, &refusal);
        else
            validate_close_session((Plimsoll__V1__CloseSessionRequest *)m, &refusal);
        protobuf_c_message_free_unpacked(m, NULL);
    }
    answer_refusal(req, &refusal);
}

static int on_req(h2o_handler_t *self, h2o_req_t *req)
{
    (void)self;
    gate_t *gate = gate_of(req);
    gate_t **done = h2o_mem_alloc_shared(&req->pool, sizeof(*done), on_dispose);
    *done = gate;
    if (gate->refusal != NULL) {
        answer_refusal(req, gate->refusal);
        return 0;
    }
    const char *body = req->entity.base;
    size_t len = req->entity.base != NULL ? req->entity.len : 0;
    switch (gate->intake.route.kind) {
    case ROUTE_HEALTHZ:
    case ROUTE_READYZ:
        answer_health(req, gate);
        break;
    case ROUTE_METRICS:
        answer_metrics(req, gate->lane->front);
        break;
    case ROUTE_DESCRIBE:
        describe_answer(req, gate, body, len);
        break;
    case ROUTE_RUN:
        run_start(req, gate, body, len);
        break;
    case ROUTE_OPEN_SESSION:
    case ROUTE_SESSION_RUN:
    case ROUTE_CLOSE_SESSION:
        answer_session(req, gate, body, len);
        break;
    case ROUTE_BACKENDS:
        backends_answer(req, gate);
        break;
    case ROUTE_LOG_HEAD:
    case ROUTE_LOG_INCLUSION:
    case ROUTE_LOG_CONSISTENCY:
        log_answer(req, gate);
        break;
    case ROUTE_RUNS:
    case ROUTE_RUN_RECORD:
        runs_answer(req, gate);
        break;
    case ROUTE_RUN_BY_KEY:
        by_key_answer(req, gate);
        break;
    case ROUTE_USAGE:
        usage_answer(req, gate);
        break;
    case ROUTE_NONE:
    case ROUTE_UNKNOWN_PROCEDURE:
        mem_fatal("a route that the intake refuses reached the handler");
    }
    return 0;
}

void handler_register(front_t *front)
{
    h2o_config_init(&front->h2o);
    h2o_hostconf_t *host = h2o_config_register_host(&front->h2o, h2o_iovec_init(H2O_STRLIT("default")), 65535);
    h2o_pathconf_t *path = h2o_config_register_path(host, "/", 0);
    h2o_handler_t *handler = h2o_create_handler(path, sizeof(*handler));
    handler->on_req = on_req;
    front->h2o.server_name = h2o_iovec_init(NULL, 0);
    front->h2o.http1.upgrade_to_http2 = 0;
    /* time is the gate's: libh2o's own timeout runs on the wall clock and would count the run as reading */
    front->h2o.http1.req_timeout = (uint64_t)24 * 3600 * 1000;
    front->h2o.max_request_entity_size = BODY_MAX + 1;
    /* the gate bounds what is read; nothing is ever to be put into a temporary file */
    h2o_socket_buffer_mmap_settings.threshold = SIZE_MAX;
}
