/* recipes.h -- the configurations that `llamero init` prints: configs/ as of this build. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

struct recipe {
    const char *name, *toml; /* its first line is a comment that describes the recipe */
};

extern const struct recipe recipes[]; /* ends with a NULL name */

/* The recipe of that name, else the first called NAME-..., except scaled-down ones (-mini); NULL if
 * neither exists. */
const struct recipe *recipes_find(const char *name);
