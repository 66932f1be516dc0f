/* tokenizer_impl.h -- internal to the tokenizer: the fields of struct tokenizer, which the readers
 * in files/ fill in. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/text/unicode_normalize.h"
#include "tokenizer/vocabulary.h"

#include <stdbool.h>

struct char_bpe;
struct unigram;

enum tokenizer_format {
    FORMAT_BYTES,
    FORMAT_TIKTOKEN,
    FORMAT_TEKKEN,
    FORMAT_HF_BYTE_LEVEL,
    FORMAT_HF_CHAR_BPE,
    FORMAT_HF_UNIGRAM,
    FORMAT_SENTENCEPIECE,
    FORMAT_SENTENCEPIECE_UNIGRAM,
};

/* Files beside tokenizer.json that belong to it. */
enum { NUM_COMPANIONS = 4 };
struct companion_file {
    const char *name;
    struct text text; /* empty: there is no such file */
};

/* tokenizer.json's Metaspace: the last pre_tokenizer, which writes spaces as U+2581, prepends one
 * to a piece that starts with none, and may split before each. */
struct metaspace {
    bool is_used, splits;
    bool prepends, only_first; /* to all pieces, or only to one that starts the document */
};

struct tokenizer {
    enum tokenizer_format format;
    char *path;            /* of the file it was read from, "" for FORMAT_BYTES */
    const char *file_name; /* the name under which tokenizer_copy writes it */
    struct text file;      /* the content of that file */
    struct companion_file companions[NUM_COMPANIONS]; /* of a tokenizer.json; otherwise empty */
    struct vocabulary vocabulary;
    struct special_tokens special_tokens;
    struct added_tokens added_tokens; /* empty unless some match text */
    int32_t vocab_size, bos, eos;
    bool adds_no_bos; /* a tokenizer.json whose post_processor does not begin texts with BOS */
    /* Byte-level BPE splits text by `split` if the pre_tokenizer is one known splitter; otherwise
     * by its rules; without rules, a text is one piece. */
    size_t (*split)(const unsigned char *text, size_t len);
    struct pre_tokenizer pre_tokenizer;
    const char *pattern; /* tiktoken and Tekken: the pre-tokenizer pattern; borrowed */
    char *pattern_name;  /* the one that the file lacks: what tokenizer.pattern gave; or NULL */
    bool lists_specials; /* tiktoken: tokenizer_config.json lists the special tokens */
    bool is_byte_level;  /* a ByteLevel pre_tokenizer was read */
    enum unicode_form normal_form; /* the only normalizer, if it is NFC or NFD; otherwise: */
    struct normalizer normalizer;  /* tokenizer.json's */
    struct metaspace metaspace;
    struct char_bpe *char_bpe; /* NULL: byte-level */
    struct unigram *unigram;   /* NULL: BPE; it needs char_bpe to normalize and decode */
    bool ignore_merges;        /* a piece that is a token is that token, without merging */
    bool meta_cuts;            /* cut long texts as Meta's tokenizer.py does */
};
