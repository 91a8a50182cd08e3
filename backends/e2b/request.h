/* The bodies and texts that go to E2B (1.3, 1.4, 1.9, 2.4, 2.5). Pure. */
#ifndef BACKENDS_E2B_REQUEST_H
#define BACKENDS_E2B_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/e2b/limits.h"
#include "core/buffer.h"

typedef enum { E2B_FLAVOUR_V2, E2B_FLAVOUR_V1 } e2b_flavour_t;

/* "/v2/sandboxes" or "/sandboxes". */
const char *e2b_create_path(e2b_flavour_t flavour);

typedef struct {
    e2b_flavour_t flavour;
    const char *template; /* letters, digits and - _ . / : alone */
    uint32_t life_s;
    const char *installation, *stamp, *kind; /* a-z 0-9 _ - alone */
} e2b_create_request_t;
/* Secured, without a network, killed and not paused at its end, stamped; without anything of this process'
 * environment. False when a text is none that may go into it. */
bool e2b_create_body(const e2b_create_request_t *request, buffer_t *out);

/* "/v2/sandboxes?..." for those with this stamp, or (NULL) with any of the installation; `cursor` NULL or "" for the
 * first page. False: too long. The service undoes the escapes of `metadata` three times, so only letters that need none
 * are in it. */
bool e2b_list_path(const char *installation, const char *stamp, const char *cursor, buffer_t *out);

/* How long the provider may keep a sandbox of these times (3.1), in whole seconds. */
uint32_t e2b_life_s(uint64_t stage_ms, uint64_t run_ms, uint64_t collect_ms);

typedef struct {
    const char *const *argv;
    size_t argc; /* at least 1 */
    const char *cwd;
} e2b_command_t;
/* The message of Start, without its envelope: no terminal, stdin at its end, no environment. */
bool e2b_start_body(const e2b_command_t *command, buffer_t *out);
/* Milliseconds for Connect-Timeout-Ms, rounded up and never 0. */
uint32_t e2b_timeout_ms(uint64_t left_us);

/* {"path":...} of Stat and MakeDir. */
bool e2b_path_body(const char *path, buffer_t *out);
/* "/files?path=...&username=user", escaped. */
bool e2b_file_path(const char *path, buffer_t *out);

#endif
