/* source.h -- one source of the mixture as numbered places where documents begin.
 *
 * Kinds    A .jsonl file's documents are its lines; a place is a byte of the files laid end to end.
 *          A .txt file is cut into chunks of about 4 KiB at line ends; a place is a chunk's number.
 *          A .bin/.idx document's place is its number, a .parquet or .arrow file's the row's.
 *          So is a row of a .npy array of two axes; one of one axis is cut into documents of
 *          16,384 tokens.
 *          In .gz and .zst files, which cannot seek, documents are the lines, of text too, and a
 *          place is file << 32 | number of the line.  Lines of nothing but white space are no
 *          documents and have no number.  The path "mock" is Megatron-LM's mock data: 100,000
 *          documents that count 1, 2, 3, ... and end.
 * Shares   Stream s of V owns the places [s*P/V, (s+1)*P/V); compressed files
 *          are dealt out one by one, and where they are fewer than V their lines are, too. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/data_config.h"
#include "data/lines.h"
#include "data/table.h"
#include "formats/megatron.h"
#include "formats/npy.h"
#include "tokenizer/tokenizer.h"

enum source_kind {
    SOURCE_LINES,
    SOURCE_CHUNKS,
    SOURCE_TOKENS,
    SOURCE_PACKED,
    SOURCE_ROWS,
    SOURCE_ARRAY,
    SOURCE_MOCK
};

struct source_file {
    char *path;
    struct file_map map;
    struct megatron tokens;
    struct table table;
    struct npy array;
    uint64_t first; /* place where the file begins */
};

struct source {
    const struct source_config *config; /* borrowed */
    enum source_kind kind;
    bool packed_text; /* SOURCE_PACKED of .txt: a line is a document */
    bool holds_ids;   /* needs no tokenizer */
    struct source_file *files;
    size_t num_files;
    int32_t *mock_lengths; /* SOURCE_MOCK */
    struct motifs *motifs; /* owned; NULL: none */
    uint64_t places;       /* end of the places; 0 where it is unknown (packed) */
    uint32_t fingerprint;  /* of the files' names and sizes, .idx files, column and weight */
};

/* MISSING, DATA, CONFIG: the path matches nothing, the kind is unknown, a file is damaged. */
enum status source_open(struct source *s, const struct source_config *config);
void source_close(struct source *s);

/* A document found, not yet read.  Of packed sources and rows `text` holds it, as ids (int32_t) if
 * the source does; else it lies in the file. */
struct found {
    uint64_t place;
    size_t file;
    uint64_t at;  /* byte in the file, number of the document or row, or of the line from 1 */
    uint64_t len; /* bytes, or tokens */
    struct text text;
};

/* A reader's own state over a packed source: which line comes next; over rows: the page it is in.
 */
struct source_reader {
    struct lines *lines;
    struct table_reader *table;
    uint64_t file;
    uint64_t line; /* lines read of it */
    uint64_t next; /* the next document's number in it */
};
void source_reader_close(struct source_reader *r);
/* Lets go of what is large, to be read again when needed. */
void source_reader_rest(struct source_reader *r);

/* The first document at or after *place and before `end` (packed: of the share); *place moves
 * behind it.  *none: there is no further one. */
enum status source_find(const struct source *s, struct source_reader *r, uint64_t share,
                        uint64_t shares, uint64_t *place, uint64_t end, struct found *f,
                        bool *none);

/* The end of a range from `place` on that another reader may go on behind, as cheaply as one that
 * comes from there: of about *bytes, which becomes about how many they are.  Not of packed sources.
 */
uint64_t source_ahead(const struct source *s, struct source_reader *r, uint64_t place,
                      uint64_t *bytes);

/* The share that owns a place of a packed source. */
uint64_t source_packed_share(const struct source *s, uint64_t place, uint64_t shares);

/* Its token ids, BOS and EOS included where the text begins and ends.  `text` is working memory.
 * With neither encoder nor tokenizer the source must hold ids. */
struct source_tokens {
    const struct tokenizer *tokenizer;
    struct encoder *encoder;
    int64_t vocab_size;
    bool bos, eos;
    struct text text;
};
enum status source_read(const struct source *s, const struct found *f, struct source_tokens *t,
                        struct token_list *out);

/* Sequences, as Megatron's data sets count them: of one .bin/.idx pair or of mock data; 0: of no
 * other source.  A part of one, which it must have, as token ids. */
uint64_t source_num_sequences(const struct source *s);
uint64_t source_sequence_length(const struct source *s, uint64_t sequence);
enum status source_read_sequence(const struct source *s, uint64_t sequence, uint64_t from,
                                 uint64_t count, const struct source_tokens *t, int32_t *ids);
