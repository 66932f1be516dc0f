// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "backends/cpu/isa.h"
#include "backends/gpu/emulator/emulator.h"
#include "backends/gpu/gpu.h"
#include "base/rng.h"

static struct queue *cpu_queue, *device_queue; /* device_queue: of the current backend, if a GPU */
static const struct ops *fast;

const struct ops *rig_fast(void) { return fast; }

bool rig_is_gpu(void) { return device_queue; }

/* Runs the test on the emulated GPU with warps of `wave` threads. */
static void run_emulated_gpu(int wave, void (*test)(void))
{
    CHECK_STATUS(OK,
                 wave == 32 ? gpu_emu32_open(&device_queue, 0) : gpu_emu64_open(&device_queue, 0));
    emulator_set_relaxed(true);
    fast = wave == 32 ? &gpu_emu32_ops : &gpu_emu64_ops;
    test();
    fast = NULL;
    emulator_set_relaxed(false);
    arena_release(&device_queue->scratch);
    (wave == 32 ? gpu_emu32_close : gpu_emu64_close)(device_queue);
    device_queue = NULL;
}

void rig_each_cpu_isa(void (*test)(void))
{
    extern const struct isa amx_emulated_isa;
    device_queue = NULL; /* left over from a failed test */
    for (int i = 0; isa_at(i); i++)
        if (isa_is_supported(isa_at(i))) {
            fast = &isa_at(i)->ops;
            test();
        }
    fast = &amx_emulated_isa.ops;
    test();
}

void rig_each_gpu(void (*test)(void))
{
    run_emulated_gpu(32, test);
    if (!TEST_PTX) run_emulated_gpu(64, test);
}

void rig_each_backend(void (*test)(void))
{
    if (!TEST_PTX) rig_each_cpu_isa(test);
    /* Sanitizers find errors in the backend's host code, which other tests run, such as
     * tests/backends/gpu/test_ops.c; gpu-memcheck finds those in kernels. */
    if (!TEST_SLOWED) rig_each_gpu(test);
}

__attribute__((destructor)) static void close_queue(void)
{
    if (cpu_queue) cpu_queue_close(cpu_queue);
}

struct queue *rig_queue(void)
{
    if (device_queue) return device_queue;
    if (!cpu_queue) CHECK_STATUS(OK, cpu_queue_open(&cpu_queue, 2, 0));
    return cpu_queue;
}

void rig_set_sizing(bool measuring)
{
    struct queue *queue = rig_queue();
    size_t bytes = queue->scratch.peak;
    arena_release(&queue->scratch);
    queue->sizing = measuring;
    if (!measuring) CHECK_STATUS(OK, arena_init(&queue->scratch, bytes, NULL));
}

static float to_float(const void *x, size_t i, enum dtype dtype)
{
    return dtype == F32 ? ((const float *)x)[i] : bf16_to_f32(((const bf16 *)x)[i]);
}

void *rig_zeros(size_t n, enum dtype dtype) { return heap(n * dtype_bytes(dtype)); }

/* The sum of eight uniform 16-bit numbers, shifted and scaled. */
static float nearly_normal(uint32_t bits[4][RNG_FILL], int i)
{
    const float deviation = 53510.0f; /* 65536 * sqrt(8 / 12) */
    uint32_t sum = 0;
    for (int k = 0; k < 4; k++) sum += (bits[k][i] & 0xFFFF) + (bits[k][i] >> 16);
    return ((float)sum - 4 * 65535.0f) / deviation;
}

void *rig_random(uint64_t seed, size_t n, enum dtype dtype)
{
    void *x = rig_zeros(n, dtype);
    uint32_t bits[4][RNG_FILL];
    for (size_t i = 0; i < n; i++) {
        if (i % RNG_FILL == 0) {
            size_t rest = n - i;
            const struct rng_positions at = {i, 1, rest < RNG_FILL ? (int)rest : RNG_FILL};
            rng_fill(seed, RNG_TEST, 9, &at, bits);
        }
        float value = nearly_normal(bits, (int)(i % RNG_FILL));
        if (dtype == F32)
            ((float *)x)[i] = value;
        else
            ((bf16 *)x)[i] = bf16_from_f32(value);
    }
    return x;
}

void *rig_copy(const void *x, size_t n, enum dtype dtype)
{
    void *y = rig_zeros(n, dtype);
    memcpy(y, x, n * dtype_bytes(dtype));
    return y;
}

void rig_check_close(const char *what, const void *x, const void *y, size_t n, enum dtype dtype,
                     double tolerance)
{
    double off = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        double a = (double)to_float(x, i, dtype), b = (double)to_float(y, i, dtype);
        off += (a - b) * (a - b), size += b * b;
    }
    if (!(sqrt(off) <= tolerance * sqrt(size)))
        fail_msg("%s (%s, %s): off by %.3g of %.3g", what, dtype_name(dtype),
                 fast ? fast->backend : "reference", sqrt(off), sqrt(size));
}

void rig_check_gradient(const char *what, float *x, size_t n, const float *dx,
                        double (*loss)(void *context), void *context)
{
    const float step = 1e-2f;
    for (size_t i = 0; i < n; i++) {
        float kept = x[i];
        x[i] = kept + step;
        double up = loss(context);
        x[i] = kept - step;
        double down = loss(context), slope = (up - down) / (2 * (double)step);
        x[i] = kept;
        if (!(fabs(slope - (double)dx[i]) <= 3e-3 * fmax(1, fabs(slope))))
            fail_msg("%s[%zu]: gradient %g, by differences %g", what, i, (double)dx[i], slope);
    }
}

double rig_dot(const float *x, const float *weight, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)weight[i];
    return sum;
}
