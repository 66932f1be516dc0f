/* trainer.h -- everything a run holds in memory, and one optimizer step.
 *
 * Memory   trainer_plan runs the code of a step as a sizing pass.  trainer_open does the same, then
 *          maps and touches exactly those bytes; no step allocates afterwards, except in
 *          oneDNN's f32 GEMMs on Intel CPUs.
 * Order    open -> fill weights (trainer_init_weights or a checkpoint) -> trainer_sync_weights ->
 *          steps.
 * Ranks    A process is a rank, with its shard of every unit (fsdp.h). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/batch_ramp.h"
#include "config/config.h"
#include "data/batch.h"
#include "data/loader.h"
#include "model/activation_offload.h"
#include "model/float8.h"
#include "model/init_weights.h"
#include "model/model.h"
#include "optim/moments.h"
#include "optim/optim.h"
#include "optim/optim_offload.h"
#include "parallel/elastic.h"
#include "parallel/fsdp.h"
#include "parallel/pipeline.h"
#include "parallel/plan.h"
#include "parallel/replicas.h"
#include "train/evaluator.h"
#include "train/integrity.h"
#include "train/machine.h"
#include "train/memory_plan.h"
#include "train/step_graph.h"
#include "train/step_sums.h"

struct trainer {
    const struct config *config; /* borrowed */
    struct machine machine;
    struct arena run, step; /* device memory, for the run and for a step */
    struct arena shared;    /* memory that host and device share */
    struct arena host_step; /* of that memory, offloaded activations of a step */

    struct model_shape shape;   /* of the whole model */
    struct layout whole;        /* of the whole model, unsharded */
    struct model model;         /* on this rank: some stages, a slice of every matrix */
    struct stage *stages;       /* owned */
    struct float8_state float8; /* if model.float8; the same on every rank */
    struct group_plan plan;
    struct fsdp fsdp;
    struct activation_offload activation_offload; /* with activation_checkpoint.offload */

    struct batch batch, local; /* rows of a step on this rank; its tokens of them */
    struct batch uploaded;     /* `local` as kernels read it, during a step */
    float *loss_BT;            /* of the local batch; NULL on a rank without the head */
    struct pipeline pipeline;
    struct microbatch *microbatches; /* of an optimizer step; owned */
    struct step_graph step_graph;
    struct elastic elastic;
    void *gradients;             /* of optim.gradients; flat, this rank's shard */
    struct comm kv_head_peers;   /* ranks with the same key/value heads */
    struct comm embedding_peers; /* first and last stage, which share a tied embedding */
    struct replicas replicas[REPLICATED_COUNT];
    struct step_sums sums;
    struct integrity integrity;

    struct optim optim;                 /* with weights and moments: flat, in `run` or `shared` */
    struct shard shard;                 /* this rank's shard */
    struct shard without_muon;          /* with Muon: of it, what has a second moment; else empty */
    struct quantized_moments quantized; /* for moments in INT8 */
    struct optim_offload offload;       /* with optimizer.offload; then moments and master weights
                                         * are in shared memory, as optim_offload.h says */
    void *staging;                      /* for asynchronous checkpoints, or NULL */
    struct evaluator evaluator;         /* for validation; without buffers if that is disabled */

    struct batch_ramp ramp;
    int64_t step_rows;             /* of the current step, or of the last one; of all ranks */
    int64_t steps_done, rows_done; /* rows of all ranks */
    /* steps_done when the moments were 0; negative if they have seen more steps than steps_done
     * counts */
    int64_t moments_begin;
    int64_t tokens_seen; /* inputs, since the first step of the run */
    int64_t skips;       /* consecutive steps skipped because of a non-finite loss or gradient */
    bool is_updating;    /* the state is not that of a whole step: the optimizer changes it */
};

static inline const struct comm *trainer_group(const struct trainer *t, enum group g)
{
    return &t->machine.groups.of[g];
}

struct step_result {
    int64_t step;     /* completed, or skipped */
    double loss;      /* nats/token */
    double max_loss;  /* the largest of the ranks' own means; elastic: of the microbatches' */
    double grad_norm; /* before clipping */
    double lr;
    double data_seconds; /* waiting for the batch */
    bool skipped;        /* loss or gradient norm is not finite */
    bool skips_rows;     /* guard.skip_steps: nothing was computed, and the rest is 0 */
};

/* Bytes by category, by a sizing pass alone; the caller adds data and program. */
enum status trainer_plan(const struct config *c, const struct model_shape *shape,
                         const struct machine *machine, struct memory_plan *plan);

/* Sets what the configuration requires of the queue's operations; trainer_plan and trainer_open do
 * it, too. */
void trainer_set_queue(struct queue *queue, const struct config *c);
/* CONFIG: an option that the device of `queue` does not have. */
enum status trainer_check_device(const struct config *c, const struct queue *queue);

/* Collective over all ranks, which fail together.  MEMORY: not enough memory on one of them. */
enum status trainer_open(struct trainer *t, const struct config *c, const struct model_shape *shape,
                         const struct machine *machine);
void trainer_close(struct trainer *t);

/* Initializes this rank's weights; call trainer_sync_weights afterwards. */
enum status trainer_init_weights(struct trainer *t, uint64_t seed);
/* Zeroes them instead, padding included, for a checkpoint that has all of them. */
enum status trainer_zero_weights(struct trainer *t);
/* Starts the moving average, if the run has one, from the master weights. */
enum status trainer_start_ema(struct trainer *t);
/* Casts the master weights to compute weights, after they were filled from outside. */
enum status trainer_sync_weights(struct trainer *t);

/* The L2 norm of all weights, each counted once.  Collective.  Split master weights are joined in
 * a buffer of gradients. */
enum status trainer_parameter_norm(const struct trainer *t, double *norm);

/* Parts of a step, which the sizing pass of trainer_memory.c runs, too: the i-th microbatch, whose
 * scale the caller sets; the end of the sums of gradients over ranks; the optimizers and the moving
 * average. */
struct microbatch trainer_microbatch(const struct trainer *t, int i);
enum status trainer_finish_gradients(struct trainer *t);
enum status trainer_update_weights(struct trainer *t, const struct optim_update *u);

/* Parts of trainer_open and trainer_step (step_size.c).  The first opens the pipeline for full
 * steps, with room for the smaller ones of a batch ramp, when t->batch is allocated.  The second
 * sets batch and pipeline to the rows of the step that begins after t->rows_done. */
void trainer_open_pipeline(struct trainer *t, const struct schedule *full);
void trainer_begin_step(struct trainer *t);

/* One step: next batch (`loader` is NULL if another of the peers reads), gradients, clipping,
 * update.  If loss or gradient norm is not finite, it changes no weight and no moment, and sets
 * result->skipped: the caller decides (nonfinite.h).  DEVICE: integrity.h. */
enum status trainer_step(struct trainer *t, struct loader *loader, struct step_result *result);
/* The same on the batch that is already in t->batch.  Leaves result->data_seconds as it is. */
enum status trainer_train_batch(struct trainer *t, struct step_result *result);
/* After a step that was skipped: the counters become those of the step before, as weights and
 * moments are. */
void trainer_undo_skipped(struct trainer *t);

/* Data-parallel readers: ranks with different rows. */
int trainer_readers(const struct mesh *m);
/* Rows of a full optimizer step that one reader has room for. */
int trainer_rows(const struct config *c, const struct mesh *m);
/* Length of rows in validation. */
int trainer_validation_tokens(const struct config *c);
