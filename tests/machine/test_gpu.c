// SPDX-License-Identifier: Apache-2.0
#include "machine/gpu.h"
#include "machine/machine.h"
#include "test.h"

TEST(a_gpu_backend_that_was_not_built_is_unsupported)
{
    const struct device_config other = {.kind = gpu_backend && !strcmp(gpu_backend, "hip") ? "cuda"
                                                                                           : "hip"};
    struct machine m;
    CHECK_STATUS(UNSUPPORTED, machine_open(&m, &other));
    CHECK_MESSAGE("device.kind");
    machine_close(&m);
}

TEST(auto_selects_the_cpu_on_a_machine_without_a_gpu)
{
    const struct device_config c = {.kind = "auto", .cpu = "auto", .threads = 1};
    struct machine m;
    if (gpu_machine_count()) skip();
    CHECK_STATUS(OK, machine_open(&m, &c));
    CHECK(!m.on->device);
    machine_close(&m);
}
