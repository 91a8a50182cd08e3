/*
 * The artifacts on their way out, whatever carries them: a path is one that was asked for and comes once, a file that
 * does not fit is passed over whole, and nothing counts before all that was asked for is there. What a guest wrote
 * decides about sizes here, so an answer that grows past its bound costs the file that was on its way and those behind
 * it, not those before.
 */
#ifndef BACKENDS_DOCKERCLOUD_DOWNLOAD_H
#define BACKENDS_DOCKERCLOUD_DOWNLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/cloud/cloud.h"

typedef struct {
    const cloud_plan_t *plan;
    size_t bytes_max; /* of all files */
    struct download_file {
        buffer_t bytes;
        bool is_wanted;  /* not settled yet */
        bool is_asked;   /* of the present answer */
        bool is_seen;    /* in it */
        bool is_whole;   /* it is there, all of it */
        bool is_passed;  /* it does not fit */
    } * files;           /* of the plan's artifacts */
    size_t bytes;        /* held in them */
    size_t unnamed;      /* of the present answer's absent files */
    int at;              /* the file that is being received; -1 = none */
    const char *problem; /* a literal: the answer makes no sense */
} download_t;

void download_init(download_t *download, const cloud_plan_t *plan, const guest_result_t *result);
void download_dispose(download_t *download);
bool download_is_done(const download_t *download);
/* The next path to ask for from the plan's index `from` on; its index, or -1. */
int download_next(const download_t *download, size_t from);
/* It is asked for, between download_begin and the answer. */
void download_ask(download_t *download, size_t index);
/* Bytes of files that an answer may still have. */
size_t download_bytes_max(const download_t *download);

/* A new answer begins: what came of one that was not ended is forgotten. */
void download_begin(download_t *download);
/* Each false: the problem is set. */
bool download_file(download_t *download, const char *path);
bool download_bytes(download_t *download, const void *bytes, size_t len);
/* NULL: one that was not named. */
bool download_absent(download_t *download, const char *path);
/* The answer is whole. A path that it says nothing of did not come, as one that does not fit. */
void download_end(download_t *download);
/* The answer grew past its bound: the file that was on its way is given up, and those behind it, which would not count
 * without it. False when there is none, so asking again would not help. */
bool download_cut(download_t *download);
/* All is settled: to the result, in order. */
void download_finish(download_t *download, guest_result_t *result);

#endif
