// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "ops/rmsnorm.h"
#include "tensor/element.h"

static void compare(int N, int D, enum dtype dtype, bool accumulate)
{
    struct rmsnorm r = {.N = N, .D = D, .eps = 1e-5f, .dtype = dtype, .accumulate = accumulate};
    /* In a row of one element dx is a difference of nearly equal numbers if eps is small. */
    if (D == 1) r.eps = 1;
    size_t n = (size_t)N * (size_t)D;
    void *x = rig_random(1, n, dtype), *w = rig_random(2, (size_t)D, dtype), *y[2], *dx[2];
    void *dy = rig_random(3, n, dtype);
    float *rstd[2], *dw[2];
    for (int i = 0; i < 2; i++) {
        const struct ops *ops = i ? rig_fast() : &ops_cpu_reference;
        y[i] = rig_zeros(n, dtype), dx[i] = rig_random(4, n, dtype);
        rstd[i] = rig_zeros((size_t)N, F32), dw[i] = rig_random(5, (size_t)D, F32);
        struct rmsnorm_fwd forward = {x, w, y[i], rstd[i], NULL};
        struct rmsnorm_bwd backward = {dy, x, w, rstd[i], dx[i], dw[i], NULL};
        RIG_RUN(rmsnorm_forward(ops, &r, &forward, rig_queue()));
        RIG_RUN(rmsnorm_backward(ops, &r, &backward, rig_queue()));
    }
    RIG_CLOSE(y[1], y[0], n, dtype);
    RIG_CLOSE(dx[1], dx[0], n, dtype);
    RIG_CLOSE(rstd[1], rstd[0], (size_t)N, F32);
    /* the last bit of rstd may flip the rounding of x * rstd to bf16 */
    rig_check_close("dw", dw[1], dw[0], (size_t)D, F32, dtype == F32 ? 1e-5 : 1e-3);
    for (int i = 0; i < 2; i++) free(y[i]), free(dx[i]), free(rstd[i]), free(dw[i]);
    free(x), free(w), free(dy);
}

OPS_TEST(rmsnorm_agrees_with_the_reference_at_odd_sizes)
{
    static const int sizes[][2] = {{1, 1},     {1, 33},   {130, 7},    {65, 768},
                                   {600, 16},  {33, 64},  {8300, 128}, {3, 2051},
                                   {520, 515}, {3, 4104}, {3, 8200},   {2, 16400}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int variant = 0; variant < 4; variant++)
            compare(sizes[i][0], sizes[i][1], variant & 1 ? BF16 : F32, variant & 2);
}

TEST(rmsnorm_output_has_the_weight_as_its_rms)
{
    enum { D = 64 };
    float *x = rig_random(1, D, F32), y[D], w[D], rstd, squares = 0;
    for (int d = 0; d < D; d++) w[d] = 2;
    struct rmsnorm r = {.N = 1, .D = D};
    struct rmsnorm_fwd io = {x, w, y, &rstd, NULL};
    CHECK_STATUS(OK, rmsnorm_forward(&ops_cpu_reference, &r, &io, rig_queue()));
    for (int d = 0; d < D; d++) squares += y[d] * y[d];
    CHECK_NEAR((double)sqrtf(squares / D), 2, 1e-6);
    free(x);
}

struct rmsnorm_loss {
    struct rmsnorm r;
    float *x, *w, *y, *weight, rstd[3];
};

static double loss(void *context)
{
    struct rmsnorm_loss *c = context;
    struct rmsnorm_fwd io = {c->x, c->w, c->y, c->rstd, NULL};
    CHECK_STATUS(OK, rmsnorm_forward(&ops_cpu_reference, &c->r, &io, rig_queue()));
    return rig_dot(c->y, c->weight, 21);
}

TEST(rmsnorm_gradients_match_finite_differences)
{
    struct rmsnorm_loss c = {.r = {.N = 3, .D = 7, .eps = 1e-5f}};
    float dx[21], dw[7] = {0};
    c.x = rig_random(1, 21, F32), c.w = rig_random(2, 7, F32);
    c.y = rig_zeros(21, F32), c.weight = rig_random(3, 21, F32);
    loss(&c);
    struct rmsnorm_bwd io = {c.weight, c.x, c.w, c.rstd, dx, dw, NULL};
    CHECK_STATUS(OK, rmsnorm_backward(&ops_cpu_reference, &c.r, &io, rig_queue()));
    rig_check_gradient("x", c.x, 21, dx, loss, &c);
    rig_check_gradient("w", c.w, 7, dw, loss, &c);
    free(c.x), free(c.w), free(c.y), free(c.weight);
}

TEST(rmsnorm_rejects_empty_sizes_and_a_negative_eps)
{
    struct rmsnorm r = {.N = 1}, negative = {.N = 1, .D = 1, .eps = -1};
    CHECK_STATUS(SHAPE, rmsnorm_forward(&ops_cpu_reference, &r, NULL, rig_queue()));
    CHECK_STATUS(SHAPE, rmsnorm_backward(&ops_cpu_reference, &negative, NULL, rig_queue()));
    CHECK_MESSAGE("eps -1");
}

