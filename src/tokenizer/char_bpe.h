/* char_bpe.h -- BPE that starts from characters: SentencePiece BPE models, and their conversion to
 * tokenizer.json ("byte_fallback", "Metaspace").  A Unigram model (unigram.h) normalizes, falls
 * back to bytes and decodes in the same way.
 *
 * Encoding normalizes the text, cuts out user-defined symbols, and merges the characters of the
 * rest.  A character without a token becomes its byte tokens (byte fallback) or the unknown token.
 * Spaces   The files write a space as U+2581.  If spaces in text are escaped like that, the
 *          vocabulary and the normalized text have plain spaces in memory, and U+2581 in a text
 *          counts as a space, too.
 * Segments A text may be cut between two bytes that are adjacent in no token: no merge crosses such
 *          a position, so each segment is merged by itself and can be cached.  Merges cross dropped
 *          characters, so there is no cut next to one, nor, as it may be one, next to one that is
 *          not ASCII. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "tokenizer/matcher.h"
#include "tokenizer/text/charsmap.h"
#include "tokenizer/token_list.h"
#include "tokenizer/vocabulary.h"

/* When to prepend a space (SentencePiece's add_dummy_prefix, Metaspace's prepend_scheme). */
enum char_bpe_prefix {
    PREFIX_NEVER,
    PREFIX_ALWAYS,  /* to every text that is not empty */
    PREFIX_MISSING, /* unless the text starts with a space */
    PREFIX_FIRST,   /* the same, only at the start of a document */
};

enum char_bpe_piece_kind { PIECE_NONE, PIECE_TEXT, PIECE_BYTE, PIECE_UNKNOWN, PIECE_CONTROL };

/* How to decode an ID. */
struct char_bpe_piece {
    size_t at; /* offset into `texts`, where spaces are plain */
    uint32_t len;
    uint32_t bare_len; /* of the text without the U+2581 of the file, which follows it */
    uint8_t kind;
    uint8_t byte;
    bool starts_with_space; /* U+2581 in the file */
};

/* Which leading spaces decoding strips from a text. */
enum char_bpe_strip {
    STRIP_NOTHING,
    STRIP_ONE_SPACE,        /* the dummy prefix */
    STRIP_FIRST_TOKEN,      /* all U+2581 of the first token (Metaspace) */
    STRIP_FIRST_TEXT_PIECE, /* one, from the first piece that has text (SentencePiece) */
    STRIP_UNTIL_TEXT,       /* one from each piece until there is text (SentencePiece with
                               remove_extra_whitespaces) */
};

struct char_bpe {
    struct charsmap charsmap;
    struct matcher user_defined_raw; /* user-defined symbols as written: copied by normalization */
    struct matcher user_defined;     /* the same in normalized text: tokens that never merge */
    enum char_bpe_prefix prefix;
    bool escapes_spaces;       /* spaces are U+2581 in the files, plain in memory */
    bool removes_extra_spaces; /* collapses runs of spaces, strips them at both ends */
    bool replaces_invalid;     /* a byte that is not valid UTF-8 becomes U+FFFD */
    bool maps_characters;      /* normalization must visit each character */
    bool maps_invalid_utf8;    /* the same, if the text is not valid UTF-8 */
    bool splits_words;         /* no merge crosses the position before a space */
    bool looks_up_words;       /* ignore_merges: a word that is a token is that token, so only
                                  spaces end a segment */
    bool fuses_unknown;        /* adjacent unknown tokens become one (fuse_unk) */
    bool byte_fallback;
    int32_t unknown_id;    /* -1: unknown characters are dropped */
    int32_t byte_ids[256]; /* -1: no byte token */
    int32_t ascii_ids[128];
    int32_t first_internal_id; /* IDs from here up are internal: characters that occur in merges but
                                  have no token */
    unsigned char (*adjacent)[256]; /* [before][after]: no cut between these bytes */
    enum char_bpe_strip strip;
    bool strict_bytes; /* a run of byte tokens that is not valid UTF-8 becomes all U+FFFD */
    struct char_bpe_piece *pieces; /* by ID */
    int32_t num_pieces;            /* after char_bpe_finish the largest ID + 1 */
    struct text texts;
};

struct char_bpe *char_bpe_make(void);
void char_bpe_free(struct char_bpe *c);

/* Appends a string of the files with U+2581 replaced by spaces, if spaces are escaped. */
void char_bpe_unescape(const struct char_bpe *c, const char *text, size_t len, struct text *out);
/* The byte of a byte token's name such as "<0x0A>", or -1; `upper` rejects "<0x0a>". */
int char_bpe_parse_byte(const char *text, size_t len, bool upper);
/* Sets how an ID is decoded; the text is as written in the file. */
void char_bpe_add_piece(struct char_bpe *c, int32_t id, enum char_bpe_piece_kind kind,
                        const char *text, size_t len);
/* Call after the last token and merge. */
void char_bpe_finish(struct char_bpe *c, const struct vocabulary *v);

/* Appends the normalized text; `first`: it starts a document. */
void char_bpe_normalize(const struct char_bpe *c, const unsigned char *text, size_t len, bool first,
                        struct text *out);
/* Length of the first segment, after which the text may be cut; len > 0. */
size_t char_bpe_segment(const struct char_bpe *c, const unsigned char *text, size_t len);
/* Writes the IDs to merge, at most CHAR_BPE_IDS_PER_BYTE for each byte, and returns their count. */
enum { CHAR_BPE_IDS_PER_BYTE = 3 };
size_t char_bpe_initial_ids(const struct char_bpe *c, const struct vocabulary *v,
                            const unsigned char *text, size_t len, int32_t *ids);
/* Writes the byte tokens of a character without a token, or the unknown token; returns the count,
 * at most CHAR_BPE_IDS_PER_BYTE for each byte. */
size_t char_bpe_encode_unknown(const struct char_bpe *c, const unsigned char *bytes, size_t len,
                               int32_t *ids);
/* Replaces internal IDs from out[begin] on by byte tokens or the unknown token. */
void char_bpe_expand_internal(const struct char_bpe *c, const struct vocabulary *v,
                              struct token_list *out, size_t begin);
/* Replaces each run of unknown tokens from out[begin] on by one. */
void char_bpe_fuse_unknown(const struct char_bpe *c, struct token_list *out, size_t begin);

/* How to decode an ID; NULL: no token has it. */
const struct char_bpe_piece *char_bpe_find_piece(const struct char_bpe *c, int32_t id);
/* Appends the text of the IDs; `is_start`: they are at the start of a text.  DATA: an unknown
 * ID. */
enum status char_bpe_decode(const struct char_bpe *c, const int32_t *ids, size_t count,
                            bool is_start, struct text *out);
