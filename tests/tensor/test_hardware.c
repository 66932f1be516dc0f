// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tensor/device_config.h"

TEST(hardware_row_is_found_by_device_name)
{
    CHECK(!strcmp(hardware_find("NVIDIA H200")->name, "h200"));
    CHECK(!strcmp(hardware_find("NVIDIA H100 80GB HBM3")->name, "h100"));
    CHECK(!strcmp(hardware_find("AMD Instinct MI250X")->name, "mi250x"));
    CHECK(!strcmp(hardware_find("NVIDIA A100-SXM4-80GB")->name, "a100"));
    CHECK(!strcmp(hardware_find("NVIDIA B200")->name, "b200"));
    CHECK(!strcmp(hardware_find("AMD Instinct MI325X")->name, "mi325x"));
    CHECK(!strcmp(hardware_find("AMD Instinct MI355X")->name, "mi355x"));
    CHECK(!hardware_find("NVIDIA GeForce RTX 4090") && !hardware_find("a cpu"));
}

/* As torchtitan's get_peak_flops, and NVIDIA's data sheets of the H200 NVL and GB200 NVL72. */
TEST(cards_and_superchips_have_peaks_of_their_own)
{
    CHECK(hardware_find("NVIDIA H100 PCIe")->bf16_flops == 756e12);
    CHECK(hardware_find("NVIDIA H100 NVL")->bf16_flops == 835e12);
    CHECK(hardware_find("NVIDIA H200 NVL")->bf16_flops == 835e12);
    CHECK(hardware_find("NVIDIA GB200")->bf16_flops == 2500e12);
    CHECK(hardware_find("NVIDIA B200") == hardware_row(HARDWARE_b200));
    CHECK(hardware_find("NVIDIA H100 80GB HBM3") == hardware_row(HARDWARE_h100));
    CHECK(!strcmp(hardware_find("NVIDIA H100 NVL")->name, "h100-nvl"));
    CHECK(!hardware_find("NVIDIA H100 NVL MIG 1g.12gb"));
}

TEST(a_device_with_a_longer_number_is_another_one)
{
    CHECK(!hardware_find("NVIDIA RTX A1000"));
    CHECK(hardware_find("NVIDIA A100X") == hardware_row(HARDWARE_a100));
    CHECK(hardware_find("RTX A1000, A100-PCIE-40GB") == hardware_row(HARDWARE_a100));
    CHECK(hardware_find("NVIDIA GH200 480GB") == hardware_row(HARDWARE_h200));
    CHECK(!strcmp(hardware_find("A100")->name, "a100"));
}

TEST(a_mig_instance_does_not_have_the_rates_of_the_whole_gpu)
{
    CHECK(!hardware_find("NVIDIA H100 80GB HBM3 MIG 1g.10gb"));
}

/* The backend widens FP8 to bf16 with HIP. */
TEST(fp8_is_native_on_nvidia_since_hopper_unless_the_configuration_says_otherwise)
{
    for (int i = 0; i < HARDWARE_COUNT; i++) {
        const struct hardware *h = hardware_row((enum hardware_row)i);
        bool is_old = i == HARDWARE_cpu || i == HARDWARE_a100 || i == HARDWARE_trn1;
        CHECK(hardware_has_native_fp8(h) == (h->vendor != VENDOR_amd && !is_old));
    }
    struct device_config c = {.hardware = HARDWARE_mi300x, .fp8_speedup = 2};
    const struct hardware h = device_config_hardware(&c);
    CHECK(hardware_has_native_fp8(&h));
}

TEST(hardware_has_a_row_for_every_word_of_the_option)
{
    const char *word = HARDWARE_WORDS;
    int count = 0;
    for (char name[32]; *word; count++) {
        size_t length = strcspn(word, "|");
        snprintf(name, sizeof name, "%.*s", (int)length, word);
        struct device_config c = {.hardware = count};
        CHECK(!strcmp(device_config_hardware(&c).name, name));
        word += length + (word[length] == '|');
    }
    CHECK(count == 11 && count == HARDWARE_COUNT);
}

TEST(hardware_rows_other_than_cpu_have_every_figure)
{
    for (int i = HARDWARE_cpu + 1; i < HARDWARE_COUNT; i++) {
        struct device_config c = {.hardware = i};
        struct hardware h = device_config_hardware(&c);
        CHECK(h.bf16_flops > h.f32_flops && h.f32_flops > 1e12);
        CHECK(h.efficiency > 0 && h.efficiency < 1 && h.float8 >= 1 && h.float8 <= 2);
        CHECK(h.memory_bytes > 1e10 && h.memory_bandwidth > h.node_bandwidth);
        CHECK(h.node_bandwidth > h.network_bandwidth && h.network_bandwidth > 1e9 &&
              h.latency_s > 0);
        CHECK(h.host_bandwidth > 1e9 && h.host_bandwidth <= h.node_bandwidth);
    }
}
