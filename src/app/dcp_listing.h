/* dcp_listing.h -- `checkpoint show --as`: the keys, dtypes and shapes that `convert --to dcp`
 * writes for a generation of torchtitan. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/dcp_generation.h"
#include "checkpoint/interop/model_files.h"

/* A model that the caller has opened; all pointers are borrowed. */
struct dcp_listing {
    const char *folder;
    const struct model_shape *shape;
    const struct layout *layout;
    const struct model_files *files;
    bool resumes; /* it has an optimizer and a step */
};

/* Prints to stdout. */
enum status dcp_listing_print(const struct dcp_listing *l, enum dcp_generation generation,
                              bool json);
