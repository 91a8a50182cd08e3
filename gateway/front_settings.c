#include "gateway/front_settings.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "config/options.h"
#include "core/sha256.h"
#include "gateway/control.h"
#include "gateway/metrics.h"

enum { SECOND_MS = 1000 };

static void set_connection_limit(front_t *front)
{
    struct rlimit limit;
    int64_t wanted = option_int(OPT_PLIMSOLL_MAX_CONNECTIONS);
    front->connections_max = INT64_MAX;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
        if (limit.rlim_cur != RLIM_INFINITY)
            front->connections_max = (int64_t)(limit.rlim_cur / 2);
    }
    if (wanted != 0 && wanted < front->connections_max)
        front->connections_max = wanted;
}

/* Every caller's own caps, but for its paid seconds, which its entry in the callers file states; and all callers'. */
static void read_caps(front_t *front)
{
    front->caps = (store_caps_t){
        .slots = options_per_caller_concurrent(),
        .rate_per_min = (uint32_t)option_int(OPT_SANDBOX_RATE_PER_MIN),
        .burst = options_rate_burst(),
        .runs_per_window = (uint32_t)option_int(OPT_PLIMSOLL_RUNS_PER_WINDOW),
        .per_day = {.seconds_ms = (uint64_t)option_int(OPT_PLIMSOLL_SECONDS_PER_DAY) * SECOND_MS,
                    .cost_micro = options_cost_micro(OPT_PLIMSOLL_COST_PER_DAY)},
    };
    front->total_caps = (store_caps_t){
        .slots = (uint32_t)option_int(OPT_PLIMSOLL_TOTAL_CONCURRENT),
        .rate_per_min = (uint32_t)option_int(OPT_PLIMSOLL_TOTAL_RATE_PER_MIN),
        .burst = options_total_rate_burst(),
        .runs_per_window = (uint32_t)option_int(OPT_PLIMSOLL_TOTAL_RUNS_PER_WINDOW),
        .per_day = {.seconds_ms = (uint64_t)option_int(OPT_PLIMSOLL_TOTAL_SECONDS_PER_DAY) * SECOND_MS,
                    .paid_ms = (uint64_t)option_int(OPT_SANDBOX_PAID_SECONDS_PER_DAY) * SECOND_MS,
                    .cost_micro = options_cost_micro(OPT_PLIMSOLL_TOTAL_COST_PER_DAY)},
    };
    front->window_s = (uint32_t)(option_int(OPT_PLIMSOLL_RUNS_WINDOW) / SECOND_MS);
    front->prices_max_age_ms = option_int(OPT_PLIMSOLL_PRICES_MAX_AGE);
    front->store_settings = (store_settings_t){
        .installation = option_str(OPT_PLIMSOLL_INSTALLATION),
        .run_ttl_s = (uint32_t)(option_int(OPT_PLIMSOLL_RUN_RETENTION) / SECOND_MS),
        .answer_ttl_s = (uint32_t)(option_int(OPT_PLIMSOLL_ANSWER_RETENTION) / SECOND_MS),
        .answer_max = (size_t)option_int(OPT_PLIMSOLL_ANSWER_MAX_KB) * 1024,
    };
}

void front_read_settings(front_t *front)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const char *const *names = option_list(OPT_SANDBOX_PROVIDER);
    const char *prefix = option_str(OPT_PLIMSOLL_PATH_PREFIX);
    const char *floor = option_str(OPT_SANDBOX_MIN_ISOLATION);
    const char *token = option_str(OPT_PLIMSOLL_TOKEN);
    front->lane_count = option_int(OPT_PLIMSOLL_THREADS) != 0 ? (unsigned)option_int(OPT_PLIMSOLL_THREADS)
                        : cores > 0                           ? (unsigned)cores
                                                              : 1;
    front->prefix = prefix != NULL ? prefix : "";
    front->prefix_len = strlen(front->prefix);
    front->require_request_id = option_bool(OPT_PLIMSOLL_REQUIRE_REQUEST_ID);
    front->server_timing = option_bool(OPT_PLIMSOLL_SERVER_TIMING);
    front->http2 = option_bool(OPT_PLIMSOLL_HTTP2);
    front->max_concurrent = options_max_concurrent();
    read_caps(front);
    front->header_ms = (uint32_t)option_int(OPT_PLIMSOLL_HEADER_TIMEOUT);
    front->read_ms = (uint32_t)option_int(OPT_PLIMSOLL_READ_TIMEOUT);
    front->idle_ms = (uint32_t)option_int(OPT_PLIMSOLL_IDLE_TIMEOUT);
    front->write_ms = (uint32_t)option_int(OPT_PLIMSOLL_WRITE_TIMEOUT);
    front->evidence_max_age_ms = (uint32_t)option_int(OPT_PLIMSOLL_EVIDENCE_MAX_AGE);
    front->buffer_limit = (uint64_t)option_int(OPT_PLIMSOLL_BUFFER_MB) * 1024 * 1024;
    if (floor != NULL)
        front->min_isolation = tier_parse(floor);
    front->auth_mode = options_callers_mode() == CALLERS_FROM_FILE     ? AUTH_CALLERS
                       : options_callers_mode() == CALLERS_SHARE_TOKEN ? AUTH_TOKEN
                                                                       : AUTH_OPEN;
    if (token != NULL) {
        sha256_t *s = sha256_begin();
        sha256_add(s, token, strlen(token));
        sha256_end(s, front->token_sha256);
    }
    for (size_t i = 0; i < WALLS_MAX && names[i] != NULL; i++) {
        front->backend_names[i] = names[i];
        front->backend_paths[i] = control_backend_path(names[i]);
        front->backend_count++;
    }
    metrics_walls(front->backend_names, front->backend_count);
    front->proxies = proxies_create(option_list(OPT_PLIMSOLL_TRUSTED_PROXIES));
    front->decode_slots = decode_slots_create(front->max_concurrent * DECODE_SLOTS_PER_RUN);
    front->key_waiters = decode_slots_create(KEY_WAITERS_MAX);
    front->addresses = address_count_create((uint32_t)option_int(OPT_PLIMSOLL_MAX_CONNECTIONS_PER_ADDRESS));
    front->flights = flights_create();
    front->local_quota = local_quota_create();
    front->serves_without_redis = strcmp(option_str(OPT_PLIMSOLL_REDIS_DOWN), "serve") == 0;
    set_connection_limit(front);
}
