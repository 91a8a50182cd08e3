/* A link over TLS: moves the bytes between the socket and hiredis' buffers, which hiredis does itself on plain sockets.
 */
#include "core/redis_link.h"

#include <sys/types.h>

#include "core/clock.h"
#include "core/tls_stream.h"
#include "core/watch.h"

enum {
    TLS_RECORD_MAX = 16 * 1024, /* RFC 8446 section 5.1: a read takes a whole record */
    TLS_READS_MAX = 8,          /* records taken before others have their turn */
};

/* Exported by hiredis for its own TLS (in a private header of later versions): answers read go to their callbacks. */
void redisProcessCallbacks(redisAsyncContext *ac);

static void want_write(redis_link_t *link, bool wanted)
{
    redis_link_watch(link, WATCH_READ | (wanted ? WATCH_WRITE : 0));
}

static void tls_write(redis_link_t *link)
{
    redisContext *c = &link->ac->c;
    size_t len = sdslen(c->obuf), done = 0;
    ssize_t n = 0;
    while (done < len && (n = tls_stream_write(link->_tls, c->obuf + done, len - done)) > 0)
        done += (size_t)n;
    if (n < 0) {
        redis_link_fail(link, tls_stream_error(link->_tls));
        return;
    }
    if (done == len) {
        sdsfree(c->obuf); /* as hiredis does: one large command does not keep its room */
        c->obuf = sdsempty();
    } else if (done != 0) {
        sdsrange(c->obuf, (ssize_t)done, -1);
    }
    want_write(link, done != len && tls_stream_wants_write(link->_tls));
}

static void tls_read(redis_link_t *link)
{
    redisAsyncContext *ac = link->ac;
    char bytes[TLS_RECORD_MAX];
    ssize_t n = 0;
    for (int i = 0; i < TLS_READS_MAX || tls_stream_has_more(link->_tls); i++) {
        if ((n = tls_stream_read(link->_tls, bytes, sizeof(bytes))) <= 0)
            break;
        link->heard_at = clock_mono_ms();
        if (redisReaderFeed(ac->c.reader, bytes, (size_t)n) != REDIS_OK) {
            redis_link_fail(link, "an answer that is not of the protocol");
            return;
        }
        redisProcessCallbacks(ac);
        redis_link_heed_length(link);
        if (link->ac != ac)
            return;
    }
    if (n < 0)
        redis_link_fail(link, tls_stream_error(link->_tls));
}

void redis_link_secure(redis_link_t *link)
{
    if (link->_tls == NULL)
        link->_tls = tls_stream_create(link->address.tls, link->ac->c.fd, redis_link_host(link));
    switch (tls_stream_handshake(link->_tls)) {
    case TLS_STREAM_FAILED:
        redis_link_fail(link, tls_stream_error(link->_tls));
        break;
    case TLS_STREAM_LATER:
        want_write(link, tls_stream_wants_write(link->_tls));
        break;
    case TLS_STREAM_DONE:
        want_write(link, false);
        link->state = LINK_GREETING;
        redis_link_greet(link);
        break;
    }
}

void redis_link_tls_event(redis_link_t *link, unsigned events)
{
    if (link->state == LINK_SECURING) {
        redis_link_secure(link);
        return;
    }
    if ((events & WATCH_READ) != 0)
        tls_read(link);
    /* reading may have been what a write waited for */
    if (link->_tls != NULL && link->ac != NULL)
        tls_write(link);
}
