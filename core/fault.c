#include "core/fault.h"

#ifdef PLIMSOLL_FAULTS

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/mem.h"

enum { BLOCK_POLL_US = 2000, BLOCK_MAX_US = 60 * 1000 * 1000 };

static char *fault_dir;

void fault_init(const char *dir)
{
    free(fault_dir);
    fault_dir = dir != NULL && dir[0] != '\0' ? mem_strdup(dir) : NULL;
}

static void leave_mark(const char *path)
{
    char hit[512];
    snprintf(hit, sizeof(hit), "%s.hit", path);
    int fd = open(hit, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd >= 0) {
        char line[32];
        int n = snprintf(line, sizeof(line), "%d\n", (int)getpid());
        if (write(fd, line, (size_t)n) < 0)
            perror("fault mark");
        close(fd);
    }
}

bool fault_point(const char *name)
{
    if (fault_dir == NULL)
        return false;
    char path[480], text[64];
    snprintf(path, sizeof(path), "%s/%s", fault_dir, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    const char *action = text;
    if (strncmp(action, "once ", 5) == 0) {
        action += 5;
        /* whoever removes the file is the one that acts */
        if (unlink(path) != 0)
            return false;
    }
    leave_mark(path);
    if (strcmp(action, "kill") == 0) {
        kill(getpid(), SIGKILL);
        pause();
    }
    if (strncmp(action, "delay ", 6) == 0) {
        usleep((useconds_t)atoi(action + 6) * 1000);
        return false;
    }
    if (strcmp(action, "block") == 0) {
        for (int waited = 0; waited < BLOCK_MAX_US && access(path, F_OK) == 0; waited += BLOCK_POLL_US)
            usleep(BLOCK_POLL_US);
        return false;
    }
    return strcmp(action, "fail") == 0;
}

#else
/* an object of this file exists in every build; ISO C wants a declaration in it */
typedef int fault_points_are_compiled_away;
#endif
