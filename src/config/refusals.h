/* refusals.h -- keys of other programs that would change the result and are not supported.
 *
 * Such a key is an error unless config.accept_loss names it; then it is a warning.
 * Memory   A list owns its strings. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "config/run_config.h"

struct refusals {
    struct refused_key {
        char *key;
        char *what; /* for messages: place, key, value and reason */
    } * items;
    size_t count;
};

void refusals_add(struct refusals *r, const char *key, const char *what);
void refusals_release(struct refusals *r);
/* Logs a warning for each key that is accepted.  CONFIG: some are not; the message lists them, and
 * the line that would accept them. */
enum status refusals_check(const struct refusals *r, const struct accept_config *a);
