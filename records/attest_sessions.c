#include "records/attest_sessions.h"

#include <stdlib.h>
#include <string.h>

#include "core/mem.h"

enum { SLOTS_FIRST = 64 };

/* A fingerprint is a SHA-256 already: its first digits are as good as any hash of it. */
static size_t slot_of(const attest_sessions_t *sessions, const char *session)
{
    uint64_t hash = 0;
    for (int i = 0; i < 16; i++)
        hash = hash * 31 + (uint8_t)session[i];
    hash ^= hash >> 29;
    size_t slot = (size_t)hash & (sessions->_slot_count - 1);
    while (sessions->_slots[slot] != 0 && strcmp(sessions->items[sessions->_slots[slot] - 1].session, session) != 0)
        slot = (slot + 1) & (sessions->_slot_count - 1);
    return slot;
}

static void make_room(attest_sessions_t *sessions)
{
    if (sessions->count == sessions->_cap) {
        size_t cap = sessions->_cap == 0 ? SLOTS_FIRST / 2 : 2 * sessions->_cap;
        attest_session_t *items = mem_alloc_array(cap, sizeof(*items));
        if (sessions->count != 0)
            memcpy(items, sessions->items, sessions->count * sizeof(*items));
        free(sessions->items);
        sessions->items = items;
        sessions->_cap = cap;
    }
    if (sessions->_cap * 2 == sessions->_slot_count)
        return;
    free(sessions->_slots);
    sessions->_slot_count = 2 * sessions->_cap;
    sessions->_slots = mem_alloc_array(sessions->_slot_count, sizeof(*sessions->_slots));
    for (size_t i = 0; i < sessions->count; i++)
        sessions->_slots[slot_of(sessions, sessions->items[i].session)] = (uint32_t)i + 1;
}

/* The session of this fingerprint, made when it is new. A bundle of 2^32 sessions would take terabytes. */
static attest_session_t *find(attest_sessions_t *sessions, const char *session)
{
    make_room(sessions);
    size_t slot = slot_of(sessions, session);
    if (sessions->_slots[slot] == 0) {
        memcpy(sessions->items[sessions->count].session, session, SHA256_HEX + 1);
        sessions->_slots[slot] = (uint32_t)++sessions->count;
    }
    return &sessions->items[sessions->_slots[slot] - 1];
}

const char *attest_sessions_call(attest_sessions_t *sessions, const Plimsoll__V1__RunRecord *record)
{
    attest_session_t *session = find(sessions, record->session);
    if (session->is_closed)
        return "a session's call stands after the session's close";
    if (record->sequence != session->calls + 1)
        return "a session's calls are not numbered without a gap";
    if (strcmp(record->previous_sha256, session->last_record_sha256) != 0)
        return "a session's call does not name the record before it";
    session->calls++;
    memcpy(session->last_record_sha256, record->record_sha256, SHA256_HEX + 1);
    return NULL;
}

const char *attest_sessions_close(attest_sessions_t *sessions, const attest_close_t *close)
{
    attest_session_t *session = find(sessions, close->session);
    if (session->is_closed)
        return "a session is closed twice";
    if (close->calls != session->calls)
        return "a session's close states another number of calls";
    if (strcmp(close->last_record_sha256, session->last_record_sha256) != 0)
        return "a session's close does not name its last record";
    session->is_closed = true;
    return NULL;
}

const attest_session_t *attest_sessions_open(const attest_sessions_t *sessions)
{
    for (size_t i = 0; i < sessions->count; i++)
        if (!sessions->items[i].is_closed)
            return &sessions->items[i];
    return NULL;
}

void attest_sessions_dispose(attest_sessions_t *sessions)
{
    free(sessions->items);
    free(sessions->_slots);
    *sessions = (attest_sessions_t){0};
}
