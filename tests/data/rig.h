/* rig.h (tests) -- creates data files of every kind and opens loaders over them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test.h"

#include "data/loader.h"

/* Writes a file; returns folder/name, valid until the test runner exits. */
const char *rig_bytes(const char *folder, const char *name, const void *bytes, size_t len);
const char *rig_text(const char *folder, const char *name, const char *text);

/* Appends a gzip member or a zstd frame. */
void rig_gzip(struct text *out, const void *bytes, size_t len);
void rig_zstd(struct text *out, const void *bytes, size_t len);

/* Appends `documents` lines of JSON with texts of different lengths that contain escapes. */
void rig_lines(struct text *out, const char *name, int documents);
/* Writes folder/name.bin and .idx; document d has lengths[d] tokens; IDs count up from `first`. */
void rig_tokens(const char *folder, const char *name, const int *lengths, int documents, int first);

/* Writes folder/name, a .npy array of 0, 1, ... 249, 0, 1, ...; 1-D if rows is 0. */
const char *rig_array(const char *folder, const char *name, int rows, int columns);

/* Everything a loader needs, with defaults: change it, add sources, then open. */
struct rig {
    struct data_config data;
    struct objective_config objective;
    struct source_config sources[4];
    struct tokenizer *tokenizer;
    struct loader_options options;
};
void rig_init(struct rig *r, const char *tokenizer, int seq_len); /* NULL: sources of IDs */
void rig_add(struct rig *r, const char *path, double weight);
/* Adds the source of kind 0 to RIG_KINDS - 1; the last kind is a mixture.  Each has documents for
 * at least 8 streams. */
enum { RIG_KINDS = 9 };
void rig_add_kind(struct rig *r, const char *folder, int kind);
struct loader *rig_open(struct rig *r);
void rig_release(struct rig *r);

/* Consecutive rows as the model gets them. */
struct rows {
    int T;
    int64_t count, capacity, valid, bytes, padding;
    int32_t *ids, *labels, *start, *end; /* count x T */
};
/* Reads up to `most` more rows, B at a time; fewer only at the end of a single pass. */
void rows_read(struct rows *r, struct loader *l, int T, int B, int64_t most);
/* The same from a loader that it opens and closes. */
struct rows rows_of(struct rig *r, int B, int64_t most);
void rows_release(struct rows *r);
/* Checks that `count` rows are equal, from a_at and b_at on. */
void rows_check_same(const struct rows *a, int64_t a_at, const struct rows *b, int64_t b_at,
                     int64_t count);
