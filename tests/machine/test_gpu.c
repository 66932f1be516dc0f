// SPDX-License-Identifier: Apache-2.0
#include "machine/gpu.h"
#include "machine/machine.h"
#include "test.h"

TEST(a_gpu_backend_that_is_not_built_in_is_rejected)
{
    const struct device_config other = {
        .kind = gpu_backend && !strcmp(gpu_backend, "hip") ? DEVICE_KIND_cuda : DEVICE_KIND_hip};
    struct machine m;
    CHECK_STATUS(UNSUPPORTED, machine_open(&m, &other));
    CHECK_MESSAGE("device.kind");
    machine_close(&m);
}

TEST(auto_selects_the_cpu_without_a_gpu)
{
    const struct device_config c = {.threads = 1};
    struct machine m;
    if (gpu_machine_count()) skip();
    CHECK_STATUS(OK, machine_open(&m, &c));
    CHECK(!m.queue->device);
    machine_close(&m);
}
