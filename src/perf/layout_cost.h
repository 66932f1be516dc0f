/* layout_cost.h -- the memory and the step time of a run with given options on given ranks: what
 * `plan --fit` and `plan --search` compare.
 *
 * Units    Bytes, seconds. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"
#include "perf/described_gpu.h"
#include "perf/estimate.h"

/* What is the same for all layouts that are compared. */
struct cost_model {
    struct machine machine;          /* ops and queue of sizing passes */
    const struct described_gpu *gpu; /* that queue's; NULL: this machine's device */
    struct hardware hardware;        /* with memory_bytes */
    const struct model_shape *shape;
    double host_bytes;                    /* host memory of a rank; 0: unknown, or a CPU */
    size_t other_bytes, other_host_bytes; /* of a rank, whatever its layout: program, data, ... */
};

struct layout_cost {
    double memory_bytes, host_bytes; /* of the rank that needs the most of each */
    struct estimate estimate;
};

/* Memory of the fullest rank, by sizing passes of every stage.  Errors as trainer_plan. */
enum status layout_cost_memory(struct layout_cost *out, const struct cost_model *m,
                               const struct config *c, const struct mesh *mesh);
bool layout_cost_fits(const struct layout_cost *cost, const struct cost_model *m);
