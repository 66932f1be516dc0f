/* config_diff.h -- `llamero config diff`: the effective values in which two configurations differ.
 */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>

/* Prints a line, or with is_json a JSON object, for each key that differs, in the order of
 * docs/options.md.  a and b are files, runs or checkpoints.  Errors of config_load. */
enum status config_diff_print(const char *a, const char *b, bool is_json);
