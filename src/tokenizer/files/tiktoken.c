// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/files/tiktoken.h"

#include "base/json.h"
#include "tokenizer/files/base64.h"
#include "tokenizer/files/hf_json.h"
#include "tokenizer/files/tiktoken_scheme.h"
#include "tokenizer/tokenizer_impl.h"

#include <stdlib.h>
#include <string.h>

static bool is_lfs_pointer(const char *line, size_t len)
{
    static const char begin[] = "version https://git-lfs";
    return len >= sizeof begin - 1 && !memcmp(line, begin, sizeof begin - 1);
}

static enum status read_line(struct tokenizer *t, const char *line, size_t len, size_t number)
{
    enum { MAX_DIGITS = 8 };
    unsigned char bytes[1024];
    const char *space = memchr(line, ' ', len);
    size_t width = space ? (size_t)(space - line) : 0;
    int32_t rank = 0;
    /* the empty token of Whisper's multilingual.tiktoken, which has a rank and no text */
    bool is_empty = width == 1 && line[0] == '=';
    int n = space && !is_empty ? base64_decode(line, width, bytes, sizeof bytes) : -1;
    const char *at = space ? space + 1 : line + len, *end = line + len;
    bool digits = at < end && end - at <= MAX_DIGITS;
    for (; digits && at < end; at++) {
        digits = *at >= '0' && *at <= '9';
        rank = rank * 10 + (*at - '0');
    }
    bool is_bad = (n <= 0 && !is_empty) || !digits || rank > VOCABULARY_MAX_ID;
    if (is_bad && number == 1)
        FAIL(DATA,
             "%s: not a tokenizer: expected a tokenizer.json, a SentencePiece model, or lines of "
             "\"base64 rank\" as in tiktoken files%s",
             t->path,
             is_lfs_pointer(line, len) ? "; this is a Git LFS pointer: run git lfs pull" : "");
    if (is_bad)
        FAIL(DATA, "%s:%zu: expected \"base64 rank\"; the file is truncated or corrupt", t->path,
             number);
    if (!is_empty)
        TRY_PREFIX(vocabulary_add(&t->vocabulary, bytes, (size_t)n, rank), "%s:%zu", t->path,
                   number);
    if (rank >= t->vocab_size) t->vocab_size = rank + 1;
    return STATUS_OK;
}

/* Checks that each rank has either a token or, as in p50k_base, a special token. */
static enum status check_complete(const struct tokenizer *t)
{
    for (size_t i = 0; i < t->special_tokens.count; i++) {
        const struct special_token *s = &t->special_tokens.all[i];
        if (vocabulary_token(&t->vocabulary, s->id))
            FAIL(DATA, "%s: ID %d of the special token \"%s\" is a token of the file%s", t->path,
                 s->id, s->text,
                 t->lists_specials ? "; see added_tokens_decoder of tokenizer_config.json"
                                   : ": tokenizer.pattern is that of another file");
    }
    for (int32_t id = 0; id < t->vocabulary.id_limit; id++)
        if (!vocabulary_token(&t->vocabulary, id) && !special_tokens_text(&t->special_tokens, id))
            FAIL(DATA, "%s: no token has rank %d; the largest rank is %d", t->path, id,
                 t->vocabulary.id_limit - 1);
    return STATUS_OK;
}

static enum status read_ranks(struct tokenizer *t, const char *bytes, size_t len)
{
    size_t number = 0;
    for (const char *at = bytes, *end = bytes + len; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        size_t width = (size_t)(stop - at);
        if (width && at[width - 1] == '\r') width--;
        number++;
        if (width) TRY(read_line(t, at, width, number));
        at = stop + 1;
    }
    TRY_PREFIX(vocabulary_finish(&t->vocabulary), "%s", t->path);
    return STATUS_OK;
}

/* A pre-tokenizer pattern that the user wrote, in tokenizer.json's syntax.  There ^ and $ match at
 * every line break and {1,3}+ is no possessive quantifier, unlike in tiktoken's; the second is
 * refused anyway. */
static enum status check_pattern(const struct tokenizer *t, const char *pattern)
{
    bool in_class = false;
    for (const char *at = pattern; *at; at++) {
        if (*at == '\\' && at[1]) {
            at++;
            continue;
        }
        in_class = in_class ? *at != ']' : *at == '[';
        if (!in_class && (*at == '$' || *at == '^'))
            FAIL(CONFIG, "%s: tokenizer.pattern: %c is ambiguous; write %s for the %s of the text",
                 t->path, *at, *at == '$' ? "\\z" : "\\A", *at == '$' ? "end" : "beginning");
    }
    return STATUS_OK;
}

