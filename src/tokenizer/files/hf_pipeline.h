/* hf_pipeline.h -- reads the normalizer and pre_tokenizer of a tokenizer.json. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "base/status.h"

struct tokenizer;

/* UNSUPPORTED, DATA: as hf_normalizer_read. */
enum status hf_pipeline_read_normalizer(struct tokenizer *t, const struct json *normalizer);
/* UNSUPPORTED: a component that is not supported; of byte-level BPE, without ByteLevel. */
enum status hf_pipeline_read_pre_tokenizer(struct tokenizer *t, const struct json *pre_tokenizer);
