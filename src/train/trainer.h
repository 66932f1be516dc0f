/* trainer.h -- everything a run holds in memory, and one optimizer step.
 *
 * Memory   trainer_plan runs the code of a step over measuring arenas; trainer_open does the same,
 *          then takes exactly those bytes and touches them; no step allocates afterwards.
 * Order    open -> fill weights (params_start or a checkpoint) -> trainer_sync -> steps.
 * Ranks    One process is one rank; it holds its part of every unit (fsdp.h). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"
#include "data/loader.h"
#include "model/float8.h"
#include "model/model.h"
#include "optim/optim.h"
#include "parallel/copies.h"
#include "parallel/fsdp.h"
#include "parallel/pipeline.h"
#include "parallel/plan.h"
#include "train/evaluation.h"
#include "train/machine.h"
#include "train/memory.h"

struct trainer {
    const struct config *config; /* borrowed */
    struct machine machine;
    struct arena run, step;   /* of the device; */
    struct arena shared;      /* what the host reads and writes, too */
    struct model_shape shape; /* of the whole model */
    struct layout whole;      /* its tensors */
    struct model model;       /* what is here of it: some stages, a part of every matrix */
    struct stage *stages;     /* owned */
    struct pipeline pipeline;
    struct micro_batch *micros; /* of an optimizer step; owned */
    struct tensor_plan plan;
    bool has_float8;
    struct float8_state float8; /* where there is one; histories are every rank's */
    struct optim optim;
    struct pieces pieces; /* of the whole model's tensors that are here */
    struct fsdp fsdp;
    float *weights, *gradients; /* flat: this rank's pieces; weights NULL where they are split: */
    uint16_t *low;              /* what compute_weights lack of them */
    void *exp_avg, *exp_avg_sq; /* of optim.moments */
    struct comm same_heads;     /* ranks with the same heads of keys and values */
    struct comm ends;           /* the stages that share the embedding */
    struct copies copies[COPIED_COUNT];
    void *compute_weights;      /* NULL in f32: the masters serve */
    void *staging;              /* for asynchronous checkpoints, or NULL */
    struct batch batch, here;   /* all rows of an optimizer step on this rank; its part of them */
    float *loss_BT;             /* of all of that; NULL on a rank without the head */
    struct evaluator evaluator; /* for validation; no buffers where there is none */
    int64_t steps_done;
    int64_t tokens_seen; /* inputs, since the first step of the run */
    int64_t skips;       /* steps skipped in a row because something was not finite */
};

/* What one step came to. */
struct step_result {
    double loss;      /* nats/token */
    double max_loss;  /* the largest of the ranks' own means */
    double grad_norm; /* before clipping */
    double lr;
    double data_seconds; /* waiting for the batch */
    bool skipped;
};

/* Bytes by category, without touching any of them; the caller adds data and program. */
enum status trainer_plan(const struct config *c, const struct model_shape *shape,
                         const struct machine *machine, struct memory_plan *plan);

/* MEMORY: more than the system has. */
enum status trainer_open(struct trainer *t, const struct config *c, const struct model_shape *shape,
                         const struct machine *machine);
void trainer_close(struct trainer *t);

/* Initial values of this rank's weights; trainer_sync is still to come. */
enum status trainer_start(struct trainer *t, uint64_t seed);
/* Makes the computing weights from the masters: after they were filled from outside. */
enum status trainer_sync(struct trainer *t);

/* The L2 norm of all weights, each counted once.  Collective.  Split weights are put together where
 * gradients were. */
enum status trainer_parameter_norm(const struct trainer *t, double *norm);

/* Next batch (`loader` is NULL where another of the peers reads), gradients, clipping, update.
 * DIVERGED: loss or gradient is not finite (and guard.nonfinite says stop); the weights are as
 * before the step. */
enum status trainer_step(struct trainer *t, struct loader *loader, struct step_result *result);
/* The same without the first: of what lies in t->batch.  Leaves result->data_seconds as it is. */
enum status trainer_learn(struct trainer *t, struct step_result *result);

/* Ranks that read different rows; and rows of one of them in an optimizer step. */
int trainer_readers(const struct mesh *m);
int trainer_rows(const struct config *c, const struct mesh *m);
int64_t trainer_step_rows(const struct config *c, const struct mesh *m); /* of all of them */
/* Rows are this long in validation. */
int trainer_validation_tokens(const struct config *c);
