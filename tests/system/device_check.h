/* device_check.h (tests) -- compares a device with the CPU: every operation at odd sizes and at
 * those of real models, and loss and gradients of whole models over a few steps.
 *
 * Units    Differences are |x - y| / |y| in Euclidean norms; a buffer passes below 1e-5 in f32 and
 *          1e-2 in bf16 (the log-sum-exp of bf16 attention below 5e-4), token ids only if they are
 *          equal. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/op_calls.h"
#include "train/machine.h"

struct device_check {
    struct machine cpu, device;
    bool only_attention; /* device_check_step skips all other operations */
    bool prints;         /* every operation and comparison, not only those that fail */
    int count, failed;
    double worst[DTYPE_COUNT]; /* of those that passed */
    /* For a program that continues in another process: checks that were begun here, and in all
     * processes.  is_lost: an error made the device unusable in this one. */
    int begun_here, begun;
    bool is_lost;
    unsigned limit_s; /* of each check; 0: none */
    char what[96];    /* the latest check */
};

/* Every check begins with this.  False: another process has begun it, or is to. */
bool device_check_begin(struct device_check *c, const char *what);
/* Counts the last error as a mismatch of the latest check, and finds out whether the device is
 * lost. */
void device_check_fail(struct device_check *c);
/* One call with the same operands on both; `documents`: attention has a document mask. */
enum status device_check_call(struct device_check *c, const struct op_call *call, bool documents);
/* Every operation in f32 and bf16, at sizes that are not multiples of a tile.  An error of an
 * operation counts as a mismatch. */
void device_check_odd(struct device_check *c);
/* The operations of one step of the configuration, likewise. */
enum status device_check_step(struct device_check *c, const struct config *config);
/* Trains `steps` optimizer steps on both, on the same random rows: the gradients of the first step
 * and every loss must be within `tolerance`. */
enum status device_check_training(struct device_check *c, const struct config *config, int steps,
                                  double tolerance);
/* Trains `steps` optimizer steps on the device with each of the configurations, on the same random
 * rows, which must give the same bits: every loss and gradient norm, and the norm of the trained
 * weights. */
enum status device_check_same_bits(struct device_check *c, const struct config *plain,
                                   const struct config *other, int steps);
