#include "cli/records_redis.h"

#include <stdio.h>

#include "config/options.h"
#include "config/options_rules.h"
#include "config/redis_settings.h"

/* The private Redis of PLIMSOLL_STATE_DIR when no other is named. */
static void name_private_redis(void)
{
    char url[4400];
    if (option_is_set(OPT_PLIMSOLL_REDIS_URL))
        return;
    snprintf(url, sizeof(url), "redis+unix://%s/run/redis.sock", option_str(OPT_PLIMSOLL_STATE_DIR));
    options_set(OPT_PLIMSOLL_REDIS_URL, url);
}

bool records_redis_address(redis_address_t *address)
{
    problems_t problems = {0};
    *address = (redis_address_t){0};
    options_load_role(ROLE_CLI, &problems, NULL);
    if (!is_installation_name(option_str(OPT_PLIMSOLL_INSTALLATION)))
        problems_add(&problems, "PLIMSOLL_INSTALLATION takes 1 to %d of a-z, 0-9 and -", INSTALLATION_NAME_MAX);
    if (problems.count == 0) {
        name_private_redis();
        redis_settings_read(address, &problems);
    }
    bool fine = problems.count == 0;
    for (size_t i = 0; i < problems.count; i++)
        fprintf(stderr, "plimsoll: error: %s\n", problems.texts[i]);
    problems_dispose(&problems);
    return fine;
}
