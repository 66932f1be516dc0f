// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/kinds.h"
#include "tokenizer/regex.h"
#include "tokenizer/split.h"
#include "tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

/* GPT-2's alphabet: printable bytes stand for themselves, the others for U+0100 and on. */
static bool is_itself(int byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

static uint32_t letter_of(int byte)
{
    uint32_t next = 0x100;
    if (is_itself(byte)) return (uint32_t)byte;
    for (int i = 0; i < byte; i++) next += !is_itself(i);
    return next;
}

/* Code points below 0x144 to bytes; -1: not of the alphabet. */
struct alphabet {
    int byte_of[0x144];
};

static struct alphabet make_alphabet(void)
{
    struct alphabet a;
    for (int i = 0; i < 0x144; i++) a.byte_of[i] = -1;
    for (int byte = 0; byte < 256; byte++) a.byte_of[letter_of(byte)] = byte;
    return a;
}

/* A token as tokenizer.json spells it, to bytes; false: a letter is not of the alphabet. */
static bool spell(const struct alphabet *a, const char *text, size_t len, struct text *bytes)
{
    text_clear(bytes);
    for (size_t at = 0; at < len;) {
        int size;
        uint32_t code = unicode_decode((const unsigned char *)text + at, len - at, &size);
        if (code >= 0x144 || a->byte_of[code] < 0) return false;
        char byte = (char)a->byte_of[code];
        text_add(bytes, &byte, 1);
        at += (size_t)size;
    }
    return bytes->len > 0;
}

/* Is this id that of an added token?  They may be listed in the vocabulary, too: in plain text. */
static enum status check_added(const struct tokenizer *t, const char *token, int64_t id, bool *is)
{
    const char *added = specials_text(&t->specials, (int32_t)id);
    *is = added != NULL;
    if (added && strcmp(added, token))
        FAIL(DATA, "%s: the added token \"%s\" and \"%s\" have the same id", t->path, added, token);
    return STATUS_OK;
}

static enum status read_vocabulary(struct tokenizer *t, const struct json *vocab,
                                   const struct alphabet *a)
{
    struct text bytes = {0};
    enum status st = STATUS_OK;
    if (!json_is_object(vocab)) FAIL(DATA, "%s: model.vocab is not an object", t->path);
    for (const struct json *v = json_first(vocab); v; v = json_next(v)) {
        int64_t id;
        bool added;
        if (!json_as_int(v, 0, VOCABULARY_MOST_ID, &id))
            FAIL_OUT(DATA, "%s: the id of \"%s\" is no whole number between 0 and %d", t->path,
                     json_key(v), VOCABULARY_MOST_ID);
        TRY_OUT(check_added(t, json_key(v), id, &added));
        if (added) continue;
        if (!spell(a, json_key(v), strlen(json_key(v)), &bytes))
            FAIL_OUT(UNSUPPORTED, "%s: the token \"%s\" is not spelt in the byte-level alphabet",
                     t->path, json_key(v));
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
    struct alphabet alphabet = make_alphabet();
    if (!spell(&alphabet, text, len, out))
        FAIL(DATA, "%s: not spelt in the byte-level alphabet", t->path);
    return STATUS_OK;
}

static bool type_is(const struct json *v, const char *type)
{
    const struct json *t = json_get(v, "type");
    return json_is_string(t) && !strcmp(json_string(t), type);
}

static enum status use_pattern(struct tokenizer *t, const char *pattern)
{
    if (!strcmp(pattern, split_llama3_pattern))
        t->split = split_llama3;
    else if (!strcmp(pattern, split_gpt2_pattern))
        t->split = split_gpt2;
    else
        TRY(regex_compile(&t->regex, pattern));
    return STATUS_OK;
}

static bool splits(const struct tokenizer *t) { return t->split || t->regex; }

static enum status read_byte_level(struct tokenizer *t, const struct json *step)
{
    const struct json *prefix = json_get(step, "add_prefix_space");
    const struct json *regex = json_get(step, "use_regex");
    if (!prefix || json_true(prefix))
        FAIL(UNSUPPORTED, "%s: pre_tokenizer ByteLevel with add_prefix_space", t->path);
    if (regex && !json_true(regex)) return STATUS_OK;
    if (splits(t)) FAIL(UNSUPPORTED, "%s: a Split, and ByteLevel with use_regex, too", t->path);
    t->split = split_gpt2;
    return STATUS_OK;
}

static enum status read_split(struct tokenizer *t, const struct json *step)
{
    const struct json *behavior = json_get(step, "behavior"), *type = json_get(step, "type");
    const struct json *pattern = json_get(json_get(step, "pattern"), "Regex");
    if (!type_is(step, "Split") || !json_is_string(behavior) ||
        strcmp(json_string(behavior), "Isolated") || json_true(json_get(step, "invert")))
        FAIL(UNSUPPORTED, "%s: pre_tokenizer %s; Split (Isolated) and ByteLevel are known", t->path,
             json_is_string(type) ? json_string(type) : "without a type");
    if (splits(t)) FAIL(UNSUPPORTED, "%s: more than one Split", t->path);
    if (!json_is_string(pattern))
        FAIL(UNSUPPORTED, "%s: a Split whose pattern is no Regex", t->path);
    if (use_pattern(t, json_string(pattern)))
        FAIL(UNSUPPORTED, "%s: %s", t->path, status_message());
    return STATUS_OK;
}

static enum status read_steps(struct tokenizer *t, const struct json *pre)
{
    const struct json *list = json_get(pre, "pretokenizers");
    bool byte_level = false;
    if (type_is(pre, "ByteLevel")) return read_byte_level(t, pre);
    if (!type_is(pre, "Sequence"))
        FAIL(UNSUPPORTED, "%s: no byte-level pre_tokenizer; only byte-level BPE is known", t->path);
    for (const struct json *step = json_first(list); step; step = json_next(step)) {
        if (byte_level) FAIL(UNSUPPORTED, "%s: a pre_tokenizer after ByteLevel", t->path);
        byte_level = type_is(step, "ByteLevel");
        if (byte_level)
            TRY(read_byte_level(t, step));
        else
            TRY(read_split(t, step));
    }
    if (!byte_level) FAIL(UNSUPPORTED, "%s: no ByteLevel pre_tokenizer", t->path);
    return STATUS_OK;
}

/* Absent, null, false, 0, "" and an empty list ask for nothing. */
static bool is_nothing(const struct json *v)
{
    if (json_is_string(v)) return !json_string(v)[0];
    if (json_is_number(v)) return json_number(v) == 0;
    return !v || (!json_true(v) && !json_first(v));
}

/* Where an added token is looked for in texts, and how. */
static enum status read_found(struct tokenizer *t, const struct json *root, const struct json *v,
                              const char *content, int32_t id)
{
    const struct json *special = json_get(v, "special");
    struct added_token token = {id, !special || json_true(special),
                                json_true(json_get(v, "lstrip")), json_true(json_get(v, "rstrip"))};
    bool normalized = json_true(json_get(v, "normalized"));
    if (!token.special && json_true(json_get(v, "single_word")))
        FAIL(UNSUPPORTED, "%s: the added token \"%s\" is a single_word", t->path, content);
    if (normalized && !is_nothing(json_get(root, "normalizer"))) {
        if (token.special) return STATUS_OK;
        FAIL(UNSUPPORTED,
             "%s: the added token \"%s\" is normalized, not special, beside a "
             "normalizer",
             t->path, content);
    }
    if (added_put(&t->added, normalized, content, token))
        FAIL(DATA, "%s: the added token \"%s\": %s", t->path, content, status_message());
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
        if (!is_nothing(json_get(model, unknown[i])))
            FAIL(UNSUPPORTED, "%s: a BPE with %s; only plain BPE is known", t->path, unknown[i]);
    if (!hf_is_sentence(root) && !is_nothing(json_get(root, "normalizer")))
        FAIL(UNSUPPORTED, "%s: a normalizer; byte-level BPE has none", t->path);
    return STATUS_OK;
}

static enum status read_model(struct tokenizer *t, const struct json *root)
{
    const struct json *model = json_get(root, "model");
    struct alphabet alphabet = make_alphabet();
    TRY(check_plain(t, root));
    TRY(read_added(t, root));
    if (hf_is_sentence(root)) {
        TRY(hf_sentence_read(t, root));
        find_ends(t, root);
        return STATUS_OK;
    }
    t->kind = "byte-level BPE";
    TRY(read_steps(t, json_get(root, "pre_tokenizer")));
    TRY(read_vocabulary(t, json_get(model, "vocab"), &alphabet));
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

void hf_add_letters(struct text *t, const unsigned char *bytes, size_t len, bool quoted)
{
    for (size_t i = 0; i < len; i++) {
        uint32_t code = letter_of(bytes[i]);
        char utf8[2] = {(char)(0xC0 | code >> 6), (char)(0x80 | (code & 63))};
        if (quoted && code < 0x80 && strchr("\"\\", (int)code))
            text_addf(t, "\\%c", (int)code);
        else if (code < 0x80)
            text_addf(t, "%c", (int)code);
        else
            text_add(t, utf8, 2);
    }
}

static void add_token(struct text *t, const struct vocabulary *v, int32_t id)
{
    const struct token_bytes *token = vocabulary_token(v, id);
    hf_add_letters(t, v->bytes + token->at, token->len, true);
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
