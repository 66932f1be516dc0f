// SPDX-License-Identifier: Apache-2.0
#include "doctor/check.h"
#include "machine/gpu.h"
#include "machine/machine.h"
#include "perf/device_bench.h"
#include "tensor/hardware.h"

/* Measured speed compared with the vendor's peak. */
static void check_device_speed(struct findings *f, const struct machine *m)
{
    enum { BYTES = 402653184, ROUNDS = 3 }; /* three 8192 x 8192 matrices in bf16 */
    struct device_ceilings c;
    enum status st = device_bench_ceilings(&c, m, BYTES, ROUNDS);
    if (st) {
        findings_fail(f, "gpu speed", st,
                      "the GPU was found, but operations on it fail: check its "
                      "driver");
        return;
    }
    findings_add(f, "gpu speed",
                 "GEMM %.0f TFLOP/s in bfloat16 (%.0f%% of peak), %.0f in float32; copy %.0f GB/s",
                 c.flops[BF16] / 1e12, 100 * c.flops[BF16] / m->peak_flops, c.flops[F32] / 1e12,
                 c.copy / 1e9);
    if (c.flops[BF16] < 0.5 * m->peak_flops)
        findings_warn(f, "less than half of the peak: another process uses the GPU, or its clock "
                         "is throttled");
}

static void check_first_gpu(struct findings *f)
{
    const struct device_config c = {.kind = DEVICE_KIND_auto};
    struct machine m;
    enum status st = machine_open(&m, &c);
    if (st)
        findings_fail(f, "gpu", st, "cannot be used: check the driver and who else uses it");
    else if (m.peak_flops > 0)
        check_device_speed(f, &m);
    machine_close(&m);
}

void check_gpus(struct findings *f)
{
    int count = gpu_machine_count();
    if (!gpu_backend)
        findings_add(f, "gpu", "built without a GPU backend (make CUDA=1 or HIP=1 adds one)");
    else if (!count)
        findings_add(f, "gpu", "none found; built with the %s backend", gpu_backend);
    for (int i = 0; i < count; i++) {
        struct text is = {0};
        gpu_machine_describe(i, &is);
        findings_add(f, "gpu", "%s", is.data);
        text_release(&is);
    }
    if (count) check_first_gpu(f);
}
