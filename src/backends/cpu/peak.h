/* peak.h -- what the cores can do at best, measured: the ceiling that MFU divides by.
 *
 * A burst of the widest multiply-add the build has for a dtype, on registers only: AMX tiles or
 * AVX-512 dot products for bf16, else f32 fused multiply-adds. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/dtype.h"
#include "tensor/queue.h"

/* FLOP/s over all threads of the queue: the best of several bursts, since other processes can only
 * take away; about 50 ms in all. */
double cpu_peak_flops(const struct queue *on, enum dtype dtype);
