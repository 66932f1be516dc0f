// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/json.h"
#include "hub/hub.h"
#include "tokenizer/char_bpe.h"
#include "tokenizer/files/hf_json.h"
#include "tokenizer/files/hf_write.h"
#include "tokenizer/files/sentencepiece.h"
#include "tokenizer/files/tekken.h"
#include "tokenizer/files/tiktoken.h"
#include "tokenizer/text/split.h"
#include "tokenizer/tokenizer_impl.h"
#include "tokenizer/unigram.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_FILE_BYTES = 512 << 20,
    MAX_CONFIG_BYTES = 16 << 20,
    BYTES_BOS = 256,
    BYTES_EOS,
    BYTES_SIZE = BYTES_BOS + SPECIAL_TOKENS_DEFAULT
};

#define CONFIG_NAME "tokenizer_config.json"

/* One token for each byte.  Its file is the equivalent tokenizer.json. */
static void init_bytes(struct tokenizer *t)
{
    for (int i = 0; i < 256; i++) {
        unsigned char byte = (unsigned char)i;
        BUG_IF(vocabulary_add(&t->vocabulary, &byte, 1, i));
    }
    BUG_IF(vocabulary_finish(&t->vocabulary));
    special_tokens_add_default(&t->special_tokens, BYTES_BOS);
    t->format = FORMAT_BYTES;
    t->file_name = "tokenizer.json";
    t->vocab_size = BYTES_SIZE;
    t->bos = BYTES_BOS, t->eos = BYTES_EOS;
    hf_write_json(&(struct hf_write){.vocabulary = &t->vocabulary,
                                     .pattern = split_llama3_pattern,
                                     .specials = &t->special_tokens,
                                     .bos = BYTES_BOS},
                  &t->file);
}

/* Whether the folder's tokenizer.json was converted from its tokenizer.model (hf_folder.h), and not
 * changed since. */
static bool has_converted_json(const char *folder)
{
    char *config = file_join(folder, CONFIG_NAME);
    char *json = file_join(folder, "tokenizer.json");
    struct json *root = NULL;
    struct text file = {0};
    int64_t crc = -1;
    bool is_read = file_exists(config) && !json_read(config, MAX_CONFIG_BYTES, &root);
    if (is_read)
        json_as_int(json_get(root, "converted_tokenizer_json_crc32c"), 0, UINT32_MAX, &crc);
    bool same = crc >= 0 && !file_read(json, MAX_FILE_BYTES, &file) &&
                crc == (int64_t)checksum_crc32c(0, file.data, file.len);
    text_release(&file);
    json_free(root);
    free(config), free(json);
    return same;
}

/* The tokenizer's file in a folder, or `path` itself if it has none; on the heap. */
static char *find_file(const char *path)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model",
                                        "original/tokenizer.model", "tekken.json"};
    enum { COUNT = sizeof names / sizeof *names };
    bool is_dir = file_is_dir(path), has_other = false;
    for (size_t i = 1; is_dir && i < COUNT; i++) has_other |= file_exists_in(path, names[i]);
    for (size_t i = has_other && has_converted_json(path); is_dir && i < COUNT; i++) {
        char *file = file_join(path, names[i]);
        if (file_exists(file)) return file;
        free(file);
    }
    return heap_strdup(path);
}

bool tokenizer_is_in(const char *folder)
{
    char *file = find_file(folder);
    bool exists = !file_is_dir(file) && file_exists(file);
    free(file);
    return exists;
}

/* Reads the files beside tokenizer.json. */
static enum status read_companions(struct tokenizer *t)
{
    static const char *const names[NUM_COMPANIONS] = {CONFIG_NAME, "special_tokens_map.json",
                                                      "added_tokens.json", "chat_template.jinja"};
    char *folder = file_parent(t->path);
    enum status st = STATUS_OK;
    for (size_t i = 0; i < NUM_COMPANIONS && !st; i++) {
        char *path = file_join(folder, names[i]);
        t->companions[i].name = names[i];
        if (file_exists(path)) st = file_read(path, MAX_CONFIG_BYTES, &t->companions[i].text);
        free(path);
    }
    free(folder);
    return st;
}

