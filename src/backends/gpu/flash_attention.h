/* attention_flash.h -- attention by our own kernels: heads of at most FLASH_K_MOST, every mask.
 *
 * Bits     Depend on the sizes and on what is masked, on no device's number of processors. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/runtime.h"
#include "ops/attention.h"

enum { FLASH_K_MOST = 256 };

/* As the slots of ops.def.  UNSUPPORTED: larger heads. */
enum status GPU_NAME(flash_forward)(const struct attention *, const struct attention_fwd *,
                                    struct queue *);
enum status GPU_NAME(flash_backward)(const struct attention *, const struct attention_bwd *,
                                     struct queue *);
