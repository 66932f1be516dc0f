// SPDX-License-Identifier: Apache-2.0
#include "perf/op_sizes.h"

#include "test.h"

TEST(sizes_of_a_call_name_all_that_changes_its_work)
{
    const struct {
        struct op_call call;
        const char *sizes;
    } rows[] = {
        {{OP_embedding_forward, .what.embedding_forward = {.N = 4, .V = 9, .D = 2}}, "4 of 9 x 2"},
        {{OP_linear_forward, .what.linear_forward = {.N = 1, .D = 2, .F = 3}}, "1 x 2 -> 3"},
        {{OP_linear_forward, .what.linear_forward = {.N = 1, .D = 2, .F = 3, .accumulate = true}},
         "1 x 2 -> 3 +="},
        {{OP_linear_forward, .what.linear_forward = {.N = 1, .D = 2, .F = 3, .float8 = true}},
         "1 x 2 -> 3 float8"},
        {{OP_rmsnorm_backward, .what.rmsnorm_backward = {.N = 5, .D = 8}}, "5 x 8"},
        {{OP_rmsnorm_backward, .what.rmsnorm_backward = {.N = 5, .D = 8, .part = RMSNORM_SUMS}},
         "5 x 8 sums"},
        {{OP_rmsnorm_backward,
          .what.rmsnorm_backward = {.N = 5, .D = 8, .accumulate = true, .part = RMSNORM_APPLY}},
         "5 x 8 += from sums"},
        {{OP_rope, .what.rope = {.B = 1, .T = 2, .H = 3, .K = 8, .J = 4}}, "1 x 2 x 3 x 8"},
        {{OP_rope, .what.rope = {.B = 1, .T = 2, .H = 3, .K = 8, .J = 2}},
         "1 x 2 x 3 x 8 (4 rotated)"},
        {{OP_context_bounds, .what.context_bounds = {.B = 2, .T = 8, .queries = {4, 1, true}}},
         "2 x 8 of 4"},
        {{OP_attention_forward,
          .what.attention_forward = {.B = 1, .T = 8, .H = 4, .G = 2, .K = 16}},
         "1 x 8 x 4/2 x 16 all"},
        {{OP_attention_backward,
          .what.attention_backward =
              {.B = 1, .T = 8, .H = 4, .G = 2, .K = 16, .causal = true, .window = 3}},
         "1 x 8 x 4/2 x 16 window 3"},
        {{OP_swiglu_forward, .what.swiglu_forward = {.N = 3, .F = 7}}, "3 x 7"},
        {{OP_cross_entropy, .what.cross_entropy = {.N = 3, .V = 7}}, "3 x 7"},
        {{OP_divide_by_norm, .what.divide_by_norm = {.n = 10, .to = BF16}}, "10 -> bfloat16"},
        {{OP_matrix_polynomial, .what.matrix_polynomial = {.n = 3, .dtype = BF16}},
         "3 x 3 bfloat16"},
        {{OP_sum_squares, .what.sum_squares = {.n = 10}}, "10"},
        {{OP_sum_squares, .what.sum_squares = {.n = 10, .dtype = BF16}}, "10 bfloat16"},
        {{OP_sum_squares, .what.sum_squares = {.n = 10, .sums = 3}}, "3 x 10"},
        {{OP_adamw, .what.adamw = {.n = 10}}, "10"},
        {{OP_adamw, .what.adamw = {.n = 10, .split = true, .moments = BF16, .gradients = BF16}},
         "10 split, moments bfloat16, gradients bfloat16"},
        {{OP_adamw_8bit, .what.adamw_8bit.adamw = {.n = 10, .split = true}}, "10 split"},
        {{OP_cast, .what.cast = {.n = 10, .rows = 3, .to = BF16}}, "3 x 10 float32 -> bfloat16"},
        {{OP_cast, .what.cast = {.n = 10}}, "10 float32"},
        {{OP_find_scale, .what.find_scale = {.to = E4M3, .amaxes = 1}}, "E4M3"},
        {{OP_find_scale, .what.find_scale = {.to = E5M2, .amaxes = 4}}, "E5M2 of 4"},
        {{OP_quantize, .what.quantize = {.n = 10, .dtype = BF16, .to = E5M2}},
         "10 bfloat16 -> E5M2"},
        {{OP_fused_quantize,
          .what.fused_quantize = {.of = FUSED_SWIGLU, .N = 3, .C = 7, .summed = OVER_COLUMNS}},
         "swiglu 3 x 7 -> E4M3, rows"},
        {{OP_fused_quantize,
          .what.fused_quantize = {.of = FUSED_RMSNORM, .N = 3, .C = 7, .summed = OVER_ROWS}},
         "rmsnorm 3 x 7 -> E4M3, columns"},
        {{OP_fused_quantize,
          .what.fused_quantize = {.of = FUSED_FP8, .N = 3, .C = 7, .summed = OVER_ROWS}},
         "FP8 transpose 3 x 7 -> E4M3, columns"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct text sizes = {0};
        op_sizes(&rows[i].call, &sizes);
        CHECK(!strcmp(sizes.data, rows[i].sizes));
        text_release(&sizes);
    }
}
