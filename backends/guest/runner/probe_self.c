/* Who the probe is and what it can see of the limits and the network, without risk. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/utsname.h>

#include "backends/guest/runner/probe_checks.h"
#include "backends/guest/runner/probe_json.h"

enum {
    KLOG_READ_ALL = 3, /* syslog(2) */
    BANNER_MAX = 120,
};

static char text[PROBE_FILE_MAX];

/* The rest of the line that begins with `name`, without leading space; NULL when there is none. Cuts the line off. */
static const char *line_of(const char *name, char *out, size_t size)
{
    size_t name_len = strlen(name);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, name_len) != 0)
            continue;
        line += name_len;
        line += strspn(line, " \t");
        size_t len = strcspn(line, "\n");
        snprintf(out, size, "%.*s", (int)(len < size ? len : size - 1), line);
        return out;
    }
    return NULL;
}

static void numbers(const char *field, const char *name)
{
    char line[2048], *end;
    const char *p = line_of(name, line, sizeof(line));
    probe_open(field, '[');
    while (p != NULL) {
        unsigned long long value = strtoull(p, &end, 10);
        if (end == p)
            break;
        probe_number(NULL, value);
        p = end;
    }
    probe_close(']');
}

/* As the line has it; null without one: gVisor's status has fewer lines. */
static void value(const char *field, const char *name)
{
    char line[128];
    probe_text(field, line_of(name, line, sizeof(line)));
}

static void ids(void)
{
    int error;
    probe_read_file("/proc/self/status", text, sizeof(text), &error);
    numbers("uids", "Uid:");
    numbers("gids", "Gid:");
    numbers("groups", "Groups:");
    probe_open("capabilities", '{');
    value("inheritable", "CapInh:");
    value("permitted", "CapPrm:");
    value("effective", "CapEff:");
    value("bounding", "CapBnd:");
    value("ambient", "CapAmb:");
    probe_close('}');
    value("no_new_privs", "NoNewPrivs:");
    value("seccomp", "Seccomp:");
    value("seccomp_filters", "Seccomp_filters:");
}

/* The names before the colons, after two lines of headings. */
static void interfaces(void)
{
    int error;
    char name[64];
    probe_read_file("/proc/net/dev", text, sizeof(text), &error);
    probe_outcome("interfaces_read", error == 0 ? 0 : -1, error);
    probe_open("interfaces", '[');
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;) {
        char *colon = strchr(line, ':');
        if (colon == NULL || strchr(line, '|') != NULL)
            continue;
        line += strspn(line, " ");
        snprintf(name, sizeof(name), "%.*s", (int)(colon - line < 63 ? colon - line : 63), line);
        probe_text(NULL, name);
    }
    probe_close(']');
}

static void limit(const char *field, const char *version1, const char *version2)
{
    char held[64];
    int error;
    probe_read_file(version2, held, sizeof(held), &error);
    if (error != 0)
        probe_read_file(version1, held, sizeof(held), &error);
    held[strcspn(held, "\n")] = '\0';
    probe_text(field, error == 0 ? held : NULL);
}

/* The cgroup namespace is its own, so its root is this sandbox's group. gVisor shows none of it, or its own idea. */
static void limits(void)
{
    probe_open("limits", '{');
    limit("pids", "/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids.max");
    limit("memory", "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max");
    limit("swap", "/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", "/sys/fs/cgroup/memory.swap.max");
    probe_close('}');
}

static void banner(void)
{
    char line[BANNER_MAX + 1];
    size_t kept = 0;
    int n = klogctl(KLOG_READ_ALL, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    for (const char *p = text; *p != '\0' && *p != '\n' && kept < BANNER_MAX; ++p) {
        if (*p >= 0x20 && *p < 0x7f)
            line[kept++] = *p;
    }
    line[kept] = '\0';
    probe_text("banner", line);
}

static void kernel(void)
{
    struct utsname name;
    probe_open("kernel", '{');
    if (uname(&name) == 0) {
        probe_text("name", name.sysname);
        probe_text("release", name.release);
        probe_text("version", name.version);
        probe_text("machine", name.machine);
    }
    banner();
    probe_close('}');
}

void probe_self(void)
{
    ids();
    interfaces();
    limits();
    kernel();
}
