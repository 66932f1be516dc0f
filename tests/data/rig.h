/* rig.h -- what tests of the data share: files of every kind, and loaders over them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test.h"

#include "data/data.h"

/* Writes a file; folder/name is returned, valid until the runner ends. */
const char *rig_bytes(const char *folder, const char *name, const void *bytes, size_t len);
const char *rig_text(const char *folder, const char *name, const char *text);

/* Appends a member or a frame. */
void rig_gzip(struct text *out, const void *bytes, size_t len);
void rig_zstd(struct text *out, const void *bytes, size_t len);

/* `documents` texts, of different lengths and with all that JSON escapes, one a line. */
void rig_lines(struct text *out, const char *name, int documents);
/* folder/name.bin and .idx; document d has lengths[d] tokens, all numbered on from `first`. */
void rig_tokens(const char *folder, const char *name, const int *lengths, int documents, int first);

/* folder/name, a .npy array of 0, 1, ... 249, 0, 1, ...; of one axis if rows is 0. */
const char *rig_array(const char *folder, const char *name, int rows, int columns);

/* Everything a loader needs, preset; change it, add sources, then open. */
struct rig {
    struct data_config data;
    struct objective_config objective;
    struct source_config sources[4];
    struct tokenizer *tokenizer;
    struct loader_options options;
};
void rig_init(struct rig *r, const char *tokenizer, int seq_len); /* NULL: ids; else "bytes" */
void rig_add(struct rig *r, const char *path, double weight);
/* Adds a source of each kind in turn, and at last a mixture; each has documents for 8 streams. */
enum { RIG_KINDS = 9 };
void rig_add_kind(struct rig *r, const char *folder, int kind);
struct loader *rig_open(struct rig *r);
void rig_release(struct rig *r);

/* Rows one after the other, as the model gets them. */
struct rows {
    int T;
    int64_t count, valid, bytes;
    int32_t *ids, *labels, *start, *end; /* count x T */
};
/* Up to `most` more rows from the loader, B at a time; fewer only at the end of a single pass. */
void rows_read(struct rows *r, struct loader *l, int T, int B, int64_t most);
/* Those of a loader opened for it. */
struct rows rows_of(struct rig *r, int B, int64_t most);
void rows_release(struct rows *r);
/* The same `count` rows, from a_at and b_at on. */
void rows_check_same(const struct rows *a, int64_t a_at, const struct rows *b, int64_t b_at,
                     int64_t count);
