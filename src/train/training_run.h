/* training_run.h -- what one stage of a run has open; internal to train/. */
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
    int lock; /* of the dump folder, on rank 0; -1: none */
    struct checkpointer *checkpointer;
    char *checkpoint_folder;
    struct metrics *metrics;
    struct run_report *report; /* of the whole run */
    struct guard guard;
    struct text config_toml;
    struct stop stop;
    bool validation_due;    /* of the last step: begun and not completed */
    bool counts_again;      /* the run's own checkpoint was loaded without its count of steps */
    bool has_only_model;    /* likewise: it has no moments, so no step can follow */
    int64_t saved_step;     /* step of the newest checkpoint; -1: none */
    int64_t unsavable_step; /* the last one whose state was too bad to be saved; -1: none */
    double saved_at_s;
    bool is_main; /* rank 0: writes the log, metrics and configuration */
    bool reads;   /* the first of its peers: reads the data */
};

/* All ranks of the run, once its trainer is open. */
static inline const struct comm *training_run_world(const struct training_run *r)
{
    return trainer_group(&r->trainer, GROUP_world);
}
