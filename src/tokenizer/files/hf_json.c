// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/kinds.h"
#include "tokenizer/text/letters.h"
#include "tokenizer/text/split.h"

#include <stdlib.h>
#include <string.h>

/* Is this id only that of an added token, so that no merge makes it?  The vocabulary may list them,
 * too, special ones in plain text; others may be tokens as well. */
static enum status check_added(const struct tokenizer *t, const char *token, int64_t id, bool *is)
{
    const char *added = specials_text(&t->specials, (int32_t)id);
    *is = false;
    if (!added) return STATUS_OK;
    if (strcmp(added, token))
        FAIL(DATA, "%s: the added token \"%s\" and \"%s\" have the same id", t->path, added, token);
    for (int32_t i = 0; i < t->added.count; i++)
        if (t->added.tokens[i].id == id) *is = t->added.tokens[i].special;
    return STATUS_OK;
}

static enum status read_vocabulary(struct tokenizer *t, const struct json *vocab)
{
    struct text bytes = {0};
    struct letters letters;
    enum status st = STATUS_OK;
    if (!json_is_object(vocab)) FAIL(DATA, "%s: model.vocab is not an object", t->path);
    letters_init(&letters);
    for (const struct json *v = json_first(vocab); v; v = json_next(v)) {
        int64_t id;
        bool added;
        if (!json_as_int(v, 0, VOCABULARY_MOST_ID, &id))
            FAIL_OUT(DATA, "%s: the id of \"%s\" is no whole number between 0 and %d", t->path,
                     json_key(v), VOCABULARY_MOST_ID);
        TRY_OUT(check_added(t, json_key(v), id, &added));
        if (added) continue;
        if (!letters_read(&letters, json_key(v), strlen(json_key(v)), &bytes)) {
            if (specials_text(&t->specials, (int32_t)id)) continue;
            FAIL_OUT(UNSUPPORTED, "%s: the token \"%s\" is not spelt in the byte-level alphabet",
                     t->path, json_key(v));
        }
        if (vocabulary_add(&t->vocabulary, bytes.data, bytes.len, (int32_t)id))
            FAIL_OUT(DATA, "%s: %s", t->path, status_message());
    }
    if (vocabulary_finish(&t->vocabulary)) FAIL_OUT(DATA, "%s: %s", t->path, status_message());
out:
    text_release(&bytes);
    return st;
}

/* "a b", or ["a", "b"]. */
static bool merge_parts(const struct json *v, const char *part[2], size_t len[2])
{
    if (json_is_string(v)) {
        part[0] = json_string(v);
        const char *space = strchr(part[0], ' ');
        if (!space || strchr(space + 1, ' ')) return false;
        len[0] = (size_t)(space - part[0]);
        part[1] = space + 1;
        len[1] = strlen(part[1]);
        return true;
    }
    const struct json *first = json_first(v), *second = first ? json_next(first) : NULL;
    if (!json_is_array(v) || !json_is_string(first) || !json_is_string(second) || json_next(second))
        return false;
    part[0] = json_string(first), part[1] = json_string(second);
    len[0] = strlen(part[0]), len[1] = strlen(part[1]);
    return true;
}

enum status hf_read_merges(struct tokenizer *t, const struct json *merges, spell_half *spell_it)
{
    struct text left = {0}, right = {0};
    int32_t rank = 0;
    enum status st = STATUS_OK;
    if (!json_is_array(merges)) FAIL(DATA, "%s: model.merges is not an array", t->path);
    for (const struct json *v = json_first(merges); v; v = json_next(v), rank++) {
        const char *part[2];
        size_t len[2];
        if (!merge_parts(v, part, len) || spell_it(t, part[0], len[0], &left) ||
            spell_it(t, part[1], len[1], &right))
            FAIL_OUT(DATA, "%s: merge %d is no pair of tokens", t->path, rank);
        int32_t x = vocabulary_find(&t->vocabulary, left.data, left.len);
        int32_t y = vocabulary_find(&t->vocabulary, right.data, right.len);
        text_add(&left, right.data, right.len);
        int32_t joined = vocabulary_find(&t->vocabulary, left.data, left.len);
        if (x < 0 || y < 0 || joined < 0)
            FAIL_OUT(DATA, "%s: merge %d is of tokens that are not in the vocabulary", t->path,
                     rank);
        vocabulary_add_pair(&t->vocabulary, x, y, rank, joined);
    }
out:
    text_release(&left), text_release(&right);
    return st;
}

