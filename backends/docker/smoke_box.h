/*
 * Private to the smoke test: one sandbox and one job in it. Every step that fails has said why in the test's failure,
 * with what it was about before it; the sandbox is disposed of whatever happened.
 */
#ifndef BACKENDS_DOCKER_SMOKE_BOX_H
#define BACKENDS_DOCKER_SMOKE_BOX_H

#include "backends/docker/smoke.h"

typedef struct {
    const smoke_want_t *want;
    bool *is_untried;
    char *failure; /* BACKEND_TEXT_MAX bytes */
} smoke_test_t;

typedef struct {
    const smoke_test_t *test;
    docker_kind_t kind;
    void *sandbox;
} smoke_box_t;

/* "the smoke test of the snippet image failed: " and the text. Always false. */
bool smoke_failed(const smoke_test_t *test, docker_kind_t kind, const char *why);

bool smoke_box_open(smoke_box_t *box, const smoke_test_t *test, docker_kind_t kind, const char *bind);
/* Until FINAL. False also when none came: then nothing was learnt. */
bool smoke_box_execute(smoke_box_t *box, const guest_job_t *job);
const guest_result_t *smoke_box_result(const smoke_box_t *box);
/* Harmless on one that did not open. False when it did not go (S16), unless `is_well` was false already. */
bool smoke_box_close(smoke_box_t *box, bool is_well);

#endif
