/* megatron.h -- Megatron-LM's token files: PREFIX.bin holds the ids, PREFIX.idx where documents
 * lie.
 *
 * .idx: "MMIDIDX\0\0", u64 version 1, u8 dtype, u64 sequences S, u64 documents + 1, i32 lengths[S]
 * (tokens), i64 pointers[S] (bytes), i64 first sequence of each document and S.
 * Memory   Both files are mapped; every count, length and pointer is checked when opened. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct megatron {
    char *prefix;
    struct file_map idx, bin;
    int token_bytes; /* 1, 2, 4 or 8 */
    int dtype;       /* the code of the file */
    uint64_t num_sequences, num_documents;
    const unsigned char *lengths, *pointers, *documents; /* unaligned arrays in idx */
};

/* `prefix` may end in .bin or .idx.  MISSING, DATA: which file, and what is wrong. */
enum status megatron_open(struct megatron *m, const char *prefix);
void megatron_close(struct megatron *m);
/* The same of m->idx and m->bin, which the caller has filled; `name` stands for the .idx in
 * messages. */
enum status megatron_parse(struct megatron *m, const char *name);

/* Tokens of a document. */
uint64_t megatron_length(const struct megatron *m, uint64_t document);
/* They, into ids.  DATA: one is negative, or not below vocab_size (0: any). */
enum status megatron_read(const struct megatron *m, uint64_t document, int64_t vocab_size,
                          int32_t *ids);

/* Tokens of a sequence, of which a document may have none or several; `count` of them, from `from`
 * on, which it must have. */
uint64_t megatron_sequence_length(const struct megatron *m, uint64_t sequence);
enum status megatron_read_sequence(const struct megatron *m, uint64_t sequence, uint64_t from,
                                   uint64_t count, int64_t vocab_size, int32_t *ids);

/* The head of an .idx, everything before the arrays: 34 bytes. */
enum { MEGATRON_HEAD = 34, MEGATRON_U16 = 8, MEGATRON_I32 = 4 };
void megatron_head(int dtype, uint64_t sequences, unsigned char head[MEGATRON_HEAD]);
