/* A probe's report is a stranger's text: whatever it holds, it is read or refused, and nothing that lacks a field of a
 * check passes it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/docker/smoke_report.h"
#include "backends/docker/smoke_words.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const docker_promise_t promise = {.uid = 61000,
                                             .memory_bytes = 256 * 1024 * 1024,
                                             .pids = 256,
                                             .tmp_bytes = 16 * 1024 * 1024,
                                             .shm_bytes = 16 * 1024 * 1024,
                                             .work_bytes = 128 * 1024 * 1024,
                                             .has_profile = true,
                                             .has_filter = true};
    char why[BACKEND_TEXT_MAX], banner[128];
    smoke_inner_limits_t limits;
    json_t *report = smoke_report_read(data, size, why);
    if (report == NULL)
        return 0;
    for (int i = 0; i < 8; ++i) {
        smoke_expect_t expect = {.promise = &promise,
                                 .kind = (i & 1) != 0 ? DOCKER_PROJECT : DOCKER_SNIPPET,
                                 .is_gvisor = (i & 2) != 0,
                                 .has_socket = (i & 4) != 0,
                                 .fill_max = smoke_fill_max(&promise),
                                 .has_calls = true};
        memset(why, 0, sizeof(why));
        if (smoke_report_judge(report, &expect, why)) {
            /* The least that must have been said for that. */
            if (json_array_size(json_object_get(report, "mounts")) < 2 ||
                json_array_size(json_object_get(report, "interfaces")) == 0 ||
                !smoke_is_errno(smoke_word(json_object_get(report, "runner"), "mem")))
                abort();
        } else if (why[0] != 'S' || memchr(why, '\n', strlen(why)) != NULL) {
            abort();
        }
    }
    smoke_report_limits(report, &limits);
    smoke_report_banner(report, banner, sizeof(banner));
    for (const char *p = banner; *p != '\0'; ++p) {
        if (*p < 0x20 || *p > 0x7e)
            abort();
    }
    json_decref(report);
    return 0;
}
