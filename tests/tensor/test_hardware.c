// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tensor/device_config.h"

TEST(hardware_is_the_row_that_is_named_with_what_else_is_said)
{
    struct device_config c = {.hardware = HARDWARE_h200};
    struct hardware h = hardware_of(&c);
    CHECK(!strcmp(h.name, "h200") && h.memory_bytes == 141e9 && h.node_ranks == 8);
    CHECK(h.bf16_flops == 989.4e12 && h.f32_flops < h.bf16_flops);
    c.memory_bytes = 96e9, c.node_ranks = 4, c.peak_flops = 800e12, c.transfer_latency = 1e-6;
    struct hardware other = hardware_of(&c);
    CHECK(other.memory_bytes == 96e9 && other.node_ranks == 4 && other.latency_s == 1e-6);
    CHECK(other.bf16_flops == 800e12 && other.f32_flops == 800e12);
    CHECK(other.network_rate == h.network_rate && other.efficiency == h.efficiency);
}

TEST(a_devices_own_name_finds_its_row)
{
    CHECK(!strcmp(hardware_named("NVIDIA H200")->name, "h200"));
    CHECK(!strcmp(hardware_named("NVIDIA H100 80GB HBM3")->name, "h100"));
    CHECK(!strcmp(hardware_named("AMD Instinct MI250X")->name, "mi250x"));
    CHECK(!hardware_named("NVIDIA GeForce RTX 4090") && !hardware_named("a cpu"));
}

TEST(hardware_has_every_word_that_device_hardware_may_be)
{
    const char *word = HARDWARE_WORDS;
    int count = 0;
    for (char name[32]; *word; count++) {
        size_t length = strcspn(word, "|");
        snprintf(name, sizeof name, "%.*s", (int)length, word);
        struct device_config c = {.hardware = count};
        CHECK(!strcmp(hardware_of(&c).name, name));
        word += length + (word[length] == '|');
    }
    CHECK(count == 7 && count == HARDWARE_COUNT);
}

TEST(hardware_that_is_not_measured_has_every_figure)
{
    for (int i = HARDWARE_cpu + 1; i < HARDWARE_COUNT; i++) {
        struct device_config c = {.hardware = i};
        struct hardware h = hardware_of(&c);
        CHECK(h.bf16_flops > h.f32_flops && h.f32_flops > 1e12);
        CHECK(h.efficiency > 0 && h.efficiency < 1 && h.float8 >= 1 && h.float8 <= 2);
        CHECK(h.memory_bytes > 1e10 && h.memory_rate > h.node_rate);
        CHECK(h.node_rate > h.network_rate && h.network_rate > 1e9 && h.latency_s > 0);
    }
}
