/* machine.h (app) -- opens the backend that [device] asks for: the one place that names them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/parallel_config.h"
#include "tensor/device_config.h"
#include "tensor/dtype.h"
#include "train/machine.h"

#include <stdbool.h>

/* Whether this program computes on a GPU where there is one.  UNSUPPORTED: it has no backend for
 * the device that is asked for. */
enum status machine_kind(const struct device_config *c, bool *gpu);
/* UNSUPPORTED: as machine_kind. */
enum status machine_open(struct machine *m, const struct device_config *c);
/* Finds the ranks that were started together, m->world.  From here on rank 0 alone logs what is no
 * warning.  Collective.  UNSUPPORTED, COMM: see launch_open. */
enum status machine_join(struct machine *m);
/* Then opens each rank's device, with the mesh and groups of `p`.  Collective.  CONFIG: the mesh
 * has another number of ranks. */
enum status machine_open_ranks(struct machine *m, const struct device_config *c,
                               const struct parallelism_config *p);
/* The mesh and groups of one rank, for a machine in the making. */
enum status machine_alone(struct machine *m);
/* `how` the run ended: where that is a failure that not all ranks know of, nothing is waited for,
 * and main ends all ranks. */
void machine_close_ranks(struct machine *m, enum status how);
void machine_close(struct machine *m);
/* With device.tune_gemm, measuring passes choose each product's fastest way from here on. */
void machine_tune(struct machine *m, const struct device_config *c);
/* Measures what a CPU can do in a burst of about 50 ms, for MFU; of a GPU a table says it. */
void machine_measure_peak(struct machine *m, enum dtype dtype);
