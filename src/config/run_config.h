/* run_config.h -- options of [job], [training], [validation], [debug], [guard], [profiling],
 * [config]. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/option.h"
#include "tensor/dtype.h"

#define OPT OPT_ENUM
#include "config/guard.opts"
#include "config/training.opts"
#undef OPT

#define OPT OPT_FIELD
struct job_config {
#include "config/job.opts"
};
struct training_config {
#include "config/training.opts"
};
struct validation_config {
#include "config/validation.opts"
};
struct debug_config {
#include "config/debug.opts"
};
struct guard_config {
#include "config/guard.opts"
};
struct profiling_config {
#include "config/profiling.opts"
};
struct accept_config {
#include "config/config.opts"
};
#undef OPT

/* dtype of the gradients that accumulate over microbatches: training.gradient_dtype. */
static inline enum dtype training_gradient_dtype(const struct training_config *c)
{
    return c->gradient_dtype == GRADIENT_DTYPE_bfloat16 ? BF16 : F32;
}
/* dtype of weights and activations in forward and backward: training.mixed_precision_param. */
static inline enum dtype training_compute_dtype(const struct training_config *c)
{
    return c->mixed_precision_param == COMPUTE_DTYPE_float32 ? F32 : BF16;
}
