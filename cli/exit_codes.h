/*
 * What the command's exit status says. A run's own exit code passes through (0 to 255, so a guest may end with any of
 * these too:
 * --json tells them apart); the numbers for everything else are those of sysexits.h. The one place they are named;
 * `plimsoll --help` prints EXIT_CODES_HELP.
 */
#ifndef CLI_EXIT_CODES_H
#define CLI_EXIT_CODES_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CLI_OK = 0,
    CLI_FAILED = 1, /* a command that runs nothing failed */
    CLI_USAGE = 2,
    CLI_NO_INPUT = 66,
    CLI_REFUSED = 69,
    CLI_MAY_HAVE_RUN = 70,
    CLI_OUTPUT_LOST = 74,
    CLI_TRY_LATER = 75,
    CLI_DOES_NOT_HOLD = 76,
    CLI_CONFIG = 78,
    CLI_TIMED_OUT = 124,
    CLI_OUT_OF_RANGE = 255,
};

#define EXIT_CODES_HELP                                                                                                \
    "Exit codes of `plimsoll run`:\n"                                                                                  \
    "  0-255  the run's own exit code, a project's last step's (255 also stands for one that does not fit, such as\n"  \
    "         -1)\n"                                                                                                   \
    "  124    the run used up its time\n"                                                                              \
    "  2      usage: nothing was sent\n"                                                                               \
    "  66     the input could not be read: nothing was sent\n"                                                         \
    "  69     refused: nothing ran\n"                                                                                  \
    "  70     no verdict: it may have run, or the project did not come to its end\n"                                   \
    "  74     it ran, but its output could not be written here\n"                                                      \
    "  75     refused for want of capacity: nothing ran, send it again later\n"                                        \
    "  76     an answer came that does not hold (record, binding or floor): it may have run\n"                         \
    "  78     a setting of this command is wrong (URL, token): nothing was sent\n"                                     \
    "A guest may end with one of these numbers as well; --json says which it was in `verdict`.\n"                      \
    "The other commands: 0 done, 1 failed, 2 usage, 76 a stored record does not hold.\n"

/* The status for an answered run. */
static inline int exit_code_of_run(int32_t exit_code, bool timed_out)
{
    if (timed_out)
        return CLI_TIMED_OUT;
    /* wait(2) keeps eight bits: -1 or 256 must not come out as another run's success. */
    return exit_code >= 0 && exit_code <= 255 ? (int)exit_code : CLI_OUT_OF_RANGE;
}

#endif
