/* HTTP answers: what every answer of a listener carries, and the ways to send one. One answer a request. */
#ifndef GATEWAY_ANSWER_H
#define GATEWAY_ANSWER_H

#include <h2o.h>

#include "core/buffer.h"
#include "gateway/gate.h"
#include "gateway/refusal.h"

/* Adds a header; the value is copied. Before the answer is sent. */
void answer_header(h2o_req_t *req, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void answer_header_text(h2o_req_t *req, const char *name, const char *value); /* copied too */
/* Sends; takes the buffer's memory (the buffer is empty afterwards). */
void answer_send(h2o_req_t *req, int status, const char *content_type, buffer_t *body);
/* Sends a copy of a few bytes, of a short text. */
void answer_copy(h2o_req_t *req, int status, const char *content_type, const void *bytes, size_t len);
void answer_text(h2o_req_t *req, int status, const char *content_type, const char *text);
void answer_refusal(h2o_req_t *req, const refusal_t *refusal);

#endif
