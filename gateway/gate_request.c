/* What a request has whichever way it is read: a peer, a refusal, a body within the budget. */
#include <sys/socket.h>

#include "core/mem.h"
#include "gateway/gate.h"

void gate_peer(gate_t *gate, struct sockaddr_storage *out)
{
    if (h2o_socket_getpeername(gate->sock, (void *)out) == 0)
        out->ss_family = AF_UNSPEC;
}

refusal_t *gate_refuse(gate_t *gate)
{
    return gate->refusal = mem_alloc(sizeof(refusal_t));
}

void gate_refuse_large_body(gate_t *gate)
{
    refusal_set_http(gate_refuse(gate), 0, CODE_RESOURCE_EXHAUSTED, "the body is larger than %d bytes", BODY_MAX);
}

bool gate_hold_body(gate_t *gate, size_t bytes)
{
    if (bytes > BODY_MAX) {
        gate_refuse_large_body(gate);
        return false;
    }
    while (gate->intake.reserved < bytes) {
        if (!intake_reserve(gate->lane, &gate->intake, CHUNKED_RESERVE_STEP)) {
            metric_inc(METRIC_SHED_BUFFER);
            refusal_t *r = gate_refuse(gate);
            refusal_set_early(
                r, CODE_RESOURCE_EXHAUSTED, MARK_CAPACITY,
                "the gateway holds as many request bytes as PLIMSOLL_BUFFER_MB allows; try again in a moment");
            r->retry_after_ms = 1000;
            return false;
        }
    }
    return true;
}
