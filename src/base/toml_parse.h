/* toml_parse.h -- a strict parser for TOML 1.0 (toml.io/en/v1.0.0).
 *
 * Memory   The tree is the caller's, who frees it with toml_free.
 * Limits   Nesting 100 deep, 20000 members of one table or array. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/toml.h"

/* DATA: not TOML; the message has name:line:column and the reason. */
enum status toml_parse(const char *bytes, size_t len, const char *name, struct toml **out);
/* Parses one value, as on the right of an equals sign. */
enum status toml_parse_value(const char *bytes, size_t len, const char *name, struct toml **out);
