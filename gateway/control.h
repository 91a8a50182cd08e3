/* How the parent and its roles find and address each other: frame types of control.proto, inherited descriptors, socket
 * paths. */
#ifndef GATEWAY_CONTROL_H
#define GATEWAY_CONTROL_H

enum { CONTROL_CALLERS = 16, CONTROL_DRAIN = 17, CONTROL_SERVING = 18, CONTROL_PRICES = 19 };

/* Descriptors a role inherits. */
enum { ROLE_FD_PARENT = 3, ROLE_FD_LISTEN = 4, ROLE_FD_METRICS = 5 };

/* argv[0] of a role: the front, and "plimsolld-backend-" with the backend's name. */
#define ROLE_ARGV_FRONT "plimsolld-front"
#define ROLE_ARGV_BACKEND "plimsolld-backend-"

/* The Unix socket a backend role listens on: STATE_DIR/run/NAME.sock. Malloc'ed. */
char *control_backend_path(const char *name);
/* STATE_DIR/run/redis.sock of the private Redis. Malloc'ed. */
char *control_redis_path(void);

#endif
