/* The whole ledger of an installation, read over the operator's own connection to the records' Redis. */
#ifndef CLI_LEDGER_READ_H
#define CLI_LEDGER_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "records/ledger_entry.h"

typedef struct ledger_reader ledger_reader_t;

typedef struct {
    const char *backend; /* literal */
    bool is_alive;       /* the instance that answers for it has a lease */
    ledger_entry_t entry;
} ledger_listed_t;

typedef struct {
    ledger_listed_t *listed; /* the oldest first */
    size_t count, corrupt;
    int64_t now_ms; /* Redis' clock */
} ledger_reading_t;

/* From PLIMSOLL_REDIS_URL, or the private Redis of PLIMSOLL_STATE_DIR. NULL with what is wrong told on stderr. */
ledger_reader_t *ledger_reader_open(void);
void ledger_reader_close(ledger_reader_t *reader);
/* Whether a backend of that name keeps a ledger. */
bool ledger_reader_knows(const char *backend);
/* Of one backend, or (NULL) of all; an entry once. False: Redis does not answer. ledger_reading_dispose either way. */
bool ledger_reader_read(ledger_reader_t *reader, const char *backend, ledger_reading_t *out);
void ledger_reading_dispose(ledger_reading_t *reading);
/* False: Redis does not answer. One that is gone meanwhile is fine. */
bool ledger_reader_condemn(ledger_reader_t *reader, const char *backend, const char *stamp);
void ledger_reader_wait(ledger_reader_t *reader, uint32_t ms);

#endif
