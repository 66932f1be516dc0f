// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/text/regex.h"

#include "base/text.h"
#include "tokenizer/text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

struct regex {
    pcre2_code *code;
    char *pattern; /* before its translation; owned */
};

struct regex_match {
    const pcre2_code *code; /* borrowed */
    pcre2_match_data *data;
};

static enum status compile_translated(pcre2_code **code, const struct text *pattern)
{
    int error;
    PCRE2_SIZE at;
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_MULTILINE, empty;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    BUG_IF(!context);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    *code = pcre2_compile((PCRE2_SPTR)pattern->data, pattern->len, options, &error, &at, context);
    pcre2_compile_context_free(context);
    if (!*code) {
        PCRE2_UCHAR why[128];
        pcre2_get_error_message(error, why, sizeof why);
        FAIL(UNSUPPORTED, "the pre-tokenizer pattern does not compile: %s (byte %zu of \"%s\")",
             why, (size_t)at, pattern->data);
    }
    BUG_IF(pcre2_pattern_info(*code, PCRE2_INFO_MATCHEMPTY, &empty));
    if (empty) FAIL(UNSUPPORTED, "the pre-tokenizer pattern can match the empty string");
    pcre2_jit_compile(*code, PCRE2_JIT_COMPLETE); /* if this fails, matching is only slower */
    return STATUS_OK;
}

enum status regex_compile(struct regex **out, const char *pattern)
{
    struct text translated = {0};
    pcre2_code *code = NULL;
    text_adds(&translated, "");
    enum status st = pattern_translate(pattern, &translated);
    if (!st) st = compile_translated(&code, &translated);
    text_release(&translated);
    if (st) {
        pcre2_code_free(code);
        return st;
    }
    *out = heap(sizeof **out);
    (*out)->code = code;
    (*out)->pattern = heap_strdup(pattern);
    return STATUS_OK;
}

void regex_free(struct regex *r)
{
    if (!r) return;
    pcre2_code_free(r->code);
    free(r->pattern);
    free(r);
}

const char *regex_pattern(const struct regex *r) { return r->pattern; }

struct regex_match *regex_match_make(const struct regex *r)
{
    struct regex_match *m = heap(sizeof *m);
    m->code = r->code;
    m->data = pcre2_match_data_create_from_pattern(r->code, NULL);
    BUG_IF(!m->data);
    return m;
}

void regex_match_free(struct regex_match *m)
{
    if (m) pcre2_match_data_free(m->data);
    free(m);
}

enum status regex_find(struct regex_match *m, const unsigned char *text, size_t len, size_t at,
                       struct regex_span *out)
{
    int found = pcre2_match(m->code, text, len, at, 0, m->data, NULL);
    /* JIT code has a small fixed stack; the interpreter allocates on demand */
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
        found = pcre2_match(m->code, text, len, at, PCRE2_NO_JIT, m->data, NULL);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH) {
        PCRE2_UCHAR why[128];
        pcre2_get_error_message(found, why, sizeof why);
        if (found == PCRE2_ERROR_NOMEMORY)
            FAIL(MEMORY, "the pre-tokenizer pattern: %s", (char *)why);
        FAIL(RECORD, "matching the pre-tokenizer pattern failed at byte %zu of a text: %s", at,
             why);
    }
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(m->data);
    out->begin = found > 0 ? span[0] : len;
    out->end = found > 0 ? span[1] : len;
    return STATUS_OK;
}

void regex_library_version(struct text *version)
{
    char string[64] = "";
    text_clear(version);
    if (pcre2_config(PCRE2_CONFIG_VERSION, NULL) <= (int)sizeof string)
        pcre2_config(PCRE2_CONFIG_VERSION, string);
    text_adds(version, string);
}
