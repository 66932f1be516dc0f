/* varlen.h (gpu) -- a batch with a document mask as a packed batch of variable-length sequences
 * (cuDNN's ragged tensors, FlashAttention's cu_seqlens).
 *
 * Each document becomes a sequence, whichever row of the batch it is in.
 * Axes     B rows of T tokens, H heads; N = B T tokens, numbered through the whole batch. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(__cplusplus)
extern "C" {
#endif
#include "base/status.h"
#include "tensor/queue.h"

#include <stdint.h>

/* Passed to kernels by value: so the launch copies it, and the host may change it afterwards. */
enum { VARLEN_MAX_SEQUENCES = 512 };
struct varlen {
    int count;
    int32_t cu_seqlens[VARLEN_MAX_SEQUENCES + 1]; /* first token of each; the last entry is N */
};

/* Lists in device memory that a ragged cuDNN graph reads. */
enum { VARLEN_LISTS = 4 };
struct varlen_offsets {
    int sequences;                        /* of the graph; those beyond the batch's are empty */
    int32_t *lengths;                     /* [sequences], tokens */
    int64_t *offsets[VARLEN_LISTS];       /* [sequences + 1], in elements of one tensor each */
    int64_t token_elements[VARLEN_LISTS]; /* elements per token of that tensor */
};

/* The bounds of the keys that each token sees, in host memory. */
struct varlen_bounds {
    const int32_t *start_BT, *end_BT;
    int B, T;
};

struct varlen_shape {
    int B, T, H;
};

/* find     reads the bounds.  False: they are not contiguous documents that fill the rows, or there
 *          are more than `max`.
 * write_offsets    fills in the lists.
 * to_heads, to_tokens    transposes [N, H] to [B, H, T], and back. */
#define VARLEN_BACKEND(prefix)                                                                     \
    bool prefix##_varlen_find(const struct varlen_bounds *bounds, int max, struct varlen *out);    \
    enum status prefix##_varlen_write_offsets(                                                     \
        const struct varlen *v, const struct varlen_offsets *to, struct queue *queue);             \
    enum status prefix##_varlen_to_heads(const float *from_NH, float *to_BHT,                      \
                                         struct varlen_shape shape, struct queue *queue);          \
    enum status prefix##_varlen_to_tokens(const float *from_BHT, float *to_NH,                     \
                                          struct varlen_shape shape, struct queue *queue);
VARLEN_BACKEND(gpu)
VARLEN_BACKEND(gpu_emu32)
VARLEN_BACKEND(gpu_emu64)
#undef VARLEN_BACKEND
#if defined(__cplusplus)
}
#endif
