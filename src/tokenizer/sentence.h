/* sentence.h -- byte-pair encoding that begins with characters: SentencePiece's, and what Hugging
 * Face made of it ("byte_fallback", "Metaspace").
 *
 * A text is normalized, tokens that are taken as they are are cut out, and the characters of what
 * is left are merged.  A character without a token becomes the tokens of its bytes, or unknown.
 * Spaces   In the files a space is spelt U+2581; where texts' spaces are escaped like that, the
 *          vocabulary and the normalized text have plain spaces here, and U+2581 is a space, too.
 * Cutting  A text may be cut between two bytes that no token of two or more characters has side by
 *          side: no merge crosses such a place, so what stands between two is merged once and
 *          remembered. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "tokenizer/matcher.h"
#include "tokenizer/text/charsmap.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary.h"

enum sentence_prefix {
    PREFIX_NEVER,
    PREFIX_ALWAYS,  /* a space before each text that is not empty */
    PREFIX_MISSING, /* the same, unless it begins with one */
    PREFIX_FIRST,   /* the same, of what begins a document */
};

enum sentence_kind { PIECE_NONE, PIECE_TEXT, PIECE_BYTE, PIECE_UNKNOWN, PIECE_CONTROL };

/* How an id is decoded. */
struct sentence_piece {
    size_t at; /* in `texts`, with plain spaces */
    uint32_t len;
    uint8_t kind;
    uint8_t byte;
    bool spaced; /* begins with U+2581 */
};

/* How decoding begins a text. */
enum sentence_start {
    START_KEEPS,              /* as it is */
    START_DROPS_SPACE,        /* the one of the prefix */
    START_DROPS_TOKEN_SPACES, /* all U+2581 of the first token: Metaspace */
    START_SENTENCEPIECE,      /* one, of the first piece that has text */
    START_SENTENCEPIECE_ALL,  /* one of each piece until there is text */
};

struct sentence {
    struct charsmap charsmap;
    struct matcher kept;   /* what normalizing leaves alone, as written */
    struct matcher frozen; /* tokens of a normalized text that are not merged */
    enum sentence_prefix prefix;
    bool escapes;         /* spaces are U+2581 in the files, plain here */
    bool squeezes;        /* runs of spaces become one, those at the ends none */
    bool replaces;        /* a byte that is not UTF-8 becomes U+FFFD */
    bool maps;            /* normalizing must look at each character */
    bool checks;          /* the same, of a text that is not UTF-8 */
    bool cuts_words;      /* no merge crosses the place before a space */
    bool whole_words;     /* a word that is a token is that token: nothing else may be cut */
    bool fuses;           /* unknown ones side by side are one */
    bool falls_back;      /* byte_id is whole or in part */
    int32_t unknown;      /* -1: an unknown character is left out */
    int32_t byte_id[256]; /* -1: none */
    int32_t ascii_id[128];
    int32_t first_made;          /* ids from here on are characters that only occur in merges */
    unsigned char (*joins)[256]; /* [before][after]: do tokens have these bytes side by side? */
    enum sentence_start start;
    bool strict_bytes; /* a run of byte tokens that is not UTF-8 becomes U+FFFD as a whole */
    struct sentence_piece *pieces;
    int32_t num_pieces;
    struct text texts;
};

struct sentence *sentence_make(void);
void sentence_free(struct sentence *s);

/* A spelling of the files, as it is here: appended. */
void sentence_spell(const struct sentence *s, const char *text, size_t len, struct text *out);
/* The byte that "<0x0A>" names, or -1; `upper`: not if it is spelt "<0x0a>". */
int sentence_byte_named(const char *text, size_t len, bool upper);
/* How an id is decoded: the text as the file spells it. */
void sentence_add_piece(struct sentence *s, int32_t id, enum sentence_kind kind, const char *text,
                        size_t len);
/* After the last token and pair. */
void sentence_finish(struct sentence *s, const struct vocabulary *v);

/* The normalized text, appended; `first`: it begins a document. */
void sentence_normalize(const struct sentence *s, const unsigned char *text, size_t len, bool first,
                        struct text *out);
/* Bytes up to the next place where the text may be cut; len > 0. */
size_t sentence_cut(const struct sentence *s, const unsigned char *text, size_t len);
/* Symbols to merge, at most SENTENCE_SYMBOLS a byte. */
enum { SENTENCE_SYMBOLS = 3 };
size_t sentence_symbols(const struct sentence *s, const struct vocabulary *v,
                        const unsigned char *text, size_t len, int32_t *ids);
/* What merging gave from out[begin] on, with made ids put as bytes. */
void sentence_settle(const struct sentence *s, const struct vocabulary *v, struct token_list *out,
                     size_t begin);
/* From out[begin] on: unknown ones side by side become one. */
void sentence_fuse(const struct sentence *s, struct token_list *out, size_t begin);

/* The text of the ids; `whole`: they begin a text.  DATA: an id that is none. */
enum status sentence_decode(const struct sentence *s, const int32_t *ids, size_t count, bool whole,
                            struct text *out);
