/* params.h -- every weight of the model, from one list (llama.params), and where it lies.
 *
 * Axes     V vocabulary, D width, L layers, Q = H*K query width, P = G*K key/value width,
 *          F feed-forward width.
 * Memory   All weights lie in one flat buffer, unit after unit: the embedding, each block, the last
 *          norm with the head.  A unit is a multiple of 64 elements in each of the parts it is cut
 *          into; inside it tensors follow each other without gaps, so q, k, v are one [Q+2P, D]
 *          matrix, gate and up one [2F, D].  Master weights, moments, gradients and the computing
 *          copy all have this layout. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/model_config.h"
#include "tensor/queue.h"
#include "tensor/store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum param_start { START_ONES, START_EMBED, START_INNER, START_DEPTH, START_HEAD };

enum param_id {
#define PARAM(name, ...) PARAM_##name,
#include "model/llama.params"
#undef PARAM
    PARAM_COUNT
};

struct param {
    const char *name; /* torchtitan's and Meta's: "layers.%d.attention.wq.weight" */
    const char *axes; /* "QD": rows, columns */
    char tp;          /* the axis tensor parallelism cuts, 0 for none */
    bool is_norm;     /* norms may be left out of weight decay */
    enum param_start start;
    const char *hf_name; /* in a Hugging Face checkpoint (%d = layer) */
};
extern const struct param params[PARAM_COUNT];

/* One tensor of the model at its place. */
struct tensor_place {
    enum param_id id;
    int layer;             /* -1 outside blocks */
    int64_t rows, columns; /* columns 1: a vector */
    size_t offset;         /* elements from the start of the flat buffer */
    size_t elements;
};

/* What is gathered, reduced and given back at once: the embedding, a block, or the last norm with
 * the head. */
struct unit {
    int first_tensor, num_tensors;
    int stage;               /* of layout_init_stages' that it is of */
    size_t offset, elements; /* the gap at its end included */
};

/* A run of the model's blocks, with what is in front of the first and behind the last. */
struct stage {
    int begin, end; /* blocks begin to end - 1; may be none */
    bool embeds, heads;
};

struct layout {
    int num_tensors, num_units;
    struct tensor_place *tensors; /* in the order of the buffer; owned */
    struct unit *units;           /* in the order of a pass; owned */
    int *unit_of;                 /* of the embedding, each of num_blocks, the head; -1; owned */
    int num_blocks;               /* of the whole model */
    size_t elements;              /* of the buffer, gaps between units included */
    int64_t parameters;           /* without gaps: the published count */
};

/* Units can be cut into `parts` even parts of whole cache lines. */
void layout_init(struct layout *l, const struct model_shape *m, int parts);
/* The same of some stages of the model, in ascending order.  One that has the head of a tied model
 * has the embedding too. */
void layout_init_stages(struct layout *l, const struct model_shape *m, const struct stage *stages,
                        int num_stages, int parts);
struct stage stage_whole(const struct model_shape *m);
void layout_release(struct layout *l);

/* A run of a whole tensor's elements in one part of every unit: flat buffers of a part hold its
 * parts of all units one behind the other, elements / parts in all. */
struct piece {
    int tensor;          /* of the whole model's */
    size_t first, count; /* elements of the whole tensor, row by row */
    size_t at;           /* where they begin in the part's flat buffers */
};
struct pieces {
    struct piece *all; /* in the order of the buffer; owned */
    size_t count;
    size_t elements; /* of the part's flat buffers */
};
/* Part `part` of layout_init's `parts`. */
void pieces_init(struct pieces *p, const struct layout *l, int part, int parts);
/* The same where `l` has some tensors of `whole`, of which matrices are cut: part `cut` of `cuts`,
 * by the axis that llama.params names. */
void pieces_init_cut(struct pieces *p, const struct layout *l, int part, int parts,
                     const struct layout *whole, int cut, int cuts);
void pieces_release(struct pieces *p);
/* `layer` is -1 outside blocks; NULL: no such tensor (a tied model has no head). */
const struct tensor_place *layout_find(const struct layout *l, enum param_id id, int layer);
/* The unit that a tensor is in; -1: none here. */
int layout_unit(const struct layout *l, enum param_id id, int layer);
/* The tensor of that Hugging Face name, or NULL. */
const struct tensor_place *layout_find_hf(const struct layout *l, const char *hf_name);
/* Name of a tensor in `name` (at least 96 bytes); hf: Hugging Face's, else Meta's. */
void tensor_place_name(const struct tensor_place *t, bool hf, char *name);

/* Initial value of every weight, a pure function of (seed, tensor, element), as torchtitan's: norms
 * 1; embedding N(0, 1); q, k, v, gate N(0, 0.02); out, up, down N(0, 0.02 / sqrt(2 (layer + 1)))
 * (without depth_init: sqrt(2 L)); head N(0, 1/sqrt(D)) cut at three deviations, and so is an
 * embedding that serves as the head.  0.02 stands for init_std.  INIT_NORMAL: all but the norms
 * N(0, init_std);  INIT_MEGATRON: the same, but out and down N(0, init_std / sqrt(2 L)). */
/* Elements [first, first + count) of a tensor of the model `m`, which they are numbered in, to w.
 */
void params_start_part(const struct tensor_place *t, const struct model_shape *m, uint64_t seed,
                       size_t first, size_t count, float *w);
/* All of the pieces, to a flat buffer of any form. */
enum status params_start_store(const struct layout *l, const struct pieces *p,
                               const struct model_shape *m, uint64_t seed, const struct store *to);
/* The same to one of f32, where `on` has its memory; NULL: the host. */
enum status params_start(const struct layout *l, const struct pieces *p,
                         const struct model_shape *m, uint64_t seed, float *weights,
                         struct queue *on);
