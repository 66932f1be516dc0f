/* nxdt.h -- reads the weights of checkpoints of NxD Training and of its converter.
 *
 * Axes     H query heads, G key/value heads, T tensor-parallel ranks, m ranks that share a
 *          key/value head (kv_size_multiplier).
 * A rank's tensors have Hugging Face's names and row order, except q, k and v, which may be
 * qkv_proj.weight_q and so on, or concatenated by rows in qkv_proj.weight_qkv or qkv_proj.weight,
 * and gate_up_proj, which has the rank's slices of both.  A tensor is in the rank's file X.pt, or
 * (xser) alone in X.pt.tensors/tensor_N.pt.
 * Heads    With m > 1, G m = T.  Interleaved, as on trn1: rank r has key/value head r mod G, and of
 *          T blocks of query heads the one that attends to it, m (r mod G) + r / G.  Adjacent, as
 *          on trn2: rank r has key/value head r / m and block r. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/nxdt_files.h"
#include "checkpoint/interop/tensor_slices.h"

struct nxdt_heads {
    int64_t ranks, copies, kv_heads; /* T, m, G */
    bool adjacent;
};
/* Which of T equal blocks of query heads a rank has. */
int64_t nxdt_query_block(const struct nxdt_heads *h, int64_t rank);
/* Which of T / m equal blocks of key/value heads a rank has. */
int64_t nxdt_key_block(const struct nxdt_heads *h, int64_t rank);

/* A fused tensor: several of our tensors, concatenated by rows. */
struct nxdt_fused {
    const char *form; /* %d: the layer */
    int count;
    enum param_id ids[3];
};
enum { NXDT_FUSED = 6 };
extern const struct nxdt_fused nxdt_fused[NXDT_FUSED];

/* Opens the tensors of a model of this shape.  The order of heads is derived from which ranks have
 * equal key/value heads.  DATA: a file is malformed; the message names it.  UNSUPPORTED: another
 * kind of replication.  MISSING: `shape` is NULL. */
enum status nxdt_open(struct tensor_slices *slices, const char *path,
                      const struct model_shape *shape);
