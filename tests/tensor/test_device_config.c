// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tensor/device_config.h"

TEST(device_config_overrides_the_row_of_its_hardware)
{
    struct device_config c = {.hardware = HARDWARE_h200};
    struct hardware h = device_config_hardware(&c);
    CHECK(!strcmp(h.name, "h200") && h.memory_bytes == 143771 * 0x1p20 && h.node_ranks == 8);
    CHECK(h.bf16_flops == 989.4e12 && h.f32_flops < h.bf16_flops);
    c.memory_bytes = 96e9, c.node_ranks = 4, c.peak_flops = 800e12, c.transfer_latency = 1e-6;
    c.host_memory_bytes = 64e9, c.host_rate = 25e9;
    struct hardware other = device_config_hardware(&c);
    CHECK(other.memory_bytes == 96e9 && other.node_ranks == 4 && other.latency_s == 1e-6);
    CHECK(h.host_bytes == 250e9 && other.host_bytes == 64e9);
    CHECK(h.host_bandwidth == 64e9 && other.host_bandwidth == 25e9);
    CHECK(other.bf16_flops == 800e12 && other.f32_flops == 800e12);
    CHECK(other.network_bandwidth == h.network_bandwidth && other.efficiency == h.efficiency);
}
