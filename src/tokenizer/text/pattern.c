// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <ctype.h>
#include <pcre2.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Code points of a general category, or of a script, that PCRE2's Unicode lacks. */
struct newer {
    const char *name, *ranges;
};
#include "tokenizer/text/unicode_newer.inc"

static const char whitespace_ranges[] =
    "\\x{9}-\\x{d} \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}"
    "\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
static const char non_whitespace_ranges[] =
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}!-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}"
    "\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}"
    "\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}";

struct pattern_parser {
    const char *pattern, *at; /* `at`: the next character to parse */
    size_t depth;             /* nesting of [ */
    struct text *out;
};

static enum status unsupported(const struct pattern_parser *p, const char *what)
{
    FAIL(UNSUPPORTED, "the pre-tokenizer pattern has %s at byte %zu, which is not supported", what,
         (size_t)(p->at - p->pattern));
}

/* Appends ranges as a class of their own, or as members of the open class. */
static void append_class(struct pattern_parser *p, bool negated, const char *first,
                         const char *second)
{
    text_addf(p->out, p->depth ? "%s%s%s%s" : "[%s%s%s%s", negated ? "^" : "", first, second,
              p->depth ? "" : "]");
}

/* Whether it is a script for a PCRE2 whose \p{Han} would also match characters that scripts share,
 * such as an ideographic comma.  Those before 10.40 do not know sc. */
static bool is_script(const char *name, size_t len)
{
    char property[48];
    int error;
    PCRE2_SIZE at;
    snprintf(property, sizeof property, "\\p{sc:%.*s}", (int)len, name);
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)property, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &at, NULL);
    bool compiles = code != NULL;
    pcre2_code_free(code);
    return compiles;
}

static void append_category(struct pattern_parser *p, bool negated, const char *name, size_t len)
{
    const char *ranges = "", *property = is_script(name, len) ? "sc:" : "";
    char category[48];
    for (size_t i = 0; i < sizeof newer / sizeof *newer; i++)
        if (strlen(newer[i].name) == len && !memcmp(newer[i].name, name, len))
            ranges = newer[i].ranges;
    if (negated && p->depth) {
        text_addf(p->out, "\\P{%s%.*s}", property, (int)len, name);
        return;
    }
    snprintf(category, sizeof category, "\\p{%s%.*s}", property, (int)len, name);
    append_class(p, negated, category, ranges);
}

/* \p{L}, \P{L}, \p{^L}; `at` points past the p. */
static enum status parse_category(struct pattern_parser *p, bool negated)
{
    const char *end = *p->at == '{' ? strchr(p->at, '}') : NULL;
    if (!end) return unsupported(p, "a \\p without { }");
    const char *name = p->at + 1;
    if (*name == '^') negated = !negated, name++;
    size_t len = (size_t)(end - name);
    for (size_t i = 0; i < len; i++)
        if (!isalpha((unsigned char)name[i])) len = 0;
    if (!len || len > 30) return unsupported(p, "a \\p without a plain name");
    append_category(p, negated, name, len);
    p->at = end + 1;
    return STATUS_OK;
}

/* \u4e00, \x{4e00}, \x41; `at` points past the letter. */
static enum status parse_code_point(struct pattern_parser *p, bool braces)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    const char *begin = p->at + braces;
    size_t len = strspn(begin, digits), max_digits = p->at[-1] == 'u' ? 4 : 2;
    if (!braces && len > max_digits) len = max_digits;
    if (braces ? !len || len > 6 || begin[len] != '}' : len != max_digits)
        return unsupported(p, "an invalid character code");
    if (max_digits == 2 && !braces && *begin > '7')
        return unsupported(p, "a byte that is not a character");
    text_addf(p->out, "\\x{%.*s}", (int)len, begin);
    p->at = begin + len + braces;
    return STATUS_OK;
}

