/* What the parent settles on this machine before anything starts: settings, callers file, certificate, user, state
 * directory and its lock. */
#ifndef GATEWAY_GROUND_H
#define GATEWAY_GROUND_H

#include <stdbool.h>
#include <stddef.h>

#include "config/options.h"

typedef struct {
    char *callers_json; /* the callers file's text, checked; NULL without one */
    size_t callers_len;
    char *prices_json; /* the price file's, likewise */
    size_t prices_len;
    int uid, gid; /* of PLIMSOLL_USER; -1 when not started as root */
    int lock_fd;  /* held as long as the parent lives */
} ground_t;

/* Every local check; all problems are printed together. false: nothing may start. */
bool ground_check(ground_t *ground);
/* Reads and checks the callers file; the text is kept for the front. false: the old one stays. */
bool ground_load_callers(ground_t *ground, problems_t *problems);
/* The same of the price file. */
bool ground_load_prices(ground_t *ground, problems_t *problems);
/* Frees the texts. */
void ground_dispose(ground_t *ground);

#endif
