/* The settings of the walls on this machine's Docker Engine (the backends docker and gvisor): what follows from them,
 * and what must hold between them (spec callers 8.4, backend-docker 1.2 and 4.4). */
#ifndef CONFIG_DOCKER_H
#define CONFIG_DOCKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/options.h"
#include "config/provider.h"

enum {
    DOCKER_SOCKET_MAX = 107, /* a Unix socket's path has 108 bytes with its NUL (unix(7)) */
    /* SANDBOX_DISK_MB is one budget over the three places a run can write to: these two, and /work has the rest. */
    DOCKER_TMP_MB = 16,
    DOCKER_SHM_MB = 16,
    DOCKER_WORK_MIN_MB = 1,
    DOCKER_WORK_DEFAULT_MB = 128,
    DOCKER_PIDS_DEFAULT = 256,
    /* A started sandbox nobody uses yet: what its control group holds and the Engine's shim beside it, rounded up
       (backend-docker 4.4: 6 to 8, under gVisor 20 to 21, and 13.6). */
    DOCKER_IDLE_MB = 8 + 14,
    GVISOR_IDLE_MB = 21 + 14,
    /* Numbers systemd gives to users it makes up, from home areas and containers to services (uid ranges of
       systemd.io/UIDS-GIDS). */
    GUEST_UID_BANDS = 3,
};

typedef struct {
    int64_t first, last;
} uid_band_t;
extern const uid_band_t GUEST_UID_TAKEN[GUEST_UID_BANDS];

bool docker_is_enabled(const provider_t *const *enabled, size_t count);
/* The path of SANDBOX_DOCKER_SOCKET, without a unix:// before it; owned by the settings. */
const char *docker_socket_path(void);
/* All that a run may write, and /work's share of it, in MiB. */
uint32_t docker_disk_mb(void);
uint32_t docker_work_mb(void);
/* Thousandths of a millionth of a processor, as the Engine counts: SANDBOX_CPUS, or one. */
int64_t docker_nano_cpus(void);
uint32_t docker_pids(void);
/* What the enabled backends' started sandboxes hold, in MiB. */
int64_t docker_pools_mb(void);
/* "name@sha256:" and 64 hex digits. */
bool docker_image_is_pinned(const char *reference);

void docker_rules(problems_t *problems, const provider_t *const *enabled, size_t count);

#endif