static enum status read_json(struct tokenizer *t, const struct json *config)
{
    struct json *root;
    TRY(json_parse(t->file.data, t->file.len, t->path, &root));
    bool is_tekken = tekken_matches(root);
    enum status st = is_tekken ? tekken_read(t, root) : hf_json_read(t, root, config);
    json_free(root);
    return st || is_tekken ? st : read_companions(t);
}

/* Reads the tokenizer_config.json beside the file, or beside original/ in Meta's own Hugging Face
 * folders; NULL without one. */
static enum status read_config(const struct tokenizer *t, struct json **config)
{
    char *folder = file_parent(t->path), *path = file_join(folder, CONFIG_NAME);
    *config = NULL;
    if (!file_exists(path) && !strcmp(file_name(folder), "original")) {
        char *above = file_parent(folder);
        free(path);
        path = file_join(above, CONFIG_NAME);
        free(above);
    }
    enum status st = file_exists(path) ? json_read(path, MAX_CONFIG_BYTES, config) : STATUS_OK;
    free(folder), free(path);
    return st;
}

static enum status read_file(struct tokenizer *t, const char *pattern)
{
    struct json *config;
    enum status st = STATUS_OK;
    if (file_is_dir(t->path))
        FAIL(MISSING, "%s: the folder has no tokenizer.json, tokenizer.model or tekken.json",
             t->path);
    TRY(file_read(t->path, MAX_FILE_BYTES, &t->file));
    if (!t->file.len) FAIL(DATA, "%s: the file is empty", t->path);
    TRY(read_config(t, &config));
    if (t->file.data[strspn(t->file.data, " \t\r\n")] == '{')
        TRY_OUT(read_json(t, config));
    else if (t->file.data[0] == '\n')
        TRY_OUT(sentencepiece_read(t, t->file.data, t->file.len));
    else
        TRY_OUT(tiktoken_read(t, config, pattern));
    if (pattern[0] && t->format != FORMAT_TIKTOKEN)
        FAIL_OUT(CONFIG, "%s: tokenizer.pattern is for tiktoken files; a %s file has its own",
                 t->path, tokenizer_kind(t));
out:
    json_free(config);
    return st;
}

enum status tokenizer_open(struct tokenizer **out, const char *path,
                           const struct tokenizer_config *config)
{
    struct tokenizer *t = heap(sizeof *t);
    bool bytes = !strcmp(path, "bytes");
    char *local = NULL;
    *t = (struct tokenizer){.bos = -1, .eos = -1, .meta_cuts = config->meta_cuts};
    enum status st = hub_find(path, &local);
    if (!st) t->path = bytes ? heap_string("", 0) : find_file(local);
    free(local);
    if (bytes && config->pattern && config->pattern[0])
        st = FAILURE(CONFIG,
                     "a pre-tokenizer pattern (tokenizer.pattern, --pattern) is for tiktoken "
                     "files; \"bytes\" does not split text");
    else if (bytes)
        init_bytes(t);
    else if (!st)
        st = read_file(t, config->pattern ? config->pattern : "");
    *out = st ? NULL : t;
    if (st) tokenizer_close(t);
    return st;
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t) return;
    special_tokens_release(&t->special_tokens);
    added_tokens_release(&t->added_tokens);
    vocabulary_release(&t->vocabulary);
    pre_tokenizer_release(&t->pre_tokenizer);
    normalizer_release(&t->normalizer);
    char_bpe_free(t->char_bpe);
    unigram_free(t->unigram);
    text_release(&t->file);
    for (size_t i = 0; i < NUM_COMPANIONS; i++) text_release(&t->companions[i].text);
    free(t->pattern_name);
    free(t->path);
    free(t);
}

