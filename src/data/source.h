/* source.h -- one source of the mixture: numbered positions, at some of which documents begin.
 *
 * Kinds    What a document and its position are:
 *          .jsonl            a line; a byte offset in the concatenated files.
 *          .txt              a chunk of about 4 KiB, cut at line breaks; the chunk's number.
 *          .bin/.idx         a document of the index; its number.
 *          .parquet, .arrow  a row; its number.
 *          .npy              a row of a 2-D array, or 16,384 tokens of a 1-D array; its number.
 *          .gz, .zst         a line, also of text, since these files cannot seek;
 *                            file << 32 | number of the line in it.
 *          "mock"            Megatron-LM's mock data: 100,000 documents that count 1, 2, 3, ...
 *          Blank lines are no documents, and compressed files do not number them.
 * Parts    Part i of V owns the positions [i*P/V, (i+1)*P/V).  Compressed files are assigned to
 *          the parts round robin; with fewer files than parts, so are the lines of a file. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/data_config.h"
#include "data/line_reader.h"
#include "data/table.h"
#include "formats/megatron.h"
#include "formats/npy.h"
#include "tokenizer/tokenizer.h"

enum source_kind {
    SOURCE_JSONL,
    SOURCE_TEXT,
    SOURCE_MEGATRON,
    SOURCE_COMPRESSED,
    SOURCE_TABLE,
    SOURCE_NPY,
    SOURCE_MOCK
};

struct source_file {
    char *path;
    struct file_map map;
    struct megatron tokens;
    struct table table;
    struct npy array;
    uint64_t first_position; /* of the file */
};

struct source {
    const struct source_config *config; /* borrowed */
    enum source_kind kind;
    bool lines_are_text; /* SOURCE_COMPRESSED: lines of text, not of JSON */
    bool holds_ids;      /* token IDs: needs no tokenizer */
    struct source_file *files;
    size_t num_files;
    int32_t *mock_lengths;  /* SOURCE_MOCK */
    struct motifs *motifs;  /* owned; NULL: none */
    uint64_t num_positions; /* 0 if unknown (compressed) */
    uint32_t fingerprint;   /* of file names and sizes, .idx files, column and weight */
};

/* MISSING, DATA, CONFIG: no file matches the path, its kind is unknown, a file is damaged. */
enum status source_open(struct source *s, const struct source_config *config);
void source_close(struct source *s);

/* A document that was found but not yet tokenized.  For compressed files and tables `text` holds
 * its content: bytes, or IDs (int32_t) if the source holds IDs.  Otherwise it is still in the
 * file. */
struct source_document {
    uint64_t position;
    size_t file;
    uint64_t at;  /* byte offset in the file, number of the document or row, or line from 1 */
    uint64_t len; /* bytes, or tokens */
    struct text text;
};

/* State of a sequential reader: of a compressed file the next line, of a table the current page. */
struct source_reader {
    struct line_reader *lines;
    struct table_reader *table;
    uint64_t file;
    uint64_t line; /* lines read of it */
    uint64_t next; /* the next document's number in it */
};
void source_reader_close(struct source_reader *r);
/* Frees large buffers; the next read fills them again. */
void source_reader_trim(struct source_reader *r);

/* Finds the first document at or after *position and before `end` (compressed: of this part) and
 * advances *position past it.  *none: there are no more. */
enum status source_find(const struct source *s, struct source_reader *r, uint64_t part,
                        uint64_t num_parts, uint64_t *position, uint64_t end,
                        struct source_document *f, bool *none);

/* Splits off a range for one reader: the end of a range that begins at `position` and has about
 * *bytes, which becomes about how many it has.  Ranges end where another reader can start without
 * decoding a page twice.  Not for compressed files. */
uint64_t source_range_end(const struct source *s, struct source_reader *r, uint64_t position,
                          uint64_t *bytes);

/* The part that owns a position of a compressed source. */
uint64_t source_compressed_part(const struct source *s, uint64_t position, uint64_t num_parts);

/* How documents become token IDs.  A NULL encoder or tokenizer requires a source of IDs. */
struct source_tokens {
    const struct tokenizer *tokenizer;
    struct encoder *encoder;
    int64_t vocab_size;
    bool bos, eos;
    struct text text; /* scratch */
};
/* Appends the document's token IDs, with BOS and EOS where the text begins and ends. */
enum status source_read(const struct source *s, const struct source_document *f,
                        struct source_tokens *t, struct token_list *out);

/* Sequences as Megatron's datasets count them, of a single .bin/.idx pair or of mock data; other
 * sources have 0.  source_read_sequence reads `count` IDs of an existing sequence from token
 * `from` on. */
uint64_t source_num_sequences(const struct source *s);
uint64_t source_sequence_length(const struct source *s, uint64_t sequence);
enum status source_read_sequence(const struct source *s, uint64_t sequence, uint64_t from,
                                 uint64_t count, const struct source_tokens *t, int32_t *ids);
