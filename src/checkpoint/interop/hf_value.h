/* hf_value.h -- reads numbers of config.json and of params.json. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "base/status.h"

/* `fallback` replaces a missing key or null; 0: the key is required.  DATA: not a whole number from
 * 1 to INT32_MAX. */
enum status hf_value_size(const struct json *root, const char *key, int64_t fallback, int *out);
/* `fallback` replaces a missing key or null.  DATA: not a number, negative or not finite. */
enum status hf_value_real(const struct json *object, const char *key, double fallback, double *out);
/* The same without a default.  DATA: also a missing key. */
enum status hf_value_required_real(const struct json *object, const char *key, double *out);