static enum status parse_escape(struct pattern_parser *p)
{
    char what[] = "\\?", letter = *++p->at;
    what[1] = letter;
    if (!letter) return unsupported(p, "a lone backslash");
    p->at++;
    switch (letter) {
    case 'p':
    case 'P': return parse_category(p, letter == 'P');
    case 'd': append_category(p, false, "Nd", 2); return STATUS_OK;
    case 'D': append_category(p, true, "Nd", 2); return STATUS_OK;
    case 's': append_class(p, false, whitespace_ranges, ""); return STATUS_OK;
    case 'S': append_class(p, false, non_whitespace_ranges, ""); return STATUS_OK;
    case 'v': text_adds(p->out, "\\x{b}"); return STATUS_OK;
    case 'x': return parse_code_point(p, *p->at == '{');
    case 'u': return parse_code_point(p, false);
    default: break;
    }
    if (isalnum((unsigned char)letter) && !strchr("rntfAz", letter)) {
        p->at -= 2;
        return unsupported(p, what);
    }
    text_add(p->out, what, 2);
    return STATUS_OK;
}

/* Inside [ ]: nested classes are flattened into one (their union). */
static enum status parse_class_member(struct pattern_parser *p)
{
    const char *at = p->at;
    if (*at == '\\') return parse_escape(p);
    if (*at == '[') {
        if (at[1] == ':' || at[1] == '^' || at[-1] == '-')
            return unsupported(p, "an unsupported nested class");
        p->depth++;
    } else if (*at == ']') {
        if (p->depth == 1) text_adds(p->out, "]");
        p->depth--;
    } else if (at[0] == '&' && at[1] == '&') {
        return unsupported(p, "&& in a class");
    } else {
        text_add(p->out, at, 1);
    }
    p->at++;
    return STATUS_OK;
}

static enum status parse_group(struct pattern_parser *p)
{
    static const char *const kinds[] = {"(?:",  "(?=",  "(?!",  "(?>",
                                        "(?<=", "(?<!", "(?i:", "(?-i:"};
    size_t len = 1;
    if (p->at[1] == '?') {
        len = p->at == p->pattern && !strncmp(p->at, "(?i)", 4) ? 4 : 0;
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            if (!strncmp(p->at, kinds[i], strlen(kinds[i]))) len = strlen(kinds[i]);
        if (!len) return unsupported(p, "an unsupported kind of group");
    } else if (p->at[1] == '*') {
        return unsupported(p, "a group that begins with *");
    }
    text_add(p->out, p->at, len);
    p->at += len;
    return STATUS_OK;
}

/* {2}, {2,} and {2,3} are quantifiers; any other { is literal. */
static enum status parse_repeat(struct pattern_parser *p)
{
    static const char digits[] = "0123456789";
    size_t len = 1 + strspn(p->at + 1, digits);
    if (p->at[len] == ',') len += 1 + strspn(p->at + len + 1, digits);
    if (p->at[len] == '}') {
        if (p->at[1] == ',' || p->at[len + 1] == '+' || p->at[len + 1] == '?')
            return unsupported(p, "an unsupported { } quantifier");
        len++;
    }
    text_add(p->out, p->at, len);
    p->at += len;
    return STATUS_OK;
}

static enum status parse_next(struct pattern_parser *p)
{
    if (p->depth) return parse_class_member(p);
    if (*p->at == '\\') return parse_escape(p);
    if (*p->at == '(') return parse_group(p);
    if (*p->at == '{') return parse_repeat(p);
    size_t len = 1;
    if (*p->at == '[') {
        p->depth = 1;
        len = p->at[1] == '^' ? 2 : 1;
        if (p->at[len] == ']') return unsupported(p, "a class that begins with ]");
    }
    text_add(p->out, p->at, len);
    p->at += len;
    return STATUS_OK;
}

enum status pattern_translate(const char *pattern, struct text *out)
{
    struct pattern_parser p = {pattern, pattern, 0, out};
    while (*p.at) TRY(parse_next(&p));
    return STATUS_OK;
}
