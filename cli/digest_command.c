/* `plimsoll digest`: the digests of spec section 6, of files, and a vector file held against them. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "cli/exchange.h"
#include "cli/exit_codes.h"
#include "cli/input.h"
#include "core/protojson.h"
#include "records/digest.h"
#include "records/vectors.h"

static const char HELP[] =
    "Usage: plimsoll digest request FILE\n"
    "       plimsoll digest result FILE\n"
    "       plimsoll digest record FILE\n"
    "       plimsoll digest --vectors FILE\n"
    "\n"
    "Prints the SHA-256 digest of a message in its JSON form (- for standard input): a RunRequest or\n"
    "SessionRunRequest, a RunResponse, or a RunRecord. A record that states a digest of its own must state this one:\n"
    "otherwise the exit status is 76. The digest is over the message's values, so spacing and member order of the\n"
    "file do not matter.\n"
    "\n"
    "  --vectors FILE     check every vector of FILE; the last line is `N passed, N failed`, and the exit status 1\n"
    "                     when any failed\n"
    "  -h, --help         this text\n";

enum { DIGEST_FILE_MAX = EXCHANGE_ANSWER_MAX };

static int fail(const char *what)
{
    fprintf(stderr, "plimsoll digest: %s\n", what);
    return CLI_FAILED;
}

static int print_digest(const char *digest)
{
    return puts(digest) != EOF && fflush(stdout) == 0 ? CLI_OK : fail("the digest could not be written");
}

static int digest_request_message(const ProtobufCMessage *message, char digest[SHA256_HEX + 1])
{
    digest_request((const Plimsoll__V1__RunRequest *)message, digest);
    return CLI_OK;
}

static int digest_result_message(const ProtobufCMessage *message, char digest[SHA256_HEX + 1])
{
    digest_result((const Plimsoll__V1__RunResponse *)message, digest);
    return CLI_OK;
}

static int digest_record_message(const ProtobufCMessage *message, char digest[SHA256_HEX + 1])
{
    const Plimsoll__V1__RunRecord *record = (const Plimsoll__V1__RunRecord *)message;
    const char *why = digest_record(record, digest);
    if (why != NULL)
        return fail(why);
    if (record->record_sha256[0] == '\0' || strcmp(record->record_sha256, digest) == 0)
        return CLI_OK;
    fail("the record states another digest than that of its fields");
    return CLI_DOES_NOT_HOLD;
}

static const struct {
    const char *name;
    const ProtobufCMessageDescriptor *type;
    int (*digest)(const ProtobufCMessage *message, char digest[SHA256_HEX + 1]);
} SUBJECTS[] = {
    /* A session call has the digest of a run with the same contents; its session_id is an unknown member here. */
    {"request", &plimsoll__v1__run_request__descriptor, digest_request_message},
    {"result", &plimsoll__v1__run_response__descriptor, digest_result_message},
    {"record", &plimsoll__v1__run_record__descriptor, digest_record_message},
};

static int digest_file(size_t subject, const char *path)
{
    char error[PROTOJSON_ERROR_MAX] = "", digest[SHA256_HEX + 1] = "";
    int status = CLI_FAILED;
    ProtobufCMessage *message = NULL;
    buffer_t text;
    buffer_init(&text, DIGEST_FILE_MAX);
    const char *why = input_read(path, &text);
    if (why != NULL) {
        fail(why);
        goto done;
    }
    message = protojson_parse(SUBJECTS[subject].type, text.len == 0 ? "" : (const char *)text.base, text.len, error);
    if (message == NULL) {
        fail(error);
        goto done;
    }
    status = SUBJECTS[subject].digest(message, digest);
    if (digest[0] != '\0' && print_digest(digest) != CLI_OK)
        status = CLI_FAILED;
done:
    if (message != NULL)
        protobuf_c_message_free_unpacked(message, NULL);
    buffer_dispose(&text);
    return status;
}

static int check_vectors(const char *path)
{
    vectors_result_t result = {0};
    const char *why = vectors_check_file(path, stderr, &result);
    if (why != NULL)
        return fail(why);
    printf("%zu passed, %zu failed\n", result.passed, result.failed);
    /* A file that checks nothing proves nothing. */
    return fflush(stdout) == 0 && result.failed == 0 && result.passed > 0 ? CLI_OK : CLI_FAILED;
}

int command_digest(int argc, char **argv)
{
    enum { OPT_VECTORS = 0x100 };
    static const struct option LONG_OPTIONS[] = {
        {"vectors", required_argument, NULL, OPT_VECTORS}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    const char *vectors = NULL;
    int opt;
    optind = 0;
    while ((opt = getopt_long(argc, argv, "h", LONG_OPTIONS, NULL)) != -1) {
        if (opt == 'h')
            return print_help(HELP);
        if (opt != OPT_VECTORS)
            return usage_hint(argv[0]);
        vectors = optarg;
    }
    if (vectors != NULL)
        return optind == argc ? check_vectors(vectors) : usage_error(argv[0], "--vectors stands alone");
    if (argc - optind != 2)
        return usage_error(argv[0], "request, result or record, and a FILE?");
    for (size_t i = 0; i < sizeof(SUBJECTS) / sizeof(SUBJECTS[0]); i++)
        if (strcmp(SUBJECTS[i].name, argv[optind]) == 0)
            return digest_file(i, argv[optind + 1]);
    return usage_error(argv[0], "there is no digest of a %.64s", argv[optind]);
}
