/*
 * The parent: reads the configuration, settles every local check, binds the listeners, starts the roles and the private
 * Redis, keeps them alive, hands the front its callers, and ends them in order. It parses nothing a stranger sent.
 */
#ifndef GATEWAY_PARENT_H
#define GATEWAY_PARENT_H

enum { EXIT_SERVED = 0, EXIT_BROKEN = 1, EXIT_CONFIGURATION = 2 };

/* The daemon. `self` is the path of this program. Returns the exit status. */
int parent_main(const char *self);

#endif
