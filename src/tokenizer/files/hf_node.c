// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/files/hf_node.h"

bool hf_node_type_is(const struct json *v, const char *type)
{
    return json_string_is(json_get(v, "type"), type);
}

const char *hf_node_type(const struct json *v)
{
    const struct json *type = json_get(v, "type");
    return json_is_string(type) ? json_string(type) : "without a type";
}

bool hf_node_is_noop(const struct json *v)
{
    if (json_is_string(v)) return !json_string(v)[0];
    if (json_is_number(v)) return json_number(v) == 0;
    if (hf_node_type_is(v, "Sequence"))
        return !json_first(json_get(v, "normalizers")) && !json_first(json_get(v, "pretokenizers"));
    return !v || (!json_true(v) && !json_first(v));
}
