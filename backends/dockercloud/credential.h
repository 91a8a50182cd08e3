/* The credential of one sandbox's endpoint (REST, spec 2.5): one a run, minted again only when it would not outlive the
 * next call. Kept in locked memory, for the run alone. */
#ifndef BACKENDS_DOCKERCLOUD_CREDENTIAL_H
#define BACKENDS_DOCKERCLOUD_CREDENTIAL_H

#include "backends/dockercloud/api.h"

/* In a coroutine: one that outlives a call which ends by `call_deadline_us`, where there can be one. Good until it is
 * dropped. NULL with the trouble: the call that it was for was not sent. */
const char *dc_credential_get(dc_t *dc, cloud_box_t *box, uint64_t call_deadline_us, cloud_trouble_t *trouble);
/* Wiped. Harmless without one. */
void dc_credential_drop(cloud_box_t *box);

#endif