/* Special tokens that tokenizer_config.json lists by ID. */
static enum status add_listed_specials(struct tokenizer *t, const struct json *listed)
{
    for (const struct json *v = json_first(listed); v; v = json_next(v)) {
        const char *name, *key = json_key(v);
        char *end;
        long id = strtol(key, &end, 10);
        if (*end || !*key || id < 0 || id > VOCABULARY_MAX_ID)
            FAIL(DATA,
                 "%s: added_tokens_decoder of tokenizer_config.json: \"%s\" is not a token ID",
                 t->path, key);
        TRY_PREFIX(json_get_string(v, "content", &name),
                   "%s: added_tokens_decoder of tokenizer_config.json: %s", t->path, key);
        special_tokens_add(&t->special_tokens, name, (int32_t)id);
        if (id >= t->vocab_size) t->vocab_size = (int32_t)id + 1;
    }
    special_tokens_sort(&t->special_tokens);
    return STATUS_OK;
}

static int32_t find_named(const struct tokenizer *t, const struct json *config, const char *key)
{
    const char *name = hf_json_token_name(config, key);
    return name ? special_tokens_find(&t->special_tokens, name) : -1;
}

/* The special tokens of a file that is not known: those that tokenizer_config.json lists, otherwise
 * the scheme's, otherwise those of our own tokenizers. */
static enum status add_specials(struct tokenizer *t, const struct tiktoken_scheme *scheme,
                                const struct json *config)
{
    const struct json *listed = json_get(config, "added_tokens_decoder");
    int32_t num_ranks = t->vocab_size;
    if (listed) {
        t->lists_specials = true;
        TRY(add_listed_specials(t, listed));
        t->bos = find_named(t, config, "bos_token");
        t->eos = find_named(t, config, "eos_token");
    } else if (scheme) {
        tiktoken_scheme_add_specials(scheme, t, num_ranks);
    } else {
        special_tokens_add_default(&t->special_tokens, num_ranks);
        t->bos = num_ranks, t->eos = num_ranks + 1;
        t->vocab_size = num_ranks + SPECIAL_TOKENS_DEFAULT;
    }
    return STATUS_OK;
}

enum status tiktoken_set_pattern(struct tokenizer *t)
{
    struct split_rule *rule = &t->pre_tokenizer.rules[0];
    TRY_PREFIX(pre_tokenizer_set_pattern(rule, t->pattern), "%s", t->path);
    t->split = rule->split;
    t->pre_tokenizer.count = !rule->split;
    return STATUS_OK;
}

/* The pattern that the user or tokenizer_config.json gives: a scheme's name, or a pattern. */
static enum status find_pattern(const struct tokenizer *t, const struct json *config,
                                const char **pattern)
{
    static const char *const keys[] = {"pattern", "pat_str"};
    struct text names = {0};
    for (size_t i = 0; i < 2 && !**pattern; i++) {
        const struct json *v = json_get(config, keys[i]);
        if (json_is_string(v)) *pattern = json_string(v);
    }
    if (**pattern) return STATUS_OK;
    tiktoken_scheme_list(&names);
    enum status st = STATUS_OK;
    FAIL_OUT(UNSUPPORTED,
             "%s: a tiktoken file does not contain its pre-tokenizer pattern, and this is not a "
             "public file; set tokenizer.pattern to one of %s, or to a pattern",
             t->path, names.data);
out:
    text_release(&names);
    return st;
}

enum status tiktoken_read(struct tokenizer *t, const struct json *config, const char *pattern)
{
    TRY(read_ranks(t, t->file.data, t->file.len));
    const struct tiktoken_scheme *scheme = tiktoken_scheme_of_file(t->file.data, t->file.len);
    bool is_public = scheme != NULL;
    if (is_public && pattern[0] && strcmp(pattern, scheme->name))
        FAIL(CONFIG,
             "%s: this is the public file of %s, whose pattern is known; remove "
             "tokenizer.pattern",
             t->path, scheme->name);
    if (!is_public) {
        TRY(find_pattern(t, config, &pattern));
        scheme = tiktoken_scheme_find(pattern);
        if (!scheme) TRY(check_pattern(t, pattern));
        t->pattern_name = heap_strdup(pattern);
    }
    t->pattern = scheme ? scheme->pattern : t->pattern_name;
    TRY(tiktoken_set_pattern(t));
    t->normal_form = scheme ? scheme->normal_form : FORM_NONE;
    TRY(add_specials(t, scheme, is_public ? NULL : config));
    TRY(check_complete(t));
    vocabulary_add_all_splits(&t->vocabulary);
    t->format = FORMAT_TIKTOKEN;
    t->file_name = "tokenizer.model";
    t->ignore_merges = true;
    t->adds_no_bos = t->bos < 0;
    return STATUS_OK;
}
