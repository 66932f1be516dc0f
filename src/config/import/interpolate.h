/* interpolate.h -- expands OmegaConf's ${...} in YAML.
 *
 * ${a.b} is a value by its path from the root, ${.x} one in the same mapping, ${..x} one in the
 * parent mapping; ${multiply:X,Y} is NxD Training's resolver.  The environment is not read. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formats/yaml_tree.h"

/* Expands all of them in place.  CONFIG: name:line:column, the expression and what is wrong. */
enum status interpolate(struct yaml_tree *root, const char *name);
