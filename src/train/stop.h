/* stop.h -- when a run must stop early: at a signal (signals.h), or ahead of its Slurm job's end.
 *
 * The ranks agree after each step.  They do not wait for the end of a long one: they also agree
 * when units of the model are opened, in training and validation, as often as every poll_s
 * seconds, and abandon the step.  That leaves the state after the step before, since weights and
 * moments change only at the end of a step.  With a pipeline, whose ranks do not open units at the
 * same time, the step is finished.
 *
 * Units    Seconds.
 * Ranks    All of the group call these functions in the same order, and so open units of the model.
 *          Rank 0 knows when the job ends. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "model/model.h"

#define STOP_POLL_S 0.05
/* With a GPU: while hosts wait for each other to agree, they lose their lead over their GPUs.  With
 * 1 s no step shorter than that has an agreement within it, and a signal is still noticed long
 * before Slurm kills the job, 30 s after SIGTERM by default (KillWait). */
#define STOP_POLL_GPU_S 1.0

struct stop {
    struct unit_provider units;     /* for model.units: opens the units of `provider` */
    struct unit_provider *provider; /* borrowed */
    const struct comm *world;       /* borrowed */
    bool in_steps;                  /* the ranks also agree within a step, as often as every */
    double poll_s;                  /* seconds; default STOP_POLL_S */
    int64_t opened, every;          /* units opened so far; agree at each `every`-th, 0: at none */
    int64_t step_opened;            /* the last step: units opened, seconds */
    double step_s;
    int signal;       /* the reason, the same on all ranks; 0: none */
    double job_end_s; /* SLURM_JOB_END_TIME, seconds since 1970; 0: unknown */
    double lead_s;    /* stop that long before */
    bool has_warned;
};

/* `in_steps`: all ranks open the same units in the same order.  `save_s`: estimate for a save. */
void stop_init(struct stop *s, const struct comm *world, bool in_steps, double save_s);
/* Lets the model open the provider's units through s->units. */
struct unit_provider *stop_wrap_units(struct stop *s, struct unit_provider *provider);

/* Before a step or a validation; after a step that took `seconds`. */
void stop_begin(struct stop *s);
void stop_end_step(struct stop *s, double seconds);
/* After a step: sets s->signal if any rank must stop, and each request to its largest value on any
 * rank.  Collective. */
enum { STOP_REQUESTS = 2 };
enum status stop_agree(struct stop *s, int64_t requests[STOP_REQUESTS]);
/* Between steps; REQUEUE: the run must stop.  Collective.  Opening a unit fails likewise. */
enum status stop_check(struct stop *s);
/* After a save that took `seconds`; 0: unknown. */
void stop_note_save(struct stop *s, double seconds);

/* "stopped by SIGTERM", "stopped ahead of the end of the Slurm job" */
const char *stop_describe(const struct stop *s);
