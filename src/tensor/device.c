// SPDX-License-Identifier: Apache-2.0
#include "tensor/device.h"

#include "base/port.h"

#include <string.h>

static const struct device *device_of(const struct queue *on) { return on ? on->device : NULL; }

const struct memory *queue_memory(const struct queue *on)
{
    return device_of(on) ? &on->device->own : NULL;
}

const struct memory *queue_shared(const struct queue *on)
{
    return device_of(on) ? &on->device->shared : NULL;
}

static bool is_dry(const struct queue *on, size_t bytes) { return !bytes || (on && on->measuring); }

enum { PIECE = 1 << 20 }; /* bytes that a thread takes at a time */

enum status queue_copy(struct queue *on, void *to, const void *from, size_t bytes)
{
    if (is_dry(on, bytes)) return STATUS_OK;
    if (device_of(on)) return on->device->copy(on, to, from, bytes);
    memcpy(to, from, bytes);
    return STATUS_OK;
}

enum status queue_zero(struct queue *on, void *x, size_t bytes)
{
    if (is_dry(on, bytes)) return STATUS_OK;
    if (device_of(on)) return on->device->zero(on, x, bytes);
#pragma omp parallel for schedule(static) num_threads(on ? on->num_threads : 1)
    for (size_t at = 0; at < bytes; at += PIECE)
        if (bytes - at >= PIECE && (uintptr_t)x % 16 == 0)
            port_zero((char *)x + at, PIECE);
        else
            memset((char *)x + at, 0, bytes - at < PIECE ? bytes - at : PIECE);
    return STATUS_OK;
}

enum status queue_fill(struct queue *on, size_t *bytes, size_t *used)
{
    BUG_IF(!device_of(on));
    return on->device->fill(on, bytes, used);
}

enum status queue_wait(struct queue *on)
{
    if (!device_of(on) || on->measuring) return STATUS_OK;
    return on->device->wait(on);
}
