/* The rules between the settings of counts, budgets, prices and what is kept of runs. */
#ifndef CONFIG_OPTIONS_BUDGETS_H
#define CONFIG_OPTIONS_BUDGETS_H

#include "config/options.h"

void options_budget_rules(problems_t *problems);

#endif
