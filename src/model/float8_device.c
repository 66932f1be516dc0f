// SPDX-License-Identifier: Apache-2.0
#include "model/float8_device.h"

#include "tensor/queue.h"

void float8_device_alloc(struct float8_device *d, size_t tensors, size_t num_unsaved,
                         struct arena *run, struct arena *shared)
{
    d->tensors = tensors;
    d->pass_amax = arena_alloc(run, tensors * (size_t)d->max_parts, sizeof *d->pass_amax);
    d->step_amax_MR = arena_alloc(run, tensors, sizeof *d->step_amax_MR);
    d->scales_MR = arena_alloc(run, tensors, sizeof *d->scales_MR);
    d->unsaved = arena_alloc(run, num_unsaved, sizeof *d->unsaved);
    d->host_amax_MR = arena_alloc(shared, tensors, sizeof *d->host_amax_MR);
    d->host_scales_MR = arena_alloc(shared, tensors, sizeof *d->host_scales_MR);
}

enum status float8_device_clear_pass(struct float8_device *d, size_t first, size_t count)
{
    if (d->queue->sizing) return STATUS_OK;
    if (d->starts_step)
        TRY(queue_zero(d->queue, d->step_amax_MR, d->tensors * sizeof *d->step_amax_MR));
    if (d->has_new_scales)
        TRY(queue_copy(d->queue, d->scales_MR, d->host_scales_MR,
                       d->tensors * sizeof *d->scales_MR));
    d->starts_step = d->has_new_scales = false;
    const size_t amaxes = (size_t)d->max_parts;
    TRY(queue_zero(d->queue, d->pass_amax + first * amaxes, count * amaxes * sizeof *d->pass_amax));
    return STATUS_OK;
}

void float8_device_set_scales(struct float8_device *d, const float *scales_MR, size_t count)
{
    for (size_t i = 0; i < count; i++)
        d->host_scales_MR[i] = (struct float8_scale){scales_MR[i], 1 / scales_MR[i]};
    d->has_new_scales = true;
}

enum status float8_device_collect(struct float8_device *d, float *local_MR, size_t count)
{
    TRY(queue_copy(d->queue, d->host_amax_MR, d->step_amax_MR, count * sizeof *d->host_amax_MR));
    TRY(queue_wait(d->queue));
    for (size_t i = 0; i < count; i++)
        if (d->host_amax_MR[i] > local_MR[i]) local_MR[i] = d->host_amax_MR[i];
    return STATUS_OK;
}
