/* attention_few.h -- attention of a few queries over many keys, as decoding does it: every key and
 * value is read once, where it lies, and that is what takes the time. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/kernels.h"
#include "ops/attention.h"

enum { DECODE_MAX_QUERIES = 8 };

/* attention_forward where a->T is at most FEW_QUERIES. */
enum status KERNEL(attention_decode)(const struct attention *a, const struct attention_fwd *io,
                                     struct queue *queue);
