/* What writing and reading a statement share: the names. */
#ifndef RECORDS_ATTEST_STATEMENT_NAMES_H
#define RECORDS_ATTEST_STATEMENT_NAMES_H

#define ATTEST_STATEMENT_TYPE "https://in-toto.io/Statement/v1"

typedef struct {
    const char *subject; /* its name */
    const char *type;    /* of the predicate, behind a prefix */
} attest_kind_names_t;

/* By attest_kind_t. */
extern const attest_kind_names_t ATTEST_KIND_NAMES[4];

#endif
