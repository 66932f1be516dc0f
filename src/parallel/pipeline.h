/* pipeline.h -- runs a step's microbatches through the stages of a model, on one rank or several.
 *
 * Each rank executes its list of actions (schedule.h).  An action's receive is posted before the
 * action ahead of it computes, and its result is sent while the next action computes.
 *
 * Memory   From the step arena, for each chunk: activations of schedule_max_in_flight microbatches,
 *          and buffers of the residual stream [S, D] in the model's dtype:
 *          - inputs of forward: schedule_max_in_flight + 1
 *          - outputs of forward: schedule_send_buffers, with GPipe one more
 *          - gradients: schedule_send_buffers + 1
 *          Forward only: 2 buffers, without activations.
 * Ranks    All ranks of the group call pipeline_run, with equally many microbatches of the same
 *          sizes.  On one rank there is one stage, and nothing is sent. */
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
    const struct comm *group;   /* borrowed; the pipeline's ranks, in order */
    const struct stage *stages; /* of this rank, one per chunk; borrowed */
    struct schedule schedule;   /* valid by schedule_check */
    bool forward_only;
    struct pipeline_state *state; /* owned; pipeline_open */
};

/* Allocates the list of actions. */
void pipeline_open(struct pipeline *p);
void pipeline_close(struct pipeline *p);

/* For steps of fewer microbatches than the schedule was opened with.  Reserve makes room for them,
 * which may be more than the most microbatches need, before the first run; set applies to the
 * following runs.  The number must be valid by schedule_check. */
void pipeline_reserve(struct pipeline *p, int num_microbatches);
void pipeline_set_microbatches(struct pipeline *p, int num_microbatches);

/* Declares to the group the messages that pipeline_run sends and receives.  Collective. */
enum status pipeline_declare_p2p(const struct pipeline *p);

/* Runs all microbatches of the schedule; accumulates the model's gradients unless forward_only. The
 * rank with the head fills in the losses.  SHAPE: a microbatch of a size that the model cannot
 * process.  COMM: a rank failed. */
enum status pipeline_run(struct pipeline *p, const struct microbatch *microbatches,
                         struct arena *step);
/* Whether this rank has the head, and so the losses. */
bool pipeline_has_loss(const struct pipeline *p);
