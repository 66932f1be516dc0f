/* megatron_rank.h -- a small rank of Megatron-LM, for tests of its files. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/megatron_args.h"
#include "checkpoint/interop/tensor_slices.h"
#include "formats/zip.h"
#include "test.h"

/* A tensor of a rank, whose elements are `first`, `first` + 1, ... */
struct rank_tensor {
    const char *name;
    int64_t rows, columns;
    int first;
};

#define LAYER "model.decoder.layers.0."

/* The parameters of a model with one layer, in the order of megatron-core's own layers. */
static const struct rank_tensor one_layer[] = {
    {"model.embedding.word_embeddings.weight", 8, 4, 0},
    {LAYER "input_layernorm.weight", 4, 0, 0},
    {LAYER "self_attention.linear_proj.weight", 4, 4, 0},
    {LAYER "self_attention.linear_qkv.weight", 12, 4, 0},
    {LAYER "pre_mlp_layernorm.weight", 4, 0, 0},
    {LAYER "mlp.linear_fc1.weight", 8, 4, 0},
    {LAYER "mlp.linear_fc2.weight", 4, 4, 0},
    {"model.decoder.final_layernorm.weight", 4, 0, 0},
    {"model.output_layer.weight", 8, 4, 0},
};
enum { PARAMS = sizeof one_layer / sizeof *one_layer };
static const struct megatron_args one_rank = {0};

/* Adds args and the iteration to a pickled dict. */
static inline void add_args(struct text *t, const struct megatron_args *args)
{
    t->len -= 2; /* SETITEMS and STOP */
    pickle_write_string(t, "iteration"), pickle_write_int(t, 3);
    megatron_args_write(t, args);
    pickle_write_setitems(t), pickle_write_stop(t);
}

static inline void add_entry(struct zip_writer *zip, const char *name, const void *bytes,
                             size_t len, struct text *out)
{
    struct text header = {0};
    zip_writer_add(zip, name, len, zip_crc(0, bytes, len), &header);
    text_add(out, header.data, header.len), text_add(out, bytes, len);
    text_release(&header);
}

static inline bool has_first(const struct tensor_slices *s, enum param_id id, int layer,
                             enum tensor_kind kind, float value)
{
    const struct tensor_name name = {id, layer, kind};
    const struct sliced_tensor *t = tensor_slices_find(s, &name);
    float got;
    CHECK(t);
    CHECK_STATUS(OK, tensor_slices_read(s, t, 0, 1, &got));
    return got >= value && got <= value;
}