static enum status spell_bytes(const struct tokenizer *t, const char *text, size_t len,
                               struct text *out)
{
    struct letters letters;
    letters_init(&letters);
    if (!letters_read(&letters, text, len, out))
        FAIL(DATA, "%s: not spelt in the byte-level alphabet", t->path);
    return STATUS_OK;
}

/* Where an added token is looked for in texts, and how. */
static enum status read_found(struct tokenizer *t, const struct json *root, const struct json *v,
                              const char *content, int32_t id)
{
    const struct json *special = json_get(v, "special");
    struct added_token token = {id, !special || json_true(special),
                                json_true(json_get(v, "lstrip")), json_true(json_get(v, "rstrip")),
                                json_true(json_get(v, "single_word"))};
    bool normalized = json_true(json_get(v, "normalized"));
    struct text normal = {0};
    if (normalized && hf_is_sentence(root) && !hf_is_nothing(json_get(root, "normalizer"))) {
        if (token.special) return STATUS_OK;
        FAIL(UNSUPPORTED,
             "%s: the added token \"%s\" is normalized, not special, beside a "
             "normalizer",
             t->path, content);
    }
    bool changed = normalized && unicode_normalize(t->form, (const unsigned char *)content,
                                                   strlen(content), &normal);
    enum status st = added_put(&t->added, normalized, changed ? normal.data : content, token);
    text_release(&normal);
    if (st) FAIL(DATA, "%s: the added token \"%s\": %s", t->path, content, status_message());
    return STATUS_OK;
}

static enum status read_added(struct tokenizer *t, const struct json *root)
{
    const struct json *added = json_get(root, "added_tokens");
    for (const struct json *v = json_first(added); v; v = json_next(v)) {
        const char *content;
        int64_t id;
        if (json_get_string(v, "content", &content) ||
            json_get_int(v, "id", 0, VOCABULARY_MOST_ID, &id))
            FAIL(DATA, "%s: an added token: %s", t->path, status_message());
        specials_add(&t->specials, content, (int32_t)id);
        TRY(read_found(t, root, v, content, (int32_t)id));
        if (id >= t->vocab_size) t->vocab_size = (int32_t)id + 1;
    }
    specials_sort(&t->specials);
    for (size_t i = 1; i < t->specials.count; i++)
        if (t->specials.all[i].id == t->specials.all[i - 1].id)
            FAIL(DATA, "%s: two added tokens have the id %d", t->path, t->specials.all[i].id);
    return STATUS_OK;
}

/* The special token the template begins with; `last`: ends with. */
static const char *template_end(const struct json *post, bool last)
{
    const struct json *single = json_get(post, "single");
    for (const struct json *p = json_first(json_get(post, "processors")); p && !single;
         p = json_next(p))
        single = json_get(p, "single");
    const struct json *piece = json_first(single);
    for (const struct json *p = piece; p && last; p = json_next(p)) piece = p;
    const struct json *id = json_get(json_get(piece, "SpecialToken"), "id");
    return json_is_string(id) ? json_string(id) : NULL;
}

static void find_ends(struct tokenizer *t, const struct json *root)
{
    static const char *const begins[] = {"<|begin_of_text|>", "<s>", "<|startoftext|>"};
    static const char *const ends[] = {"<|end_of_text|>", "</s>", "<|endoftext|>"};
    const char *bos = template_end(json_get(root, "post_processor"), false);
    const char *eos = template_end(json_get(root, "post_processor"), true);
    if (bos) t->bos = specials_id(&t->specials, bos);
    if (eos) t->eos = specials_id(&t->specials, eos);
    for (size_t i = 0; i < 3; i++) {
        if (t->bos < 0) t->bos = specials_id(&t->specials, begins[i]);
        if (t->eos < 0) t->eos = specials_id(&t->specials, ends[i]);
    }
}

static enum status check_plain(const struct tokenizer *t, const struct json *root)
{
    static const char *const unknown[] = {"dropout", "continuing_subword_prefix",
                                          "end_of_word_suffix"};
    const struct json *model = json_get(root, "model"), *type = json_get(model, "type");
    if (json_is_string(type) && strcmp(json_string(type), "BPE"))
        FAIL(UNSUPPORTED, "%s: a %s model; only BPE is known", t->path, json_string(type));
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        if (!hf_is_nothing(json_get(model, unknown[i])))
            FAIL(UNSUPPORTED, "%s: a BPE with %s; only plain BPE is known", t->path, unknown[i]);
    return STATUS_OK;
}

