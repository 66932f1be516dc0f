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

/* Rows of a matrix that is divided by columns are contiguous in the flat buffer.  What changes
 * after the first read shows which reads are others. */
TEST(stored_sources_read_the_runs_of_a_tensor_together)
{
    float flat[12], *to = heap(TENSOR_SOURCE_ELEMENTS * sizeof *to);
    const float *values;
    for (size_t i = 0; i < 12; i++) flat[i] = (float)i;
    struct shard_run runs[] = {{0, 0, 4, 0}, {0, 16, 4, 4}, {1, 0, 4, 8}};
    const struct shard shard = {runs, 3, 12};
    const struct shard_run row = runs[0], next = runs[1], last = runs[2];
    struct stored_window window = {0};
    struct stored_source a = {store_f32(flat, NULL), to, &window, &shard}, b = a;
    const struct tensor_source source = tensor_source_stored(&a), other = tensor_source_stored(&b);
    CHECK_STATUS(OK, source.read(source.context, &row, 1, 3, &values));
    CHECK(values[0] == 1 && values[2] == 3);
    flat[5] = -5, flat[8] = -8;
    CHECK_STATUS(OK, source.read(source.context, &next, 16, 4, &values));
    CHECK(values[0] == 4 && values[1] == 5 && values[3] == 7); /* was read with the row before */
    CHECK_STATUS(OK, other.read(other.context, &next, 16, 4, &values));
    CHECK(values[0] == 4 && values[1] == -5); /* another buffer */
    flat[5] = 50;
    CHECK_STATUS(OK, source.read(source.context, &next, 17, 2, &values));
    CHECK(values[0] == 50 && values[1] == 6);
    CHECK_STATUS(OK, source.read(source.context, &last, 0, 4, &values));
    CHECK(values[0] == -8 && values[3] == 11); /* was not: another tensor */
    free(to);
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

TEST(moved_source_reads_a_run_where_another_shard_has_it)
{
    const float flat[11] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    struct shard_run runs[] = {{1, 100, 1, 0}, {2, 50, 2, 0}, {2, 98, 9, 2}};
    const struct shard shard = {runs, 3, 11};
    struct moved_source moved = {tensor_source_flat(flat), &shard};
    const struct tensor_source source = tensor_source_moved(&moved);
    const float *values;
    CHECK_STATUS(OK, source.read(source.context, &run, 104, 2, &values));
    CHECK(values == flat + 8);
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
