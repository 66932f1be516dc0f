/* source.h -- one source of the mixture: numbered positions, at some of which documents begin.
 *
 * Kinds    Each kind of file is a table of functions (source_kind.h).  A document and its position:
 *          .jsonl            a line; a byte offset in the concatenated files.
 *          .txt              a chunk of about 4 KiB, cut at line breaks; the chunk's number.
 *          .bin/.idx         a document of the index; its number.
 *          .parquet, .arrow  a row; its number, among those that pass the filter.
 *          .npy              a row of a 2-D array, or 16,384 tokens of a 1-D array; its number.
 *          .gz, .zst         a line, also of text, since these files cannot seek;
 *                            file << 32 | number of the line in it.
 *          .bin alone        16,384 tokens; its number.  No .idx beside it: nanoGPT's and llm.c's.
 *          "mock"            Megatron-LM's mock data: 100,000 documents that count 1, 2, 3, ...
 *          "synthetic-spikes" gpt-neuro-arch's synthetic spike counts: a million sessions.
 *          Blank lines are no documents, and compressed files do not number them.
 * Parts    Part i of V owns the positions [i*P/V, (i+1)*P/V).  Compressed files are assigned to
 *          the parts round robin; with fewer files than parts, so are the lines of a file. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file_map.h"
#include "data/bad_records.h"
#include "data/data_config.h"
#include "data/file_versions.h"
#include "data/line_reader.h"
#include "data/table.h"
#include "formats/megatron.h"
#include "formats/npy.h"
#include "tokenizer/tokenizer.h"

struct source_kind; /* source_kind.h */

struct source_file {
    char *path;
    uint64_t first_position; /* of the file */
    union {                  /* by kind */
        struct file_map map; /* .jsonl, .txt */
        struct megatron tokens;
        struct {
            struct table table;
            uint64_t *rows; /* that pass the filter, ascending; NULL: all */
            uint64_t num_rows;
        };
        struct npy array;
    };
};

struct source {
    const struct source_config *config; /* borrowed */
    const struct source_kind *kind;
    bool holds_ids; /* token IDs: needs no tokenizer */
    struct source_file *files;
    size_t num_files;
    int32_t *mock_lengths;        /* mock data only */
    struct motifs *motifs;        /* owned; NULL: none */
    uint64_t num_positions;       /* 0 if unknown (compressed) */
    uint32_t fingerprint;         /* of file names and sizes, .idx files, column and weight */
    uint32_t options_fingerprint; /* of column, neurons and filter alone */
    uint32_t older_fingerprint;   /* the same with the weight, in positions of older programs */
    bool is_changed; /* set by the caller: positions were saved for other files, and may not fit */
};

/* MISSING, DATA, CONFIG: no file matches the path, its kind is unknown, a file is damaged. */
enum status source_open(struct source *s, const struct source_config *config);
void source_close(struct source *s);
/* Whether a path ends like that of a source's file. */
bool source_has_suffix(const char *path);
/* CONFIG: --column names a column, and the source's files have none.  Also the errors of
 * source_open. */
enum status source_check_column(const struct source_config *config);
/* Whether the files have columns or JSON keys, so that source.column matters. */
bool source_has_columns(const struct source *s);
/* Appends all its files, the motifs' included. */
void source_list_files(const struct source *s, struct file_versions *out);
/* data.source.name; NULL: it has none. */
const char *source_name(const struct source *s);
/* Whether it holds spike counts, as single counts or as motifs. */
bool source_holds_counts(const struct source *s);

/* The positions that remain to be read: the documents from `position` to `end`; of a compressed
 * source those of one part. */
struct source_range {
    uint64_t position, end;
    uint64_t part, num_parts;
};
/* The range of a part.  The whole source is part 0 of 1. */
struct source_range source_part(const struct source *s, uint64_t part, uint64_t num_parts);
/* The part that owns a position of a compressed source. */
uint64_t source_compressed_part(const struct source *s, uint64_t position, uint64_t num_parts);

/* A document that was found but not yet tokenized.  For compressed files and tables `text` holds
 * its content: bytes, or IDs (int32_t) if the source holds IDs.  Otherwise it is still in the
 * file. */
struct source_document {
    uint64_t position;
    size_t file;
    uint64_t at;  /* byte offset in the file, number of the document or row, or line from 1 */
    uint64_t len; /* bytes, or tokens */
    struct text text;
    bool is_bad; /* a bad record; `text` is the reason */
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

/* Checks the mappings of all files.  DATA, IO: a file was truncated or could not be read since it
 * was opened (file_map_check). */
enum status source_check(const struct source *s);

/* Finds the next document of the range and advances its position past it.  *none: no more.
 * DATA, IO: the file is damaged.  A bad record is found as any other; source_read fails. */
enum status source_find(const struct source *s, struct source_reader *r, struct source_range *c,
                        struct source_document *d, bool *none);

/* Splits off a range for one reader: the end of a range that begins at `position` and has about
 * *bytes, which becomes about how many it has.  Ranges end where another reader can start without
 * decoding a page twice.  Not for compressed files. */
uint64_t source_range_end(const struct source *s, struct source_reader *r, uint64_t position,
                          uint64_t *bytes);
uint64_t source_text_bytes(const struct source *s); /* of all documents; 0: unknown */

/* How documents become token IDs.  A NULL encoder or tokenizer requires a source of IDs. */
struct source_tokens {
    const struct tokenizer *tokenizer;
    struct encoder *encoder;
    int64_t vocab_size;
    bool bos, eos;
    struct bad_records *bad;        /* borrowed: where skipped records go; NULL: they are errors */
    struct text text;               /* scratch */
    const struct source *unchecked; /* source_tokens_check checks this file; NULL: none */
    size_t unchecked_file;
};
/* Whether documents end with EOS, given data.bos and data.eos: a token that is both BOS and EOS
 * only begins them, as in torchtitan. */
bool source_adds_eos(const struct tokenizer *t, bool bos, bool eos);
/* Appends the document's token IDs, with BOS and EOS where the text begins and ends.  RECORD: it is
 * a bad record, and t->bad is NULL; otherwise such a record has no tokens.  Before using the IDs,
 * call source_tokens_check: the files are mapped, and may have been truncated. */
enum status source_read(const struct source *s, const struct source_document *d,
                        struct source_tokens *t, struct token_list *out);
/* Checks the file that was read last; the ones before it have been checked.  DATA, IO: as
 * source_check. */
enum status source_tokens_check(struct source_tokens *t);

/* Sequences as Megatron's datasets count them, of a single .bin/.idx pair or of mock data; other
 * sources have 0. */
uint64_t source_num_sequences(const struct source *s);
uint64_t source_sequence_length(const struct source *s, uint64_t sequence);
/* Tokens from, from + 1, ... of an existing sequence; source_tokens_check as after source_read. */
struct source_span {
    uint64_t sequence, from, count;
};
/* RECORD, also if t->bad is set: an ID is outside the vocabulary. */
enum status source_read_sequence(const struct source *s, const struct source_span *span,
                                 struct source_tokens *t, int32_t *ids);
/* After source_read_sequence has failed: adds the span to t->bad. */
enum status source_skip_sequence(const struct source *s, const struct source_span *span,
                                 const struct source_tokens *t);

/* For messages: the path of a document's file, that of the source if it has no files ("mock"); and
 * what source_document.at counts: "line", "row", "document", or "offset" for bytes. */
const char *source_file_path(const struct source *s, size_t file);
const char *source_unit(const struct source *s);

/* The file that a position belongs to. */
size_t source_file_at(const struct source *s, uint64_t position);
