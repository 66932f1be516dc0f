/* hf_steps.c -- what tokenizer.json of a byte-level BPE does to a text before it merges. */
// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/kinds.h"
#include "tokenizer/text/regex.h"
#include "tokenizer/text/split.h"
#include "tokenizer/text/unicode.h"

#include <stdlib.h>
#include <string.h>

bool hf_is_nothing(const struct json *v)
{
    if (json_is_string(v)) return !json_string(v)[0];
    if (json_is_number(v)) return json_number(v) == 0;
    if (hf_type_is(v, "Sequence"))
        return !json_first(json_get(v, "normalizers")) && !json_first(json_get(v, "pretokenizers"));
    return !v || (!json_true(v) && !json_first(v));
}

/* The last form wins: each makes of the other's what it makes of the text. */
enum status hf_read_form(struct tokenizer *t, const struct json *v)
{
    if (hf_is_nothing(v)) return STATUS_OK;
    if (hf_type_is(v, "Sequence")) {
        for (v = json_first(json_get(v, "normalizers")); v; v = json_next(v))
            TRY(hf_read_form(t, v));
        return STATUS_OK;
    }
    if (!hf_type_is(v, "NFC") && !hf_type_is(v, "NFD"))
        FAIL(UNSUPPORTED, "%s: normalizer %s of a byte-level BPE; NFC and NFD are known", t->path,
             hf_type_of(v));
    t->form = hf_type_is(v, "NFC") ? FORM_NFC : FORM_NFD;
    return STATUS_OK;
}

static enum status read_behavior(const struct tokenizer *t, const struct json *v,
                                 enum step_behavior *behavior)
{
    static const char *const names[] = {
        [STEP_ISOLATED] = "Isolated",
        [STEP_REMOVED] = "Removed",
        [STEP_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [STEP_MERGED_WITH_NEXT] = "MergedWithNext",
        [STEP_CONTIGUOUS] = "Contiguous",
    };
    const struct json *name = json_get(v, "behavior");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!json_string_is(name, names[i])) continue;
        *behavior = (enum step_behavior)i;
        return STATUS_OK;
    }
    FAIL(UNSUPPORTED, "%s: pre_tokenizer %s with the behavior \"%s\"", t->path, hf_type_of(v),
         json_is_string(name) ? json_string(name) : "");
}

/* Patterns that are split by hand. */
static const struct {
    const char *pattern;
    size_t (*split)(const unsigned char *text, size_t len);
} known[] = {
    {split_llama3_pattern, split_llama3},
    {split_qwen2_pattern, split_qwen2},
    {split_gpt2_pattern, split_gpt2},
};

static enum status use_pattern(struct tokenizer *t, struct step *s, const char *pattern)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(pattern, known[i].pattern)) s->split = known[i].split;
    if (!s->split && regex_compile(&s->regex, pattern))
        FAIL(UNSUPPORTED, "%s: %s", t->path, status_message());
    return STATUS_OK;
}

static enum status read_split(struct tokenizer *t, const struct json *v, struct step *s)
{
    const struct json *regex = json_get(json_get(v, "pattern"), "Regex");
    const struct json *string = json_get(json_get(v, "pattern"), "String");
    s->inverted = json_true(json_get(v, "invert"));
    TRY(read_behavior(t, v, &s->behavior));
    if (json_is_string(regex)) return use_pattern(t, s, json_string(regex));
    if (!json_is_string(string) || !json_string(string)[0])
        FAIL(UNSUPPORTED, "%s: a Split whose pattern is neither Regex nor String", t->path);
    s->string = heap_string(json_string(string), strlen(json_string(string)));
    return STATUS_OK;
}

static enum status read_digits(struct tokenizer *t, const struct json *v, struct step *s)
{
    (void)t;
    s->marks = UNICODE_DIGIT;
    s->behavior = json_true(json_get(v, "individual_digits")) ? STEP_ISOLATED : STEP_CONTIGUOUS;
    return STATUS_OK;
}

static enum status read_punctuation(struct tokenizer *t, const struct json *v, struct step *s)
{
    s->marks = UNICODE_PUNCTUATION;
    return json_get(v, "behavior") ? read_behavior(t, v, &s->behavior) : STATUS_OK;
}

static enum status read_byte_level(struct tokenizer *t, const struct json *v, struct step *s)
{
    const struct json *prefix = json_get(v, "add_prefix_space");
    const struct json *regex = json_get(v, "use_regex");
    if (t->spells_bytes) FAIL(UNSUPPORTED, "%s: two pre_tokenizers ByteLevel", t->path);
    t->spells_bytes = true;
    s->adds_space = !prefix || json_true(prefix);
    if (!regex || json_true(regex)) s->split = split_gpt2;
    return STATUS_OK;
}

static enum status read_steps(struct tokenizer *t, const struct json *v)
{
    static const struct {
        const char *type;
        enum status (*read)(struct tokenizer *t, const struct json *v, struct step *s);
    } kinds[] = {{"Split", read_split},
                 {"Digits", read_digits},
                 {"Punctuation", read_punctuation},
                 {"ByteLevel", read_byte_level}};
    if (hf_type_is(v, "Sequence")) {
        for (v = json_first(json_get(v, "pretokenizers")); v; v = json_next(v))
            TRY(read_steps(t, v));
        return STATUS_OK;
    }
    if (t->steps.count == STEPS_MOST)
        FAIL(UNSUPPORTED, "%s: more than %d pre_tokenizers", t->path, STEPS_MOST);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!hf_type_is(v, kinds[i].type)) continue;
        struct step *s = &t->steps.all[t->steps.count++];
        s->spelt = t->spells_bytes;
        TRY(kinds[i].read(t, v, s));
        bool idle = !s->split && !s->regex && !s->string && !s->marks && !s->adds_space;
        t->steps.count -= idle;
        return STATUS_OK;
    }
    FAIL(UNSUPPORTED,
         "%s: pre_tokenizer %s of a byte-level BPE; Split, Digits, Punctuation, ByteLevel and a "
         "Sequence of them are known",
         t->path, hf_type_of(v));
}

enum status hf_read_steps(struct tokenizer *t, const struct json *pre)
{
    const struct step *first = t->steps.all;
    TRY(read_steps(t, pre));
    if (!t->spells_bytes)
        FAIL(UNSUPPORTED, "%s: no pre_tokenizer ByteLevel; only byte-level BPE is known", t->path);
    bool whole =
        first->split && !first->adds_space &&
        (first->behavior == STEP_ISOLATED || (first->behavior == STEP_REMOVED && first->inverted));
    if (t->steps.count > 1 || !whole) return STATUS_OK;
    t->split = first->split; /* all there is to do: the quick way */
    t->steps.count = 0;
    return STATUS_OK;
}