/* Copies rows between a dense tensor and heads of tokens at a column. */
struct head_rows {
    struct rmsnorm r;
    size_t column;
};

static void copy_heads(const struct head_rows *h, char *wide, char *dense, bool to_wide)
{
    size_t bytes = dtype_bytes(h->r.dtype), D = (size_t)h->r.D;
    for (size_t n = 0; n < (size_t)h->r.N; n++) {
        char *a = wide + (h->column + rmsnorm_row(&h->r, n)) * bytes, *b = dense + n * D * bytes;
        memcpy(to_wide ? a : b, to_wide ? b : a, D * bytes);
    }
}

/* Rows that are heads of tokens, in place, against the same rows as a dense tensor. */
static void compare_heads(int tokens, int heads, int D, enum dtype dtype)
{
    struct rmsnorm dense = {.N = tokens * heads, .D = D, .eps = 1e-5f, .dtype = dtype};
    size_t n = (size_t)dense.N * (size_t)D, stride = (size_t)(heads + 3) * (size_t)D;
    struct head_rows h = {dense, 2 * (size_t)D};
    size_t all = (size_t)tokens * stride, bytes = dtype_bytes(dtype), at = h.column * bytes;
    h.r.heads = heads, h.r.stride = stride;
    char *x = rig_random(1, n, dtype), *dy = rig_random(3, n, dtype), *y = rig_zeros(n, dtype);
    char *dx = rig_zeros(n, dtype), *w = rig_random(2, (size_t)D, dtype);
    char *background = rig_random(4, all, dtype), *wide_x = rig_copy(background, all, dtype);
    float *rstd[2], *dw[2];
    for (int i = 0; i < 2; i++)
        rstd[i] = rig_zeros((size_t)dense.N, F32), dw[i] = rig_random(5, (size_t)D, F32);
    struct rmsnorm_fwd forward = {x, w, y, rstd[0], NULL};
    struct rmsnorm_bwd backward = {dy, x, w, rstd[0], dx, dw[0], NULL};
    RIG_RUN(rmsnorm_forward(rig_fast(), &dense, &forward, rig_queue()));
    RIG_RUN(rmsnorm_backward(rig_fast(), &dense, &backward, rig_queue()));
    copy_heads(&h, wide_x, x, true);
    char *wide_y = rig_copy(wide_x, all, dtype), *wide_d = rig_copy(background, all, dtype);
    copy_heads(&h, wide_d, dy, true);
    forward = (struct rmsnorm_fwd){wide_y + at, w, wide_y + at, rstd[1], NULL};
    backward = (struct rmsnorm_bwd){wide_d + at, wide_x + at, w, rstd[1], wide_d + at, dw[1], NULL};
    RIG_RUN(rmsnorm_forward(rig_fast(), &h.r, &forward, rig_queue()));
    RIG_RUN(rmsnorm_backward(rig_fast(), &h.r, &backward, rig_queue()));
    CHECK(!memcmp(rstd[0], rstd[1], (size_t)dense.N * sizeof(float)));
    CHECK(!memcmp(dw[0], dw[1], (size_t)D * sizeof(float)));
    copy_heads(&h, wide_y, x, false), copy_heads(&h, wide_d, dy, false);
    CHECK(!memcmp(x, y, n * bytes) && !memcmp(dy, dx, n * bytes));
    copy_heads(&h, background, y, true); /* now only what is between the rows can differ */
    copy_heads(&h, wide_d, y, true);
    CHECK(!memcmp(wide_y, background, all * bytes) && !memcmp(wide_d, background, all * bytes));
    for (int i = 0; i < 2; i++) free(rstd[i]), free(dw[i]);
    free(x), free(dy), free(y), free(dx), free(w), free(background);
    free(wide_x), free(wide_y), free(wide_d);
}

OPS_TEST(rmsnorm_of_heads_has_the_bits_of_dense_rows_and_changes_nothing_else)
{
    static const int sizes[][3] = {{1, 1, 1}, {3, 2, 7}, {5, 4, 16}, {9, 3, 128}, {40, 5, 66}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int d = 0; d < DTYPE_COUNT; d++)
            compare_heads(sizes[i][0], sizes[i][1], sizes[i][2], (enum dtype)d);
}

