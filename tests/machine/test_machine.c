// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "test.h"

#include "base/file.h"
#include "base/thread.h"
#include "machine/cpu.h"
#include "machine/machine.h"
#include "ops/linear.h"
#include "ops/ops.h"
#include "tensor/device.h"

TEST(a_machine_has_every_operation_and_the_configured_threads)
{
    static const enum device_cpu kinds[] = {DEVICE_CPU_auto, DEVICE_CPU_reference};
    for (size_t i = 0; i < 2; i++) {
        struct machine m;
        struct device_config c = {.cpu = kinds[i], .threads = 1};
        CHECK_STATUS(OK, machine_open(&m, &c));
        CHECK(!ops_missing(m.ops));
        CHECK(m.queue->num_threads == 1);
        machine_measure_peak(&m, F32);
        CHECK(m.peak_flops > 1e8);
        machine_close(&m);
    }
}

TEST(peak_of_a_known_gpu_depends_on_the_dtype)
{
    struct device device = {0};
    struct queue queue = {.device = &device};
    struct machine m = {.queue = &queue, .hardware = hardware_row(HARDWARE_h100)};
    machine_measure_peak(&m, F32);
    CHECK(m.peak_flops == hardware_row(HARDWARE_h100)->f32_flops);
    machine_measure_peak(&m, BF16);
    CHECK(m.peak_flops == hardware_row(HARDWARE_h100)->bf16_flops);
}

TEST(a_machine_uses_all_cores_by_default)
{
    struct machine m;
    struct device_config c = {0};
    CHECK(thread_cores() >= 1);
    CHECK_STATUS(OK, machine_open(&m, &c));
    CHECK(m.queue->num_threads == thread_cores());
    machine_close(&m);
}

TEST(a_machine_without_a_launcher_requires_a_mesh_of_one_rank)
{
    struct machine m;
    struct device_config c = {.threads = 1};
    struct parallelism_config p = {.data_parallel_replicate_degree = 1,
                                   .data_parallel_shard_degree = -1,
                                   .tensor_parallel_degree = 1,
                                   .pipeline_parallel_degree = 1,
                                   .context_parallel_degree = 1};
    CHECK_STATUS(OK, machine_join(&m));
    CHECK_STATUS(OK, machine_open_ranks(&m, &c, &p));
    CHECK(m.world.size == 1 && m.groups.of[GROUP_world].size == 1 && m.queue->num_threads == 1);
    machine_close_ranks(&m, STATUS_OK);
    p.tensor_parallel_degree = 2;
    CHECK_STATUS(OK, machine_join(&m));
    CHECK_STATUS(CONFIG, machine_open_ranks(&m, &c, &p));
    CHECK_MESSAGE("number of ranks must be");
    machine_close_ranks(&m, STATUS_CONFIG);
}

static enum status open_with_kernels(const struct comm *world, void *context)
{
    const enum device_cpu *of = context;
    struct machine m = {.world = *world};
    struct device_config c = {.cpu = of[world->rank], .threads = 1};
    struct parallelism_config p = {.data_parallel_replicate_degree = 1,
                                   .data_parallel_shard_degree = -1,
                                   .tensor_parallel_degree = 1,
                                   .pipeline_parallel_degree = 1,
                                   .context_parallel_degree = 1};
    enum status st = machine_open_ranks(&m, &c, &p);
    groups_close(&m.groups);
    cpu_machine_close(&m);
    if (st == STATUS_CONFIG && world->rank == 0 && strstr(status_message(), "on ranks 0 2 ("))
        FAIL(CONFIG, "found: %s", status_message());
    return st;
}

TEST(ranks_with_other_kernels_are_refused)
{
    enum device_cpu same[] = {DEVICE_CPU_auto, DEVICE_CPU_auto, DEVICE_CPU_auto};
    enum device_cpu other[] = {DEVICE_CPU_auto, DEVICE_CPU_reference, DEVICE_CPU_auto};
    CHECK_STATUS(OK, ranks_run(3, open_with_kernels, same));
    CHECK_STATUS(CONFIG, ranks_run(3, open_with_kernels, other));
    CHECK_MESSAGE("found: the device differs between ranks: the backend is \"cpu ");
    CHECK_MESSAGE("\"cpu reference\" on rank 1 (");
}

/* y of a linear layer, computed on a machine of its own. */
static void compute_layer(const struct device_config *c, bf16 *y_NF)
{
    enum { N = 70, D = 200, F = 90 };
    struct linear l = {.N = N, .D = D, .F = F, .dtype = BF16};
    bf16 *x_ND = heap(N * D * sizeof *x_ND), *w_FD = heap(F * D * sizeof *w_FD);
    struct linear_fwd io = {.x_ND = x_ND, .w_FD = w_FD, .y_NF = y_NF};
    struct machine m;
    for (int i = 0; i < N * D; i++) x_ND[i] = bf16_from_f32((float)(i % 7) - 3.1f);
    for (int i = 0; i < F * D; i++) w_FD[i] = bf16_from_f32((float)(i % 11) - 5.3f);
    CHECK_STATUS(OK, machine_open(&m, c));
    machine_tune(&m, c, 0);
    m.queue->sizing = true;
    CHECK_STATUS(OK, linear_forward(m.ops, &l, &(struct linear_fwd){0}, m.queue));
    m.queue->sizing = false;
    CHECK_STATUS(OK, arena_init(&m.queue->scratch, m.queue->scratch.peak, NULL));
    CHECK_STATUS(OK, linear_forward(m.ops, &l, &io, m.queue));
    machine_close(&m);
    free(x_ND), free(w_FD);
}

TEST(a_tuned_machine_saves_its_choices_and_computes_the_same_bits)
{
    enum { BYTES = 70 * 90 * sizeof(bf16) };
    const char *path = test_path(test_folder(), "gemm.json");
    struct device_config c = {.threads = 2, .tune_file = path};
    struct text first = {0}, second = {0};
    bf16 *plain = heap(BYTES), *tuned = heap(BYTES), *found = heap(BYTES);
    compute_layer(&c, plain);
    CHECK(!file_exists(path)); /* not requested */
    c.tune_gemm = true;
    compute_layer(&c, tuned);
    CHECK_STATUS(OK, file_read(path, 1 << 16, &first));
    CHECK(strstr(first.data, "A B^T of 70 x 90 x 200, bfloat16 to bfloat16"));
    compute_layer(&c, found);
    CHECK_STATUS(OK, file_read(path, 1 << 16, &second));
    CHECK(!strcmp(first.data, second.data));
    CHECK(!memcmp(plain, tuned, BYTES) && !memcmp(plain, found, BYTES));
    free(plain), free(tuned), free(found);
    text_release(&first), text_release(&second);
}
