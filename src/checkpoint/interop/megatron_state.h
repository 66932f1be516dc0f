/* megatron_state.h -- what a checkpoint of Megatron-LM says about its run: the arguments, which
 * give the model's shape, and the counters.
 *
 * They are in the dict `common`: common.pt, an entry of .metadata, or mp_rank_*'s own dict. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/tensor_slices.h"
#include "checkpoint/interop/torch_state.h"
#include "formats/pickle.h"
#include "model/model_shape.h"

struct megatron_sizes;

struct megatron_state {
    bool has_args;            /* Megatron Bridge and NeMo save none: the shape is then unset */
    struct model_shape shape; /* V: the tokenizer's if known, else padded */
    int tp, pp, chunks;       /* ranks that saved, and model chunks of each */
    int64_t padded_vocab;     /* rows of the embedding; 0: unknown */
    int64_t vocab_multiple;   /* what Megatron-LM rounds V up to; 0: unknown */
    bool rotary_interleaved;  /* rotary pairs are adjacent rows of q and k, as Meta's */
    int64_t iteration, optimizer_step, tokens_seen; /* -1: unknown */
    int64_t samples; /* of the training data before the next one; -1: unknown */
    /* JSON of those that decide the order of samples (megatron_args.h); owned, "" without args */
    struct text order_args;
};

void megatron_state_init(struct megatron_state *m); /* nothing is known */
void megatron_state_release(struct megatron_state *m);
/* Reads the dict; release `m` even after a failure.  DATA: an argument is missing or malformed.
 * UNSUPPORTED: the model is no Llama; the message names the argument.  CONFIG: its sizes contradict
 * each other (model_shape_check). */
enum status megatron_state_read(struct megatron_state *m, const struct pickle_value *common,
                                const char *path);
/* For what is in the order of the model.  UNSUPPORTED: there are no args. */
enum status megatron_state_require_args(const struct megatron_state *m);
/* Whether the first V rows of an embedding with that many are the whole vocabulary, and Megatron-LM
 * added the others as padding. */
bool megatron_state_pads(const struct megatron_state *m, int64_t V, int64_t rows);
/* Sets the sizes that split fused tensors, and whether `slices` permutes rows.  The arguments give
 * them; without arguments, `shape` does.  Rows beyond shape's vocabulary are dropped if they are
 * padding.  MISSING: there is neither. */
enum status megatron_state_sizes(const struct megatron_state *m, const struct model_shape *shape,
                                 struct tensor_slices *slices, struct megatron_sizes *z);
/* Sets the counters that are known. */
void megatron_state_count(const struct megatron_state *m, struct torch_state *state);
