/* run_state.h -- a run's state, to and from its checkpoints; internal to train/.
 *
 * Ranks    Every function is collective, except run_state_of and run_state_world. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/checkpoint.h"
#include "metrics/metrics.h"
#include "train/guard.h"
#include "train/liveness.h"
#include "train/repeats.h"
#include "train/skipped_records.h"
#include "train/stop.h"
#include "train/task_validation.h"
#include "train/trainer.h"

/* Everything a run has open; NULL: not opened. */
struct training_run {
    const struct config *whole;  /* of the whole run */
    const struct config *config; /* of this stage of the data, the steps begin + 1 to end: */
    int64_t begin, end;
    struct tokenizer *tokenizer;
    struct source_config training_source;
    struct data_config data;
    struct loader *loader;
    struct skipped_records skipped;
    struct repeats repeats;
    struct trainer trainer;
    bool trainer_is_open;
    struct task_validation tasks;
    struct liveness liveness;
    struct stragglers stragglers;
    struct checkpointer *checkpointer;
    char *checkpoint_folder;
    struct metrics *metrics;
    struct run_report *report; /* of the whole run */
    struct guard guard;
    struct text config_toml;
    struct stop stop;
    bool validation_due;    /* of the last step: begun and not completed */
    int64_t saved_step;     /* step of the newest checkpoint; -1: none */
    int64_t unsavable_step; /* the last one whose state was too bad to be saved; -1: none */
    double saved_at_s;
    bool is_main; /* rank 0: writes the log, metrics and configuration */
    bool reads;   /* the first of its peers: reads the data */
};

/* All ranks of the run, once its trainer is open. */
static inline const struct comm *run_state_world(const struct training_run *r)
{
    return &r->trainer.machine.groups.of[GROUP_world];
}

/* The buffers and counters that a checkpoint holds; borrowed from the run. */
struct checkpoint_state run_state_of(struct training_run *r);

/* Saves a checkpoint of the last step, unless one was saved.  Errors: as checkpointer_save. */
enum status run_state_save(struct training_run *r, bool model_only);
/* A failed save is logged and does not end the run: the next one may succeed.  Only the last one,
 * and the one before a stop, must.  DIVERGED: the state cannot be valid, and guard.nonfinite is not
 * "skip".  DEVICE: memory is faulty.  COMM: a rank is lost. */
enum status run_state_save_if_possible(struct training_run *r);
/* Saves the state, and waits until it is on disk, before the run ends early.  A failed save in the
 * background is logged, and repeated if it was of this step. */
enum status run_state_save_now(struct training_run *r);
/* Logs this thread's last failure, `st`: that of a save of this step. */
void run_state_log_unsaved(const struct training_run *r, enum status st);

/* Fills weights and counters: from the newest checkpoint of this run, else initial_load_path, else
 * random weights.  If a checkpoint is damaged or cannot be read, falls back to the one before. */
enum status run_state_fill(struct training_run *r);
