#include "backends/host_id.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void host_id(char *out, size_t size)
{
    char boot[40] = "";
    struct stat ns;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = read(fd, boot, sizeof(boot) - 1);
        boot[n > 0 ? n : 0] = '\0';
        boot[strcspn(boot, "\n")] = '\0';
        close(fd);
    }
    if (boot[0] == '\0' || stat("/proc/self/ns/net", &ns) != 0) {
        out[0] = '\0';
        return;
    }
    snprintf(out, size, "%s.%llu", boot, (unsigned long long)ns.st_ino);
}
