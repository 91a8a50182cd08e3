/* The backends built into this program and what each can do, before any proof. The one place that names them. */
#ifndef CONFIG_PROVIDER_H
#define CONFIG_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>

/* Walls from the weakest to the strongest that a floor may ask for; 0 for a name that is none of "process",
 * "container", "kernel", "vm". */
int provider_tier_rank(const char *tier);

typedef struct {
    const char *name;
    const char *tier; /* the strongest wall it can prove; ask provider_tier, as a setting can raise it */
    bool on_host;     /* its runs use this machine's memory */
    bool billed;
    bool sessions;
    bool guard; /* needs the guard listener */
    bool enforces_cpus, enforces_pids, enforces_disk;
    bool unlisted;          /* a stand-in of the test and bench builds: works by name, is offered to nobody */
    unsigned late_ms;       /* the answer of a run whose time is up may take this long */
    bool docker;            /* a wall of this machine's Docker Engine: the settings of that group are its */
    unsigned memory_min_mb; /* less does not start it; ask provider_memory_min_mb */
    unsigned memory_max_mb; /* more is lowered to this; 0 = no limit of its own */
    bool keeps_ledger;      /* its sandboxes can outlive the process that asked for them */
    unsigned roles;         /* of options.h: the rows its process alone is given beside ROLE_BACKEND's */
} provider_t;

extern const provider_t PROVIDERS[];
extern const size_t PROVIDER_COUNT;

/* What the settings make of a row: the backend docker with a runtime of gVisor's is that wall, with that wall's needs.
 */
const char *provider_tier(const provider_t *provider);
bool provider_is_gvisor(const provider_t *provider);
unsigned provider_memory_min_mb(const provider_t *provider);
unsigned provider_pids_min(const provider_t *provider); /* 0 = any */

enum {
    PROVIDER_LATE_MS = 2000, /* a wall that ends a run itself does so within 400 ms of its deadline */
    DOCKER_LATE_MS = 7000,   /* the runner is given up 5 s after its own (backend-docker 2.3), then the same margin */
    /* A wall on somebody else's machines. The run's own time begins when its code does; these are what comes before and
     * after it, and the wall ends each by itself. */
    CLOUD_PLACE_MS = 10 * 1000,   /* for a place and for the rate of creates */
    CLOUD_CREATE_MS = 90 * 1000,  /* from the ledger's entry to a sandbox that was checked */
    CLOUD_STAGE_MS = 15 * 1000,   /* files, until they are verified */
    CLOUD_COLLECT_MS = 15 * 1000, /* artifacts */
    CLOUD_LATE_MS = CLOUD_PLACE_MS + CLOUD_CREATE_MS + CLOUD_STAGE_MS + CLOUD_COLLECT_MS + PROVIDER_LATE_MS,
    OPENSHELL_MEMORY_MIN_MB = 6, /* the least its gateway takes (spec backend-openshell 4.1) */
    DOCKER_MEMORY_MIN_MB = 16,
    GVISOR_MEMORY_MIN_MB = 128, /* its own need counts too (spec backend-docker 8, row 7) */
    DOCKER_PIDS_MIN = 16,       /* the 8 of a started interpreter and its parent (4.4), twice */
    GVISOR_PIDS_MIN = 256,      /* its own threads count, and at 128 the sandbox ends without a word (8, row 8) */
};

enum { PROVIDERS_MAX = 16 }; /* at least PROVIDER_COUNT */

/* Those SANDBOX_PROVIDER names, in the operator's order; names that are not built in and repeated ones are left out.
 * Returns how many. */
size_t providers_enabled(const provider_t *out[PROVIDERS_MAX]);
/* NULL when it is not built in. */
const provider_t *provider_find(const char *name);
/* Whether its sandboxes can outlive the process that asked for them, so that it writes the ledger: those of an Engine
 * and those somebody else runs. A wall that runs guests as its own children keeps none. False for an unknown name. */
bool provider_keeps_ledger(const char *name);
/* The roles (of options.h) whose rows its process is given; ROLE_BACKEND alone for an unknown name. */
unsigned provider_roles(const char *name);
enum { PROVIDER_NAMES_MAX = 256 };
/* Writes "wasm" or "docker, e2b, wasm", for texts; returns `out`. */
const char *provider_names(char out[PROVIDER_NAMES_MAX]);

#endif
