// SPDX-License-Identifier: Apache-2.0
#include "doctor/check.h"
#include "machine/gpu.h"
#include "machine/machine.h"
#include "perf/device_bench.h"
#include "tensor/hardware.h"
#include "tensor/queue.h"

#include <string.h>

/* Large GEMMs reach about two thirds of NVIDIA's peaks, and less of AMD's.  Variants such as the
 * H100 PCIe have no efficiency in the table (0). */
double check_gpu_slow_fraction(const struct hardware *h)
{
    return 0.75 * (h && h->efficiency > 0 ? h->efficiency : 2.0 / 3);
}

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
    double slow = check_gpu_slow_fraction(m->hardware);
    if (c.flops[BF16] < slow * m->peak_flops)
        findings_warn(f,
                      "GEMMs reach less than %.0f%% of the peak: another process uses the GPU, its "
                      "clock is throttled, or cuBLASLt (on AMD GPUs hipBLASLt or rocBLAS) is "
                      "missing: see the libraries below",
                      100 * slow);
}

static bool has_attention_library(void)
{
    struct text name = {0};
    const char *use;
    enum status st = STATUS_OK;
    for (int i = 0; !name.len && gpu_machine_library(i, &use, &name, &st); i++)
        if (strcmp(use, "attention") != 0) text_clear(&name);
    bool found = !st && name.len;
    text_release(&name);
    return found;
}

static void check_attention(struct findings *f, const struct machine *m)
{
    if (!has_attention_library()) return;
    if (gpu_machine_check_attention(m)) {
        findings_add(f, "gpu attention", "%s", status_message());
        findings_warn(
            f, "attention that fails uses our own kernels, at about half of the library's speed");
    } else {
        findings_add(f, "gpu attention", "forward and backward match our own kernels");
    }
}

static void check_transfers(struct findings *f, const struct machine *m)
{
    if (gpu_machine_check_nccl(m)) {
        findings_add(f, "gpu transfers", "%s", status_message());
        findings_warn(f, "ranks need device.comm = \"staged\", which copies through host memory");
    } else {
        findings_add(f, "gpu transfers", "a group of one rank transfers on the GPU");
    }
}

static void check_libraries(struct findings *f)
{
    struct text is = {0};
    const char *use;
    enum status st;
    for (int i = 0; gpu_machine_library(i, &use, &is, &st); i++, text_clear(&is)) {
        if (!st && !is.len) continue;
        findings_add(f, "gpu library", "%s", st ? status_message() : is.data);
        if (st) findings_warn(f, "%s will be slower without it", use);
    }
    text_release(&is);
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
    if (!st && queue_device_allocator(m.queue)) check_attention(f, &m), check_transfers(f, &m);
    machine_close(&m);
}

static void add_none(struct findings *f)
{
    struct text why = {0};
    gpu_machine_explain_none(&why);
    findings_add(f, "gpu", "%s; built with the %s backend", why.data, gpu_backend);
    text_release(&why);
}

void check_gpus(struct findings *f)
{
    int count = gpu_machine_count();
    if (!gpu_backend)
        findings_add(f, "gpu", "built without a GPU backend (make CUDA=1 or HIP=1 adds one)");
    else if (!count)
        add_none(f);
    for (int i = 0; i < count; i++) {
        struct text is = {0};
        gpu_machine_describe(i, &is);
        gpu_machine_add_visibility(&is);
        findings_add(f, "gpu", "%s", is.data);
        text_release(&is);
    }
    check_libraries(f);
    if (count) check_first_gpu(f);
}
