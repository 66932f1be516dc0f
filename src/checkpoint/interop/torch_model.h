/* torch_model.h -- a model on its way into torch's files: names, shapes and rows as they have them.
 *
 * Memory   A few megabytes.  This process has the whole model. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/block_exchange.h"
#include "formats/torch.h"

struct torch_model {
    const struct model_shape *shape;
    const struct layout *layout;
    const struct pieces *pieces; /* one a tensor, whole */
    struct tensor_source weights;
    enum safetensors_dtype dtype; /* F32, BF16 or F16 */
};

/* A `write` whose context is a struct torch_writer. */
enum status torch_model_write(void *writer, const void *bytes, size_t len);

/* How tensor `i` of the layout is described; its name is the caller's. */
struct torch_tensor torch_model_tensor(const struct torch_model *m, int i);
/* Its numbers, rows in their order, run by run. */
enum status torch_model_stream(const struct torch_model *m, int i,
                               enum status (*write)(void *context, const void *bytes, size_t len),
                               void *context);

/* Rows [row, row + rows) and columns [column, column + columns) of a tensor. */
struct torch_block {
    int tensor; /* of the layout */
    int64_t row, rows, column, columns;
};
/* The block's numbers, in the order of our rows. */
enum status torch_model_stream_block(const struct torch_model *m, const struct torch_block *b,
                                     enum status (*write)(void *context, const void *bytes,
                                                          size_t len),
                                     void *context);
