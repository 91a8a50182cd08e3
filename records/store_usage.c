/* What /v1/usage shows. */
#include "records/store_internal.h"

#include <stdlib.h>

#include "core/mem.h"

typedef struct {
    loop_task_t task;
    store_usage_cb cb;
    void *data;
} asking_t;

static void on_away(loop_task_t *task)
{
    asking_t asking = *(asking_t *)task->data;
    free(task->data);
    asking.cb(asking.data, STORE_AWAY, NULL, 0, NULL);
}

static void answer_away(store_t *store, store_usage_cb cb, void *data)
{
    asking_t *asking = mem_alloc(sizeof(*asking));
    asking->cb = cb;
    asking->data = data;
    loop_task_init(&asking->task, on_away, asking);
    loop_defer(store->loop, &asking->task);
}

void store_usage(store_t *store, const char *caller, const store_caps_t *caps, uint32_t window_s, store_usage_cb cb,
                 void *data)
{
    (void)caller, (void)caps, (void)window_s;
    answer_away(store, cb, data);
}

void store_usage_all(store_t *store, const char *day, const char *cursor, store_usage_cb cb, void *data)
{
    (void)day, (void)cursor;
    answer_away(store, cb, data);
}
