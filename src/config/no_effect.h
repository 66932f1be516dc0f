/* no_effect.h -- settings that the rest of the configuration leaves without effect. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"

/* Appends a line "key = value has no effect: REASON" for each option that was set to another value
 * than its default, although the run never uses it; "key = value REASON" where it uses a part. */
void no_effect_find(const struct config *c, struct text *lines);
/* Logs those lines as warnings. */
void no_effect_log(const struct config *c);
