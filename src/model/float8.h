/* float8.h -- tensorwise FP8 scaling of a block's matrix multiplies: amax history and scales.
 *
 * A matrix multiply has three tensors: its input and its weights (E4M3), and the gradient of its
 * output (E5M2).  Each has one scale.  Current scaling takes it from the tensor's own amax, of the
 * microbatch and of this rank's tokens.  Delayed scaling takes it from the amax history of
 * earlier steps; it is constant during a step, and in a tensor's first step scaling is current.
 *
 * Axes     L blocks, MATMUL_COUNT matrix multiplies of each, FLOAT8_ROLES tensors of each.
 * Memory   Amax histories of every block of the whole model, so that they do not depend on the
 *          parallel layout.  Kernels write amaxes and read scales; the host reads the amaxes once a
 *          step, after queue_wait.
 *          FP8 copies of weights are the unit provider's (struct float8_weights).
 * Order    begin_step -> all microbatches -> collect_amax -> all-reduce (max) of global_amax over
 *          the world -> update_scales.  A maximum does not change when it is taken twice, so
 *          recomputation does not matter.  A skipped step leaves the scales as they are.
 * Weights  The scale of a weight is found once, by the first forward after the weight changes; its
 *          amax counts for the step that ends with the next change.
 * Sources  torchao's float8 (tensorwise); Transformer Engine's DelayedScaling, which updates its
 *          scales after each microbatch, and starts with scales of 1 */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/arena.h"
#include "base/json.h"
#include "base/text.h"
#include "model/float8_device.h"
#include "model/model_shape.h"
#include "ops/float8.h"

#include <stdbool.h>
#include <stddef.h>

/* The matrix multiplies of a block, named after the first of the weights that form one matrix. */
enum matmul_id { MATMUL_attn_q, MATMUL_attn_out, MATMUL_mlp_gate, MATMUL_mlp_down, MATMUL_COUNT };

enum float8_role { FLOAT8_INPUT, FLOAT8_WEIGHT, FLOAT8_GRADIENT, FLOAT8_ROLES };
static inline enum float8 float8_format(enum float8_role role)
{
    return role == FLOAT8_GRADIENT ? E5M2 : E4M3;
}

struct float8_state {
    int blocks;
    bool delayed[FLOAT8_ROLES];
    bool *enabled;    /* of each matrix multiply: it runs in FP8; owned */
    int history_len;  /* steps */
    bool most_recent; /* only the newest amax of a history counts */
    int margin;
    struct float8_scale *weight_scales; /* of each matrix multiply */
    bool *has_weight_scale;             /* since the weights changed; owned */
    /* The amax of each tensor-parallel rank's part of the tensor being quantized, at most one a
     * head. */
    float *amax;
    /* Delayed scaling, for each tensor: this step's local amax, which kernels write; the maximum
     * over all ranks; the scale, 0: none yet; and the history, a ring of `num_steps` amaxes with
     * the next one at `next`. */
    float *local_amax;
    double *global_amax;
    float *scales, *history;
    int num_steps, next;
    struct float8_device device; /* with native FP8; the caller sets device.queue */
};

/* FP8 copies of a unit's weights, in both storage orders, made by the first GEMM that multiplies
 * them.  The unit provider clears is_current when it gathers other weights, or weights change. */
struct float8_weights {
    bf16 *x; /* as struct quantize_io: y_n; at the offsets that the weights have in the unit */
    bool is_current[MATMUL_COUNT];
};

/* *enabled: whether FP8 is configured.  CONFIG: an unsupported recipe or converter. */
enum status float8_resolve(const struct model_config *m, const struct float8_config *c,
                           bool *enabled);
/* Allocates for all weights of the model.  `shared` is memory that host and device share.  CONFIG:
 * a filter matches only some of the weights that form one matrix. */
enum status float8_init(struct float8_state *f, const struct float8_config *c,
                        const struct model_shape *shape, struct arena *run, struct arena *shared);
void float8_release(struct float8_state *f);

/* Number of amaxes in f->global_amax; 0 without delayed scaling. */
size_t float8_num_amax(const struct float8_state *f);
/* Whether any matrix multiply of the block runs in FP8. */
bool float8_has_block(const struct float8_state *f, int block);
/* Clears the step's amaxes of inputs and gradients.  No operation of the step before may be
 * pending. */
void float8_begin_step(struct float8_state *f);
/* The weights have changed: their scales and amaxes are stale.  No operation may be pending. */
void float8_forget_weights(struct float8_state *f);
/* Copies local to global amaxes.  No operation of the step may be pending. */
enum status float8_collect_amax(struct float8_state *f);
/* After the optimizer: appends the global amaxes to the histories, computes the next step's scales,
 * and forgets the old weights. */
void float8_update_scales(struct float8_state *f);

/* A tensor's part in delayed scaling, for find_scale: where its amax is recorded, and its scale
 * from earlier steps (0: none yet).  Both NULL with current scaling. */
struct float8_delayed {
    float *amax;
    const float *scale;
};
struct float8_delayed float8_delayed_scale(const struct float8_state *f, int block,
                                           enum matmul_id id, enum float8_role role);
/* Before a forward pass (role INPUT: inputs and weights) or backward pass (GRADIENT) of blocks
 * begin to end - 1, clears its amaxes on a device with native FP8; elsewhere it does nothing. */
enum status float8_begin_pass(struct float8_state *f, enum float8_role role, int begin, int end);
/* A tensor that such a device quantizes. */
struct float8_slot {
    /* One for each tensor-parallel rank's part; a tensor that is not divided uses the first. */
    float *pass_amax;
    float *step_amax;
    const struct float8_scale *delayed; /* its scale from earlier steps; NULL: none */
    struct float8_scale *unsaved;       /* for a scale that backward does not read */
};
struct float8_slot float8_slot_of(const struct float8_state *f, int block, enum matmul_id id,
                                  enum float8_role role);
/* max of the format / amax / 2^margin, at most the largest f32; `old_scale` if amax is 0 or not
 * finite. */
float float8_scale_from_amax(float amax, float old_scale, enum float8 format, int margin);

/* Writes scales and histories as a JSON value; each f32 as the hexadecimal digits of its bits. */
void float8_save(const struct float8_state *f, struct json_writer *w);
/* A shorter history keeps the newest amaxes.  DATA: saved from another model, or damaged. */
enum status float8_load(struct float8_state *f, const struct json *saved);
