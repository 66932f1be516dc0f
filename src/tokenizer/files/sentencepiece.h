/* sentencepiece.h -- reads SentencePiece .model files: a protocol buffer (ModelProto). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stddef.h>

struct token_table;
struct tokenizer;

/* DATA: the model is malformed.  UNSUPPORTED: neither a BPE nor a Unigram model. */
enum status sentencepiece_read(struct tokenizer *t, const char *bytes, size_t len);
/* Fills in the pieces with their types and scores, read again from t->file. */
enum status sentencepiece_export(const struct tokenizer *t, struct token_table *e);
