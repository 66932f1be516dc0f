/* cpu.h (machine) -- opens the CPU backend, and describes its kernels and libraries. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "tensor/device_config.h"
#include "train/machine.h"

/* Sets m->queue and m->ops.  Uses device.threads threads, or else one for each of `cores`.
 * UNSUPPORTED: this processor or this program lacks the kernels that device.cpu names. */
enum status cpu_machine_open(struct machine *m, const struct device_config *c, int cores);
void cpu_machine_close(struct machine *m);
/* See machine_tune; the results are saved to `path`. */
void cpu_machine_tune(const struct machine *m, const char *path);
/* Selects the autotuned blocking of each GEMM shape, or the default, as without machine_tune. */
void cpu_machine_use_tuning(const struct machine *m, bool use);

/* Appends the ISAs that this program has kernels for and this processor supports, weakest first:
 * "avx2, avx512". */
void cpu_machine_list_isas(struct text *out);
/* The ISA that device.cpu = "auto" selects: the best of them.  NULL: none, only the reference
 * loops run. */
const char *cpu_machine_best_isa(void);
/* oneDNN's version, such as "2.6.3". */
void cpu_machine_onednn_version(struct text *version);
