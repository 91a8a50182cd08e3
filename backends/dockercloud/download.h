/*
 * The artifacts on their way out, whatever carries them: a path is one that was asked for and comes once, a file that
 * does not fit is passed over whole, and nothing counts before the answer is whole. What a guest wrote decides about
 * sizes here, so an answer that grows past its bound costs the file that was on its way, not the others.
 */
#ifndef BACKENDS_DOCKERCLOUD_DOWNLOAD_H
#define BACKENDS_DOCKERCLOUD_DOWNLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/cloud/cloud.h"

typedef struct {
    const cloud_plan_t *plan;
    guest_result_t *result;
    bool *is_wanted;      /* of the plan's artifacts: not settled yet */
    bool *is_asked;       /* of the present answer */
    bool *is_seen;        /* in it */
    buffer_t *files;      /* of the present answer */
    bool *is_whole;       /* the file was there, and all of it */
    size_t bytes;         /* of `files` */
    int at;               /* the file that is being received; -1 = none */
    bool is_passed_over;  /* what comes of it is dropped */
    bool has_passed_over; /* a file of the present answer */
    const char *problem;  /* a literal: the answer makes no sense */
} download_t;

void download_init(download_t *download, const cloud_plan_t *plan, guest_result_t *result);
void download_dispose(download_t *download);
bool download_is_done(const download_t *download);
/* The next path to ask for from the plan's index `from` on; its index, or -1. */
int download_next(const download_t *download, size_t from);
/* It is asked for, between download_begin and the answer. */
void download_ask(download_t *download, size_t index);
/* Bytes of files that one answer may have at most. */
size_t download_bytes_max(const download_t *download);

/* A new answer begins: what came of the last one is forgotten. */
void download_begin(download_t *download);
/* Each false: the problem is set. */
bool download_file(download_t *download, const char *path);
bool download_bytes(download_t *download, const void *bytes, size_t len);
/* NULL: one that was not named. */
bool download_absent(download_t *download, const char *path);
/* The answer is whole: its files go to the result. */
void download_end(download_t *download);
/* The answer grew past its bound: the file that was on its way, and those passed over before it, are given up. False
 * when that changes nothing, so asking again would not help. */
bool download_cut(download_t *download);

#endif
