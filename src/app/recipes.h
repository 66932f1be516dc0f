/* recipes.h -- the configurations `llamero init` prints: what configs/ held when this was built. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

struct recipe {
    const char *name, *toml; /* the first line says what it is, # in front */
};

extern const struct recipe recipes[]; /* ends with a NULL name */

/* The one of that name, or the first whose name begins with `name` and a - and is not another's in
 * little; NULL: neither. */
const struct recipe *recipe_find(const char *name);
