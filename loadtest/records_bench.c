/*
 * How many runs a second one store takes: admission and settling of fresh ids through one connection, many in flight.
 * Starts nothing itself; records.sh starts a private Redis and holds the figure against redis-benchmark.
 *
 *   records_bench URL [pairs [in flight [callers [none]]]]      prints pairs a second; none: answers without output
 *   records_bench --admit-script                         prints the admission script
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/loop.h"
#include "core/mem.h"
#include "core/random.h"
#include "records/digest.h"
#include "records/plimsoll.pb-c.h"
#include "records/store.h"

enum {
    PAIRS = 100000,
    IN_FLIGHT = 1024,
    CALLERS = 1000,
    WAIT_UP_MS = 5000,
    /* Never reached, so every admission is one that takes all there is to take. */
    RATE_PER_MIN = 60000000,
    BURST = 1000000,
    SLOTS = 100000,
    RUN_MS = 4210,
};

typedef struct {
    char caller[32], request_id[33], run_id[33];
} pair_t;

typedef struct {
    loop_t *loop;
    store_t *store;
    uint64_t wanted, started, finished, failed;
    uint64_t callers;
    uint8_t *record, *answer;
    size_t record_len, answer_len;
    char record_sha256[SHA256_HEX + 1];
    int64_t ended_unix_ms;
} bench_t;

static bench_t bench;

static const char DIGEST[] = "585a1b46c55ebacc1dfdd4336e302328c32ed3e2e7e8a8b460d252d0454be8fc";

static void pack(void)
{
    Plimsoll__V1__RunRecord record = PLIMSOLL__V1__RUN_RECORD__INIT;
    record.version = 2;
    record.request_sha256 = record.result_sha256 = (char *)DIGEST;
    record.provider = "docker";
    record.isolation = "container";
    record.environment = "docker-image:sha256:585a1b46c55ebacc1dfdd4336e302328c32ed3e2e7e8a8b460d252d0454be8fc";
    bench.ended_unix_ms = clock_wall_ms();
    record.started_unix_ms = bench.ended_unix_ms - RUN_MS;
    record.ended_unix_ms = bench.ended_unix_ms;
    digest_record(&record, bench.record_sha256);
    record.record_sha256 = bench.record_sha256;
    Plimsoll__V1__JavaScriptResult result = PLIMSOLL__V1__JAVA_SCRIPT_RESULT__INIT;
    result.stdout = (ProtobufCBinaryData){.len = 2, .data = (uint8_t *)"2\n"};
    Plimsoll__V1__RunResponse response = PLIMSOLL__V1__RUN_RESPONSE__INIT;
    response.sandbox = record.provider;
    response.isolation = record.isolation;
    response.environment = record.environment;
    response.duration_ms = RUN_MS;
    response.record = &record;
    response.result_case = PLIMSOLL__V1__RUN_RESPONSE__RESULT_JAVASCRIPT;
    response.javascript = &result;
    bench.record = mem_alloc(plimsoll__v1__run_record__get_packed_size(&record));
    bench.record_len = plimsoll__v1__run_record__pack(&record, bench.record);
    bench.answer = mem_alloc(plimsoll__v1__run_response__get_packed_size(&response));
    bench.answer_len = plimsoll__v1__run_response__pack(&response, bench.answer);
}

static void pair_begin(pair_t *pair);

static void pair_end(pair_t *pair, bool ok)
{
    bench.failed += !ok;
    if (++bench.finished == bench.wanted)
        loop_stop(bench.loop);
    if (bench.started < bench.wanted)
        pair_begin(pair);
    else
        free(pair);
}

static void on_stored(void *data, bool stored)
{
    pair_end(data, stored);
}

