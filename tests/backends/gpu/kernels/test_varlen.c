// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/varlen.h"

#include "backends/gpu/gpu.h"
#include "tensor/device.h"
#include "test.h"

/* Fills in the bounds of documents of these lengths; the tokens there are in all. */
static int fill(const int *lengths, int count, int T, int32_t *start, int32_t *end)
{
    int n = 0;
    for (int d = 0; d < count; d++)
        for (int i = 0, first = n; i < lengths[d]; i++, n++)
            start[n] = first % T, end[n] = first % T + lengths[d];
    return n;
}

TEST(documents_are_found_in_rows)
{
    const int lengths[] = {3, 5, 8, 1, 1, 6};
    int32_t start[24], end[24];
    struct documents d;
    CHECK(fill(lengths, 6, 8, start, end) == 24);
    CHECK(gpu_emu32_documents_find(start, end, 3, 8, 6, &d));
    const int32_t first[] = {0, 3, 8, 16, 17, 18, 24};
    CHECK(d.count == 6 && !memcmp(d.first, first, sizeof first));
}

TEST(more_documents_than_there_may_be_are_not_taken)
{
    int32_t start[2 * MOST_DOCUMENTS], end[2 * MOST_DOCUMENTS];
    struct documents d;
    for (int n = 0; n < 2 * MOST_DOCUMENTS; n++) start[n] = n, end[n] = n + 1;
    CHECK(!gpu_emu32_documents_find(start, end, 1, 7, 6, &d));
    CHECK(gpu_emu32_documents_find(start, end, 1, 7, 7, &d) && d.count == 7 && d.first[7] == 7);
    CHECK(gpu_emu32_documents_find(start, end, 1, MOST_DOCUMENTS, 1 << 20, &d));
    CHECK(d.count == MOST_DOCUMENTS && d.first[MOST_DOCUMENTS] == MOST_DOCUMENTS);
    CHECK(!gpu_emu32_documents_find(start, end, 1, MOST_DOCUMENTS + 1, 1 << 20, &d));
}

TEST(bounds_that_are_no_runs_are_not_taken)
{
    const int32_t start[][4] = {{0, 0, 2, 2}, {0, 0, 1, 1}, {1, 1, 2, 2}, {0, 0, 2, 2}};
    const int32_t end[][4] = {{2, 2, 4, 4}, {2, 2, 4, 4}, {2, 2, 4, 4}, {0, 2, 4, 4}};
    const int32_t long_end[] = {2, 2, 5, 5};
    struct documents d;
    CHECK(gpu_emu32_documents_find(start[0], end[0], 1, 4, 4, &d)); /* {0, 1}, {2, 3} */
    for (int i = 1; i < 4; i++) CHECK(!gpu_emu32_documents_find(start[i], end[i], 1, 4, 4, &d));
    CHECK(!gpu_emu32_documents_find(start[0], long_end, 1, 4, 4, &d));
}

/* On a device of either wave. */
static void on_devices(void (*test)(struct queue *on, int wave))
{
    struct queue *on;
    CHECK_STATUS(OK, gpu_emu32_open(&on, 0));
    test(on, 32);
    gpu_emu32_close(on);
    CHECK_STATUS(OK, gpu_emu64_open(&on, 0));
    test(on, 64);
    gpu_emu64_close(on);
}

static void place(struct queue *on, int wave)
{
    enum { ROWS = 300 }; /* more than a block's threads */
    static const struct documents d = {3, {0, 5, 6, 16}};
    struct document_places to = {.rows = ROWS, .elements = {1, 6144, (int64_t)1 << 33, 3}};
    struct arena memory;
    int64_t begin[ROWS + 1];
    int32_t lengths[ROWS];
    CHECK_STATUS(OK, arena_init(&memory, 1 << 16, queue_memory(on)));
    to.lengths = arena_take(&memory, ROWS, sizeof *to.lengths);
    for (int i = 0; i < DOCUMENT_LISTS; i++)
        to.begin[i] = arena_take(&memory, ROWS + 1, sizeof *to.begin[i]);
    CHECK_STATUS(OK,
                 (wave == 32 ? gpu_emu32_documents_place : gpu_emu64_documents_place)(&d, &to, on));
    CHECK_STATUS(OK, queue_copy(on, lengths, to.lengths, sizeof lengths));
    CHECK(lengths[0] == 5 && lengths[1] == 1 && lengths[2] == 10);
    for (int i = 3; i < ROWS; i++) CHECK(lengths[i] == 0);
    for (int list = 0; list < DOCUMENT_LISTS; list++) {
        CHECK_STATUS(OK, queue_copy(on, begin, to.begin[list], sizeof begin));
        CHECK(begin[0] == 0 && begin[1] == 5 * to.elements[list]);
        for (int i = 3; i <= ROWS; i++) CHECK(begin[i] == 16 * to.elements[list]);
    }
    arena_release(&memory);
}

TEST(places_of_documents_are_in_elements_and_those_that_are_not_there_are_empty)
{
    on_devices(place);
}

static void turn(struct queue *on, int wave)
{
    enum { B = 2, T = 70, H = 35, COUNT = B * T * H };
    float x[COUNT], y[COUNT];
    struct arena memory;
    CHECK_STATUS(OK, arena_init(&memory, 3 * sizeof x + 4096, queue_memory(on)));
    float *tokens = arena_take(&memory, COUNT, sizeof *x);
    float *heads = arena_take(&memory, COUNT, sizeof *x);
    float *back = arena_take(&memory, COUNT, sizeof *x);
    for (int i = 0; i < COUNT; i++) x[i] = (float)i;
    CHECK_STATUS(OK, queue_copy(on, tokens, x, sizeof x));
    CHECK_STATUS(OK,
                 (wave == 32 ? gpu_emu32_by_head : gpu_emu64_by_head)(tokens, heads, B, T, H, on));
    CHECK_STATUS(OK,
                 (wave == 32 ? gpu_emu32_by_token : gpu_emu64_by_token)(heads, back, B, T, H, on));
    CHECK_STATUS(OK, queue_copy(on, y, heads, sizeof y));
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++)
            for (int h = 0; h < H; h++) CHECK(y[(b * H + h) * T + t] == x[(b * T + t) * H + h]);
    CHECK_STATUS(OK, queue_copy(on, y, back, sizeof y));
    CHECK(!memcmp(x, y, sizeof x));
    arena_release(&memory);
}

TEST(numbers_of_heads_are_turned_from_tokens_to_heads_and_back) { on_devices(turn); }
