/* How a run is told: verbatim for people, one JSON object for machines. */
#ifndef CLI_RUN_PRINT_H
#define CLI_RUN_PRINT_H

#include <stdbool.h>
#include <jansson.h>

#include "cli/run_call.h"

/* The guest's bytes and nothing else on stdout and stderr; false when they could not be written (errno). */
bool run_print_output(const run_answer_t *answer);
/* One line on stderr about an answered run. */
void run_print_summary(const run_answer_t *answer);
/* The object of --json, answered or not; a new reference. A project's own members are project_print.h's. */
json_t *run_json(const run_answer_t *answer);
/* Bytes under NAME_base64, and as text under NAME when they are UTF-8, else null. */
void json_set_bytes(json_t *object, const char *name, const ProtobufCBinaryData *bytes);
/* One JSON value and a newline on stdout; false when it could not be written. */
bool json_print(const json_t *value);
/* A message in its proto3 JSON form; a new reference, null when it is not valid UTF-8. */
json_t *json_of_message(const ProtobufCMessage *message);

#endif
