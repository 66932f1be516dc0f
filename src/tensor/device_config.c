// SPDX-License-Identifier: Apache-2.0
#include "tensor/device_config.h"

struct hardware device_config_apply(const struct device_config *c, const struct hardware *row)
{
    struct hardware h = *row;
    const struct {
        double value, *field;
    } overrides[] = {
        {c->peak_flops, &h.bf16_flops},        {c->peak_flops, &h.f32_flops},
        {c->efficiency, &h.efficiency},        {c->memory_bytes, &h.memory_bytes},
        {c->memory_rate, &h.memory_bandwidth}, {(double)c->node_ranks, &h.node_ranks},
        {c->node_rate, &h.node_bandwidth},     {c->network_rate, &h.network_bandwidth},
        {c->transfer_latency, &h.latency_s},   {c->host_memory_bytes, &h.host_bytes},
        {c->host_rate, &h.host_bandwidth},     {c->fp8_speedup, &h.float8},
    };
    for (size_t i = 0; i < sizeof overrides / sizeof *overrides; i++)
        if (overrides[i].value > 0) *overrides[i].field = overrides[i].value;
    return h;
}

struct hardware device_config_hardware(const struct device_config *c)
{
    return device_config_apply(c, hardware_row((enum hardware_row)c->hardware));
}
