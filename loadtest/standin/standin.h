/* What the walls that run nothing share: standin.c plays a run's acts, paid.c puts a provider that bills before it. */
#ifndef STANDIN_STANDIN_H
#define STANDIN_STANDIN_H

#include <stdbool.h>

#include "backends/backend.h"
#include "config/options.h"

/* Before each act in a request's code. */
#define STANDIN_PREFIX "standin: "

void *standin_create(const char *name, const char *prove_point, const char *hang_point, option_id_t words, tier_t tier);
const char *standin_problem(void *self);
void standin_describe(void *self, backend_facts_t *facts);
bool standin_prove(void *self, backend_facts_t *facts, char failure[BACKEND_TEXT_MAX]);
void standin_run(void *self, backend_run_t *run);
void standin_stop(void *self);
/* Where a request's acts begin. */
const char *standin_code(const Plimsoll__V1__RunRequest *request);
/* Whether a word of the settings is paid.c's; it takes it. */
bool standin_paid_takes(const char *word);

#endif
