/* gguf_model.h -- a model as one GGUF file, as llama.cpp wants a "llama": its keys, its tokenizer,
 * its tensors with the rows of q and k as Meta has them, norms in f32.
 *
 * Q8_0     A tensor whose rows are no multiple of 32 long becomes F16.
 * Memory   A few megabytes, and the tokenizer.  This process has the whole model. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/torch_model.h"
#include "formats/gguf.h"

struct gguf_model {
    struct torch_model model; /* its dtype does not matter */
    enum gguf_type type;      /* of all but norms */
    const char *name;         /* for people */
    const char *tokenizer;    /* a folder, in which tokenizer.json or tokenizer.model may be */
    int bos, eos;             /* ids; below 0: the tokenizer's */
};

/* A new file, durably.  DATA: a tokenizer with more tokens than the model has, or a number that the
 * type lacks.  UNSUPPORTED: a tokenizer that llama.cpp does not have, see export.h. */
enum status gguf_model_write(const struct gguf_model *g, const char *path);
