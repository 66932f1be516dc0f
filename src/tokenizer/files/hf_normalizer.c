// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/files/hf_normalizer.h"

#include "tokenizer/files/base64.h"
#include "tokenizer/files/hf_node.h"
#include "tokenizer/text/regex.h"

#include <stdlib.h>
#include <string.h>

static enum status read_replace(struct normalizer_step *s, const struct json *v, const char *path)
{
    const struct json *regex = json_get(json_get(v, "pattern"), "Regex");
    const struct json *string = json_get(json_get(v, "pattern"), "String");
    const struct json *content = json_get(v, "content");
    bool has_string = json_is_string(string) && json_string(string)[0];
    if ((!json_is_string(regex) && !has_string) || !json_is_string(content))
        FAIL(UNSUPPORTED,
             "%s: normalizer Replace: expected a content, and a pattern that is a Regex or a "
             "String that is not empty",
             path);
    s->content = heap_strdup(json_string(content));
    if (has_string)
        s->string = heap_strdup(json_string(string));
    else
        TRY_PREFIX(regex_compile(&s->regex, json_string(regex)), "%s: normalizer Replace", path);
    return STATUS_OK;
}

static enum status read_prepend(struct normalizer_step *s, const struct json *v, const char *path)
{
    const struct json *content = json_get(v, "prepend");
    if (!json_is_string(content))
        FAIL(DATA, "%s: normalizer Prepend: \"prepend\" must be a string", path);
    s->content = heap_strdup(json_string(content));
    return STATUS_OK;
}

static enum status read_charsmap(struct normalizer_step *s, const struct json *v, const char *path)
{
    const struct json *map = json_get(v, "precompiled_charsmap");
    if (!json_is_string(map))
        FAIL(DATA, "%s: normalizer Precompiled: precompiled_charsmap must be a string", path);
    size_t len = strlen(json_string(map));
    unsigned char *bytes = heap(len + 1);
    int count = base64_decode(json_string(map), len, bytes, len);
    enum status st = count < 0 ? STATUS_DATA : charsmap_init(&s->charsmap, bytes, (size_t)count);
    free(bytes);
    if (count < 0)
        FAIL(DATA, "%s: normalizer Precompiled: precompiled_charsmap is not valid base64", path);
    TRY_PREFIX(st, "%s: normalizer Precompiled", path);
    return STATUS_OK;
}

static enum status read_strip(struct normalizer_step *s, const struct json *v, const char *path)
{
    const struct json *left = json_get(v, "strip_left"), *right = json_get(v, "strip_right");
    (void)path;
    s->left = !left || json_true(left);
    s->right = !right || json_true(right);
    return STATUS_OK;
}

enum status hf_normalizer_read(struct normalizer *n, const struct json *v, const char *path)
{
    static const struct {
        const char *type;
        enum normalizer_kind kind;
        enum unicode_form form;
        enum status (*read)(struct normalizer_step *s, const struct json *v, const char *path);
    } kinds[] = {
        {"NFC", NORMALIZE_FORM, FORM_NFC, NULL},
        {"NFD", NORMALIZE_FORM, FORM_NFD, NULL},
        {"NFKC", NORMALIZE_FORM, FORM_NFKC, NULL},
        {"NFKD", NORMALIZE_FORM, FORM_NFKD, NULL},
        {"Lowercase", NORMALIZE_LOWERCASE, FORM_NONE, NULL},
        {"StripAccents", NORMALIZE_STRIP_ACCENTS, FORM_NONE, NULL},
        {"Nmt", NORMALIZE_NMT, FORM_NONE, NULL},
        {"Strip", NORMALIZE_STRIP, FORM_NONE, read_strip},
        {"Replace", NORMALIZE_REPLACE, FORM_NONE, read_replace},
        {"Prepend", NORMALIZE_PREPEND, FORM_NONE, read_prepend},
        {"Precompiled", NORMALIZE_CHARSMAP, FORM_NONE, read_charsmap},
    };
    if (hf_node_is_noop(v)) return STATUS_OK;
    if (hf_node_type_is(v, "Sequence")) {
        for (v = json_first(json_get(v, "normalizers")); v; v = json_next(v))
            TRY(hf_normalizer_read(n, v, path));
        return STATUS_OK;
    }
    if (n->count == NORMALIZER_MAX_STEPS)
        FAIL(UNSUPPORTED, "%s: more than %d normalizers are not supported", path,
             NORMALIZER_MAX_STEPS);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!hf_node_type_is(v, kinds[i].type)) continue;
        struct normalizer_step *s = &n->steps[n->count++];
        *s = (struct normalizer_step){.kind = kinds[i].kind, .form = kinds[i].form};
        return kinds[i].read ? kinds[i].read(s, v, path) : STATUS_OK;
    }
    FAIL(UNSUPPORTED,
         "%s: normalizer %s is not supported; expected NFC, NFD, NFKC, NFKD, Lowercase, "
         "StripAccents, Strip, Replace, Prepend, Precompiled, Nmt or a Sequence of them",
         path, hf_node_type(v));
}
