/* product.h (cpu) -- matrix products of f32 by oneDNN, for every instruction set it knows.
 *
 * A product is compiled once for its kind and sizes and kept by the queue.
 * Memory   Of the queue's scratch.  On Intel's processors the fastest way packs operands into
 *          memory of its own: some tens of MB from malloc while a product runs, the same again the
 *          next time, which `plan` knows nothing of. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "tensor/dtype.h"
#include "tensor/queue.h"

#include <stdbool.h>

/* C[M, N] = A[M, K] B[K, N], with `accumulate` + D[M, N]; a transposed operand is the same memory
 * read the other way. */
struct product_shape {
    int M, N, K;
    enum dtype dtype, out;
    bool transpose_a, transpose_b, accumulate;
    bool scaled; /* the product is multiplied with `scale`; of bf16 only */
    float scale;
    /* How each matrix lies (panel.h), D as C does; of bf16 operands only, and of whole panels. */
    bool a_paneled, b_paneled, c_paneled;
};
/* Its matrices.  d may be c; without `accumulate` it is not read. */
struct product_io {
    const void *a, *b, *d;
    void *c;
};
/* dtype and out are F32.  DEVICE: oneDNN has no such product here. */
enum status product_multiply(const struct product_shape *s, const struct product_io *io,
                             struct queue *on);
/* "2.6.3": oneDNN's. */
void product_library_version(struct text *version);
