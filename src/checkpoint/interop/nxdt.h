/* nxdt.h -- the weights of checkpoints of NxD Training, and of its converter.
 *
 * Axes     H query heads, G key and value heads, T ranks of tensor parallelism, m ranks that have
 *          the same key and value heads.
 * A rank's tensors have Hugging Face's names and order of rows, but for q, k and v, which may be
 * qkv_proj.weight_q and so on, or one below the other in qkv_proj.weight_qkv or qkv_proj.weight;
 * and gate_up_proj, which has the rank's part of both.  A tensor is in the rank's file X.pt, or
 * (xser) alone in X.pt.tensors/tensor_N.pt.
 * Heads    With m > 1, G m = T.  Interleaved, as on trn1, rank r has key head r mod G, and of T
 *          blocks of query heads the one that belongs with it: m (r mod G) + r / G.  Adjacent, as
 *          on trn2, rank r has key head r / m and block r. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/nxdt_files.h"
#include "checkpoint/interop/tensor_slices.h"

struct nxdt_heads {
    int64_t ranks, copies, kv_heads; /* T, m, G */
    bool adjacent;
};
/* Which of T even parts of the query heads rank r has. */
int64_t nxdt_query_block(const struct nxdt_heads *h, int64_t rank);
/* Which of T / m even parts of the key and value heads. */
int64_t nxdt_key_block(const struct nxdt_heads *h, int64_t rank);

/* The names of tensors that are several of ours; rows of the one below those of the other. */
struct nxdt_fused {
    const char *form; /* %d: the layer */
    int count;
    enum param_id ids[3];
};
enum { NXDT_FUSED = 6 };
extern const struct nxdt_fused nxdt_fused[NXDT_FUSED];

/* The tensors; `shape`: which model's.  Which order the heads have follows from which ranks'
 * key and value heads are the same.  DATA: what is wrong, and in which file.  UNSUPPORTED: other
 * numbers of copies.  MISSING: `shape` is NULL. */
enum status nxdt_open(struct tensor_slices *p, const char *path, const struct model_shape *shape);
