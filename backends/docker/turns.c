#include "backends/docker/turns.h"

#include "core/clock.h"

void turns_init(turns_t *turns, loop_t *loop, uint32_t places)
{
    *turns = (turns_t){.loop = loop, .places = places};
}

static void give(turns_t *turns, turn_t *turn)
{
    ++turns->taken;
    turn->has_place = true;
    loop_timer_start(turns->loop, &turn->hold, TURN_HOLD_MS);
}

static void give_next(turns_t *turns)
{
    turn_t *turn = turns->first;
    if (turn == NULL || turns->taken >= turns->places)
        return;
    turns->first = turn->next;
    if (turns->first == NULL)
        turns->last = NULL;
    give(turns, turn);
    co_wake(turn->co);
}

static void give_up(turn_t *turn)
{
    loop_timer_stop(&turn->hold);
    turn->has_place = false;
    --turn->turns->taken;
    give_next(turn->turns);
}

static void on_hold(loop_timer_t *timer)
{
    give_up(timer->data);
}

static void add(turns_t *turns, turn_t *turn)
{
    if (turns->last != NULL)
        turns->last->next = turn;
    else
        turns->first = turn;
    turns->last = turn;
}

/* Also of one that is not there: it was given a place meanwhile. */
static void take_out(turns_t *turns, const turn_t *turn)
{
    turn_t *before = NULL;
    for (turn_t *at = turns->first; at != NULL; before = at, at = at->next) {
        if (at != turn)
            continue;
        if (before != NULL)
            before->next = at->next;
        else
            turns->first = at->next;
        if (turns->last == at)
            turns->last = before;
        return;
    }
}

static bool is_waiting(const turns_t *turns, const turn_t *turn)
{
    for (const turn_t *at = turns->first; at != NULL; at = at->next)
        if (at == turn)
            return true;
    return false;
}

void turn_take(turns_t *turns, turn_t *turn, uint32_t wait_ms)
{
    uint64_t now_ms = clock_mono_ms(), until_ms = now_ms + (wait_ms < TURN_WAIT_MS ? wait_ms : TURN_WAIT_MS);
    *turn = (turn_t){.turns = turns, .co = co_self()};
    loop_timer_init(&turn->hold, on_hold, turn);
    if (turns->taken < turns->places) {
        give(turns, turn);
        return;
    }
    add(turns, turn);
    /* One whose place was given and whose time with it is over already has begun all the same. */
    for (; is_waiting(turns, turn) && now_ms < until_ms; now_ms = clock_mono_ms())
        if (co_wait(until_ms - now_ms) == CO_CANCELED)
            break;
    take_out(turns, turn);
}

void turn_leave(turn_t *turn)
{
    if (turn->has_place)
        give_up(turn);
}
