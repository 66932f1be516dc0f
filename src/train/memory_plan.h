/* memory_plan.h -- what a rank's memory is used for, in bytes.
 *
 * With a GPU a rank has two memories: the device's, and its part of the host's, pinned where
 * kernels or copies access it.  On a CPU there is one, and `host` is zero. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>

/* name in `plan --json`, contents */
#define MEMORY_LIST(X)                                                                             \
    X(weights, "master weights, f32; split: the low 16 bits of each")                              \
    X(compute_weights, "weights that forward and backward read, unless those are the masters")     \
    X(optimizer, "moments, moving average")                                                        \
    X(gradients, "gradients")                                                                      \
    X(gathered,                                                                                    \
      "gathered weights, FP8 copies, summed gradients, buffers of offloading and checks")          \
    X(activations, "activations saved for backward, and buffers of a step")                        \
    X(scratch, "working memory of one operation, that of libraries included")                      \
    X(batch, "token ids and labels of a step, RoPE tables, FP8 scales")                            \
    X(data, "prefetched documents and rows")                                                       \
    X(checkpoint, "a checkpoint being written: file blocks, and a copy of the state")              \
    X(program, "the program, its libraries and the tokenizer")                                     \
    X(context, "the GPU's context and libraries; on this machine's GPU, all memory in use")        \
    X(communication, "buffers of NCCL or RCCL, about")

enum memory_kind {
#define X(name, text) MEMORY_##name,
    MEMORY_LIST(X)
#undef X
        MEMORY_COUNT
};

struct memory_plan {
    size_t bytes[MEMORY_COUNT]; /* of the device */
    size_t host[MEMORY_COUNT];  /* of the host of a GPU */
};

const char *memory_plan_name(enum memory_kind kind);
const char *memory_plan_text(enum memory_kind kind);
size_t memory_plan_total(const struct memory_plan *p);
size_t memory_plan_host_total(const struct memory_plan *p);
/* For a CPU, whose device is the host: moves `host` to `bytes`. */
void memory_plan_merge_host(struct memory_plan *p);
/* Logs a warning if more memory is needed than is available: the OOM killer may end the process. */
void memory_plan_warn(size_t needed, size_t available);
