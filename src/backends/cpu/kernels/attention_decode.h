/* attention_decode.h -- attention of a few queries over many keys, for decoding with a KV cache:
 * reads every key and value once, unpacked, and is bound by that. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/kernels.h"
#include "ops/attention.h"

enum { DECODE_MAX_QUERIES = 8 };

/* attention_forward for a->T of at most DECODE_MAX_QUERIES. */
enum status KERNEL(attention_decode)(const struct attention *a, const struct attention_fwd *io,
                                     struct queue *queue);
