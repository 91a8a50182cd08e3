#include "config/options.h"

const option_t OPTIONS[OPTION_COUNT] = {
#define OPTION(name, type, fallback, min, max, roles, group, doc)                                                      \
    [OPT_##name] = {#name, type, fallback, min, max, roles, group, doc},
#include "config/options.def"
#undef OPTION
};
