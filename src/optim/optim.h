/* optim.h -- the optimizer: the factor that clips gradients, and AdamW; Muon is in muon.h.
 *
 * Axes     Flat buffers of this rank's shard of the model; weights, gradients and moments have the
 *          same layout, except that exp_avg_sq lacks what Muon updates. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "model/shard.h"
#include "ops/ops.h"
#include "optim/optim_config.h"
#include "optim/schedule.h"
#include "tensor/dtype.h"
#include "tensor/queue.h"
#include "tensor/store.h"

#include <stdbool.h>

/* The factor of torch.nn.utils.clip_grad_norm_: min(1, max_norm / (norm + 1e-6)); 1 if max_norm is
 * 0. */
double optim_clip_factor(double norm, double max_norm);

struct optim_offload;
struct muon;

struct optim {
    const struct optimizer_config *config; /* borrowed */
    const struct layout *layout;           /* borrowed */
    const struct shard *shard;             /* borrowed */
    const struct shard *exp_avg_sq_shard;  /* borrowed; `shard` unless Muon omits some of it */
    float *weights;                        /* borrowed; flat master weights; NULL if split */
    void *exp_avg, *exp_avg_sq;            /* borrowed; flat */
    void *copy; /* borrowed; the weights the model computes with; NULL: `weights` */
    enum dtype copy_dtype;
    enum dtype gradients;                     /* default F32; BF16 not with Muon */
    enum dtype moments;                       /* BF16: v uses stochastic rounding (update.h) */
    const struct store_blocks *moment_blocks; /* INT8 (moments.h): of exp_avg and of exp_avg_sq */
    uint64_t seed;                            /* of stochastic rounding */
    bool split;    /* master weights are `copy`, in BF16, and `low` (split_half) */
    uint16_t *low; /* borrowed */
    /* The state is in pinned host memory: weights, low, exp_avg and exp_avg_sq, as far as
     * optimizer.offload says; borrowed; NULL: all of it is the device's. */
    struct optim_offload *offload;
    float *ema; /* borrowed; the weights' moving average (ema.h); NULL: none */
    /* For Muon, which gathers whole matrices; local, fsdp and tp are NULL on one rank. */
    const struct layout *local;   /* borrowed; of this rank's stages */
    const struct comm *fsdp, *tp; /* borrowed; the ranks that shard a matrix */
    int partition;                /* of this rank, among them: those of one `tp` are consecutive */
    struct muon *muon;            /* state of its steps; owned: muon_release */
};

/* From the configuration: whether master weights are split, and the dtype of moments. */
bool optim_uses_split_weights(const struct optimizer_config *c);
enum dtype optim_moment_dtype(const struct optimizer_config *c);
/* Whether muon.h updates tensors of this kind: with Muon, matrices except embedding and head. */
bool optim_is_muon(const struct optimizer_config *c, enum param_id id);
/* The kinds of weights that have no second moment: Muon's (a set, params.h). */
uint32_t optim_first_moment_only(const struct optimizer_config *c);

struct optim_update {
    const void *gradients; /* flat, of o->gradients */
    double lr;
    double scale;      /* of the gradients: the clipping factor */
    int64_t step;      /* 1 for the first */
    bool is_decoupled; /* the embedding and the head have a rate of their own: */
    double decoupled_lr;
};
/* One AdamW step on every weight that Muon does not update, at the rate of its kind.  Weights of
 * norms and biases have no weight decay unless config->decay_norms. */
enum status optim_step(const struct optim *o, const struct ops *ops, const struct optim_update *u,
                       struct queue *queue);
