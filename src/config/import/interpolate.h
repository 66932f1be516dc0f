/* interpolate.h -- ${...} inside YAML, as OmegaConf has it.
 *
 * ${a.b} names a value from the root, ${.x} one beside, ${..x} one a level up; ${multiply:X,Y} is
 * NxD Training's product.  Nothing is read from the environment. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formats/yaml_tree.h"

/* Replaces them all, in place.  CONFIG: name:line:column, which one, and why it has no value. */
enum status interpolate(struct yaml_tree *root, const char *name);
