// SPDX-License-Identifier: Apache-2.0
#include "machine/machine.h"
#include "perf/hardware_probe.h"
#include "test.h"

TEST(hardware_probe_measures_only_what_is_unset)
{
    struct config c;
    struct machine m;
    struct model_shape shape = {.D = 64, .F = 128};
    CHECK_STATUS(OK, config_load(&c, NULL, NULL, 0));
    CHECK_STATUS(OK, machine_open(&m, &c.device));
    struct hardware h = device_config_hardware(&c.device);
    CHECK(!strcmp(h.name, "cpu") && h.memory_bandwidth == 0);
    CHECK_STATUS(OK, hardware_probe_fill(&h, &c, &shape, &m));
    CHECK(h.bf16_flops > 0 && h.efficiency > 0 && h.memory_bandwidth > 0 && h.memory_bytes > 0);
    struct hardware same = h;
    CHECK_STATUS(OK, hardware_probe_fill(&h, &c, &shape, &m));
    CHECK(!memcmp(&h, &same, sizeof h));
    c.metrics.peak_flops = 1e15;
    h.bf16_flops = h.efficiency = 0;
    CHECK_STATUS(OK, hardware_probe_fill(&h, &c, &shape, &m));
    CHECK(h.bf16_flops == 1e15 && h.efficiency < 1);
    machine_close(&m);
    config_release(&c);
}

/* Its Newton-Schulz iterations run in float32 whatever the model's dtype is. */
TEST(hardware_probe_measures_float32_for_muon)
{
    const char *const settings[] = {"optimizer.name=Muon"};
    struct config c;
    struct machine m;
    struct model_shape shape = {.D = 64, .F = 128};
    CHECK_STATUS(OK, config_load(&c, NULL, settings, 1));
    CHECK_STATUS(OK, machine_open(&m, &c.device));
    struct hardware h = device_config_hardware(&c.device);
    CHECK_STATUS(OK, hardware_probe_fill(&h, &c, &shape, &m));
    CHECK(h.bf16_flops > 0 && h.f32_flops > 0);
    machine_close(&m);
    config_release(&c);
}
