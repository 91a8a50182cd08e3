/* Private to the evidence: small files of /proc and /sys, whose size nobody knows before. */
#ifndef BACKENDS_DOCKER_EVIDENCE_FILE_H
#define BACKENDS_DOCKER_EVIDENCE_FILE_H

#include <stddef.h>
#include <sys/types.h>

/* At most size - 1 bytes and a NUL; their number, or -1. */
ssize_t evidence_file_read(const char *path, char *out, size_t size);

#endif
