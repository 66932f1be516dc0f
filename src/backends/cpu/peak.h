/* peak.h -- what the cores can do at best, measured: the ceiling that MFU divides by.
 *
 * A burst of multiply-adds of the best instruction set, on registers only: AMX tiles or AVX-512 dot
 * products for bf16, or f32 fused multiply-adds where those are faster. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/dtype.h"
#include "tensor/queue.h"

/* FLOP/s over all threads of the queue: the best of several bursts, since other processes can only
 * take away; about 100 ms at most. */
double cpu_peak_flops(const struct queue *on, enum dtype dtype);
