/* Commands in a sandbox and what their results mean (spec 4.3 and 4.4). */
#ifndef BACKENDS_DOCKERCLOUD_COMMANDS_H
#define BACKENDS_DOCKERCLOUD_COMMANDS_H

#include "backends/dockercloud/api.h"

enum {
    DC_LATE_MS = 350,       /* an answer may come so much after the deadline: nothing is told before a command's end */
    DC_SPARE_MAX_MS = 1000, /* the guest's own limit comes earlier by as much as a command's way takes, up to this */
    DC_QUIET_CAP = 128 * 1024, /* bytes of a stream of the gateway's own commands: 201 paths of 240 bytes and a word */
};

/* cloud_ops_t.step. */
bool dc_step(dc_t *dc, cloud_box_t *box, const cloud_command_t *command, cloud_limits_t *limits, guest_step_t *out,
             cloud_trouble_t *trouble);
/* What a command's end means, apart from how it came: `limit_ms` was the guest's, `took_ms` the whole call's. */
void dc_step_read(const dc_exec_t *exec, bool is_flood, uint32_t limit_ms, uint64_t took_ms, cloud_limits_t *limits,
                  guest_step_t *out);
/* The guest's limit for a command that may last until `left_ms` are over, when a command's way has taken `way_ms`. */
uint32_t dc_guest_limit_ms(uint32_t left_ms, uint64_t way_ms);

/* cloud_ops_t.stage: directories, one upload, and a look at what arrived. */
bool dc_stage(dc_t *dc, cloud_box_t *box, const cloud_plan_t *plan, cloud_trouble_t *trouble);
/* cloud_ops_t.probe: that the bounds in the guest hold. */
bool dc_probe(dc_t *dc, cloud_box_t *box, cloud_trouble_t *trouble);

#endif
