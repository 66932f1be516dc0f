/* hf_pipeline.h -- reads the normalizer and pre_tokenizer of a byte-level tokenizer.json. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "base/status.h"

struct tokenizer;

/* UNSUPPORTED: anything but NFC, NFD or a Sequence of them. */
enum status hf_pipeline_read_normalizer(struct tokenizer *t, const struct json *normalizer);
/* UNSUPPORTED: without ByteLevel, or with other components than Split, Digits and Punctuation. */
enum status hf_pipeline_read_pre_tokenizer(struct tokenizer *t, const struct json *pre_tokenizer);
