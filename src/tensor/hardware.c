// SPDX-License-Identifier: Apache-2.0
#include "tensor/hardware.h"

#include "tensor/device_config.h"

#include <string.h>

static const struct hardware rows[] = {
#define X(name, text, ...) {#name, text, __VA_ARGS__},
    HARDWARE_LIST(X)
#undef X
};

const struct hardware *hardware_named(const char *device)
{
    for (size_t i = 1; i < sizeof rows / sizeof *rows; i++)
        if (strcasestr(device, rows[i].name)) return &rows[i];
    return NULL;
}

struct hardware hardware_of(const struct device_config *c)
{
    struct hardware h = rows[c->hardware];
    const struct {
        double said, *of;
    } over[] = {
        {c->peak_flops, &h.bf16_flops},      {c->peak_flops, &h.f32_flops},
        {c->efficiency, &h.efficiency},      {c->memory_bytes, &h.memory_bytes},
        {c->memory_rate, &h.memory_rate},    {(double)c->node_ranks, &h.node_ranks},
        {c->node_rate, &h.node_rate},        {c->network_rate, &h.network_rate},
        {c->transfer_latency, &h.latency_s},
    };
    for (size_t i = 0; i < sizeof over / sizeof *over; i++)
        if (over[i].said > 0) *over[i].of = over[i].said;
    return h;
}
