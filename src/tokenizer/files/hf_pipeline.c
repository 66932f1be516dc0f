// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/files/hf_pipeline.h"

#include "tokenizer/files/hf_node.h"
#include "tokenizer/files/hf_normalizer.h"
#include "tokenizer/text/split.h"
#include "tokenizer/text/unicode.h"
#include "tokenizer/tokenizer_impl.h"

#include <stdlib.h>

enum status hf_pipeline_read_normalizer(struct tokenizer *t, const struct json *v)
{
    struct normalizer *n = &t->normalizer;
    TRY(hf_normalizer_read(n, v, t->path));
    bool is_form = n->count > 0;
    for (size_t i = 0; i < n->count; i++)
        is_form &= n->steps[i].form == FORM_NFC || n->steps[i].form == FORM_NFD;
    if (!is_form) return STATUS_OK;
    /* the last form wins: normalizing to NFC gives the same result after NFD, and vice versa */
    t->normal_form = n->steps[n->count - 1].form;
    normalizer_release(n);
    return STATUS_OK;
}

static enum status read_behavior(const struct tokenizer *t, const struct json *v,
                                 enum split_behavior *behavior)
{
    static const char *const names[] = {
        [SPLIT_ISOLATED] = "Isolated",
        [SPLIT_REMOVED] = "Removed",
        [SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
        [SPLIT_CONTIGUOUS] = "Contiguous",
    };
    const struct json *name = json_get(v, "behavior");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!json_string_is(name, names[i])) continue;
        *behavior = (enum split_behavior)i;
        return STATUS_OK;
    }
    FAIL(UNSUPPORTED, "%s: pre_tokenizer %s: behavior \"%s\" is not supported", t->path,
         hf_node_type(v), json_is_string(name) ? json_string(name) : "");
}

static enum status read_split(struct tokenizer *t, const struct json *v, struct split_rule *rule)
{
    const struct json *regex = json_get(json_get(v, "pattern"), "Regex");
    const struct json *string = json_get(json_get(v, "pattern"), "String");
    rule->invert = json_true(json_get(v, "invert"));
    TRY(read_behavior(t, v, &rule->behavior));
    if (json_is_string(regex)) {
        TRY_PREFIX(pre_tokenizer_set_pattern(rule, json_string(regex)), "%s", t->path);
        return STATUS_OK;
    }
    if (!json_is_string(string) || !json_string(string)[0])
        FAIL(UNSUPPORTED,
             "%s: pre_tokenizer Split: the pattern must be a Regex or a String that is not empty",
             t->path);
    rule->string = heap_strdup(json_string(string));
    return STATUS_OK;
}

static enum status read_digits(struct tokenizer *t, const struct json *v, struct split_rule *rule)
{
    (void)t;
    rule->marks = UNICODE_DIGIT;
    rule->behavior =
        json_true(json_get(v, "individual_digits")) ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS;
    return STATUS_OK;
}

static enum status read_punctuation(struct tokenizer *t, const struct json *v,
                                    struct split_rule *rule)
{
    rule->marks = UNICODE_PUNCTUATION;
    return json_get(v, "behavior") ? read_behavior(t, v, &rule->behavior) : STATUS_OK;
}

static enum status read_byte_level(struct tokenizer *t, const struct json *v,
                                   struct split_rule *rule)
{
    const struct json *prefix = json_get(v, "add_prefix_space");
    const struct json *regex = json_get(v, "use_regex");
    if (t->is_byte_level)
        FAIL(UNSUPPORTED, "%s: only one ByteLevel pre_tokenizer is supported", t->path);
    t->is_byte_level = true;
    rule->adds_prefix_space = !prefix || json_true(prefix);
    if (!regex || json_true(regex)) rule->split = split_gpt2;
    return STATUS_OK;
}

/* Runs of white space separate pieces. */
static enum status read_whitespace_split(struct tokenizer *t, const struct json *v,
                                         struct split_rule *rule)
{
    (void)t, (void)v;
    rule->behavior = SPLIT_REMOVED;
    return pre_tokenizer_set_pattern(rule, "\\s+");
}

/* The same, and runs of word characters and of others are pieces. */
static enum status read_whitespace(struct tokenizer *t, const struct json *v,
                                   struct split_rule *rule)
{
    struct pre_tokenizer *p = &t->pre_tokenizer;
    if (p->count == PRE_TOKENIZER_MAX_RULES)
        FAIL(UNSUPPORTED, "%s: more than %d pre_tokenizers are not supported", t->path,
             PRE_TOKENIZER_MAX_RULES);
    p->rules[p->count++] = (struct split_rule){
        .marks = UNICODE_WORD, .behavior = SPLIT_CONTIGUOUS, .in_byte_alphabet = t->is_byte_level};
    return read_whitespace_split(t, v, rule);
}

