/* float8_device.h -- what native FP8 adds to struct float8_state: amaxes and scales in device
 * memory, where kernels that quantize read and write them without the host.
 *
 * Axes     M matrix multiplies of the model, R roles (model/float8.h).
 * Order    clear_pass -> the kernels of a forward or backward pass; begin_step and new_scales take
 *          effect with the next clear_pass. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/arena.h"
#include "ops/float8.h"

#include <stdbool.h>
#include <stddef.h>

struct float8_device {
    struct queue *queue; /* borrowed; NULL: FP8 is not native, and nothing else is used */
    size_t tensors;      /* M x R */
    /* Amax of each tensor of the pass, for current scaling, with room for those of `max_parts`
     * tensor-parallel ranks, which the caller sets before float8_device_alloc; of the step, for
     * delayed scaling. */
    float *pass_amax, *step_amax_MR;
    int max_parts;
    struct float8_scale *scales_MR; /* delayed scales from earlier steps */
    struct float8_scale *unsaved;   /* scales that backward does not read: `num_unsaved` */
    /* Copies of step_amax and scales, in memory that the host shares. */
    float *host_amax_MR;
    struct float8_scale *host_scales_MR;
    bool starts_step, has_new_scales;
};

void float8_device_alloc(struct float8_device *d, size_t tensors, size_t num_unsaved,
                         struct arena *run, struct arena *shared);
/* Zeroes the pass amaxes of `count` tensors from `first` on. */
enum status float8_device_clear_pass(struct float8_device *d, size_t first, size_t count);
/* Takes the scales of the next step from the host; 0: none.  No operation may be pending. */
void float8_device_set_scales(struct float8_device *d, const float *scales_MR, size_t count);
/* Raises local_MR to the amaxes of the step.  Waits for the queue. */
enum status float8_device_collect(struct float8_device *d, float *local_MR, size_t count);
