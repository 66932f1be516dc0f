/* fit.h -- whether model and batch sizes fit a mesh, checked before anything is allocated. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/model_shape.h"
#include "parallel/mesh.h"
#include "parallel/schedule.h"
#include "parallel/stages.h"

struct fit {
    const struct mesh *mesh;
    const struct model_shape *shape; /* NULL: skip the rules about the model */
    const char *section;             /* of the next two: "training" or "validation" */
    int64_t seq_len, local_batch_size;
    int64_t global_batch_size; /* below 1: local_batch_size times data-parallel ranks */
    int64_t micro_batch_size;  /* rows of a microbatch */
    bool even;                 /* all data-parallel ranks must have the same number of rows */
    bool causal;
    /* With more than one stage; pp and blocks are taken from the mesh and the model. */
    struct stages stages;
    struct schedule schedule;
};

/* CONFIG: names the first rule that does not hold: the key, its value, what it contradicts, and the
 * closest values of that key, below and above, that satisfy all rules about it. */
enum status fit_check(const struct fit *f);
