/* The library is our own kernel with mistakes, in the emulator. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/attention_check.h"

#include "test.h"

#include "backends/gpu/flash_library.h"
#include "backends/gpu/gpu.h"
#include "tensor/device.h"

#include <math.h>

enum mistake {
    NONE,
    NO_FORWARD,
    NO_BACKWARD,
    CANNOT_RUN,
    OTHER_SCALE,
    NAN_IN_DV,
    EXPECTS_ZEROS,
    NO_MASK,
    NO_WINDOW,
    SHORT_WINDOW,
    WRONG_IN_LARGE_HEADS,
    NO_PARTS,
    WRONG_ROWS,   /* of a rectangle: as if those of half the keys were adjacent */
    WRONG_QUERIES /* of a rectangle: the first ones, not the last */
};

static struct attention with_mistake(enum mistake m, const struct attention *a)
{
    struct attention other = *a;
    if (m == OTHER_SCALE) other.scale *= 1.5f;
    if (m == WRONG_ROWS) other.S = other.rectangle.num_keys;
    return other;
}

static enum status rectangle_forward(void *context, const struct attention *a,
                                     const struct attention_fwd *io, struct queue *queue,
                                     bool *done)
{
    const enum mistake *m = context;
    struct attention other = with_mistake(*m, a);
    struct attention_fwd buffers = *io;
    size_t skipped = (size_t)a->rectangle.first_query * a->q_stride;
    if (*m == WRONG_QUERIES && !queue->sizing) buffers.q_BTHK = (const bf16 *)io->q_BTHK - skipped;
    TRY(flash_library_forward(NULL, &other, &buffers, queue, done));
    *done = *m != NO_PARTS;
    return STATUS_OK;
}

static enum status rectangle_backward(void *context, const struct attention *a,
                                      const struct attention_bwd *io, struct queue *queue,
                                      bool *done)
{
    const enum mistake *m = context;
    const bf16 nan = bf16_from_f32(NAN);
    TRY(flash_library_backward(NULL, a, io, queue, done));
    if (*m == NAN_IN_DV && !queue->sizing)
        TRY(queue_copy(queue, (bf16 *)io->dv_BSGK + 77, &nan, sizeof nan));
    return STATUS_OK;
}

static enum status forward(void *context, const struct attention *a, const struct attention_fwd *io,
                           struct queue *queue, bool *done)
{
    const enum mistake *m = context;
    struct attention other = *a;
    struct attention_fwd buffers = *io;
    if (*m == OTHER_SCALE || (*m == WRONG_IN_LARGE_HEADS && a->K > 64)) other.scale *= 1.5f;
    if (*m == NO_WINDOW) other.window = 0;
    if (*m == SHORT_WINDOW && other.window) other.window--;
    if (*m == NO_MASK) buffers.start_BT = buffers.end_BT = NULL;
    if (a->keys != ALL_KEYS) {
        struct attention_library l = {context, flash_library_has_plan, rectangle_forward,
                                      rectangle_backward};
        return GPU_NAME(attention_part_forward)(&l, a, io, queue, done);
    }
    *done = *m != NO_FORWARD;
    if (*m == CANNOT_RUN && !queue->sizing) FAIL(DEVICE, "engine 3 cannot run");
    TRY(GPU_NAME(flash_attention_forward)(&other, &buffers, queue));
    return STATUS_OK;
}

/* A value of scratch memory that no operation has written. */
static enum status read_scratch(struct queue *queue, float *out)
{
    enum { FLOATS = 1 << 18 };
    size_t mark = arena_mark(&queue->scratch);
    const float *scratch = arena_alloc(&queue->scratch, FLOATS, sizeof *scratch);
    if (!queue->sizing) TRY(queue_copy(queue, out, scratch + FLOATS - 1, sizeof *out));
    arena_reset(&queue->scratch, mark);
    return STATUS_OK;
}

