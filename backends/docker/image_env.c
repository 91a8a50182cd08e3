#include "backends/docker/image_env.h"

#include <stdio.h>
#include <string.h>

enum { NAME_MAX_BYTES = 128, PATH_DEPTH_MAX = 64 };

/* Whatever they are set to, they make a loader or an interpreter take code or data from somewhere. */
static const char *const LOADERS[] = {
    "NODE_OPTIONS",
    "NODE_REPL_EXTERNAL_MODULE",
    "NODE_EXTRA_CA_CERTS",
    "NODE_TLS_REJECT_UNAUTHORIZED",
    "NODE_V8_COVERAGE",
    "NODE_ICU_DATA",
    "NODE_COMPILE_CACHE",
    "BASH_ENV",
    "ENV",
    "GLIBC_TUNABLES",
    "GCONV_PATH",
    "LOCPATH",
    "HOSTALIASES",
    "PERL5OPT",
    "RUBYOPT",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
    "PYTHONSTARTUP",
    "PYTHONHOME",
    "PYTHONUSERBASE",
    "PYTHONBREAKPOINT",
    "PYTHONINSPECT",
    "PYTHONEXECUTABLE",
    "PYTHONPYCACHEPREFIX",
};
static const char *const LOADER_PREFIXES[] = {"LD_", "DYLD_"};
static const char *const SEARCH_PATHS[] = {"PATH", "NODE_PATH", "PYTHONPATH", "PERL5LIB", "PERLLIB", "RUBYLIB"};
/* Where guests can write, or where what is found is not the image's. */
static const char *const UNSAFE_PLACES[] = {"/tmp", "/work", "/dev", "/proc", "/sys", "/run", "/var/tmp"};

static bool is_in(const char *name, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; ++i) {
        if (strcmp(name, list[i]) == 0)
            return true;
    }
    return false;
}

static bool is_loader(const char *name)
{
    for (size_t i = 0; i < sizeof(LOADER_PREFIXES) / sizeof(LOADER_PREFIXES[0]); ++i) {
        if (strncmp(name, LOADER_PREFIXES[i], strlen(LOADER_PREFIXES[i])) == 0)
            return true;
    }
    return is_in(name, LOADERS, sizeof(LOADERS) / sizeof(LOADERS[0]));
}

/* Takes the last component off "/a/b". */
static void go_up(char *path, size_t *len)
{
    while (*len > 0 && path[--*len] != '/')
        ;
    path[*len] = '\0';
}

/* An absolute path without empty, "." and ".." components, as if no component were a link; "" is the root. False when
 * it does not fit. */
static bool clean(const char *path, size_t path_len, char *out, size_t size)
{
    size_t len = 0;
    out[0] = '\0';
    for (const char *end = path + path_len; path < end;) {
        path += strspn(path, "/") < (size_t)(end - path) ? strspn(path, "/") : (size_t)(end - path);
        size_t part = 0;
        while (path + part < end && path[part] != '/')
            ++part;
        if (part == 2 && path[0] == '.' && path[1] == '.') {
            go_up(out, &len);
        } else if (part > 0 && !(part == 1 && path[0] == '.')) {
            if (size - len < part + 2)
                return false;
            len += (size_t)snprintf(out + len, size - len, "/%.*s", (int)part, path);
        }
        path += part;
    }
    return true;
}

static bool is_safe_entry(const char *entry, size_t len)
{
    char path[1024];
    if (len == 0 || entry[0] != '/' || !clean(entry, len, path, sizeof(path)))
        return false;
    for (size_t i = 0; i < sizeof(UNSAFE_PLACES) / sizeof(UNSAFE_PLACES[0]); ++i) {
        size_t place = strlen(UNSAFE_PLACES[i]);
        if (strncmp(path, UNSAFE_PLACES[i], place) == 0 && (path[place] == '/' || path[place] == '\0'))
            return false;
    }
    return true;
}

static bool are_safe_entries(const char *value)
{
    for (;;) {
        size_t len = strcspn(value, ":");
        if (!is_safe_entry(value, len))
            return false;
        if (value[len] == '\0')
            return true;
        value += len + 1;
    }
}

static bool is_plain(const char *text, size_t len)
{
    for (size_t i = 0; i < len; ++i) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return false; /* a NUL too, at which the rest would be cut off */
    }
    return true;
}

bool image_env_vet(const char *text, size_t len, char why[IMAGE_WHY_MAX])
{
    char name[NAME_MAX_BYTES];
    const char *equals = memchr(text, '=', len);
    if (!is_plain(text, len) || equals == NULL || equals == text || (size_t)(equals - text) >= sizeof(name)) {
        snprintf(why, IMAGE_WHY_MAX, "has an environment variable that is not a plain NAME=value");
        return false;
    }
    snprintf(name, sizeof(name), "%.*s", (int)(equals - text), text);
    if (is_loader(name)) {
        snprintf(why, IMAGE_WHY_MAX, "sets %.64s, which loads code into programs: build it without", name);
        return false;
    }
    if (is_in(name, SEARCH_PATHS, sizeof(SEARCH_PATHS) / sizeof(SEARCH_PATHS[0])) && !are_safe_entries(equals + 1)) {
        snprintf(why, IMAGE_WHY_MAX,
                 "has a %.64s with a relative entry or one where guests can write: build it without", name);
        return false;
    }
    return true;
}

bool image_env_is_same_name(const char *a, const char *b)
{
    size_t len = strcspn(a, "=");
    return len == strcspn(b, "=") && strncmp(a, b, len) == 0;
}
