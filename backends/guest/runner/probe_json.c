#include "backends/guest/runner/probe_json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char document[PROBE_REPORT_MAX];
static size_t used;
static bool is_full, needs_comma;

static void put(const char *bytes, size_t len)
{
    if (is_full || sizeof(document) - used < len) {
        is_full = true;
        return;
    }
    memcpy(document + used, bytes, len);
    used += len;
}

static void put_string(const char *text)
{
    char escape[8];
    put("\"", 1);
    for (const char *p = text; *p != '\0'; ++p) {
        unsigned char c = (unsigned char)*p;
        if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\') {
            put(p, 1);
        } else {
            snprintf(escape, sizeof(escape), "\\u%04x", c);
            put(escape, 6);
        }
    }
    put("\"", 1);
}

static void begin(const char *name)
{
    if (needs_comma)
        put(",", 1);
    needs_comma = true;
    if (name != NULL) {
        put_string(name);
        put(":", 1);
    }
}

void probe_open(const char *name, char bracket)
{
    begin(name);
    put(&bracket, 1);
    needs_comma = false;
}

void probe_close(char bracket)
{
    put(&bracket, 1);
    needs_comma = true;
}

void probe_text(const char *name, const char *value)
{
    begin(name);
    if (value != NULL)
        put_string(value);
    else
        put("null", 4);
}

void probe_number(const char *name, uint64_t value)
{
    char digits[24];
    begin(name);
    int len = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)value);
    put(digits, (size_t)len);
}

void probe_bool(const char *name, bool value)
{
    begin(name);
    put(value ? "true" : "false", value ? 4 : 5);
}

const char *probe_errno(int error)
{
    static char number[16];
    const char *name = strerrorname_np(error);
    if (name != NULL)
        return name;
    snprintf(number, sizeof(number), "E%d", error);
    return number;
}

void probe_outcome(const char *name, long result, int error)
{
    probe_text(name, result >= 0 ? "ok" : probe_errno(error));
}

bool probe_print(void)
{
    put("\n", 1);
    for (size_t done = 0; !is_full && done < used;) {
        ssize_t n = write(STDOUT_FILENO, document + done, used - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return !is_full;
}
