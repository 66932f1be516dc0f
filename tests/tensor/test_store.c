// SPDX-License-Identifier: Apache-2.0
#include "tensor/store.h"

#include "backends/cpu/cpu.h"
#include "base/rng.h"
#include "tensor/device.h"
#include "tensor/queue.h"
#include "tensor/strict_device.h"
#include "test.h"

static float f32_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Splits and joins `high` with every low half; returns how many NaNs became another NaN. */
static int check_high(uint32_t high)
{
    int others = 0;
    for (uint32_t low = 0; low <= 0xFFFF; low++) {
        uint32_t bits = high << 16 | low;
        float x = f32_of(bits);
        bf16 half, want = bf16_from_f32(x);
        uint16_t rest;
        split_from_f32(x, &half, &rest);
        uint32_t back = split_join(half, rest);
        if (x != x) {
            CHECK(isnan(f32_of(back)) && !isfinite(bf16_to_f32(half)));
            CHECK((high & 0x7FFF) == 0x7F80 || isnan(bf16_to_f32(half)));
            others += back != bits;
            continue;
        }
        CHECK(back == bits);
        /* Ties round away from zero. */
        CHECK(low == 0x8000 ? half == high + 1 : half == want);
    }
    return others;
}

TEST(split_numbers_are_rounded_and_join_exactly)
{
    static const uint32_t special[] = {0,      1,      0x8000, 0x8001, 0x007F, 0x0080, 0x3F80,
                                       0x7F7E, 0x7F7F, 0xFF7F, 0xBF80, 0x3F7F, 0x807F, 0x8080};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) check_high(special[i]);
    for (uint64_t i = 0; i < 60; i++)
        check_high((uint32_t)rng_below(0x10000, 3, RNG_TEST, 0, i) & 0xFF7F); /* finite */
}

TEST(split_nans_stay_nan)
{
    static const uint32_t nans[] = {0x7FC0, 0xFFC0, 0x7FFF, 0xFFFF, 0x7F81, 0xFF81, 0x7FBF};
    for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) CHECK(check_high(nans[i]) == 0);
    /* Infinity, and NaNs whose payload is only in the low bits. */
    CHECK(check_high(0x7F80) == 0x8000 && check_high(0xFF80) == 0x8000);
    CHECK(split_to_f32(0x7F80, 0) == INFINITY && split_to_f32(0xFF80, 0) == -INFINITY);
    CHECK(signbit(split_to_f32(0x8000, 0)) && split_to_f32(0x8000, 0) == 0);
}

TEST(stochastic_rounding_is_unbiased)
{
    float x = f32_of(0x3F803000);
    int up = 0;
    for (uint32_t i = 0; i <= 0xFFFF; i++) {
        bf16 y = bf16_from_f32_stochastic(x, (uint16_t)i);
        CHECK(y == 0x3F80 || y == 0x3F81);
        up += y == 0x3F81;
        CHECK(bf16_from_f32_stochastic(1.5f, (uint16_t)i) == 0x3FC0);
        CHECK(bf16_from_f32_stochastic(-INFINITY, (uint16_t)i) == 0xFF80);
        CHECK(isnan(bf16_to_f32(bf16_from_f32_stochastic(f32_of(0x7FFFFFFF), (uint16_t)i))));
    }
    CHECK(up == 0x3000);
}

enum { N = (1 << 20) + 77, AT = 5 }; /* more than one staging chunk */

static void check_store(const struct store *s, bool exact)
{
    float *x = heap(N * sizeof *x), *back = heap(N * sizeof *back), around[2];
    for (int i = 0; i < N; i++) x[i] = f32_of(0x3F000000u + (uint32_t)i * 977u);
    CHECK_STATUS(OK, store_zero(s, N + 2 * AT));
    CHECK_STATUS(OK, store_write(s, AT, N, x));
    CHECK_STATUS(OK, store_read(s, AT, N, back));
    for (int i = 0; i < N; i++) CHECK(back[i] == (exact ? x[i] : bf16_to_f32(bf16_from_f32(x[i]))));
    CHECK_STATUS(OK, store_read(s, AT - 1, 1, &around[0]));
    CHECK_STATUS(OK, store_read(s, AT + N, 1, &around[1]));
    CHECK(around[0] == 0 && around[1] == 0);
    free(x), free(back);
}

static void check_forms(struct arena *a, struct queue *queue, void *scratch)
{
    float *whole = arena_alloc(a, N + 2 * AT, sizeof *whole);
    bf16 *half = arena_alloc(a, N + 2 * AT, sizeof *half);
    uint16_t *low = arena_alloc(a, N + 2 * AT, sizeof *low);
    struct store f32 = store_f32(whole, queue),
                 split = {.x = half, .low = low, .dtype = BF16, .queue = queue};
    struct store narrow = {.x = half, .dtype = BF16, .queue = queue};
    f32.scratch = split.scratch = narrow.scratch = scratch;
    check_store(&f32, true);
    check_store(&split, true);
    check_store(&narrow, false);
}

