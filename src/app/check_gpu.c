// SPDX-License-Identifier: Apache-2.0
#include "app/bench_device.h"
#include "app/checks.h"
#include "app/machine.h"
#include "backends/launch/gpu.h"
#include "tensor/hardware.h"

/* At best, beside what the maker says; the machine's device is open. */
static void check_speed_of(struct findings *f, const struct machine *m)
{
    enum { BYTES = 402653184, ROUNDS = 3 }; /* three matrices of 8192 x 8192 in bf16 */
    struct device_ceilings c;
    enum status st = device_ceilings_find(&c, m, BYTES, ROUNDS);
    if (st) {
        findings_fail(f, "gpu speed", st, "it does not compute");
        return;
    }
    findings_add(f, "gpu speed",
                 "at best %.0f TFLOP/s in bfloat16, %.0f%% of its peak, %.0f in float32; copy "
                 "%.0f GB/s",
                 c.flops[BF16] / 1e12, 100 * c.flops[BF16] / m->peak_flops, c.flops[F32] / 1e12,
                 c.copy / 1e9);
    if (c.flops[BF16] < 0.5 * m->peak_flops)
        findings_warn(f, "less than half of the peak: others use it, or its clock is held down");
}

static void check_first(struct findings *f)
{
    const struct device_config c = {.kind = DEVICE_KIND_auto};
    struct machine m;
    enum status st = machine_open(&m, &c);
    if (st)
        findings_fail(f, "gpu", st, "it cannot be used");
    else if (m.peak_flops > 0)
        check_speed_of(f, &m);
    machine_close(&m);
}

void check_gpus(struct findings *f)
{
    int count = gpu_machine_count();
    if (!gpu_backend)
        findings_add(f, "gpu", "this program was built without a backend for one: make CUDA=1");
    else if (!count)
        findings_add(f, "gpu", "none here; this program has the backend for %s", gpu_backend);
    for (int i = 0; i < count; i++) {
        struct text is = {0};
        gpu_machine_describe(i, &is);
        findings_add(f, "gpu", "%s", is.data);
        text_release(&is);
    }
    if (count) check_first(f);
}