static enum status read_model(struct tokenizer *t, const struct json *root)
{
    const struct json *model = json_get(root, "model");
    TRY(check_plain(t, root));
    if (!hf_is_sentence(root)) TRY(hf_read_form(t, json_get(root, "normalizer")));
    TRY(read_added(t, root));
    if (hf_is_sentence(root)) {
        TRY(hf_sentence_read(t, root));
        find_ends(t, root);
        return STATUS_OK;
    }
    t->kind = "byte-level BPE";
    TRY(hf_read_steps(t, json_get(root, "pre_tokenizer")));
    TRY(read_vocabulary(t, json_get(model, "vocab")));
    TRY(hf_read_merges(t, json_get(model, "merges"), spell_bytes));
    t->whole_pieces = json_true(json_get(model, "ignore_merges"));
    if (t->vocabulary.most > t->vocab_size) t->vocab_size = t->vocabulary.most;
    find_ends(t, root);
    return STATUS_OK;
}

enum status hf_json_read(struct tokenizer *t, const char *bytes, size_t len)
{
    struct json *root;
    TRY(json_parse(bytes, len, t->path, &root));
    enum status st = read_model(t, root);
    json_free(root);
    t->file_name = "tokenizer.json";
    return st;
}

static void add_token(struct text *t, const struct vocabulary *v, int32_t id)
{
    const struct token_bytes *token = vocabulary_token(v, id);
    letters_add(t, v->bytes + token->at, token->len, true);
}

void hf_json_write(const struct vocabulary *v, const struct merge *merges, size_t num_merges,
                   const struct specials *specials, struct text *t)
{
    text_adds(t, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
                 "  \"added_tokens\": [");
    for (size_t i = 0; i < specials->count; i++)
        text_addf(t,
                  "%s\n    {\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": "
                  "false, \"rstrip\": false, \"normalized\": false, \"special\": true}",
                  i ? "," : "", specials->all[i].id, specials->all[i].text);
    text_adds(t, "\n  ],\n  \"normalizer\": null,\n  \"pre_tokenizer\": {\"type\": \"Sequence\", "
                 "\"pretokenizers\": [\n    {\"type\": \"Split\", \"pattern\": {\"Regex\": ");
    json_quote(t, split_llama3_pattern);
    text_adds(t,
              "}, \"behavior\": \"Isolated\", \"invert\": false},\n    {\"type\": \"ByteLevel\", "
              "\"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": false}]},\n"
              "  \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
              "[{\"SpecialToken\": {\"id\": \"<|begin_of_text|>\", \"type_id\": 0}}, "
              "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": "
              "[{\"SpecialToken\": {\"id\": \"<|begin_of_text|>\", \"type_id\": 0}}, "
              "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, "
              "{\"SpecialToken\": {\"id\": \"<|begin_of_text|>\", \"type_id\": 1}}, "
              "{\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}], \"special_tokens\": "
              "{\"<|begin_of_text|>\": {\"id\": \"<|begin_of_text|>\", \"ids\": [");
    text_addf(t, "%d], \"tokens\": [\"<|begin_of_text|>\"]}}},\n", specials->all[0].id);
    text_adds(t, "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                 "\"trim_offsets\": true, \"use_regex\": true},\n"
                 "  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
                 "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, "
                 "\"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": false,\n"
                 "    \"vocab\": {");
    for (int32_t i = 0; i < v->count; i++) {
        text_adds(t, i ? ",\n      \"" : "\n      \"");
        add_token(t, v, v->tokens[i].id);
        text_addf(t, "\": %d", v->tokens[i].id);
    }
    text_adds(t, "\n    },\n    \"merges\": [");
    for (size_t i = 0; i < num_merges; i++) {
        text_adds(t, i ? ",\n      [\"" : "\n      [\"");
        add_token(t, v, merges[i].left);
        text_adds(t, "\", \"");
        add_token(t, v, merges[i].right);
        text_adds(t, "\"]");
    }
    text_adds(t, "\n    ]\n  }\n}\n");
}
