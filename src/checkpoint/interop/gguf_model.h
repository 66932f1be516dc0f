/* gguf_model.h -- writes a model as one GGUF file of the architecture that llama.cpp has for it:
 * metadata, tokenizer, tensors with the row order of q and k of its architecture, norms in f32.
 *
 * Q8_0     A tensor whose row length is not a multiple of 32 becomes F16.
 * Memory   A few megabytes, and the tokenizer.  This process holds the whole model. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/torch_model.h"
#include "formats/gguf.h"

struct gguf_model {
    struct torch_model model; /* its dtype is ignored */
    enum gguf_type type;      /* of all tensors except norms */
    const char *name;         /* for display */
    const char *tokenizer;    /* folder that may contain tokenizer.json or tokenizer.model */
    int bos, eos;             /* token IDs; negative: the tokenizer's */
    bool is_masked;           /* attention is not causal */
};

/* Writes a new file with fsync.  DATA: the tokenizer has more tokens than the model, or a value is
 * out of the type's range.  UNSUPPORTED: llama.cpp does not have this tokenizer, see export.h. */
enum status gguf_model_write(const struct gguf_model *g, const char *path);
