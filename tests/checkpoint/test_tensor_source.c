// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/tensor_source.h"
#include "model/shape.h"
#include "test.h"

#include <stdlib.h>

/* A run of elements 100 to 107 of a tensor, at position 3 of the buffers. */
static const struct shard_run run = {.tensor = 2, .first = 100, .count = 8, .at = 3};

TEST(flat_source_points_into_the_buffer)
{
    const float flat[11] = {0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8};
    const struct tensor_source source = tensor_source_flat(flat);
    const float *values;
    CHECK_STATUS(OK, source.read(source.context, &run, 104, 2, &values));
    CHECK(values == flat + 7);
}

TEST(stored_source_widens_bf16)
{
    bf16 flat[11];
    for (int i = 0; i < 11; i++) flat[i] = bf16_from_f32((float)i);
    struct stored_source stored = {.store = {.x = flat, .dtype = BF16}};
    stored.values = heap(TENSOR_SOURCE_ELEMENTS * sizeof *stored.values);
    const struct tensor_source source = tensor_source_stored(&stored);
    const float *values;
    CHECK_STATUS(OK, source.read(source.context, &run, 101, 7, &values));
    for (int i = 0; i < 7; i++) CHECK(values[i] == (float)(4 + i));
    free(stored.values);
}

TEST(checked_source_fails_on_a_bad_value_and_names_it)
{
    struct model_shape shape = small_shape();
    struct layout l;
    layout_init(&l, &shape, 1);
    float flat[11] = {NAN, NAN, NAN, 1, 2, 3, 4, 5, 6, -7, 8}; /* not all are of the run */
    struct checked_source checked = {
        .from = tensor_source_flat(flat), .layout = &l, .kind = VALUE_WEIGHT, .rank = 3};
    const struct tensor_source source = tensor_source_checked(&checked);
    const float *values;
    CHECK_STATUS(OK, source.read(source.context, &run, 100, 8, &values));
    CHECK(values == flat + 3);
    CHECK_STATUS(OK, tensor_source_check(&checked));
    checked.kind = VALUE_EXP_AVG_SQ;
    CHECK_STATUS(OK, source.read(source.context, &run, 100, 8, &values));
    CHECK_STATUS(DIVERGED, tensor_source_check(&checked));
    CHECK_MESSAGE("model.layers.0.self_attn.q_proj.weight.exp_avg_sq: element 106 is -7");
    CHECK_MESSAGE("rank 3: tensor ");
    layout_release(&l);
}
