// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/hf_value.h"

#include <math.h>

enum status hf_value_size(const struct json *root, const char *key, int64_t fallback, int *out)
{
    int64_t value = fallback;
    const struct json *v = json_get(root, key);
    if ((v && !json_is_null(v)) || fallback < 1) TRY(json_get_int(root, key, 1, INT32_MAX, &value));
    *out = (int)value;
    return STATUS_OK;
}

enum status hf_value_real(const struct json *object, const char *key, double fallback, double *out)
{
    const struct json *v = json_get(object, key);
    *out = v && json_is_number(v) ? json_number(v) : fallback;
    if (v && !json_is_null(v) && !json_is_number(v)) FAIL(DATA, "\"%s\": expected a number", key);
    if (!isfinite(*out) || *out < 0)
        FAIL(DATA, "\"%s\": %g is out of range: must be at least 0 and finite", key, *out);
    return STATUS_OK;
}

enum status hf_value_required_real(const struct json *object, const char *key, double *out)
{
    if (!json_is_number(json_get(object, key))) FAIL(DATA, "\"%s\": expected a number", key);
    TRY(hf_value_real(object, key, 0, out));
    return STATUS_OK;
}
