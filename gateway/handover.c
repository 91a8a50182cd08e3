#include "gateway/handover.h"

#include "core/log.h"
#include "gateway/control.h"
#include "gateway/control.pb-c.h"

static void send_callers(const ground_t *ground, ipc_t *front)
{
    if (ground->callers_json == NULL || front == NULL)
        return;
    Plimsoll__Control__Callers m = PLIMSOLL__CONTROL__CALLERS__INIT;
    m.json = (ProtobufCBinaryData){ground->callers_len, (uint8_t *)ground->callers_json};
    if (ipc_send(front, CONTROL_CALLERS, 0, &m.base) != IPC_SENT)
        log_plain(LOG_ERROR, "the front does not take its callers");
}

static void send_prices(const ground_t *ground, ipc_t *front)
{
    if (ground->prices_json == NULL || front == NULL)
        return;
    Plimsoll__Control__Prices m = PLIMSOLL__CONTROL__PRICES__INIT;
    m.json = (ProtobufCBinaryData){ground->prices_len, (uint8_t *)ground->prices_json};
    if (ipc_send(front, CONTROL_PRICES, 0, &m.base) != IPC_SENT)
        log_plain(LOG_ERROR, "the front does not take its prices");
}

void handover_send(const ground_t *ground, ipc_t *front)
{
    send_prices(ground, front); /* first: the front serves once it has its callers */
    send_callers(ground, front);
}

static void log_problems(const char *message, problems_t *problems)
{
    for (size_t i = 0; i < problems->count; i++)
        log_event(LOG_ERROR, message, log_str("problem", problems->texts[i]));
    problems_dispose(problems);
}

static void reload_callers(ground_t *ground, ipc_t *front)
{
    problems_t problems = {0};
    if (ground_load_callers(ground, &problems)) {
        log_event(LOG_INFO, "callers reloaded", log_str("file", option_str(OPT_PLIMSOLL_CLIENTS_FILE)));
        send_callers(ground, front);
    }
    log_problems("callers file not taken over, the old set stays", &problems);
}

static void reload_prices(ground_t *ground, ipc_t *front)
{
    problems_t problems = {0};
    if (ground_load_prices(ground, &problems)) {
        log_event(LOG_INFO, "prices reloaded", log_str("file", option_str(OPT_PLIMSOLL_PRICES_FILE)));
        send_prices(ground, front);
    }
    log_problems("price file not taken over, the old table stays", &problems);
}

void handover_reload(ground_t *ground, ipc_t *front)
{
    bool has_callers = options_callers_mode() == CALLERS_FROM_FILE,
         has_prices = option_is_set(OPT_PLIMSOLL_PRICES_FILE);
    if (has_prices)
        reload_prices(ground, front);
    if (has_callers)
        reload_callers(ground, front);
    if (!has_callers && !has_prices)
        log_plain(LOG_WARN, "nothing to reload: no callers file is in use");
}
