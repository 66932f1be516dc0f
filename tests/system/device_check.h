/* device_check.h (tests) -- a device beside the CPU: every operation at odd sizes and at those of
 * real models, loss and gradients of whole models, and the losses of some steps.
 *
 * Units    Differences are |x - y| / |y| as Euclidean norms; a buffer is good below 1e-5 in f32 and
 *          1e-2 in bf16, ids only if they are equal. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/calls.h"
#include "train/machine.h"

struct device_check {
    struct machine cpu, device;
    bool prints; /* a line for every comparison, not only for those that fail */
    int count, failed;
    double worst[DTYPE_COUNT]; /* of those that are good */
};

/* One call, with the same operands on both; attention also to documents. */
enum status device_check_call(struct device_check *c, const struct op_call *call, bool documents);
/* Sizes that no tile divides, of every operation, in f32 and bf16. */
enum status device_check_odd(struct device_check *c);
/* The operations of a step of that configuration. */
enum status device_check_step(struct device_check *c, const struct config *config);
/* `steps` optimizer steps on both, on the same random rows: gradients of the first, and every loss,
 * within `tolerance`. */
enum status device_check_training(struct device_check *c, const struct config *config, int steps,
                                  double tolerance);