static enum status read_metaspace(struct tokenizer *t, const struct json *v)
{
    const struct json *scheme = json_get(v, "prepend_scheme"), *split = json_get(v, "split");
    const struct json *prefix = json_get(v, "add_prefix_space");
    bool never = json_string_is(scheme, "never") ||
                 (!json_is_string(scheme) && json_is_bool(prefix) && !json_true(prefix));
    bool first = json_string_is(scheme, "first");
    if (!json_string_is(json_get(v, "replacement"), "\xE2\x96\x81") ||
        (json_is_string(scheme) && !never && !first && !json_string_is(scheme, "always")))
        FAIL(UNSUPPORTED, "%s: Metaspace: this replacement or prepend_scheme is not supported",
             t->path);
    if (first && t->pre_tokenizer.count)
        FAIL(UNSUPPORTED,
             "%s: Metaspace after other pre_tokenizers: prepend_scheme \"first\" is not supported",
             t->path);
    t->metaspace = (struct metaspace){.is_used = true,
                                      .splits = !split || json_true(split),
                                      .prepends = !never,
                                      .only_first = first};
    return STATUS_OK;
}

static enum status read_rules(struct tokenizer *t, const struct json *v)
{
    static const struct {
        const char *type;
        enum status (*read)(struct tokenizer *t, const struct json *v, struct split_rule *rule);
    } kinds[] = {{"Split", read_split},
                 {"Digits", read_digits},
                 {"Punctuation", read_punctuation},
                 {"ByteLevel", read_byte_level},
                 {"WhitespaceSplit", read_whitespace_split},
                 {"Whitespace", read_whitespace}};
    if (hf_node_type_is(v, "Sequence")) {
        for (v = json_first(json_get(v, "pretokenizers")); v; v = json_next(v))
            TRY(read_rules(t, v));
        return STATUS_OK;
    }
    if (t->metaspace.is_used)
        FAIL(UNSUPPORTED, "%s: pre_tokenizer %s after Metaspace is not supported", t->path,
             hf_node_type(v));
    if (t->char_bpe && hf_node_type_is(v, "Metaspace")) return read_metaspace(t, v);
    if (t->pre_tokenizer.count == PRE_TOKENIZER_MAX_RULES)
        FAIL(UNSUPPORTED, "%s: more than %d pre_tokenizers are not supported", t->path,
             PRE_TOKENIZER_MAX_RULES);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!hf_node_type_is(v, kinds[i].type)) continue;
        struct split_rule *rule = &t->pre_tokenizer.rules[t->pre_tokenizer.count++];
        rule->in_byte_alphabet = t->is_byte_level;
        size_t count = t->pre_tokenizer.count;
        TRY(kinds[i].read(t, v, rule));
        bool is_noop = count == t->pre_tokenizer.count && !rule->split && !rule->regex &&
                       !rule->string && !rule->marks && !rule->adds_prefix_space;
        t->pre_tokenizer.count -= is_noop;
        return STATUS_OK;
    }
    FAIL(UNSUPPORTED,
         "%s: pre_tokenizer %s is not supported with %s; expected Split, Digits, Punctuation, "
         "WhitespaceSplit, Whitespace, %s or a Sequence of them",
         t->path, hf_node_type(v), t->char_bpe ? "this model" : "byte-level BPE",
         t->char_bpe ? "Metaspace" : "ByteLevel");
}

enum status hf_pipeline_read_pre_tokenizer(struct tokenizer *t, const struct json *pre)
{
    const struct split_rule *first = t->pre_tokenizer.rules;
    if (!t->char_bpe || !hf_node_is_noop(pre)) TRY(read_rules(t, pre));
    if (t->char_bpe && t->is_byte_level)
        FAIL(UNSUPPORTED, "%s: pre_tokenizer ByteLevel is only supported with byte-level BPE",
             t->path);
    if (t->char_bpe) return STATUS_OK;
    if (!t->is_byte_level)
        FAIL(UNSUPPORTED,
             "%s: a ByteLevel pre_tokenizer is required: only byte-level BPE is supported",
             t->path);
    bool is_plain_splitter =
        first->split && !first->adds_prefix_space &&
        (first->behavior == SPLIT_ISOLATED || (first->behavior == SPLIT_REMOVED && first->invert));
    if (t->pre_tokenizer.count > 1 || !is_plain_splitter) return STATUS_OK;
    t->split = first->split; /* the splitter is all there is: call it directly */
    t->pre_tokenizer.count = 0;
    return STATUS_OK;
}
