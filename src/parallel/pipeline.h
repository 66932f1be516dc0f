/* pipeline.h -- micro-batches through the stages of a model, on one rank or over several.
 *
 * Each rank goes through its table of actions (schedule.h).  What an action needs from another
 * stage is asked for while the action before computes; what it makes is sent while the next does.
 *
 * Memory   From the step arena: activations of schedule_peak micro-batches of each chunk, and
 *          streams [S, D] of the model's dtype: of a chunk's input one more than that, of its
 *          output schedule_buffers, of gradients (forward only: of everything) one more than that.
 * Ranks    All ranks of the group run, with micro-batches of the same number and sizes.  On one
 *          rank there is one stage, and nothing moves. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/arena.h"
#include "comm/comm.h"
#include "model/model.h"
#include "parallel/schedule.h"

struct pipeline_state;

/* Set by the caller before pipeline_open. */
struct pipeline {
    const struct model *model;  /* borrowed; has this rank's stages */
    const struct comm *group;   /* borrowed; its ranks are the pipeline's, in order */
    const struct stage *stages; /* of this rank, one a chunk; borrowed */
    struct schedule schedule;   /* one that schedule_check lets pass */
    bool forward_only;
    struct pipeline_state *state; /* owned; pipeline_open */
};

/* Allocates the tables. */
void pipeline_open(struct pipeline *p);
void pipeline_close(struct pipeline *p);

/* Tells the group which messages pipeline_run sends and receives.  Collective. */
enum status pipeline_expect(const struct pipeline *p);

/* All schedule.micros micro-batches; adds to the model's gradients unless forward_only.  Losses are
 * filled in by the rank that has them.  SHAPE: a batch that the model cannot take.  COMM: a rank is
 * gone. */
enum status pipeline_run(struct pipeline *p, const struct micro_batch *micros, struct arena *step);
/* Whether this rank has the head, and so the losses. */
bool pipeline_has_loss(const struct pipeline *p);
