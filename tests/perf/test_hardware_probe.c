// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/gpu.h"
#include "backends/gpu/queue.h"
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

static struct hardware probe_backend(const char *backend, const char *setting,
                                     const struct hardware *known, bool native)
{
    struct config c;
    struct ops ops = gpu_emu32_ops;
    struct machine m = {.ops = &ops, .hardware = known};
    struct model_shape shape = {.D = 64, .F = 128};
    CHECK_STATUS(OK, config_load(&c, NULL, &setting, 1));
    ops.backend = backend;
    CHECK_STATUS(OK, gpu_emu32_open(&m.queue, 0));
    ((struct gpu_queue *)m.queue)->native_fp8 = native;
    struct hardware h = device_config_hardware(&c.device);
    /* no measurements */
    h.memory_bytes = h.memory_bandwidth = h.host_bandwidth = h.bf16_flops = h.f32_flops = 1e12;
    h.efficiency = 0.5;
    CHECK_STATUS(OK, hardware_probe_fill(&h, &c, &shape, &m));
    gpu_emu32_close(m.queue);
    config_release(&c);
    return h;
}

static struct hardware probe_gpu(const char *setting, const struct hardware *known, bool native)
{
    return probe_backend(gpu_emu32_ops.backend, setting, known, native);
}

TEST(hardware_probe_knows_the_node_of_a_gpu_by_its_name)
{
    const struct hardware *h100 = hardware_row(HARDWARE_h100);
    struct hardware h = probe_gpu("device.network_rate=1e9", h100, true);
    CHECK(!strcmp(h.name, "h100") && !strcmp(h.text, "a GPU of this machine"));
    CHECK(h.vendor == VENDOR_nvidia && h.float8 == 2 && h.node_ranks == 8);
    CHECK(h.node_bandwidth == h100->node_bandwidth && h.latency_s == h100->latency_s);
    CHECK(h.network_bandwidth == 1e9);
    CHECK(probe_gpu("device.node_ranks=4", h100, false).node_ranks == 4);
    CHECK(probe_gpu("device.node_ranks=4", h100, false).float8 == 1);
    CHECK(probe_gpu("device.fp8_speedup=1.5", h100, false).float8 == 1.5);
}

TEST(hardware_probe_describes_an_unknown_gpu_by_its_backend)
{
    struct hardware h = probe_gpu("device.node_rate=2e9", NULL, true);
    CHECK(!strcmp(h.name, gpu_emu32_ops.backend) && h.vendor == VENDOR_nvidia && h.float8 == 2);
    CHECK(h.node_ranks == 1 && h.node_bandwidth == 2e9);
    CHECK(probe_gpu("device.node_rate=2e9", NULL, false).float8 == 1);
    h = probe_backend("hip", "device.node_rate=2e9", NULL, false);
    CHECK(!strcmp(h.name, "hip") && h.vendor == VENDOR_amd);
}
