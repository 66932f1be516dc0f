/* torch_model.h -- a model as torch files store it: names, shapes and row order.
 *
 * Memory   A few megabytes.  This process holds the whole model. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/tensor_source.h"
#include "formats/safetensors.h"
#include "formats/torch.h"

struct torch_model {
    const struct model_shape *shape;
    const struct layout *layout;
    const struct shard *shard; /* one run per tensor, unsharded */
    struct tensor_source weights;
    enum safetensors_dtype dtype; /* F32, BF16 or F16 */
};

/* A `write` callback whose context is a struct torch_writer. */
enum status torch_model_write(void *writer, const void *bytes, size_t len);

/* Describes tensor `i` of the layout; the caller frees its name. */
struct torch_tensor torch_model_tensor(const struct torch_model *m, int i);
/* Passes its elements, in torch's row order, to `write` in chunks. */
enum status torch_model_stream(const struct torch_model *m, int i,
                               enum status (*write)(void *context, const void *bytes, size_t len),
                               void *context);

/* Rows [row, row + rows) and columns [column, column + columns) of a tensor. */
struct torch_block {
    int tensor; /* of the layout */
    int64_t row, rows, column, columns;
};
/* Passes the block's elements to `write`, in our row order. */
enum status torch_model_stream_block(const struct torch_model *m, const struct torch_block *b,
                                     enum status (*write)(void *context, const void *bytes,
                                                          size_t len),
                                     void *context);
