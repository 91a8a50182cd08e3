/*
 * What the verbs of `plimsoll attest` and `plimsoll log` share (attest section 9). Exit codes are section 9's: 0 done,
 * 1 any failure with one line on stderr, 2 no verb or none that is known.
 */
#ifndef CLI_ATTEST_H
#define CLI_ATTEST_H

#include <jansson.h>

#include "cli/attest_options.h"
#include "core/buffer.h"
#include "records/attest_key.h"
#include "records/attest_verify.h"
#include "records/plimsoll.pb-c.h"

enum { ATTEST_OK = 0, ATTEST_FAILED = 1, ATTEST_USAGE = 2 };

/* argv[0] is the verb's title. */
int attest_keygen(int argc, char **argv);
int attest_run(int argc, char **argv);
int attest_verify(int argc, char **argv);
int attest_chain(int argc, char **argv);
int attest_replay(int argc, char **argv);
int attest_sign(int argc, char **argv);
int attest_bundle(int argc, char **argv);
int attest_sign_head(int argc, char **argv);
int log_verify(int argc, char **argv);
int log_head(int argc, char **argv);
int log_prove(int argc, char **argv);

/* One line on stderr that begins with the verb, safe for a terminal; with -json an object with `ok` false and the
 * `error` on stdout too. ATTEST_FAILED. */
int attest_fail(const attest_options_t *options, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same with more members for the object of -json (taken; NULL = none). */
int attest_fail_with(const attest_options_t *options, json_t *more, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Prints `object` (taken) as one line of JSON, `ok` true in it; ATTEST_OK, or ATTEST_FAILED, told. */
int attest_print_json(const attest_options_t *options, json_t *object);
/* What has been printed has reached its file: ATTEST_OK, or ATTEST_FAILED, told. */
int attest_end_output(const attest_options_t *options);

/* The private key of -key, else of PLIMSOLL_ATTEST_KEY; attest_key_destroy it. NULL: told. A key file that others may
 * read is noted on stderr. */
attest_key_t *attest_open_key(const attest_options_t *options);
/* The public key of -pub. false: told. */
bool attest_open_pub(const attest_options_t *options, attest_public_t *key);
/* The whole of a file, "-" standard input; false: told. `what` begins the complaint. */
bool attest_read_file(const attest_options_t *options, const char *what, const char *path, buffer_t *out);
/* A message in protobuf JSON out of a file; free with protobuf_c_message_free_unpacked. NULL: told. */
void *attest_read_message(const attest_options_t *options, const char *what, const char *path,
                          const ProtobufCMessageDescriptor *type);
/* The same, and no member may be unknown: a floor that is misspelled would be no floor. */
void *attest_read_message_strictly(const attest_options_t *options, const char *what, const char *path,
                                   const ProtobufCMessageDescriptor *type);
/* Opens a bundle to read, -1: told. */
int attest_open_bundle(const attest_options_t *options, const char *path);

/* One object: entries, calls, single_runs, sessions. A new reference. */
json_t *attest_summary_json(const attest_summary_t *summary);
/* A key-value pair whose value came from elsewhere, for people: made safe, and a newline. */
void attest_print_line(const char *name, const char *value);

#endif
