/* machine.h (machine) -- opens the devices and transports that [device] selects: the one room that
 * names them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/parallel_config.h"
#include "tensor/device_config.h"
#include "tensor/dtype.h"
#include "train/machine.h"

#include <stdbool.h>

/* Whether this program computes on a GPU if the machine has one.  UNSUPPORTED: it was built without
 * the backend that device.kind names. */
enum status machine_uses_gpu(const struct device_config *c, bool *gpu);
/* Opens the device of a run of one rank.  UNSUPPORTED: as machine_uses_gpu. */
enum status machine_open(struct machine *m, const struct device_config *c);
/* Opens m->world, the ranks that were launched together.  From here on only rank 0 logs messages
 * below warnings.  Collective.  UNSUPPORTED, COMM: as launch_open.  CONFIG: ranks run different
 * builds of the program. */
enum status machine_join(struct machine *m);
/* Then opens the mesh, its groups, and each rank's device.  Collective.  CONFIG: the mesh needs
 * another number of ranks, or ranks have different devices or kernels. */
enum status machine_open_ranks(struct machine *m, const struct device_config *c,
                               const struct parallelism_config *p);
/* Sets the mesh and groups of one rank, for callers that open the device themselves. */
enum status machine_alone(struct machine *m);
/* `how` the run ended.  After a local failure this does not wait for other ranks, and main aborts
 * all of them. */
void machine_close_ranks(struct machine *m, enum status how);
void machine_close(struct machine *m);
/* For a simulated mesh: as in a run on it over NCCL, GEMMs leave the multiprocessors of a GPU that
 * messages between pipeline stages occupy. */
void machine_share_gpu(const struct machine *m, const struct device_config *c);
/* Chooses the kernel of each GEMM from here on.  With device.tune_gemm sizing passes time those
 * that no file has (tensor/tuning.h), for at most budget_s (0: the default); without it a GPU uses
 * device.tune_file, if set, and the file that is shipped with the program. */
void machine_tune(struct machine *m, const struct device_config *c, double budget_s);
/* Sets m->peak_flops, for MFU, in this dtype: measured on a CPU, which takes about 50 ms; from
 * m->hardware on a GPU. */
void machine_measure_peak(struct machine *m, enum dtype dtype);