static enum status backward(void *context, const struct attention *a,
                            const struct attention_bwd *io, struct queue *queue, bool *done)
{
    const enum mistake *m = context;
    const bf16 nan = bf16_from_f32(NAN);
    float expected_zero = 0;
    if (a->keys != ALL_KEYS) {
        struct attention_library l = {context, flash_library_has_plan, rectangle_forward,
                                      rectangle_backward};
        return GPU_NAME(attention_part_backward)(&l, a, io, queue, done);
    }
    *done = *m != NO_BACKWARD;
    TRY(GPU_NAME(flash_attention_backward)(a, io, queue));
    if (*m == EXPECTS_ZEROS) TRY(read_scratch(queue, &expected_zero));
    if (*m == NAN_IN_DV || expected_zero != 0)
        TRY(queue_copy(queue, (bf16 *)io->dv_BSGK + 77, &nan, sizeof nan));
    return STATUS_OK;
}

static enum status check_heads(enum mistake m, struct attention_case what, int head_size)
{
    struct attention_library library = {&m, NULL, forward, backward};
    struct queue *queue;
    CHECK_STATUS(OK, GPU_NAME(open)(&queue, 0));
    enum status st = GPU_NAME(attention_check)(&library, what, head_size, queue);
    CHECK(!queue->scratch.base && !queue->sizing);
    GPU_NAME(close)(queue);
    return st;
}

static enum status check_case(enum mistake m, struct attention_case what)
{
    return check_heads(m, what, 64);
}

static enum status check(enum mistake m) { return check_case(m, (struct attention_case){0}); }

static const struct attention_case documents = {.documents = true}, window = {.window = true},
                                   both = {.documents = true, .window = true},
                                   parts = {.parts = true};

TEST(a_library_that_matches_our_kernels_passes)
{
    CHECK_STATUS(OK, check(NONE));
    CHECK_STATUS(OK, check_case(NONE, documents));
    CHECK_STATUS(OK, check_case(NONE, window));
    CHECK_STATUS(OK, check_case(NONE, parts));
}

TEST(a_library_is_checked_with_heads_of_the_size_that_is_used)
{
    CHECK_STATUS(OK, check_heads(WRONG_IN_LARGE_HEADS, both, 64));
    CHECK_STATUS(UNSUPPORTED, check_heads(WRONG_IN_LARGE_HEADS, both, 128));
    CHECK_STATUS(OK, check_heads(NONE, both, 128));
}

TEST(a_library_that_ignores_documents_fails)
{
    CHECK_STATUS(UNSUPPORTED, check_case(NO_MASK, documents));
    CHECK_MESSAGE("the output of its attention differs");
}

TEST(a_library_with_another_window_fails)
{
    static const enum mistake mistakes[] = {NO_WINDOW, SHORT_WINDOW};
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(UNSUPPORTED, check_case(mistakes[i], window));
        CHECK_MESSAGE("of its attention differs");
        CHECK_STATUS(UNSUPPORTED, check_case(mistakes[i], both));
    }
}

TEST(a_library_needs_an_engine_for_forward_but_not_for_backward)
{
    CHECK_STATUS(UNSUPPORTED, check(NO_FORWARD));
    CHECK_MESSAGE("cannot run a forward pass");
    CHECK_STATUS(OK, check(NO_BACKWARD));
}

TEST(a_library_that_fails_on_a_device_that_works_is_not_supported)
{
    CHECK_STATUS(UNSUPPORTED, check(CANNOT_RUN));
    CHECK_MESSAGE("engine 3 cannot run");
}

TEST(a_library_with_wrong_results_fails_with_the_tensor_that_differs)
{
    CHECK_STATUS(UNSUPPORTED, check(OTHER_SCALE));
    CHECK_MESSAGE("the output of its attention differs from our own kernel's by");
    CHECK_STATUS(UNSUPPORTED, check(NAN_IN_DV));
    CHECK_MESSAGE("dv of its attention differs");
    CHECK_STATUS(UNSUPPORTED, check(EXPECTS_ZEROS));
    CHECK_MESSAGE("dv of its attention differs");
}

TEST(a_library_that_computes_other_rectangles_fails)
{
    static const enum mistake mistakes[] = {OTHER_SCALE, WRONG_ROWS, WRONG_QUERIES};
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(UNSUPPORTED, check_case(mistakes[i], parts));
        CHECK_MESSAGE("the output of its attention differs");
    }
    CHECK_STATUS(UNSUPPORTED, check_case(NAN_IN_DV, parts));
    CHECK_MESSAGE("dv of its attention differs");
    CHECK_STATUS(UNSUPPORTED, check_case(NO_PARTS, parts));
    CHECK_MESSAGE("cannot run a forward pass");
}
