/* layout.h -- where each weight is in the flat buffers, and the FSDP units they are made of.
 *
 * Axes     L layers; V, D, Q, P, F, K as in params.h.
 * Memory   All weights are in one flat buffer, unit after unit: the embedding, each block, the last
 *          norm with the head.  The size of a unit is a multiple of 64 elements per shard; within a
 *          unit tensors are contiguous unless struct model_part aligns them; q, k, v always form
 *          one [Q+2P, D] matrix, gate and up one [2F, D], and so do their biases.  Master weights,
 *          moments, gradients and compute weights share this layout. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/model_shape.h"
#include "model/params.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One tensor of the model and its position in the flat buffer. */
struct tensor_slot {
    enum param_id id;
    int layer;             /* -1 outside blocks */
    int64_t rows, columns; /* columns 1: a vector */
    size_t offset;         /* elements from the start of the flat buffer */
    size_t elements;
};

/* An FSDP unit, all-gathered and reduce-scattered as a whole: the embedding, a block, or the last
 * norm with the head. */
struct unit {
    int first_tensor, num_tensors;
    int stage;               /* index of its stage, of those given to layout_init_part */
    size_t offset, elements; /* the padding at its end included */
};

/* A pipeline stage: a run of blocks, plus the embedding in the first and the head in the last. */
struct stage {
    int begin, end; /* blocks begin to end - 1; may be empty */
    bool embeds, heads;
};

/* Which part of a model to hold. */
struct model_part {
    const struct stage *stages; /* in ascending order */
    int num_stages;
    int num_shards; /* equal shards that units can be divided into */
    /* 0, or a multiple of 64 elements: shards are multiples of it, and so are the offsets of
     * tensors, except those that form one matrix with the tensor before. */
    size_t align;
};

struct layout {
    int num_tensors, num_units;
    struct tensor_slot *tensors; /* in buffer order; owned */
    struct unit *units;          /* in the order of forward; owned */
    int *unit_of;       /* of the embedding, each of num_blocks, the head; -1: not local; owned */
    int num_blocks;     /* of the whole model */
    size_t elements;    /* of the buffer, padding included */
    int64_t parameters; /* without padding: the published count */
};

/* The whole model; units can be divided into `num_shards` equal shards of whole cache lines. */
void layout_init(struct layout *l, const struct model_shape *m, int num_shards);
/* Some stages of the model.  A stage with the head of a tied model also holds the embedding. */
void layout_init_part(struct layout *l, const struct model_shape *m, const struct model_part *part);
/* The stage that is the whole model. */
struct stage layout_whole_stage(const struct model_shape *m);
void layout_release(struct layout *l);
/* Elements of all tensors of some kinds (a set, params.h). */
size_t layout_elements(const struct layout *l, uint32_t kinds);

/* `layer` is -1 outside blocks; NULL: not in this layout (a tied model has no head). */
const struct tensor_slot *layout_find(const struct layout *l, enum param_id id, int layer);
/* Index of the unit with that tensor; -1: not in this layout. */
int layout_unit(const struct layout *l, enum param_id id, int layer);
/* The tensor of that Hugging Face name, or NULL. */
const struct tensor_slot *layout_find_hf(const struct layout *l, const char *hf_name);
/* Writes a tensor's name to `name` (at least 96 bytes): Hugging Face's or Meta's. */
void layout_tensor_name(const struct tensor_slot *t, bool hf, char *name);
