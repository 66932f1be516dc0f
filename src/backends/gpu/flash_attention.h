/* flash_attention.h (gpu) -- our own flash attention kernels: every mask, heads of at most
 * FLASH_ATTENTION_MAX_K elements.
 *
 * Order    The result's bits depend on the sizes and the mask only, not on the device's number of
 *          multiprocessors. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/runtime.h"
#include "ops/attention.h"

enum { FLASH_ATTENTION_MAX_K = 256 };

/* As the slots of ops.def.  UNSUPPORTED: larger heads. */
enum status GPU_NAME(flash_attention_forward)(const struct attention *,
                                              const struct attention_fwd *, struct queue *);
enum status GPU_NAME(flash_attention_backward)(const struct attention *,
                                               const struct attention_bwd *, struct queue *);
