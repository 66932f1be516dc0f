// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/tensor_slices.h"
#include "test.h"

/* q of two heads of size 4, with 3 columns: row r, column c is 10 r + c. */
static float numbers[8][3];

static void add_slice(struct tensor_slices *p, int64_t row, int64_t column, int64_t rows,
                      int64_t columns)
{
    const struct tensor_name q = {PARAM_attn_q, 0, TENSOR_WEIGHT};
    char name[] = "q";
    const struct torch_tensor t = {name,   SAFETENSORS_F32,
                                   2,      {rows, columns},
                                   {3, 1}, (const unsigned char *)&numbers[row][column],
                                   0};
    for (int r = 0; r < 8; r++)
        for (int c = 0; c < 3; c++) numbers[r][c] = (float)(10 * r + c);
    CHECK_STATUS(OK, tensor_slices_add(p, &q, &(struct file_slice){&t, NULL, row, column}));
}

static enum status finish(struct tensor_slices *p)
{
    p->path = heap_string("x", 1);
    return tensor_slices_finish(p);
}

TEST(slices_read_as_one_tensor_in_our_row_order)
{
    static const int rows[8] = {0, 2, 1, 3, 4, 6, 5, 7};
    struct tensor_slices p = {0};
    float got[24];
    add_slice(&p, 0, 0, 3, 3), add_slice(&p, 3, 0, 5, 2), add_slice(&p, 3, 2, 5, 1);
    CHECK_STATUS(OK, finish(&p));
    const struct sliced_tensor *q =
        tensor_slices_find(&p, &(struct tensor_name){PARAM_attn_q, 0, 0});
    CHECK(q && q->rows == 8 && q->columns == 3);
    CHECK(!tensor_slices_find(&p, &(struct tensor_name){PARAM_attn_q, 1, 0}));
    for (int reordered = 0; reordered < 2; reordered++) {
        p.head_dim = reordered ? 4 : 0;
        for (size_t first = 0; first < 24; first++)
            for (size_t count = 1; count <= 24 - first; count++) {
                CHECK_STATUS(OK, tensor_slices_read(&p, q, first, count, got));
                for (size_t i = 0; i < count; i++) {
                    size_t r = (first + i) / 3, c = (first + i) % 3;
                    CHECK(got[i] == (float)(10 * (reordered ? rows[r] : (int)r) + (int)c));
                }
            }
    }
    tensor_slices_release(&p);
}

TEST(slices_with_gaps_or_overlaps_are_rejected)
{
    struct tensor_slices p = {0};
    float got[24];
    add_slice(&p, 0, 0, 3, 3), add_slice(&p, 4, 0, 4, 3);
    CHECK_STATUS(DATA, finish(&p));
    CHECK_MESSAGE("the 2 slices of layers.0.attention.wq.weight do not cover");
    tensor_slices_release(&p);
    add_slice(&p, 0, 0, 4, 3), add_slice(&p, 0, 0, 1, 3), add_slice(&p, 5, 0, 3, 3);
    CHECK_STATUS(OK, finish(&p)); /* the total area is right */
    CHECK_STATUS(DATA, tensor_slices_read(&p, &p.tensors[0], 0, 24, got));
    CHECK_MESSAGE("no slice of tensor");
    tensor_slices_release(&p);
}

TEST(slices_of_invalid_dtype_or_shape_are_rejected)
{
    const struct tensor_name norm = {PARAM_last_norm, -1, TENSOR_WEIGHT};
    char name[] = "norm.weight";
    struct tensor_slices p = {.path = heap_string("x", 1)};
    struct torch_tensor t = {name, SAFETENSORS_I64, 1, {8}, {1}, (const unsigned char *)numbers, 0};
    CHECK_STATUS(DATA, tensor_slices_add(&p, &norm, &(struct file_slice){&t, NULL, 0, 0}));
    CHECK_MESSAGE("norm.weight has 1 dimensions and dtype I64");
    t.dtype = SAFETENSORS_F32, t.num_dims = 0;
    CHECK_STATUS(DATA, tensor_slices_add(&p, &norm, &(struct file_slice){&t, NULL, 0, 0}));
    t.num_dims = 1, t.shape[0] = INT64_MAX;
    CHECK_STATUS(DATA, tensor_slices_add(&p, &norm, &(struct file_slice){&t, NULL, 1, 0}));
    CHECK_MESSAGE("invalid offset");
    tensor_slices_release(&p);
}
