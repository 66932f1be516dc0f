/* checkpoint_answer.h -- what `llamero checkpoint` prints, and a run for it to read. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/rig.h"

struct answer {
    struct text out, err;
};

static inline void answer_release(struct answer *a)
{
    text_release(&a->out);
    text_release(&a->err);
}

/* A run's folder, with checkpoint/step-1 to step-3. */
static inline const char *dump_folder(struct saved *s)
{
    const char *folder = saved_folder(s, STEPS(1, 2, 3));
    return test_path(folder, "..");
}
