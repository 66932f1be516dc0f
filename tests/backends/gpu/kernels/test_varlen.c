// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/varlen.h"

#include "backends/gpu/gpu.h"
#include "tensor/device.h"
#include "tensor/queue.h"
#include "test.h"

/* Writes the bounds of documents of these lengths; returns the number of tokens. */
static int fill_bounds(const int *lengths, int count, int T, int32_t *start, int32_t *end)
{
    int n = 0;
    for (int d = 0; d < count; d++)
        for (int i = 0, first = n; i < lengths[d]; i++, n++)
            start[n] = first % T, end[n] = first % T + lengths[d];
    return n;
}

static bool find(const int32_t *start, const int32_t *end, int B, int T, int max,
                 struct varlen *out)
{
    struct varlen_bounds bounds = {start, end, B, T};
    return gpu_emu32_varlen_find(&bounds, max, out);
}

TEST(varlen_finds_the_documents_of_a_batch)
{
    const int lengths[] = {3, 5, 8, 1, 1, 6};
    int32_t start[24], end[24];
    struct varlen d;
    CHECK(fill_bounds(lengths, 6, 8, start, end) == 24);
    CHECK(find(start, end, 3, 8, 6, &d));
    const int32_t first[] = {0, 3, 8, 16, 17, 18, 24};
    CHECK(d.count == 6 && !memcmp(d.cu_seqlens, first, sizeof first));
}

TEST(varlen_rejects_too_many_documents)
{
    int32_t start[2 * VARLEN_MAX_SEQUENCES], end[2 * VARLEN_MAX_SEQUENCES];
    struct varlen d;
    for (int n = 0; n < 2 * VARLEN_MAX_SEQUENCES; n++) start[n] = n, end[n] = n + 1;
    CHECK(!find(start, end, 1, 7, 6, &d));
    CHECK(find(start, end, 1, 7, 7, &d) && d.count == 7 && d.cu_seqlens[7] == 7);
    CHECK(find(start, end, 1, VARLEN_MAX_SEQUENCES, 1 << 20, &d));
    CHECK(d.count == VARLEN_MAX_SEQUENCES &&
          d.cu_seqlens[VARLEN_MAX_SEQUENCES] == VARLEN_MAX_SEQUENCES);
    CHECK(!find(start, end, 1, VARLEN_MAX_SEQUENCES + 1, 1 << 20, &d));
}

TEST(varlen_rejects_bounds_that_are_not_contiguous_documents)
{
    const int32_t start[][4] = {{0, 0, 2, 2}, {0, 0, 1, 1}, {1, 1, 2, 2}, {0, 0, 2, 2}};
    const int32_t end[][4] = {{2, 2, 4, 4}, {2, 2, 4, 4}, {2, 2, 4, 4}, {0, 2, 4, 4}};
    const int32_t long_end[] = {2, 2, 5, 5};
    struct varlen d;
    CHECK(find(start[0], end[0], 1, 4, 4, &d)); /* {0, 1}, {2, 3} */
    for (int i = 1; i < 4; i++) CHECK(!find(start[i], end[i], 1, 4, 4, &d));
    CHECK(!find(start[0], long_end, 1, 4, 4, &d));
}

/* With both warp sizes. */
static void on_emulated_devices(void (*test)(struct queue *queue, int warp_size))
{
    struct queue *queue;
    CHECK_STATUS(OK, gpu_emu32_open(&queue, 0));
    test(queue, 32);
    gpu_emu32_close(queue);
    CHECK_STATUS(OK, gpu_emu64_open(&queue, 0));
    test(queue, 64);
    gpu_emu64_close(queue);
}

static void check_offsets(struct queue *queue, int warp_size)
{
    enum { SEQUENCES = 300 }; /* more than the threads of a block */
    static const struct varlen d = {3, {0, 5, 6, 16}};
    struct varlen_offsets to = {.sequences = SEQUENCES,
                                .token_elements = {1, 6144, (int64_t)1 << 33, 3}};
    struct arena memory;
    int64_t begin[SEQUENCES + 1];
    int32_t lengths[SEQUENCES];
    CHECK_STATUS(OK, arena_init(&memory, 1 << 16, queue_device_allocator(queue)));
    to.lengths = arena_alloc(&memory, SEQUENCES, sizeof *to.lengths);
    for (int i = 0; i < VARLEN_LISTS; i++)
        to.offsets[i] = arena_alloc(&memory, SEQUENCES + 1, sizeof *to.offsets[i]);
    CHECK_STATUS(OK, (warp_size == 32 ? gpu_emu32_varlen_write_offsets
                                      : gpu_emu64_varlen_write_offsets)(&d, &to, queue));
    CHECK_STATUS(OK, queue_copy(queue, lengths, to.lengths, sizeof lengths));
    CHECK(lengths[0] == 5 && lengths[1] == 1 && lengths[2] == 10);
    for (int i = 3; i < SEQUENCES; i++) CHECK(lengths[i] == 0);
    for (int list = 0; list < VARLEN_LISTS; list++) {
        CHECK_STATUS(OK, queue_copy(queue, begin, to.offsets[list], sizeof begin));
        CHECK(begin[0] == 0 && begin[1] == 5 * to.token_elements[list]);
        for (int i = 3; i <= SEQUENCES; i++) CHECK(begin[i] == 16 * to.token_elements[list]);
    }
    arena_release(&memory);
}

TEST(varlen_offsets_are_in_elements_and_unused_sequences_are_empty)
{
    on_emulated_devices(check_offsets);
}

static void check_transposes(struct queue *queue, int warp_size)
{
    enum { B = 2, T = 70, H = 35, COUNT = B * T * H };
    const struct varlen_shape shape = {B, T, H};
    float x[COUNT], y[COUNT];
    struct arena memory;
    CHECK_STATUS(OK, arena_init(&memory, 3 * sizeof x + 4096, queue_device_allocator(queue)));
    float *tokens = arena_alloc(&memory, COUNT, sizeof *x);
    float *heads = arena_alloc(&memory, COUNT, sizeof *x);
    float *back = arena_alloc(&memory, COUNT, sizeof *x);
    for (int i = 0; i < COUNT; i++) x[i] = (float)i;
    CHECK_STATUS(OK, queue_copy(queue, tokens, x, sizeof x));
    CHECK_STATUS(OK, (warp_size == 32 ? gpu_emu32_varlen_to_heads
                                      : gpu_emu64_varlen_to_heads)(tokens, heads, shape, queue));
    CHECK_STATUS(OK, (warp_size == 32 ? gpu_emu32_varlen_to_tokens
                                      : gpu_emu64_varlen_to_tokens)(heads, back, shape, queue));
    CHECK_STATUS(OK, queue_copy(queue, y, heads, sizeof y));
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++)
            for (int h = 0; h < H; h++) CHECK(y[(b * H + h) * T + t] == x[(b * T + t) * H + h]);
    CHECK_STATUS(OK, queue_copy(queue, y, back, sizeof y));
    CHECK(!memcmp(x, y, sizeof x));
    arena_release(&memory);
}

TEST(varlen_transposes_between_tokens_and_heads) { on_emulated_devices(check_transposes); }
