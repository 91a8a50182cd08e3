/*
 * What is asked of an OpenShell gateway and what its answers must say (spec backend-openshell 2 and 3.3): requests as
 * bytes, answers as verdicts. Pure; answers are hostile until they are compared.
 */
#ifndef BACKENDS_OPENSHELL_MESSAGES_H
#define BACKENDS_OPENSHELL_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/openshell/openshell.pb-c.h"
#include "backends/openshell/policy.h"
#include "core/buffer.h"
#include "records/ledger_entry.h"

enum {
    OPENSHELL_NAME = 18,          /* "plp-" and 14 hex digits; the gateway takes at most 19 */
    OPENSHELL_WORKSPACE_MAX = 63, /* as other names of the gateway's */
    OPENSHELL_IMAGE_MAX = 1024,
    OPENSHELL_ID_MAX = 128,
    OPENSHELL_WHY_MAX = 200,
    OPENSHELL_LABELS = 5,
    OPENSHELL_REQUEST_MAX = 64 * 1024, /* of every request but an exec's input */
    OPENSHELL_PAGE = 100,              /* sandboxes of one page of a listing */
    OPENSHELL_STDIN_MAX = 64 * 1024,   /* of one message of an exec */
};

/* SandboxPhase */
typedef enum {
    PHASE_UNSPECIFIED,
    PHASE_PROVISIONING,
    PHASE_READY,
    PHASE_ERROR,
    PHASE_DELETING,
    PHASE_UNKNOWN,
    PHASE_STOPPING,
    PHASE_STOPPED,
    PHASE_STARTING,
    PHASE_COMPLETED,
} phase_t;
/* "READY", ...; a literal. */
const char *phase_name(int phase);
/* Whether READY may still follow. */
bool phase_is_coming(int phase);

/* DeletionOutcome */
enum { DELETION_COMPLETED = 1, DELETION_ACCEPTED = 2, DELETION_ABSENT = 3 };

/* What a sandbox is asked for and read back with: of all sandboxes of one configuration. */
typedef struct {
    char workspace[OPENSHELL_WORKSPACE_MAX + 1];
    const char *image;
    buffer_t policy, resources, driver_config; /* encoded; driver_config is empty without a disk limit */
    char policy_hash[SHA256_HEX + 1];
} shape_t;

/* `cpus` is a decimal number; `disk_mb` 0 = no limit. Borrows the image's name. */
void shape_init(shape_t *shape, const char *workspace, const char *image, const char *cpus, uint32_t memory_mb,
                uint32_t disk_mb);
void shape_dispose(shape_t *shape);

/* One sandbox's own. */
typedef struct {
    const char *stamp, *installation, *instance;
    uint32_t lifetime_s; /* at least 1 */
} owner_t;

/* Its name, which its stamp determines. */
void openshell_name(const char *stamp, char name[OPENSHELL_NAME + 1]);

void message_create(const shape_t *shape, const owner_t *owner, buffer_t *out);
void message_get(const shape_t *shape, const char *name, buffer_t *out);
void message_config(const shape_t *shape, const char *name, buffer_t *out);
void message_delete(const shape_t *shape, const char *name, buffer_t *out);
/* Every sandbox of an installation, or of all of them (NULL); `token` of the page before, empty for the first. */
void message_list(const shape_t *shape, const char *installation, const uint8_t *token, size_t token_len,
                  buffer_t *out);
/* A command: argv and environment ("NAME", "value" pairs) end with NULL, and the environment may be NULL. The gateway
 * makes one line for a shell of it: no NUL, valid UTF-8, no newline in the environment and the directory. */
typedef struct {
    const char *const *argv, *const *env;
    const char *workdir; /* NULL: the image's */
} command_t;
/* The first message of an exec. */
void message_exec(const shape_t *shape, const char *name, const command_t *command, uint32_t timeout_s, buffer_t *out);
void message_stdin(const uint8_t *bytes, size_t len, buffer_t *out);

/* Answers. To be freed with protobuf_c_message_free_unpacked; NULL: it cannot be read. */
Plimsoll__Openshell__GatewayInfo *read_info(const buffer_t *bytes);
Plimsoll__Openshell__Sandbox *read_sandbox(const buffer_t *bytes); /* of a SandboxResponse; NULL without one */
Plimsoll__Openshell__Config *read_config(const buffer_t *bytes);
Plimsoll__Openshell__ListResponse *read_list(const buffer_t *bytes);
/* An outcome as above, 0 = unspecified, -1: it cannot be read. */
int read_deletion(const buffer_t *bytes);

bool bytes_are(ProtobufCBinaryData bytes, const char *text);
/* Bytes as a text of printable ASCII, cut; what is not becomes "?". */
const char *bytes_text(ProtobufCBinaryData bytes, char *out, size_t size);
/* The value of a label; NULL when it is not there or there twice. */
const ProtobufCBinaryData *label_of(const Plimsoll__Openshell__Sandbox *sandbox, const char *key);
/* The stamp a sandbox carries, when it carries one that its name follows from. */
bool stamp_of(const Plimsoll__Openshell__Sandbox *sandbox, char stamp[LEDGER_STAMP + 1]);
/* metadata.id, when it can stand in a ledger and a log: 1 to OPENSHELL_ID_MAX of [A-Za-z0-9._:-]. */
bool id_of(const Plimsoll__Openshell__Sandbox *sandbox, char id[OPENSHELL_ID_MAX + 1]);
int phase_of(const Plimsoll__Openshell__Sandbox *sandbox);
/* metadata.created_time in ms since 1970; false without one. */
bool created_of(const Plimsoll__Openshell__Sandbox *sandbox, int64_t *ms);
/* How far the gateway's clock is before ours, in ms: it dates a creation that we asked for and saw to be done then. */
int64_t clock_skew(int64_t created_ms, int64_t asked_ms, int64_t ready_ms);
/* Whether it is one of ours by its marks, of another installation than this one, and past its time by
 * OPENSHELL_STALE_MARGIN_MS at that time of the gateway's. */
bool sandbox_is_stale(const Plimsoll__Openshell__Sandbox *sandbox, const char *installation, int64_t gateway_ms);
/* Its conditions, for the log. */
void conditions_of(const Plimsoll__Openshell__Sandbox *sandbox, char *out, size_t size);

/* Whether the gateway is one this backend can stand behind: version 0.1.* (or `other`, when not NULL), one compute
 * driver, docker by both names, which limits memory and processors. False with the reason. */
bool info_holds(const Plimsoll__Openshell__GatewayInfo *info, const char *other, char why[OPENSHELL_WHY_MAX]);
/* Read back after READY and before any code: whether the sandbox is the one that was asked for. False with what
 * differs. */
bool sandbox_holds(const Plimsoll__Openshell__Sandbox *sandbox, const shape_t *shape, const owner_t *owner,
                   char why[OPENSHELL_WHY_MAX]);
bool config_holds(const Plimsoll__Openshell__Config *config, const shape_t *shape, char why[OPENSHELL_WHY_MAX]);

#endif
