// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.h"

#include "base/file.h"
#include "hub/hub.h"
#include "tokenizer/kinds.h"
#include "tokenizer/sentence.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 512 << 20, BYTES_BOS = 256, BYTES_EOS, BYTES_SIZE = BYTES_BOS + SPECIALS_OWN };

void token_list_reserve(struct token_list *l, size_t more)
{
    if (l->count + more <= l->capacity) return;
    size_t grown = l->capacity + l->capacity / 2 + 64;
    l->capacity = l->count + more > grown ? l->count + more : grown;
    l->ids = heap_grow(l->ids, l->capacity, sizeof *l->ids);
}

void token_list_release(struct token_list *l)
{
    free(l->ids);
    *l = (struct token_list){0};
}

/* One token a byte; its file is the tokenizer.json that means the same. */
static void make_bytes(struct tokenizer *t)
{
    for (int i = 0; i < 256; i++) {
        unsigned char byte = (unsigned char)i;
        BUG_IF(vocabulary_add(&t->vocabulary, &byte, 1, i));
    }
    BUG_IF(vocabulary_finish(&t->vocabulary));
    specials_add_own(&t->specials, BYTES_BOS);
    t->kind = "bytes";
    t->file_name = "tokenizer.json";
    t->vocab_size = BYTES_SIZE;
    t->bos = BYTES_BOS, t->eos = BYTES_EOS;
    hf_json_write(&t->vocabulary, NULL, 0, &t->specials, &t->file);
}

/* The file a folder holds; heap. */
static char *file_in(const char *path)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model",
                                        "original/tokenizer.model"};
    for (size_t i = 0; file_is_dir(path) && i < 3; i++) {
        char *file = file_join(path, names[i]);
        if (file_exists(file)) return file;
        free(file);
    }
    return heap_string(path, strlen(path));
}

bool tokenizer_is_in(const char *folder)
{
    char *file = file_in(folder);
    bool is = !file_is_dir(file) && file_exists(file);
    free(file);
    return is;
}

static enum status read_file(struct tokenizer *t)
{
    if (file_is_dir(t->path))
        FAIL(MISSING, "%s: the folder has neither tokenizer.json nor tokenizer.model", t->path);
    TRY(file_read(t->path, MOST_BYTES, &t->file));
    if (!t->file.len) FAIL(DATA, "%s: the file is empty", t->path);
    if (t->file.data[strspn(t->file.data, " \t\r\n")] == '{')
        return hf_json_read(t, t->file.data, t->file.len);
    if (t->file.data[0] == '\n') return sentencepiece_read(t, t->file.data, t->file.len);
    return tiktoken_read(t, t->file.data, t->file.len);
}

enum status tokenizer_open(struct tokenizer **out, const char *path,
                           const struct tokenizer_config *config)
{
    struct tokenizer *t = heap(sizeof *t);
    bool bytes = !strcmp(path, "bytes");
    char *local = NULL;
    *t = (struct tokenizer){.bos = -1, .eos = -1, .meta_cuts = config->meta_cuts};
    enum status st = hub_find(path, &local);
    if (!st) t->path = bytes ? heap_string("", 0) : file_in(local);
    free(local);
    if (bytes)
        make_bytes(t);
    else if (!st)
        st = read_file(t);
    *out = st ? NULL : t;
    if (st) tokenizer_close(t);
    return st;
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t) return;
    specials_release(&t->specials);
    added_release(&t->added);
    vocabulary_release(&t->vocabulary);
    steps_release(&t->steps);
    sentence_free(t->sentence);
    text_release(&t->file);
    free(t->path);
    free(t);
}

int32_t tokenizer_vocab_size(const struct tokenizer *t) { return t->vocab_size; }
int32_t tokenizer_bos(const struct tokenizer *t) { return t->bos; }
int32_t tokenizer_eos(const struct tokenizer *t) { return t->eos; }
const char *tokenizer_path(const struct tokenizer *t) { return t->path; }
const char *tokenizer_kind(const struct tokenizer *t) { return t->kind; }

int32_t tokenizer_special(const struct tokenizer *t, const char *text)
{
    int32_t id = specials_id(&t->specials, text);
    bool found = id < 0 && t->sentence; /* in texts, and still a name */
    return found ? vocabulary_find(&t->sentence->kept.strings, text, strlen(text)) : id;
}

const char *tokenizer_special_name(const struct tokenizer *t, int32_t id)
{
    return specials_text(&t->specials, id);
}

static enum status decode(const struct tokenizer *t, const int32_t *ids, size_t count, bool whole,
                          struct text *out)
{
    if (t->sentence) return sentence_decode(t->sentence, ids, count, whole, out);
    for (size_t i = 0; i < count; i++) {
        const struct token_bytes *token = vocabulary_token(&t->vocabulary, ids[i]);
        const char *special = token ? NULL : tokenizer_special_name(t, ids[i]);
        if (token)
            text_add(out, t->vocabulary.bytes + token->at, token->len);
        else if (special)
            text_adds(out, special);
        else
            FAIL(DATA, "there is no token %d; the vocabulary has %d", ids[i], t->vocab_size);
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

static enum status write_beside(const char *folder, const char *name, const struct text *bytes)
{
    char *path = file_join(folder, name);
    enum status st = file_write(path, bytes->data, bytes->len);
    free(path);
    return st;
}

enum status tokenizer_copy(const struct tokenizer *t, const char *folder)
{
    struct text config = {0};
    TRY(write_beside(folder, t->file_name, &t->file));
    if (strcmp(t->kind, SENTENCEPIECE_KIND)) return STATUS_OK;
    sentencepiece_write_config(t, &config);
    enum status st = write_beside(folder, "tokenizer_config.json", &config);
    text_release(&config);
    return st;
}
