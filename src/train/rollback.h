/* rollback.h -- goes back to the last good checkpoint of a run without ending the process.
 *
 * A checkpoint is good if the step after it was normal, so the one just before a spike is not.  The
 * run goes back when the spike is over, so that it skips all of its rows.  Weights, moments,
 * counters and the guard's window return to the checkpoint.  The data position does not: the run
 * continues with the rows after the spike, and the cursor records the skipped ones.  A run that
 * dies before it saves again repeats the same steps and rolls back again.
 * Ranks    rollback_run is collective, the other functions are not. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/checkpoint.h"
#include "metrics/metrics.h"
#include "train/guard.h"
#include "train/trainer.h"

struct rollback {
    const char *folder; /* of the run's checkpoints */
    struct checkpointer *checkpointer;
    struct checkpoint_state *state; /* the trainer's buffers */
    struct trainer *trainer;
    struct loader *loader; /* NULL: another of the peers reads */
    struct guard *guard;
    const struct step_result *result; /* of the step to undo */
    bool is_needed;                   /* the state is bad: the run cannot continue from it */
    int64_t first_step;               /* do not go back to before this step */
    /* Results: */
    int64_t to;               /* the checkpoint's step; -1: none is good */
    double loss;              /* the largest of the spike */
    struct row_interval rows; /* skipped; on ranks that read */
};

/* Whether the configuration may require a rollback, so that checkpoints must hold the guard. */
bool rollback_is_enabled(const struct guard_config *c);

/* Checkpoints before this step are good: the step after them was normal.  The checkpoint of the
 * last rollback stays good, whatever its next step was.  `step`: the one to undo, if no spike
 * lasts. */
int64_t rollback_limit(const struct guard *g, int64_t step);

/* Loads the newest good checkpoint, or an older one if that is damaged, and sets later ones aside.
 * A checkpoint from before a start that left out the optimizer or the schedule is not good.
 * Without a good one it warns, changes nothing, and b->to is -1.  DIVERGED: guard.max_rollbacks is
 * reached, or there is no good checkpoint, and the step was not finite or b->is_needed.  DATA: all
 * are damaged. */
enum status rollback_run(struct rollback *b);

/* Logs and records it; on rank 0, after metrics were truncated to the checkpoint's step. */
void rollback_report(const struct rollback *b, struct metrics *m);

/* Adds to the message of a run that ended with DIVERGED which checkpoints it can resume from;
 * returns `st`. */
enum status rollback_advise(const char *folder, enum status st);
