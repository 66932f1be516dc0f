/* source_rig.h (tests) -- opens single sources and reads their documents as text. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/rig.h"
#include "data/source.h"

struct source_config source_rig_config(const char *path);
struct source source_rig_open(struct source_config *config);

/* The byte tokenizer, with BOS and EOS. */
struct source_rig_tokens {
    struct tokenizer *tokenizer;
    struct source_tokens tokens;
    struct token_list ids;
};
void source_rig_tokens_init(struct source_rig_tokens *r);
void source_rig_tokens_release(struct source_rig_tokens *r);

/* Appends the documents of a part as text: < is BOS, > is EOS, | ends a document. */
enum status source_rig_read_part(struct source *s, uint64_t part, uint64_t num_parts,
                                 struct text *out);
/* Checks all documents of a source in this notation; or that reading it fails with this message. */
void source_rig_check(const char *path, const char *want);
void source_rig_check_fails(const char *path, const char *why);

/* Writes a file, compressed according to its name; returns its path. */
const char *source_rig_compressed(const char *folder, const char *name, const char *text);
