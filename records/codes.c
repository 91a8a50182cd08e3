#include "records/codes.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    int status;
} CODES[CODE_COUNT] = {
    [CODE_CANCELED] = {"canceled", 499},
    [CODE_UNKNOWN] = {"unknown", 500},
    [CODE_INVALID_ARGUMENT] = {"invalid_argument", 400},
    [CODE_DEADLINE_EXCEEDED] = {"deadline_exceeded", 504},
    [CODE_NOT_FOUND] = {"not_found", 404},
    [CODE_ALREADY_EXISTS] = {"already_exists", 409},
    [CODE_PERMISSION_DENIED] = {"permission_denied", 403},
    [CODE_RESOURCE_EXHAUSTED] = {"resource_exhausted", 429},
    [CODE_FAILED_PRECONDITION] = {"failed_precondition", 400},
    [CODE_ABORTED] = {"aborted", 409},
    [CODE_OUT_OF_RANGE] = {"out_of_range", 400},
    [CODE_UNIMPLEMENTED] = {"unimplemented", 501},
    [CODE_INTERNAL] = {"internal", 500},
    [CODE_UNAVAILABLE] = {"unavailable", 503},
    [CODE_DATA_LOSS] = {"data_loss", 500},
    [CODE_UNAUTHENTICATED] = {"unauthenticated", 401},
};

static const char *const MARKS[MARK_COUNT] = {
    [MARK_REQUEST] = "request",         [MARK_PERMISSION] = "permission", [MARK_PROTOCOL] = "protocol",
    [MARK_UNSUPPORTED] = "unsupported", [MARK_ISOLATION] = "isolation",   [MARK_CAPACITY] = "capacity",
    [MARK_ENVIRONMENT] = "environment",
};

const char *code_name(code_t code)
{
    return CODES[code].name;
}

code_t code_parse(const char *name)
{
    for (int i = 0; i < CODE_COUNT; i++)
        if (strcmp(CODES[i].name, name) == 0)
            return (code_t)i;
    return CODE_COUNT;
}

int code_status(code_t code)
{
    return CODES[code].status;
}

const char *mark_name(mark_t mark)
{
    return MARKS[mark];
}

mark_t mark_parse(const char *name)
{
    for (int i = MARK_NONE + 1; i < MARK_COUNT; i++)
        if (strcmp(MARKS[i], name) == 0)
            return (mark_t)i;
    return MARK_NONE;
}
