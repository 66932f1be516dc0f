/* recipes.h -- the configurations `llamero init` prints. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

struct recipe {
    const char *name, *about, *toml;
};

extern const struct recipe recipes[]; /* ends with a NULL name */
