// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/text/pattern.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct newer {
    const char *name, *ranges;
};
#include "tokenizer/text/unicode_newer.inc"

static const char spaces[] = "\\x{9}-\\x{d} \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}"
                             "\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
static const char others[] = "\\x{0}-\\x{8}\\x{e}-\\x{1f}!-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}"
                             "\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}"
                             "\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}";

/* Where the reading of a pattern stands. */
struct reading {
    const char *pattern, *at;
    size_t depth; /* of [ */
    struct text *out;
};

static enum status refuse(const struct reading *r, const char *what)
{
    FAIL(UNSUPPORTED, "the splitting pattern has %s at byte %zu, which is not known here", what,
         (size_t)(r->at - r->pattern));
}

/* `ranges` as a class, or inside of one. */
static void add_class(struct reading *r, bool negated, const char *first, const char *second)
{
    text_addf(r->out, r->depth ? "%s%s%s%s" : "[%s%s%s%s", negated ? "^" : "", first, second,
              r->depth ? "" : "]");
}

static void add_category(struct reading *r, bool negated, const char *name, size_t len)
{
    const char *ranges = "";
    char whole[40];
    for (size_t i = 0; i < sizeof newer / sizeof *newer; i++)
        if (strlen(newer[i].name) == len && !memcmp(newer[i].name, name, len))
            ranges = newer[i].ranges;
    if (negated && r->depth) {
        text_addf(r->out, "\\P{%.*s}", (int)len, name);
        return;
    }
    snprintf(whole, sizeof whole, "\\p{%.*s}", (int)len, name);
    add_class(r, negated, whole, ranges);
}

/* \p{L}, \P{L}, \p{^L}; `at` is behind the letter. */
static enum status read_category(struct reading *r, bool negated)
{
    const char *end = *r->at == '{' ? strchr(r->at, '}') : NULL;
    if (!end) return refuse(r, "a \\p without { }");
    const char *name = r->at + 1;
    if (*name == '^') negated = !negated, name++;
    size_t len = (size_t)(end - name);
    for (size_t i = 0; i < len; i++)
        if (!isalpha((unsigned char)name[i])) len = 0;
    if (!len || len > 30) return refuse(r, "a \\p of no plain name");
    add_category(r, negated, name, len);
    r->at = end + 1;
    return STATUS_OK;
}

/* \u4e00, \x{4e00}, \x41: `at` is behind the letter. */
static enum status read_code(struct reading *r, bool braces)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    const char *begin = r->at + braces;
    size_t len = strspn(begin, digits), most = r->at[-1] == 'u' ? 4 : 2;
    if (!braces && len > most) len = most;
    if (braces ? !len || len > 6 || begin[len] != '}' : len != most)
        return refuse(r, "a character by number that is none");
    if (most == 2 && !braces && *begin > '7') return refuse(r, "a byte that is no character");
    text_addf(r->out, "\\x{%.*s}", (int)len, begin);
    r->at = begin + len + braces;
    return STATUS_OK;
}

static enum status read_escape(struct reading *r)
{
    char what[] = "\\?", letter = *++r->at;
    what[1] = letter;
    if (!letter) return refuse(r, "a lone backslash");
    r->at++;
    switch (letter) {
    case 'p':
    case 'P': return read_category(r, letter == 'P');
    case 'd': add_category(r, false, "Nd", 2); return STATUS_OK;
    case 'D': add_category(r, true, "Nd", 2); return STATUS_OK;
    case 's': add_class(r, false, spaces, ""); return STATUS_OK;
    case 'S': add_class(r, false, others, ""); return STATUS_OK;
    case 'v': text_adds(r->out, "\\x{b}"); return STATUS_OK;
    case 'x': return read_code(r, *r->at == '{');
    case 'u': return read_code(r, false);
    default: break;
    }
    if (isalnum((unsigned char)letter) && !strchr("rntf", letter)) {
        r->at -= 2;
        return refuse(r, what);
    }
    text_add(r->out, what, 2);
    return STATUS_OK;
}

/* Inside of [ ]: classes in classes are taken together. */
static enum status read_member(struct reading *r)
{
    const char *at = r->at;
    if (*at == '\\') return read_escape(r);
    if (*at == '[') {
        if (at[1] == ':' || at[1] == '^' || at[-1] == '-')
            return refuse(r, "a class of its own in a class");
        r->depth++;
    } else if (*at == ']') {
        if (r->depth == 1) text_adds(r->out, "]");
        r->depth--;
    } else if (at[0] == '&' && at[1] == '&') {
        return refuse(r, "&& in a class");
    } else {
        text_add(r->out, at, 1);
    }
    r->at++;
    return STATUS_OK;
}

static enum status read_group(struct reading *r)
{
    static const char *const kinds[] = {"(?:",  "(?=",  "(?!",  "(?>",
                                        "(?<=", "(?<!", "(?i:", "(?-i:"};
    size_t len = 1;
    if (r->at[1] == '?') {
        len = r->at == r->pattern && !strncmp(r->at, "(?i)", 4) ? 4 : 0;
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            if (!strncmp(r->at, kinds[i], strlen(kinds[i]))) len = strlen(kinds[i]);
        if (!len) return refuse(r, "a group of its own kind");
    } else if (r->at[1] == '*') {
        return refuse(r, "a group that begins with *");
    }
    text_add(r->out, r->at, len);
    r->at += len;
    return STATUS_OK;
}

/* {2}, {2,}, {2,3}; others stand for themselves. */
static enum status read_times(struct reading *r)
{
    static const char digits[] = "0123456789";
    size_t len = 1 + strspn(r->at + 1, digits);
    if (r->at[len] == ',') len += 1 + strspn(r->at + len + 1, digits);
    if (r->at[len] == '}') {
        if (r->at[1] == ',' || r->at[len + 1] == '+' || r->at[len + 1] == '?')
            return refuse(r, "an unusual { }");
        len++;
    }
    text_add(r->out, r->at, len);
    r->at += len;
    return STATUS_OK;
}

static enum status read_one(struct reading *r)
{
    if (r->depth) return read_member(r);
    if (*r->at == '\\') return read_escape(r);
    if (*r->at == '(') return read_group(r);
    if (*r->at == '{') return read_times(r);
    size_t len = 1;
    if (*r->at == '[') {
        r->depth = 1;
        len = r->at[1] == '^' ? 2 : 1;
        if (r->at[len] == ']') return refuse(r, "a class that begins with ]");
    }
    text_add(r->out, r->at, len);
    r->at += len;
    return STATUS_OK;
}

enum status pattern_translate(const char *pattern, struct text *out)
{
    struct reading r = {pattern, pattern, 0, out};
    while (*r.at) TRY(read_one(&r));
    return STATUS_OK;
}
