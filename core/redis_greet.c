/* The first words on a connection, in one write: AUTH, SELECT, the home key, ROLE, PING. */
#include "core/redis_link.h"

#include <string.h>

/* Redis repeats the arguments of a command it does not know ("rename-command AUTH"), so AUTH's error text is never
 * passed on. */
static void on_auth(redisAsyncContext *ac, void *data, void *privdata)
{
    const redisReply *reply = data;
    (void)ac;
    if (reply == NULL || reply->type != REDIS_REPLY_ERROR)
        return;
    if (strncmp(reply->str, "WRONGPASS", 9) == 0 || strncmp(reply->str, "ERR invalid password", 20) == 0)
        redis_link_fail(privdata, "AUTH refused: wrong user or password");
    else if (strncmp(reply->str, "ERR AUTH <password> called without", 34) == 0)
        redis_link_fail(privdata, "AUTH refused: the server has no password");
    else
        redis_link_fail(privdata, "AUTH refused");
}

static void on_select(redisAsyncContext *ac, void *data, void *privdata)
{
    const redisReply *reply = data;
    (void)ac;
    if (reply != NULL && reply->type == REDIS_REPLY_ERROR)
        redis_link_fail(privdata, reply->str);
}

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool is_not_ready(const char *text)
{
    return starts_with(text, "LOADING") || starts_with(text, "MASTERDOWN") || starts_with(text, "NOAUTH");
}

/* Which node of a Cluster has the slot. Whatever else is answered is for ROLE, PING and the commands to find out. */
static void on_home(redisAsyncContext *ac, void *data, void *privdata)
{
    const redisReply *reply = data;
    (void)ac;
    if (reply == NULL || reply->type != REDIS_REPLY_ERROR)
        return;
    if (starts_with(reply->str, "MOVED "))
        redis_link_follow(privdata, reply->str);
    else if (starts_with(reply->str, "CLUSTERDOWN") || is_not_ready(reply->str))
        redis_link_fail(privdata, reply->str);
}

bool redis_link_is_role(const redisReply *reply, const char *role)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements != 0 && reply->element[0]->type == REDIS_REPLY_STRING &&
           strcmp(reply->element[0]->str, role) == 0;
}

/* A replica would refuse every write. Who may not ask for the ROLE, or has a proxy that does not know it, learns that
 * from the first write; where Sentinels name the server, it has to be certain. */
static void on_role(redisAsyncContext *ac, void *data, void *privdata)
{
    const redisReply *reply = data;
    redis_link_t *link = privdata;
    (void)ac;
    if (reply == NULL)
        return;
    if (reply->type == REDIS_REPLY_ERROR && is_not_ready(reply->str))
        redis_link_fail(link, reply->str);
    else if (redis_link_is_role(reply, "slave"))
        redis_link_fail(link, "the server is a replica");
    else if (redis_link_is_role(reply, "sentinel"))
        redis_link_fail(link, "the server is a Sentinel: the URL of those starts redis+sentinel://");
    else if (link->address.master != NULL && !redis_link_is_role(reply, "master"))
        redis_link_fail(link, reply->type == REDIS_REPLY_ERROR ? reply->str : "the server does not say its ROLE");
}

/* A user who may not PING has still been answered by a Redis. */
static bool is_greeting(const redisReply *reply)
{
    return (reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "PONG") == 0) ||
           (reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOPERM", 6) == 0);
}

static void on_ping(redisAsyncContext *ac, void *data, void *privdata)
{
    const redisReply *reply = data;
    redis_link_t *link = privdata;
    (void)ac;
    if (reply == NULL || link->state != LINK_GREETING)
        return;
    if (is_greeting(reply))
        redis_link_come_up(link);
    else
        redis_link_fail(link, reply->type == REDIS_REPLY_ERROR ? reply->str : "not a Redis server");
}

void redis_link_greet(redis_link_t *link)
{
    const redis_address_t *a = &link->address;
    const char *password = a->password != NULL ? a->password : "";
    if (a->user != NULL)
        redisAsyncCommand(link->ac, on_auth, link, "AUTH %s %s", a->user, password);
    else if (a->password != NULL)
        redisAsyncCommand(link->ac, on_auth, link, "AUTH %s", password);
    if (a->database != 0)
        redisAsyncCommand(link->ac, on_select, link, "SELECT %d", a->database);
    if (a->home != NULL)
        redisAsyncCommand(link->ac, on_home, link, "EXISTS %s", a->home);
    if (!a->is_sentinel)
        redisAsyncCommand(link->ac, on_role, link, "ROLE");
    redisAsyncCommand(link->ac, on_ping, link, "PING");
}
