/* trial.h -- runs a command under one fault (preload/fault.c), then without it, and judges.
 *
 * A trial is lost if the exit code is not documented or not the fault's, if the message does not
 * name the file, if a file under its final name has other bytes than in a run without faults, or if
 * the same command, run again without the fault, does not produce every byte of that run.
 * Order    Loops run n = 1, 2, ... until a run ends without the fault: every n-th call.  With
 *          LLAMERO_FAULT_POINTS=k, k values of n spread over the run.
 * Output   Each tally is a row of the file LLAMERO_FAULT_TABLE. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test.h"

#include "base/file.h"

enum { SCENE_WORDS = 24 };
struct scene {
    const char *name;
    const char *folder;             /* the scene's own folder */
    const char *output;             /* what the command writes: a folder or a prefix's folder */
    const char *words[SCENE_WORDS]; /* of the command, after the program; NULL: end */
    int ranks;                      /* of a launcher; 0: none, or those of --ranks */
    int timeout_s;                  /* without a launcher; 0: 100 */
    bool makes_folder;              /* the output folder exists before the command runs */
    const char *start;              /* what `output` holds before each run; NULL: nothing */
    bool goes_back;                 /* saves steps again: only compare once all are saved */
    /* Set by scene_open. */
    const char *straight; /* what a run without faults wrote */
    const char *report;
};

struct tally {
    int tried, survived, lost;
    char message[128]; /* of the first run that ended early, or else of the first warning */
};

/* Runs the command without faults and keeps what it writes in `straight`. */
void scene_open(struct scene *s);

/* One trial of a FAULT, or of "signal=NAME,after=SECONDS"; true: the fault happened, and the tally
 * counts it.  `exit_code`: what the faulty run must end with; ANY_CODE: one that fits the fault. */
enum { ANY_CODE = -1 };
bool trial_run(const struct scene *s, const char *fault, int exit_code, struct tally *t);

/* Runs the command under a fault, from what its output holds, without judging; returns whether the
 * fault happened, and for a signal whether SIGKILL ended the command. */
bool trial_interrupt(const struct scene *s, const char *fault);

/* Runs the command, from what its output holds, under a fault, a signal, or both:
 * "signal=NAME,after=SECONDS;FAULT".  Returns its exit code; *fired: how often the fault happened.
 */
int trial_run_once(const struct scene *s, const char *fault, int *fired, struct text *err);

/* Trials of "FAULT,nth=n" for every n of the run, or for as many as LLAMERO_FAULT_POINTS times
 * `share` says; adds a row to the table and fails the test if one was lost. */
void trial_every(const struct scene *s, const char *fault, double share);

/* Judges what is in the scene's output after something else than FAULT happened to it: runs the
 * command again and compares.  Returns what is wrong, NULL: nothing. */
const char *trial_judge_rerun(const struct scene *s, struct text *err);

/* Compares what is in the scene's output with the run without faults. */
const char *trial_judge_output(const struct scene *s);
/* trial_judge_rerun after a loss of unsynced lines of metrics, which is allowed. */
const char *trial_judge_after_loss(const struct scene *s, struct text *err);

/* LLAMERO_FAULT_POINTS times `share`, at least 1; `all` if the variable is not set. */
int trial_points(double share, int all);

/* Adds a row to the table. */
void tally_add_row(const struct tally *t, const char *scene, const char *fault);
/* The same; fails the test if a trial was lost or none was tried. */
void tally_report(const struct tally *t, const char *scene, const char *fault);

/* A scene that trains a tiny model for 6 steps and saves every 2, on 1 rank without a launcher, or
 * with one.  `settings` are separated by spaces. */
void scene_train(struct scene *s, int ranks, const char *settings);
/* The same without scene_open. */
void scene_init_train(struct scene *s, int ranks, const char *settings);
