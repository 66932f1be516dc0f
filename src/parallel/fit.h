/* fit.h -- whether sizes fit a mesh: every rule, told before anything is allocated. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/model_config.h"
#include "parallel/mesh.h"
#include "parallel/schedule.h"
#include "parallel/stages.h"

struct fit {
    const struct mesh *mesh;
    const struct model_shape *shape; /* NULL: what depends on the model is not looked at */
    const char *section;             /* of seq_len and local_batch_size: "training" */
    int64_t seq_len, local_batch_size;
    int64_t global_batch_size; /* below 1: whatever the data-parallel ranks make */
    int64_t micro_batch_size;  /* rows that go through the model at once */
    bool causal;
    /* Where there is more than one stage; pp and blocks are the mesh's and the model's. */
    struct stages stages;
    struct schedule schedule;
};

/* CONFIG: the first rule that does not hold; the key, its value, what it does not fit, and the
 * nearest values of that key, below and above, that fit all rules about it. */
enum status fit_check(const struct fit *f);
