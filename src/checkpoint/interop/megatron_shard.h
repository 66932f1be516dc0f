/* megatron_shard.h -- the parameters of one tensor- and pipeline-parallel rank of Megatron-LM, in
 * the order of its model, and where their elements are in ours.
 *
 * Linear layers are split by rows or columns; of linear_fc1 a rank has a slice of either half.
 * Norms and the biases of linear_proj and linear_fc2 are replicated, and read from tensor-parallel
 * rank 0. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/megatron_state.h"
#include "checkpoint/interop/megatron_tensor.h"

/* A rank's part of a tensor. */
struct megatron_shard {
    struct megatron_tensor tensor;
    int layer;             /* of the model; -1: none */
    int tp, num_tp;        /* tensor-parallel rank, of how many */
    int64_t rows, columns; /* of the part; a vector has 1 column */
    bool is_copy;          /* of the embedding, as the last stage of a tied model has it */
    char name[80];         /* with the layer's number in the model */
};

/* Adds a piece of the part, at its position in the part.  DATA: see megatron_tensor_add. */
enum status megatron_shard_add(struct tensor_slices *slices, const struct megatron_sizes *z,
                               const struct megatron_shard *s, const struct file_slice *piece);
/* The same for a run of elements of the flattened part: `piece` has one dimension, and piece->row
 * is the position of its first element. */
enum status megatron_shard_add_flat(struct tensor_slices *slices, const struct megatron_sizes *z,
                                    const struct megatron_shard *s, const struct file_slice *piece);
/* Removes from the beginning of `rest`, elements of a flattened tensor from position `at` on, those
 * that are a rectangle of the tensor with `dims` dimensions, and returns it. */
struct torch_tensor megatron_shard_next_flat(struct torch_tensor *rest, int dims, int64_t columns,
                                             int64_t at);

/* The first position from `at` on at which the optimizer may have a parameter. */
int64_t megatron_shard_align(int64_t at);

/* A rank's model chunk: one of the stages that an interleaved schedule gives it. */
struct megatron_chunk {
    int tp, pp, chunk;
    bool has_fused_norms; /* Transformer Engine's layers, in which norms come after linear_proj */
};

struct megatron_shards {
    struct megatron_shard *all; /* owned */
    size_t count;
};
/* Lists the parameters of a model chunk.  UNSUPPORTED: stages have different numbers of layers, or
 * the sizes are not multiples of the ranks. */
enum status megatron_shards_list(struct megatron_shards *s, const struct megatron_state *m,
                                 const struct megatron_sizes *z, const struct megatron_chunk *c);
void megatron_shards_release(struct megatron_shards *s);

/* Compares some elements of each of the optimizer's float32 copies with the model's weight, from
 * which it differs by rounding at most.  UNSUPPORTED: other weights.  IO, DATA: as
 * tensor_slices_check. */
enum status megatron_shard_check_copies(const struct tensor_slices *copies,
                                        const struct tensor_slices *model);
/* Logs, on rank 0, that the weights are the model's own; this thread's last failure is why. */
void megatron_shard_warn_of_copies(void);
