// SPDX-License-Identifier: Apache-2.0
#include "model/recompute.h"

#include <stdlib.h>
#include <string.h>

enum status recompute_resolve(const struct activation_checkpoint_config *c, enum recompute *kind,
                              int *every)
{
    switch (c->mode) {
    case ACTIVATION_CHECKPOINT_none: *kind = RECOMPUTE_NONE; break;
    case ACTIVATION_CHECKPOINT_selective:
    case ACTIVATION_CHECKPOINT_memory_budget: *kind = RECOMPUTE_SELECTIVE; break;
    case ACTIVATION_CHECKPOINT_full: *kind = RECOMPUTE_FULL; break;
    }
    *every = 1;
    if (c->mode != ACTIVATION_CHECKPOINT_selective || !strcmp(c->selective_ac_option, "op"))
        return STATUS_OK;
    char *end;
    long n = strtol(c->selective_ac_option, &end, 10);
    if (end == c->selective_ac_option || *end || n < 1 || n > 4096)
        FAIL(CONFIG,
             "activation_checkpoint.selective_ac_option = \"%s\": expected \"op\" or a number from "
             "1 to 4096",
             c->selective_ac_option);
    *kind = RECOMPUTE_FULL;
    *every = (int)n;
    return STATUS_OK;
}