/* Rows in two shards of D elements each, as ranks have them, against the whole rows. */
static void compare_shards(int N, const int D[2], enum dtype dtype)
{
    const int whole = D[0] + D[1];
    struct rmsnorm r = {.N = N, .D = whole, .eps = 1e-5f, .dtype = dtype};
    size_t n = (size_t)N * (size_t)whole, rows = (size_t)N;
    void *x = rig_random(1, n, dtype), *w = rig_random(2, (size_t)whole, dtype);
    void *dy = rig_random(3, n, dtype), *y[2], *dx[2];
    float *rstd[2], *dw[2], *dot = rig_zeros(rows, F32), *sums = rig_zeros(rows, F32);
    for (int i = 0; i < 2; i++) {
        y[i] = rig_zeros(n, dtype), dx[i] = rig_zeros(n, dtype);
        rstd[i] = rig_zeros(rows, F32), dw[i] = rig_random(5, (size_t)whole, F32);
    }
    struct rmsnorm_fwd forward = {x, w, y[0], rstd[0], NULL};
    struct rmsnorm_bwd backward = {dy, x, w, rstd[0], dx[0], dw[0], NULL};
    RIG_RUN(rmsnorm_forward(&ops_cpu_reference, &r, &forward, rig_queue()));
    RIG_RUN(rmsnorm_backward(&ops_cpu_reference, &r, &backward, rig_queue()));
    for (int step = 0; step < 4; step++) { /* forward sums and results, then backward's */
        float *total = step < 2 ? rstd[1] : dot, *shards[2];
        for (int i = 0; i < 2; i++) {
            size_t at = i ? (size_t)D[0] : 0;
            struct rmsnorm part = r;
            part.D = D[i], part.heads = 1, part.stride = (size_t)whole, part.width = whole;
            part.part = step % 2 ? RMSNORM_APPLY : RMSNORM_SUMS;
            shards[i] = rig_copy(step % 2 ? sums : total, rows, F32);
            forward = (struct rmsnorm_fwd){element(x, at, dtype), element(w, at, dtype),
                                           element(y[1], at, dtype), shards[i], NULL};
            backward = (struct rmsnorm_bwd){element(dy, at, dtype),
                                            element(x, at, dtype),
                                            element(w, at, dtype),
                                            rstd[1],
                                            element(dx[1], at, dtype),
                                            dw[1] + at,
                                            shards[i]};
            if (step < 2) RIG_RUN(rmsnorm_forward(rig_fast(), &part, &forward, rig_queue()));
            if (step >= 2) RIG_RUN(rmsnorm_backward(rig_fast(), &part, &backward, rig_queue()));
        }
        for (size_t i = 0; i < rows; i++) {
            sums[i] = shards[0][i] + shards[1][i];
            if (step != 1) continue;
            CHECK(shards[0][i] == shards[1][i]);
            rstd[1][i] = shards[0][i];
        }
        free(shards[0]), free(shards[1]);
    }
    RIG_CLOSE(y[1], y[0], n, dtype);
    RIG_CLOSE(dx[1], dx[0], n, dtype);
    RIG_CLOSE(rstd[1], rstd[0], rows, F32);
    rig_check_close("dw", dw[1], dw[0], (size_t)whole, F32, dtype == F32 ? 1e-5 : 1e-3);
    for (int i = 0; i < 2; i++) free(y[i]), free(dx[i]), free(rstd[i]), free(dw[i]);
    free(x), free(w), free(dy), free(dot), free(sums);
}

OPS_TEST(rmsnorm_of_sharded_rows_agrees_with_whole_rows)
{
    static const int sizes[][3] = {{1, 1, 1}, {3, 5, 2}, {9, 64, 64}, {130, 16, 80}, {3, 2051, 9}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int d = 0; d < DTYPE_COUNT; d++)
            compare_shards(sizes[i][0], sizes[i] + 1, (enum dtype)d);
}

TEST(rmsnorm_rejects_parts_of_packed_rows_and_parts_longer_than_the_row)
{
    struct rmsnorm r = {.N = 1, .D = 4, .part = RMSNORM_SUMS, .width = 3};
    CHECK_STATUS(SHAPE, rmsnorm_forward(&ops_cpu_reference, &r, NULL, rig_queue()));
    CHECK_MESSAGE("4 elements of rows of 3: expected");
    r.width = 8, r.y_packed = true;
    CHECK_STATUS(SHAPE, rmsnorm_backward(&ops_cpu_reference, &r, NULL, rig_queue()));
    CHECK_MESSAGE("rows of 8, packed");
}

TEST(rmsnorm_rejects_heads_that_overlap_or_do_not_make_tokens)
{
    static const struct rmsnorm wrong[] = {{.N = 6, .D = 4, .heads = 4, .stride = 16},
                                           {.N = 6, .D = 4, .heads = 3, .stride = 11},
                                           {.N = 6, .D = 4, .heads = -3, .stride = 12}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_STATUS(SHAPE, rmsnorm_forward(&ops_cpu_reference, &wrong[i], NULL, rig_queue()));
        CHECK_MESSAGE("expected whole tokens that do not overlap");
    }
    struct rmsnorm packed = {.N = 6, .D = 4, .heads = 3, .stride = 12, .y_packed = true};
    CHECK_STATUS(SHAPE, rmsnorm_backward(&ops_cpu_reference, &packed, NULL, rig_queue()));
    CHECK_MESSAGE("cannot be packed");
}
