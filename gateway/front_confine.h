/* What the front gives up besides what every role does: starting programs and processes. It parses strangers' bytes and
 * needs neither. */
#ifndef GATEWAY_FRONT_CONFINE_H
#define GATEWAY_FRONT_CONFINE_H

/* After backend_confine, before any thread is started. NULL, or what could not be done. Not applied under a sanitizer.
 */
const char *front_confine(void);

#endif
