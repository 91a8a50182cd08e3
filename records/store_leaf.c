/*
 * What the log of records has of a run. An answered one: its record's digest. Of one whose outcome is unknown there is
 * no record, so the digest of a receipt stands for it: domain plimsoll.run-receipt.v1 in the encoding of attest.md
 * section 3, over run_id, caller_tag (the first 32 hex of the SHA-256 of the caller's ID), request_sha256, verdict,
 * backend, unanswered (the Connect code), started_unix_ms, ended_unix_ms.
 */
#include "records/store_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/sha256.h"

static void add_value(sha256_t *s, const char *data, size_t len)
{
    uint8_t prefix[8];
    for (size_t i = 0; i != sizeof(prefix); ++i)
        prefix[i] = (uint8_t)((uint64_t)len >> (8 * (7 - i)));
    sha256_add(s, prefix, sizeof(prefix));
    if (len != 0)
        sha256_add(s, data, len);
}

static void add_text(sha256_t *s, const char *name, const char *text)
{
    add_value(s, name, strlen(name));
    add_value(s, text, text != NULL ? strlen(text) : 0);
}

static void add_number(sha256_t *s, const char *name, int64_t value)
{
    char text[STORE_NUMBER_MAX];
    snprintf(text, sizeof(text), "%" PRId64, value);
    add_text(s, name, text);
}

void store_receipt_sha256(const char *caller, const store_run_t *run, uint8_t out[SHA256_BYTES])
{
    char tag[SHA256_HEX + 1];
    sha256_hex(caller, strlen(caller), tag);
    tag[STORE_ID] = '\0';
    store_receipt_sha256_of(tag, run, out);
}

void store_receipt_sha256_of(const char *tag, const store_run_t *run, uint8_t out[SHA256_BYTES])
{
    static const char domain[] = "plimsoll.run-receipt.v1";
    sha256_t *s = sha256_begin();
    add_value(s, domain, strlen(domain));
    add_text(s, "run_id", run->run_id);
    add_text(s, "caller_tag", tag);
    add_text(s, "request_sha256", run->request_sha256);
    add_text(s, "verdict", run->verdict);
    add_text(s, "backend", run->backend);
    add_text(s, "unanswered", run->unknown_code);
    add_number(s, "started_unix_ms", run->started_unix_ms);
    add_number(s, "ended_unix_ms", run->ended_unix_ms);
    sha256_end(s, out);
}

void store_leaf(const store_settlement_t *settlement, uint8_t out[STORE_SHA / 2])
{
    if (settlement->verdict == VERDICT_ANSWERED && store_is_hex(settlement->record_sha256, STORE_SHA)) {
        store_raw_of(settlement->record_sha256, STORE_SHA / 2, out);
        return;
    }
    store_receipt_sha256(settlement->caller,
                         &(store_run_t){.run_id = settlement->run_id,
                                        .request_sha256 = settlement->request_sha256,
                                        .verdict = verdict_name(settlement->verdict),
                                        .backend = settlement->backend,
                                        .unknown_code = settlement->unknown_code,
                                        .started_unix_ms = settlement->started_unix_ms,
                                        .ended_unix_ms = settlement->ended_unix_ms},
                         out);
}
