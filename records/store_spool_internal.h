/* What the store's files share about the spool. Nothing outside records/ includes this. */
#ifndef RECORDS_STORE_SPOOL_INTERNAL_H
#define RECORDS_STORE_SPOOL_INTERNAL_H

#include "records/store_spool.h"

struct store_settling;

enum {
    STORE_REFUSALS_MAX = 10,    /* of one settlement alone by Redis; then its caller's others pass it */
    STORE_AHEAD_STUCK_MAX = 512 /* settlements read ahead of those */
};

/* Of a store. */
typedef struct {
    spool_t *spool; /* NULL: without one, everything is kept in memory */
    spool_reader_t *reader;
    size_t ahead;                                    /* settlements read back, in memory and in the spool */
    size_t stuck;                                    /* of those ahead: Redis refuses each for a reason of its own */
    struct store_settling *_waiting, **_waiting_end; /* whose caller has something in the spool, oldest first */
    loop_timer_t waiting_timer;
    uint64_t end_asked_ms; /* monotonic; 0 = never */
    size_t under_way;      /* settlements handed to the spool whose answer is due */
} store_spool_t;

/* Of a settlement. */
typedef struct {
    uint8_t *base; /* its form in the spool, NULL when it never goes there */
    size_t len, len_without_answer;
    uint32_t order_key;
    bool is_read_back;
    uint32_t refusals;
    uint64_t waits_until; /* monotonic ms */
    struct store_settling *_next_waiting;
    bool holds; /* the order key, as the disk did not take it */
    spool_place_t place;
    spool_append_t append;
    loop_timer_t patience;
} store_spooled_t;

/* Makes the settlement ready for the spool. true: it goes there at once, with its callback. */
bool store_spool_takes_over(struct store_settling *s, const store_settlement_t *settlement);
/* Redis did not take it: it is kept, in the spool or in memory, and its callback is called. */
void store_spool_keep(struct store_settling *s);
/* Redis answered it with this error. */
void store_spool_refused(struct store_settling *s, const char *err);
/* Whether others of its caller wait until Redis takes it. */
bool store_spool_blocks(const struct store_settling *s);
/* One that the disk did not take goes there after all, off the list of those in memory. */
void store_spool_again(struct store_settling *s);
/* Redis took one that was read back. */
void store_spool_taken(struct store_settling *s);
/* Nothing of this process, or of one it took over from, is still to be sent, but for what cannot be. */
bool store_spool_is_empty(const store_t *store);
void store_spooled_dispose(struct store_settling *s);
void store_spool_dispose(store_t *store);

#endif