static void on_admitted(void *data, const store_admitted_t *admitted)
{
    pair_t *pair = data;
    if (admitted->outcome != ADMIT_OK) {
        pair_end(pair, false);
        return;
    }
    store_settle(bench.store,
                 &(store_settlement_t){.caller = pair->caller,
                                       .request_id = pair->request_id,
                                       .run_id = pair->run_id,
                                       .verdict = VERDICT_ANSWERED,
                                       .backend = "docker",
                                       .tier = "container",
                                       .kind = "javascript",
                                       .request_sha256 = DIGEST,
                                       .result_sha256 = DIGEST,
                                       .record_sha256 = bench.record_sha256,
                                       .spent = {.seconds_ms = RUN_MS},
                                       .trace_id = "4bf92f3577b34da6a3ce929d0e0e4736",
                                       .started_unix_ms = bench.ended_unix_ms - RUN_MS,
                                       .ended_unix_ms = bench.ended_unix_ms,
                                       .record = bench.record,
                                       .record_len = bench.record_len,
                                       .answer = bench.answer,
                                       .answer_len = bench.answer_len},
                 on_stored, pair);
}

static void pair_begin(pair_t *pair)
{
    snprintf(pair->caller, sizeof(pair->caller), "caller-%u", (unsigned)(bench.started++ % bench.callers));
    random_hex(pair->request_id, 16);
    random_hex(pair->run_id, 16);
    store_admit(bench.store,
                &(store_admission_t){.caller = pair->caller,
                                     .request_id = pair->request_id,
                                     .request_sha256 = DIGEST,
                                     .run_id = pair->run_id,
                                     .lease_ms = 45000,
                                     .has_place = true,
                                     .caps = {.rate_per_min = RATE_PER_MIN, .burst = BURST, .slots = SLOTS}},
                on_admitted, pair);
}

static uint64_t number_of(int argc, char **argv, int at, uint64_t fallback)
{
    if (at >= argc)
        return fallback;
    char *end;
    unsigned long long value = strtoull(argv[at], &end, 10);
    if (*argv[at] == '\0' || *end != '\0' || value == 0 || value > UINT32_MAX) {
        fprintf(stderr, "records_bench: not a number from 1: %s\n", argv[at]);
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--admit-script") == 0) {
        fputs(STORE_LUA_ADMIT, stdout);
        return 0;
    }
    if (argc < 2 || argc > 6 || (argc == 6 && strcmp(argv[5], "none") != 0)) {
        fprintf(stderr, "usage: records_bench URL [pairs [in flight [callers [none]]]]\n");
        return 2;
    }
    redis_address_t address;
    const char *err = redis_address_parse(argv[1], &address);
    if (err != NULL) {
        fprintf(stderr, "records_bench: %s\n", err);
        return 2;
    }
    bench.wanted = number_of(argc, argv, 2, PAIRS);
    uint64_t in_flight = number_of(argc, argv, 3, IN_FLIGHT);
    bench.callers = number_of(argc, argv, 4, CALLERS);
    log_init("bench", LOG_FORMAT_JSON, LOG_WARN);
    random_init();
    pack();
    if (argc == 6) {
        free(bench.answer);
        bench.answer = NULL;
        bench.answer_len = 0;
    }
    bench.loop = loop_create();
    bench.store = store_create(bench.loop, &address, &(store_settings_t){.installation = "default"},
                               &(store_callbacks_t){.on_settled = NULL});
    uint64_t until = clock_mono_ms() + WAIT_UP_MS;
    while (!store_is_up(bench.store) && clock_mono_ms() < until)
        loop_run_once(bench.loop, 10);
    if (!store_is_up(bench.store)) {
        fprintf(stderr, "records_bench: no Redis at this URL\n");
        return 1;
    }
    uint64_t began = clock_mono_us();
    for (uint64_t i = 0; i != in_flight && bench.started < bench.wanted; ++i)
        pair_begin(mem_alloc(sizeof(pair_t)));
    loop_run(bench.loop);
    double seconds = (double)(clock_mono_us() - began) / 1e6;
    printf("%.0f pairs/s (%llu pairs, %llu failed)\n", (double)bench.wanted / seconds, (unsigned long long)bench.wanted,
           (unsigned long long)bench.failed);
    store_destroy(bench.store);
    loop_destroy(bench.loop);
    redis_address_dispose(&address);
    free(bench.record);
    free(bench.answer);
    return bench.failed == 0 ? 0 : 1;
}
