/* block_call.h -- a block that is open, and the tokens that it is applied to. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/activations.h"
#include "model/model.h"

struct block_call {
    const struct model *m;
    int layer;
    size_t N;
    const struct activations *a;
};
