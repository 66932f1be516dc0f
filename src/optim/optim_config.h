/* optim_config.h -- the options of [optimizer] and [lr_scheduler]. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/option.h"

/* The words of optimizer.implementation.  Not an ENUM row, as "for-loop" is not a C identifier. */
#define IMPLEMENTATION_LIST(X) X(for_loop, "for-loop") X(foreach, "foreach") X(fused, "fused")

#define IMPLEMENTATION_WORD(name, word) "|" word
#define IMPLEMENTATION_WORDS            (&("" IMPLEMENTATION_LIST(IMPLEMENTATION_WORD))[1])

enum implementation {
#define X(name, word) IMPLEMENTATION_##name,
    IMPLEMENTATION_LIST(X)
#undef X
};

#define OPT OPT_ENUM
#include "optim/lr_scheduler.opts"
#include "optim/optimizer.opts"
#undef OPT

#define OPT OPT_FIELD
struct optimizer_config {
#include "optim/optimizer.opts"
};
struct lr_scheduler_config {
#include "optim/lr_scheduler.opts"
};
#undef OPT
