/* rig.h (tests) -- helpers for tests of ops: buffers of either dtype, comparisons, numerical
 * gradients.
 *
 * Fast kernels are compared with the reference, in f32 and bf16. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test.h"

#include "backends/cpu/cpu.h"
#include "tensor/dtype.h"

/* A test that runs once for the kernels of each ISA of this processor, for emulated AMX, and for
 * the emulated GPU (not under sanitizers); rig_fast() is the current backend. */
#define OPS_TEST(name)                                                                             \
    static void name##_of_a_set(void);                                                             \
    TEST(name) { rig_each_backend(name##_of_a_set); }                                              \
    static void name##_of_a_set(void)
void rig_each_backend(void (*test)(void));
void rig_each_gpu(void (*test)(void));
/* The same without the GPU.  Ops of the GPU must run on rig_queue(). */
#define CPU_ISAS_TEST(name)                                                                        \
    static void name##_of_a_set(void);                                                             \
    TEST(name) { rig_each_cpu_isa(name##_of_a_set); }                                              \
    static void name##_of_a_set(void)
void rig_each_cpu_isa(void (*test)(void));
const struct ops *rig_fast(void);
/* Whether the current backend is a GPU's, which ignores the flag of packed tensors. */
bool rig_is_gpu(void);

/* The queue of the current backend; on the CPU it has two threads. */
struct queue *rig_queue(void);

/* Runs a call on a sizing queue, then allocates the scratch memory it needs and runs it. */
#define RIG_RUN(call)                                                                              \
    do {                                                                                           \
        rig_set_sizing(true);                                                                      \
        CHECK_STATUS(OK, call);                                                                    \
        rig_set_sizing(false);                                                                     \
        CHECK_STATUS(OK, call);                                                                    \
    } while (0)
void rig_set_sizing(bool measuring);

/* n numbers of mean 0, variance 1 and nearly normal distribution, a function of `seed`, rounded to
 * the dtype.  Cheaper than normal numbers, of which the tests need many. */
void *rig_random(uint64_t seed, size_t n, enum dtype dtype);
void *rig_zeros(size_t n, enum dtype dtype);
void *rig_copy(const void *x, size_t n, enum dtype dtype);

/* Checks |x - y| <= tolerance * |y| in the L2 norm over all n. */
void rig_check_close(const char *what, const void *x, const void *y, size_t n, enum dtype dtype,
                     double tolerance);
#define RIG_CLOSE(x, y, n, dtype) rig_check_close(#x, x, y, n, dtype, (dtype) == F32 ? 1e-5 : 1e-2)
/* For the lse of attention, which may sum probs after rounding them to the dtype. */
#define RIG_CLOSE_LSE(x, y, n, dtype)                                                              \
    rig_check_close(#x, x, y, n, F32, (dtype) == F32 ? 1e-5 : 5e-4)

/* Compares dx with central differences of loss(context), which reads x. */
void rig_check_gradient(const char *what, float *x, size_t n, const float *dx,
                        double (*loss)(void *context), void *context);

/* Sum of x[i] * weight[i]. */
double rig_dot(const float *x, const float *weight, size_t n);
