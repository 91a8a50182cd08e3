/* The address of somebody else's API, to which paths are appended (spec backend-dockercloud 0.2). A credential goes
 * there, so it is looked at before anything is sent. */
#ifndef CONFIG_BASE_URL_H
#define CONFIG_BASE_URL_H

#include <stdbool.h>
#include <stddef.h>

enum { BASE_URL_MAX = 1023, BASE_URL_HOST_MAX = 255 }; /* bytes */

/* NULL, or why it is none, for "... is \"text\": %s". Absolute; https, or http to a loopback host; a host, perhaps a
 * port and a path; no user, query or fragment; no percent-encoding, so that it has one spelling. */
const char *base_url_problem(const char *text);
/* Bytes without the slashes at the end, of a text that has no problem. */
size_t base_url_len(const char *text);
/* Its host in lower case, without the brackets of an IPv6 address. */
void base_url_host(const char *text, char host[BASE_URL_HOST_MAX + 1]);
/* "localhost" or a literal loopback address. */
bool base_url_is_loopback(const char *text);

#endif
