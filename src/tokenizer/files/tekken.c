// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/files/tekken.h"

#include "base/json.h"
#include "tokenizer/files/base64.h"
#include "tokenizer/files/tiktoken.h"
#include "tokenizer/tokenizer_impl.h"

#include <stdio.h>
#include <string.h>

bool tekken_matches(const struct json *root)
{
    return json_is_object(json_get(root, "config")) && json_is_array(json_get(root, "vocab"));
}

/* Those of files without "special_tokens", by ID.  More follow as <SPECIAL_20>, ... */
static const char *const default_names[] = {
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
};

static enum status add_specials(struct tokenizer *t, const struct json *listed, int64_t count)
{
    enum { NUM_DEFAULT = sizeof default_names / sizeof *default_names };
    char filler[32];
    int64_t id = 0;
    bool is_default = !listed || json_is_null(listed);
    for (; is_default && id < count && id < NUM_DEFAULT; id++)
        special_tokens_add(&t->special_tokens, default_names[id], (int32_t)id);
    for (const struct json *v = json_first(listed); v; v = json_next(v), id++) {
        int64_t rank;
        const char *name;
        TRY_PREFIX(json_get_int(v, "rank", 0, count - 1, &rank), "%s: special_tokens", t->path);
        TRY_PREFIX(json_get_string(v, "token_str", &name), "%s: special_tokens", t->path);
        if (rank != id)
            FAIL(DATA, "%s: special_tokens: \"%s\" has rank %lld at position %lld", t->path, name,
                 (long long)rank, (long long)id);
        special_tokens_add(&t->special_tokens, name, (int32_t)id);
    }
    for (; id < count; id++) {
        snprintf(filler, sizeof filler, "<SPECIAL_%d>", (int)id);
        special_tokens_add(&t->special_tokens, filler, (int32_t)id);
    }
    t->bos = special_tokens_find(&t->special_tokens, "<s>");
    t->eos = special_tokens_find(&t->special_tokens, "</s>");
    return STATUS_OK;
}

static enum status add_token(struct tokenizer *t, const struct json *v, int64_t rank,
                             int64_t num_specials)
{
    unsigned char bytes[1024];
    const char *encoded;
    int64_t own;
    TRY_PREFIX(json_get_int(v, "rank", 0, VOCABULARY_MAX_ID, &own), "%s: vocab", t->path);
    TRY_PREFIX(json_get_string(v, "token_bytes", &encoded), "%s: vocab", t->path);
    if (own != rank)
        FAIL(DATA, "%s: vocab: token %lld has rank %lld", t->path, (long long)rank, (long long)own);
    int len = base64_decode(encoded, strlen(encoded), bytes, sizeof bytes);
    if (len <= 0)
        FAIL(DATA, "%s: vocab: token_bytes of token %lld are not valid base64", t->path,
             (long long)rank);
    int32_t id = (int32_t)(rank + num_specials);
    TRY_PREFIX(vocabulary_add(&t->vocabulary, bytes, (size_t)len, id), "%s: vocab", t->path);
    return STATUS_OK;
}

static enum status read_config(const struct json *config, const char **pattern, int64_t *size,
                               int64_t *num_specials)
{
    TRY(json_get_string(config, "pattern", pattern));
    TRY(json_get_int(config, "default_vocab_size", 1, VOCABULARY_MAX_ID, size));
    return json_get_int(config, "default_num_special_tokens", 3, *size - 1, num_specials);
}

enum status tekken_read(struct tokenizer *t, const struct json *root)
{
    const struct json *config = json_get(root, "config");
    const char *pattern;
    int64_t size, num_specials, rank = 0;
    TRY_PREFIX(read_config(config, &pattern, &size, &num_specials), "%s: config", t->path);
    TRY(add_specials(t, json_get(root, "special_tokens"), num_specials));
    /* files have more tokens than the model uses */
    for (const struct json *v = json_first(json_get(root, "vocab"));
         v && rank < size - num_specials; v = json_next(v), rank++)
        TRY(add_token(t, v, rank, num_specials));
    if (rank < size - num_specials)
        FAIL(DATA, "%s: vocab: %lld tokens; config.default_vocab_size requires %lld", t->path,
             (long long)rank, (long long)(size - num_specials));
    TRY_PREFIX(vocabulary_finish(&t->vocabulary), "%s", t->path);
    vocabulary_add_all_splits(&t->vocabulary);
    t->pattern_name = heap_strdup(pattern);
    t->pattern = t->pattern_name;
    t->vocab_size = (int32_t)size;
    t->format = FORMAT_TEKKEN;
    t->file_name = "tekken.json";
    t->ignore_merges = true;
    return tiktoken_set_pattern(t);
}
