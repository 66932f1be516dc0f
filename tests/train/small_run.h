/* small_run.h -- a tiny run of five steps on the CPU, and a fault in one of them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "train/training.h"

enum { SMALL_RUN_STEPS = 5 };

/* The machine of `t`, and the settings of a run on it. */
struct small_run {
    struct training t;
    struct config config;
    const char *dump;
};

void small_run_open(struct small_run *r);
void small_run_close(struct small_run *r);

/* What goes wrong in the forward pass of a step: its loss is NaN, a bit of a weight changes, or the
 * device fails; or in its update: a weight becomes too large. */
enum small_run_fault { FAULT_NONE, FAULT_NAN, FAULT_FLIP, FAULT_DEVICE, FAULT_HUGE };

/* Runs with a fault in this step; returns the run's status. */
enum status small_run_train(struct small_run *r, enum small_run_fault fault, int64_t step);

/* Whether log.txt contains this text. */
bool small_run_logged(const struct small_run *r, const char *part);
