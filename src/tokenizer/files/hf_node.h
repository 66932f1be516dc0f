/* hf_node.h -- a component of tokenizer.json: a JSON object with a "type". */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"

#include <stdbool.h>

/* Whether the component has this type. */
bool hf_node_type_is(const struct json *v, const char *type);
/* The type, or "without a type", for messages. */
const char *hf_node_type(const struct json *v);
/* Whether a component or setting does nothing: absent, null, false, 0, "", an empty list or
 * Sequence. */
bool hf_node_is_noop(const struct json *v);
