"""The faults this stand-in knows: each action's parameters, and the phase it belongs to when a rule names none."""

ACTIONS = {
    "delay": {"ms", "jitter_ms"},
    "respond": {"status", "headers", "body", "content_type"},
    "drop": {"after_bytes", "how"},
    "truncate": {"keep_bytes"},
    "malform_create": {"kind"},
    "ghost_create": {"appear_after_ms", "answer"},
    "lost_delete": {"kind", "ms"},
    "stale_list": {"ms"},
    "bad_pages": {"kind", "page"},
    "vanish": {"after_frames", "ms", "how"},
    "stream": {"kind", "after_end"},
    "split": {"bytes"},
    "keepalives": {"every_ms"},
    "flood": {"bytes"},
    "stall": {"ms", "after_frames", "after_bytes"},
    "wedge_after_resume": set(),
    "envd_down": {"ms"},
    "pause_fail": {"kind"},
    "network_sticky": set(),
    "readback": {"set", "drop"},
    "fs_500": {"path"},
    "fs_507": {"path"},
    "fifo_hang": {"path"},
    "endless_file": {"path"},
    "lost_upload": {"path", "keep_bytes"},
    "clock_skew": {"ms"},
}
PHASES = {"truncate": "body", "split": "body", "vanish": "frames", "stream": "frames", "keepalives": "frames", "flood": "frames", "stall": "frames"}
# What the work itself does differently; all other actions are done around it.
OF_THE_WORK = {"malform_create", "ghost_create", "lost_delete", "stale_list", "bad_pages", "wedge_after_resume", "pause_fail", "network_sticky", "fs_500",
               "fs_507", "fifo_hang", "endless_file", "clock_skew", "readback", "lost_upload"}
