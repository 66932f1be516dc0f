/* described_gpu.h -- a GPU that need not be present, for sizing passes: its operations reserve the
 * scratch memory that the GPU backend's would, and compute nothing. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"
#include "perf/gpu_scratch.h"
#include "perf/step_simulator.h"
#include "train/machine.h"
#include "train/memory_plan.h"

struct described_gpu {
    struct simulated_queue queue; /* first, so that on_call can cast */
    struct gpu_traits traits;
};

/* Sets m->ops and m->queue, which point into *g, to the GPU that device.hardware names. */
void described_gpu_open(struct described_gpu *g, const struct device_config *c, struct machine *m);
void described_gpu_close(struct described_gpu *g);

/* Adds the device memory that the GPU's context takes, about. */
void described_gpu_add_context(struct memory_plan *plan);
/* Adds what the communicators of a rank of any GPU take, about.  `m` has the run's mesh, at the
 * rank's pipeline stage. */
void described_gpu_add_communicators(const struct config *c, const struct model_shape *shape,
                                     const struct machine *m, double node_ranks,
                                     struct memory_plan *plan);