int32_t tokenizer_vocab_size(const struct tokenizer *t) { return t ? t->vocab_size : 0; }
int32_t tokenizer_bos(const struct tokenizer *t) { return t->bos; }
int32_t tokenizer_eos(const struct tokenizer *t) { return t->eos; }
bool tokenizer_adds_bos(const struct tokenizer *t) { return t->bos >= 0 && !t->adds_no_bos; }
const char *tokenizer_path(const struct tokenizer *t) { return t->path; }

uint64_t tokenizer_hash(const struct tokenizer *t)
{
    const int32_t options[] = {t->meta_cuts, t->bos, t->eos, t->adds_no_bos};
    if (t->format == FORMAT_BYTES) return 0;
    uint64_t hash = checksum_hash64(0, options, sizeof options);
    if (t->format == FORMAT_TIKTOKEN && t->pattern_name)
        hash = checksum_hash64(hash, t->pattern_name, strlen(t->pattern_name));
    return checksum_hash64(hash, t->file.data, t->file.len);
}

const char *tokenizer_kind(const struct tokenizer *t)
{
    static const char *const names[] = {
        [FORMAT_BYTES] = "bytes",
        [FORMAT_TIKTOKEN] = "tiktoken",
        [FORMAT_TEKKEN] = "Tekken",
        [FORMAT_HF_BYTE_LEVEL] = "byte-level BPE",
        [FORMAT_HF_CHAR_BPE] = "BPE with byte_fallback",
        [FORMAT_HF_UNIGRAM] = "Unigram",
        [FORMAT_SENTENCEPIECE] = "SentencePiece BPE",
        [FORMAT_SENTENCEPIECE_UNIGRAM] = "SentencePiece Unigram",
    };
    return names[t->format];
}

int32_t tokenizer_special(const struct tokenizer *t, const char *text)
{
    int32_t id = special_tokens_find(&t->special_tokens, text);
    /* a user-defined symbol is matched in text, and has an ID by name, too */
    bool is_symbol = id < 0 && t->char_bpe;
    return is_symbol ? vocabulary_find(&t->char_bpe->user_defined_raw.strings, text, strlen(text))
                     : id;
}

const char *tokenizer_special_name(const struct tokenizer *t, int32_t id)
{
    return special_tokens_text(&t->special_tokens, id);
}

bool tokenizer_has(const struct tokenizer *t, int32_t id)
{
    if (t->char_bpe) return char_bpe_find_piece(t->char_bpe, id) != NULL;
    return vocabulary_token(&t->vocabulary, id) || tokenizer_special_name(t, id);
}

/* A NUL is C0 80 in a string of JSON. */
static void add_special(struct text *out, const char *special)
{
    for (const char *at = special; *at; at++) {
        bool nul = at[0] == '\xC0' && at[1] == '\x80';
        text_add(out, nul ? "" : at, 1);
        at += nul;
    }
}

static enum status decode(const struct tokenizer *t, const int32_t *ids, size_t count,
                          bool is_start, struct text *out)
{
    if (t->char_bpe) return char_bpe_decode(t->char_bpe, ids, count, is_start, out);
    for (size_t i = 0; i < count; i++) {
        const struct token_bytes *token = vocabulary_token(&t->vocabulary, ids[i]);
        const char *special = token ? NULL : tokenizer_special_name(t, ids[i]);
        if (token)
            text_add(out, t->vocabulary.bytes + token->at, token->len);
        else if (special)
            add_special(out, special);
        else
            FAIL(DATA, "unknown token ID %d; the vocabulary has %d tokens", ids[i], t->vocab_size);
    }
    return STATUS_OK;
}

enum status tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t count,
                             struct text *out)
{
    return decode(t, ids, count, true, out);
}

enum status tokenizer_decode_part(const struct tokenizer *t, const int32_t *ids, size_t count,
                                  struct text *out)
{
    return decode(t, ids, count, false, out);
}

enum status tokenizer_copy(const struct tokenizer *t, const char *folder)
{
    char *path = file_join(folder, t->file_name);
    enum status st = file_write(path, t->file.data, t->file.len);
    free(path);
    return st;
}