/* Two blocks' worth of elements in the middle, not aligned to blocks, stay f32. */
static void check_quantized(struct arena *a, struct queue *queue, void *scratch)
{
    enum { ALL = N / 256 * 256 + 512, MIDDLE = 4096, FULL = 512 };
    const struct store_range ranges[] = {{MIDDLE, 300, 0}, {MIDDLE + 300, 212, 300}};
    float *x = heap(ALL * sizeof *x), *back = heap(ALL * sizeof *back), part[700];
    struct store_blocks blocks = {.ranges = ranges, .num_ranges = 2, .is_signed = true};
    struct store s = {
        .x = arena_alloc(a, ALL, 1), .dtype = INT8, .queue = queue, .blocks = &blocks};
    s.scratch = scratch;
    blocks.scales = arena_alloc(a, ALL / 256, sizeof(float));
    blocks.full = arena_alloc(a, FULL, sizeof(float));
    for (int i = 0; i < ALL; i++) x[i] = sinf((float)i) * (float)(1 + i % 1000);
    CHECK_STATUS(OK, store_write(&s, 0, ALL, x));
    CHECK_STATUS(OK, store_read(&s, 0, ALL, back));
    for (int b = 0; b < ALL / 256; b++) {
        double largest = 0;
        for (int i = 256 * b; i < 256 * (b + 1); i++) largest = fmax(largest, fabs((double)x[i]));
        for (int i = 256 * b; i < 256 * (b + 1); i++) {
            double off = fabs((double)(back[i] - x[i]));
            CHECK(i >= MIDDLE && i < MIDDLE + FULL ? off == 0 : off <= 0.0072 * largest);
        }
    }
    /* Any part can be read, and whole blocks replaced. */
    CHECK_STATUS(OK, store_read(&s, MIDDLE - 100, 700, part));
    CHECK(!memcmp(part, back + MIDDLE - 100, sizeof part));
    CHECK_STATUS(OK, store_read(&s, 1000, 1, part));
    CHECK(part[0] == back[1000]);
    CHECK_STATUS(OK, store_write(&s, 0, ALL, back));
    CHECK_STATUS(OK, store_read(&s, 0, ALL, x));
    CHECK(!memcmp(x, back, ALL * sizeof *x));
    CHECK_STATUS(OK, store_write(&s, MIDDLE + 100, 250, part));
    CHECK_STATUS(OK, store_read(&s, MIDDLE + 100, 250, back));
    CHECK(!memcmp(part, back, 250 * sizeof *part));
    free(x), free(back);
}

TEST(stores_of_every_form_read_back_what_was_written)
{
    struct queue *queue;
    struct arena a;
    CHECK_STATUS(OK, cpu_queue_open(&queue, 2, 0));
    CHECK_STATUS(OK, arena_init(&a, 11 << 20, NULL));
    check_forms(&a, queue, NULL);
    check_quantized(&a, queue, NULL);
    arena_release(&a);
    cpu_queue_close(queue);
}

TEST(device_stores_are_read_and_written_by_copies)
{
    struct queue *queue;
    struct arena a;
    CHECK_STATUS(OK, cpu_queue_open(&queue, 2, 0));
    strict_open(queue, &ops_cpu_reference, true);
    CHECK_STATUS(OK, arena_init(&a, 11 << 20, queue_device_allocator(queue)));
    void *scratch[] = {NULL, heap(STORE_SCRATCH_BYTES)};
    for (int i = 0; i < 2; i++) {
        arena_reset(&a, 0);
        check_forms(&a, queue, scratch[i]);
        check_quantized(&a, queue, scratch[i]);
    }
    free(scratch[1]);
    arena_release(&a);
    strict_close(queue);
    cpu_queue_close(queue);
}

TEST(store_plain_is_the_buffer_of_host_f32_only)
{
    float x[2];
    uint16_t low[2];
    struct store plain = store_f32(x, NULL), half = {.x = x, .dtype = BF16},
                 split = {.x = x, .low = low, .dtype = BF16};
    CHECK(store_host_f32(&plain) == x);
    CHECK(!store_host_f32(&half) && !store_host_f32(&split));
}

TEST(a_store_repeats_a_period_up_to_any_length)
{
    struct queue *queue;
    float x[64], got[64];
    for (int i = 0; i < 64; i++) x[i] = (float)(i * i) / 7;
    CHECK_STATUS(OK, cpu_queue_open(&queue, 1, 0));
    strict_open(queue, &ops_cpu_reference, true);
    for (int split = 0; split < 2; split++) {
        struct arena own = {0};
        CHECK_STATUS(OK, arena_init(&own, 1 << 12, queue_device_allocator(queue)));
        struct store s = {
            .x = arena_alloc(&own, 64, 4), .dtype = split ? BF16 : F32, .queue = queue};
        if (split) s.low = arena_alloc(&own, 64, 2);
        CHECK_STATUS(OK, store_write(&s, 0, 64, x));
        CHECK_STATUS(OK, store_repeat(&s, 5, 7, 40));
        CHECK_STATUS(OK, store_read(&s, 0, 64, got));
        for (int i = 0; i < 64; i++) CHECK(got[i] == x[i >= 5 && i < 45 ? 5 + (i - 5) % 7 : i]);
        arena_release(&own);
    }
    strict_close(queue);
    cpu_queue_close(queue);
}
