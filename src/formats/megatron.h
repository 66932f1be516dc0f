/* megatron.h -- reads Megatron-LM's indexed datasets: PREFIX.bin holds token IDs, PREFIX.idx the
 * offsets of sequences and documents.
 *
 * .idx: "MMIDIDX\0\0", u64 version 1, u8 dtype, u64 number of sequences S, u64 number of documents
 * + 1, i32 sequence lengths[S] (tokens), i64 sequence pointers[S] (bytes), i64 document indices
 * (the first sequence of each document, then S), and in multimodal data i8 modes[S], which must all
 * be 0 (text).
 * Memory   Both files are mapped.  megatron_open validates every count, length and pointer; reading
 *          does so again, as the files may change meanwhile.  The caller calls file_map_check.
 * Source   megatron/core/datasets/indexed_dataset.py. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file_map.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct megatron {
    char *prefix;
    struct file_map idx, bin;
    int token_bytes; /* 1, 2, 4 or 8 */
    int dtype;       /* Megatron's DType code */
    uint64_t num_sequences, num_documents;
    const unsigned char *lengths, *pointers, *documents; /* unaligned arrays in idx */
};

/* `prefix` may end in .bin or .idx.  MISSING: either file.  DATA: the index is corrupt, or does not
 * match the .bin, or PREFIX.sum (megatron_sum.h; its checksums of the .bin are not compared). */
enum status megatron_open(struct megatron *m, const char *prefix);
void megatron_close(struct megatron *m);
/* megatron_open for file images, which the caller has stored in m->idx and m->bin.  `name`: of the
 * .idx in messages. */
enum status megatron_parse(struct megatron *m, const char *name);

/* The number of tokens in a document; 0 if the file has changed so that the index is invalid. */
uint64_t megatron_document_length(const struct megatron *m, uint64_t document);
/* Copies a document's tokens to `ids`; `length` is what megatron_document_length returned.  RECORD:
 * an ID is negative, or not below vocab_size (0: INT32_MAX).  DATA: the index has changed since. */
enum status megatron_read_document(const struct megatron *m, uint64_t document, uint64_t length,
                                   int64_t vocab_size, int32_t *ids);

/* `count` tokens of a sequence, which must exist, from token `from` on. */
struct megatron_range {
    uint64_t sequence, from, count;
};
/* The same for a sequence, and a part of it; a document is zero or more sequences.  DATA, too: the
 * sequence has no such part. */
uint64_t megatron_sequence_length(const struct megatron *m, uint64_t sequence);
enum status megatron_read_sequence(const struct megatron *m, struct megatron_range range,
                                   int64_t vocab_size, int32_t *ids);

/* Builds the header of an .idx: the 34 bytes before the arrays.  dtype: MEGATRON_U16 or _I32. */
enum { MEGATRON_HEADER_BYTES = 34, MEGATRON_U16 = 8, MEGATRON_I32 = 4 };
void megatron_build_header(int dtype, uint64_t sequences,
                           unsigned char head[MEGATRON_HEADER_BYTES]);
