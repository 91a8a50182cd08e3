/* plimsolld: the parent, and, by the name it is started under, one of its roles. */
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backends/role.h"
#include "config/options.h"
#include "config/provider.h"
#include "core/fault.h"
#include "core/log.h"
#include "core/random.h"
#include "gateway/control.h"
#include "gateway/front.h"
#include "gateway/parent.h"
#include "config/version.h"

#ifdef __SANITIZE_ADDRESS__
/* libh2o keeps recycled buffers in thread-local storage and its context's message queue, and gives up neither at a
 * thread's end. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:h2o_mem_alloc_recycle\nleak:h2o_multithread_create_queue\n";
}
#endif

static void print_help(FILE *out)
{
    buffer_t text;
    buffer_init(&text, 1024 * 1024);
    options_print_help(&text);
    fputs((const char *)text.base, out);
    buffer_dispose(&text);
}

enum { LARGE_BYTES = 128 * 1024 }; /* where glibc's threshold begins */

/* Large pieces of memory go back to the kernel when they are freed, so a burst of large bodies is not paid for ever
 * after. By itself glibc raises the threshold with every large piece that is freed, and keeps what lies below it. */
static void return_large_memory(void)
{
    mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
}

/* The settings a role was given; a role that cannot read them does not serve. */
static bool role_begin(const char *role, unsigned mask)
{
    problems_t problems = {0};
    return_large_memory();
    options_load_role(mask, &problems, NULL);
    const char *format = option_str(OPT_PLIMSOLL_LOG_FORMAT);
    log_init(role, format != NULL && strcmp(format, "text") == 0 ? LOG_FORMAT_TEXT : LOG_FORMAT_JSON,
             log_level_parse(option_str(OPT_PLIMSOLL_LOG_LEVEL)));
    fault_init(option_str(OPT_PLIMSOLL_FAULT_DIR));
    options_scrub_environment();
    for (size_t i = 0; i < problems.count; i++)
        log_event(LOG_ERROR, "role cannot start", log_str("problem", problems.texts[i]));
    bool fine = problems.count == 0;
    problems_dispose(&problems);
    return fine;
}

int main(int argc, char **argv)
{
    char self[4096];
    const char *name = argc > 0 ? argv[0] : "";
    random_init();
    if (strcmp(name, ROLE_ARGV_FRONT) == 0)
        return role_begin("front", ROLE_FRONT) ? front_main(ROLE_FD_PARENT, ROLE_FD_LISTEN, ROLE_FD_METRICS) : 1;
    if (strncmp(name, ROLE_ARGV_BACKEND, strlen(ROLE_ARGV_BACKEND)) == 0) {
        const char *backend = name + strlen(ROLE_ARGV_BACKEND);
        return role_begin(backend, provider_roles(backend)) ? backend_role_main(backend, ROLE_FD_LISTEN, ROLE_FD_PARENT)
                                                            : 1;
    }
    if (argc == 2 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)) {
        print_help(stdout);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("plimsolld %s\n", PLIMSOLL_VERSION);
        return 0;
    }
    if (argc != 1) {
        print_help(stderr);
        return EXIT_CONFIGURATION;
    }
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n <= 0) {
        fprintf(stderr, "plimsolld: /proc is not mounted, so the daemon cannot start its roles\n");
        return EXIT_BROKEN;
    }
    self[n] = '\0';
    return parent_main(self);
}
