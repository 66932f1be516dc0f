/* recipes.h -- the configurations that `llamero init` prints: configs/ as of this build. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

struct recipe {
    const char *name, *toml; /* its first line is a comment that describes the recipe */
};

extern const struct recipe recipes[]; /* ends with a NULL name */

/* The recipe of that name, else the only one called NAME-..., scaled-down ones (-mini) aside; NULL
 * without one.  `others`: the names, if there are several. */
const struct recipe *recipes_find(const char *name, struct text *others);
