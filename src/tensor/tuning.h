/* tuning.h -- GEMM autotuning results: the fastest variant of each matrix multiply, kept in a
 * file across runs.
 *
 * File     JSON: {"format": 2, "gemms": {KEY: VARIANT, ...}}.  A key has the backend and its
 *          kernels (for a library its version), the processor, the threads, and the matrix
 *          multiply: transposes, sizes, dtypes, and whether it accumulates.  A variant is a name
 *          of the backend's: a tile configuration or an algorithm of a library.
 * Lookup   The user's file, then the one that is shipped with the program.
 * Ranks    Each rank saves what it measured and keeps the entries of others.  On `cpu` all
 *          variants give the same bits, so ranks need not agree. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "tensor/dtype.h"

#include <stdbool.h>

/* What to do about GEMMs that a backend can tune. */
struct tuning_files {
    const char *path;    /* the user's; NULL: none */
    const char *shipped; /* never written; NULL: none */
    bool measures;       /* time GEMMs that are in neither file, and save the fastest to `path` */
    double budget_s;     /* for timing all GEMMs; 0: the backend's default */
};

struct tuned_device {
    const char *backend, *processor; /* "cpu avx512", "AMD EPYC 9B45" */
    int threads;
};
/* C[M, N] = A[M, K] B[K, N], or C +=; a transposed operand is stored as its transpose. */
struct tuned_matmul {
    int M, N, K;
    bool transpose_a, transpose_b, accumulate;
    enum dtype dtype, out;
};
void tuning_key(struct text *key, const struct tuned_device *d, const struct tuned_matmul *p);

struct tuning {
    char *path;
    struct tuning_entry {
        char *key, *variant;
        bool is_new; /* not in the file yet */
    } * entries;
    size_t count;
};

/* $XDG_CACHE_HOME/llamero/gemm.json or ~/.cache/llamero/gemm.json, on the heap; NULL if neither
 * variable is set. */
char *tuning_default_path(void);
/* The file that is shipped with the program, on the heap: gemm.json in ../share/llamero, or in
 * ../tuning of a built tree, seen from the program's folder; NULL if neither exists. */
char *tuning_shipped_path(void);
/* Reads the file if it exists; a damaged one is ignored, with a warning, and tuning_save replaces
 * it. */
void tuning_open(struct tuning *t, const char *path);
void tuning_close(struct tuning *t);
const char *tuning_find(const struct tuning *t, const char *key); /* NULL: absent */
void tuning_set(struct tuning *t, const char *key, const char *variant);
/* Merges new entries with those now in the file and replaces it atomically; does nothing without
 * new entries.  IO: it cannot be written. */
enum status tuning_save(struct tuning *t);
