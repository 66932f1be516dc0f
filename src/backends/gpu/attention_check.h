/* attention_check.h (gpu) -- compares a library's attention with our own kernels on a small input,
 * so that one that computes nothing, or something else, is found before it is used.
 *
 * Memory   Device memory and scratch of its own, some MiB, and what the library's plans need. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/attention_part.h"

/* What is compared besides causal attention to all keys of a row. */
struct attention_case {
    bool documents, window;
    bool parts; /* without these: the library computes parts of the keys, too */
};

/* Forward of one causal row in bf16, with two heads of head_size elements, of two documents or with
 * a sliding window as `what` says, and backward if the library computes that.  Parts: of two rows
 * the three rectangles that ring attention has, one after the other.  UNSUPPORTED: it has no
 * forward, its results differ, or a call fails though the device works.  MEMORY: not enough device
 * memory.  DEVICE: the device fails. */
enum status GPU_NAME(attention_check)(const struct attention_library *l, struct attention_case what,
                                      int head_size, struct queue *queue);
