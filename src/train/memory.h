/* memory.h -- what a rank's memory goes to.  Units are bytes. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>

/* name in `plan --json`, what it holds */
#define MEMORY_LIST(X)                                                                             \
    X(weights, "master weights, f32; split: the 16 bits that computing weights lack")              \
    X(compute_weights, "the weights forward and backward read, where they are not the masters")    \
    X(optimizer, "first and second moments")                                                       \
    X(gradients, "gradients, f32")                                                                 \
    X(gathered, "units whose weights are gathered or whose gradients are being summed")            \
    X(activations, "what forward keeps for backward, and buffers of a step")                       \
    X(scratch, "working memory of one operation")                                                  \
    X(batch, "token ids and labels of a step, rotary tables, scales of float8")                    \
    X(data, "documents and rows read ahead")                                                       \
    X(checkpoint, "the state that is being written: blocks of files, and a copy")                  \
    X(program, "the program, its libraries and the tokenizer; on a GPU what is in use there")

enum memory_kind {
#define X(name, text) MEMORY_##name,
    MEMORY_LIST(X)
#undef X
        MEMORY_COUNT
};

struct memory_plan {
    size_t bytes[MEMORY_COUNT];
};

const char *memory_name(enum memory_kind kind);
const char *memory_text(enum memory_kind kind);
size_t memory_total(const struct memory_plan *p);
/* Warns where a process is about to take more than is available, for which systems end it. */
void memory_warn(size_t needed, size_t available);
