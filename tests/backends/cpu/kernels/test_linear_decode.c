// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "ops/float8.h"
#include "ops/linear.h"

static void compare(struct linear l)
{
    size_t x_n = (size_t)(l.N * l.D), w_n = (size_t)(l.F * l.D), y_n = (size_t)(l.N * l.F);
    enum dtype operand = linear_operand(&l);
    struct float8_scale one = {2, 0.5f}, other = {1 / 0.74f, 0.74f};
    void *x = rig_random(1, x_n, operand), *w = rig_random(2, w_n, operand);
    void *y[2], *add = rig_random(3, y_n, l.dtype);
    for (int i = 0; i < 2; i++) {
        const struct ops *ops = i ? rig_fast() : &ops_cpu_reference;
        bool apart = (l.N + i) % 2; /* add_NF is another buffer than y_NF */
        y[i] = rig_random(apart ? 4 : 3, y_n, l.dtype);
        struct linear_fwd io = {x, w, y[i], &one, &other, apart ? add : NULL};
        RIG_RUN(linear_forward(ops, &l, &io, rig_queue()));
    }
    RIG_CLOSE(y[1], y[0], y_n, l.dtype);
    free(x), free(w), free(add), free(y[0]), free(y[1]);
}

/* Numbers of tokens around which another kernel takes over, and rows that fill no group. */
OPS_TEST(few_tokens_times_weights_agree_with_the_reference)
{
    static const int tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33, 61, 64, 65};
    static const int sizes[][2] = {{96, 64}, {77, 5}, {64, 37}, {544, 16}, {2080, 32}, {3, 1}};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            for (int variant = 0; variant < 6; variant++)
                compare((struct linear){.N = tokens[i],
                                        .D = sizes[k][0],
                                        .F = sizes[k][1],
                                        .dtype = variant & 1 ? BF16 : F32,
                                        .accumulate = variant & 2,
                                        .float8 = variant & 4});
}

/* As text_batch.h says of texts that are decoded together. */
CPU_ISAS_TEST(a_token_has_the_same_bits_whichever_tokens_are_multiplied_with_it)
{
    enum { D = 200, F = 21, N = 8 };
    for (int d = 0; d < DTYPE_COUNT; d++) {
        struct linear l = {.N = N, .D = D, .F = F, .dtype = (enum dtype)d};
        void *x = rig_random(1, N * D, l.dtype), *w = rig_random(2, F * D, l.dtype);
        void *all = rig_zeros(N * F, l.dtype), *one = rig_zeros(F, l.dtype);
        struct linear_fwd io = {.x_ND = x, .w_FD = w, .y_NF = all};
        RIG_RUN(linear_forward(rig_fast(), &l, &io, rig_queue()));
        l.N = 1, io.y_NF = one;
        for (size_t n = 0; n < N; n++) {
            io.x_ND = (const char *)x + n * D * dtype_bytes(l.dtype);
            RIG_RUN(linear_forward(rig_fast(), &l, &io, rig_queue()));
            size_t bytes = F * dtype_bytes(l.dtype);
            CHECK(!memcmp((char *)all + n * bytes, one, bytes));
        }
        free(x), free(w), free(all), free(one);
    }
}
