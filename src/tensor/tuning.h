/* tuning.h -- which way of computing a product of matrices was the fastest, kept in a file from run
 * to run.
 *
 * File     JSON: {"format": 1, "products": {KEY: WAY, ...}}.  A key says the backend and its
 *          kernels, the processor, the threads, and the product: its kind, sizes, types, and
 *          whether it adds to what is there.  A way is a name of the backend's.
 * Ranks    Each keeps what it found; entries of others stay.  Ways have the same bits, so ranks
 *          need not agree. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "tensor/dtype.h"

#include <stdbool.h>

struct tuned_device {
    const char *backend, *processor; /* "cpu avx512", "AMD EPYC 9B45" */
    int threads;
};
/* C[M, N] = A[M, K] B[K, N], or C +=; a transposed operand is stored the other way round. */
struct tuned_product {
    int M, N, K;
    bool transpose_a, transpose_b, accumulate;
    enum dtype dtype, out;
};
void tuning_key(struct text *key, const struct tuned_device *d, const struct tuned_product *p);

struct tuning {
    char *path;
    struct tuning_entry {
        char *key, *way;
        bool fresh; /* the file does not have it yet */
    } * entries;
    size_t count;
};

/* $XDG_CACHE_HOME/llamero/gemm.json, or ~/.cache/llamero/gemm.json; heap, NULL: neither is known.
 */
char *tuning_usual_path(void);
/* Reads the file; one that is damaged is warned of, and counts as empty. */
void tuning_open(struct tuning *t, const char *path);
void tuning_close(struct tuning *t);
const char *tuning_find(const struct tuning *t, const char *key); /* NULL: absent */
void tuning_put(struct tuning *t, const char *key, const char *way);
/* Adds what is fresh to what the file has by now, and replaces it at once or not at all.  IO: it
 * cannot be written. */
enum status tuning_save(struct tuning *t);
