/* shell_test.c -- shell conditions and arithmetic. */
// SPDX-License-Identifier: Apache-2.0
#include "config/import/shell_state.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WORDS = 256 };

bool shell_match(const char *pattern, const char *word)
{
    const char *star = NULL, *back = NULL;
    while (*word) {
        if (*pattern == '*') {
            star = pattern++, back = word;
        } else if (*pattern == '?' || *pattern == *word) {
            pattern++, word++;
        } else if (star) {
            pattern = star + 1, word = ++back;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

static enum shell_truth is(bool truth) { return truth ? SHELL_YES : SHELL_NO; }

static bool number(const char *text, int64_t *out)
{
    char *end;
    while (isspace((unsigned char)*text)) text++;
    errno = 0;
    *out = strtoll(text, &end, 10);
    while (isspace((unsigned char)*end)) end++;
    return end != text && !*end && !errno;
}

static enum status unary(struct shell *s, const char *op, const char *word, int line,
                         enum shell_truth *out)
{
    struct text note = {0};
    if (!strcmp(op, "-z") || !strcmp(op, "-n")) {
        *out = is((op[1] == 'n') == (*word != 0));
    } else if (!strcmp(op, "-v")) {
        *out = is(shell_find(s, word) != NULL);
    } else if (op[0] == '-' && op[1] && !op[2] && strchr("defhLrswxp", op[1])) {
        text_addf(&note, "files are not checked: %.200s is assumed to exist", word);
        shell_note(s, line, note.data);
        *out = SHELL_YES;
    } else {
        *out = SHELL_MAYBE;
    }
    text_release(&note);
    return STATUS_OK;
}

static enum status binary(const char *left, const char *op, const char *right,
                          enum shell_truth *out)
{
    static const char *const orders[] = {"-eq", "-ne", "-lt", "-le", "-gt", "-ge"};
    int64_t a, b;
    *out = SHELL_MAYBE;
    if (shell_is_unknown(left) || shell_is_unknown(right)) return STATUS_OK;
    if (!strcmp(op, "=") || !strcmp(op, "==")) *out = is(shell_match(right, left));
    if (!strcmp(op, "!=")) *out = is(!shell_match(right, left));
    if (!strcmp(op, "<")) *out = is(strcmp(left, right) < 0);
    if (!strcmp(op, ">")) *out = is(strcmp(left, right) > 0);
    for (int i = 0; i < 6; i++) {
        if (strcmp(op, orders[i])) continue;
        if (!number(*left ? left : "0", &a) || !number(*right ? right : "0", &b)) {
            *out = SHELL_NO; /* bash prints an error and continues */
            return STATUS_OK;
        }
        const bool truths[] = {a == b, a != b, a<b, a <= b, a> b, a >= b};
        *out = is(truths[i]);
    }
    return STATUS_OK;
}

static enum shell_truth join(enum shell_truth a, enum shell_truth b, bool both)
{
    enum shell_truth settles = both ? SHELL_NO : SHELL_YES;
    if (a == settles || b == settles) return settles;
    return a == SHELL_MAYBE || b == SHELL_MAYBE ? SHELL_MAYBE : both ? SHELL_YES : SHELL_NO;
}

static enum status test(struct shell *s, const struct shell_words *w, size_t from, size_t to,
                        int line, enum shell_truth *out)
{
    TRY(shell_step(s, line));
    *out = SHELL_NO;
    if (from >= to) return STATUS_OK;
    for (int both = 0; both < 2; both++) /* -o has lower precedence than -a */
        for (size_t i = from + 1; i + 1 < to; i++) {
            enum shell_truth left, right;
            if (strcmp(w->items[i], both ? "-a" : "-o")) continue;
            TRY(test(s, w, from, i, line, &left));
            TRY(test(s, w, i + 1, to, line, &right));
            *out = join(left, right, both);
            return STATUS_OK;
        }
    if (to - from > 1 && !strcmp(w->items[from], "!")) {
        TRY(test(s, w, from + 1, to, line, out));
        if (*out != SHELL_MAYBE) *out = is(*out == SHELL_NO);
        return STATUS_OK;
    }
    char **word = w->items + from;
    switch (to - from) {
    case 1: *out = is(*word[0] != 0); return STATUS_OK;
    case 2: return unary(s, word[0], word[1], line, out);
    case 3: return binary(word[0], word[1], word[2], out);
    default: *out = SHELL_MAYBE; return STATUS_OK;
    }
}

enum status shell_test(struct shell *s, const struct shell_words *w, size_t from, size_t to,
                       int line, enum shell_truth *out)
{
    if (to - from > MAX_WORDS && from < to)
        FAIL(CONFIG, "%s:%d: condition longer than %d words", s->file, line, MAX_WORDS);
    return test(s, w, from, to, line, out);
}

/* Parses $((...)) by recursive descent, one function per precedence level. */
struct sum {
    struct shell *s;
    const char *at;
    int line, depth;
    bool unknown;
};

static enum status sums(struct sum *m, int64_t *out);

static enum status wrong(const struct sum *m, const char *why)
{
    FAIL(CONFIG, "%s:%d: $((...)): %s at \"%.30s\"", m->s->file, m->line, why, m->at);
}

static void blanks(struct sum *m)
{
    while (isspace((unsigned char)*m->at)) m->at++;
}

static enum status factor(struct sum *m, int64_t *out)
{
    *out = 0;
    if (++m->depth > SHELL_DEPTH) return wrong(m, "nested too deeply");
    blanks(m);
    if (*m->at == '(') {
        m->at++;
        TRY(sums(m, out));
        blanks(m);
        if (*m->at++ != ')') return m->at--, wrong(m, "missing )");
    } else if (*m->at == '-' || *m->at == '+') {
        bool minus = *m->at++ == '-';
        TRY(factor(m, out));
        if (minus && __builtin_sub_overflow(0, *out, out)) return wrong(m, "overflow");
    } else if (!strncmp(m->at, "$(", 2) || !strncmp(m->at, "${", 2)) {
        const char *close = strchr(m->at, m->at[1] == '(' ? ')' : '}');
        m->at = close ? close + 1 : m->at + strlen(m->at);
        m->unknown = true;
    } else if (isdigit((unsigned char)*m->at)) {
        char *end;
        errno = 0;
        *out = strtoll(m->at, &end, 10);
        if (errno) return wrong(m, "overflow");
        m->at = end;
    } else {
        size_t len = 0;
        while (isalnum((unsigned char)m->at[len]) || m->at[len] == '_') len++;
        if (!shell_is_name(m->at, len)) return wrong(m, "expected a number or a name");
        char *name = heap_string(m->at, len);
        const char *value = shell_get(m->s, name);
        if (!value && shell_is_of_the_system(name)) m->unknown = true;
        free(name);
        if (value && shell_is_unknown(value))
            m->unknown = true;
        else if (value && *value && !number(value, out))
            return wrong(m, "not a whole number");
        m->at += len;
    }
    m->depth--;
    return STATUS_OK;
}

static enum status products(struct sum *m, int64_t *out)
{
    TRY(factor(m, out));
    for (blanks(m); *m->at && strchr("*/%", *m->at); blanks(m)) {
        char op = *m->at++;
        int64_t right;
        TRY(factor(m, &right));
        if (op == '*') {
            if (__builtin_mul_overflow(*out, right, out)) return wrong(m, "overflow");
        } else if (!right || right == -1) {
            if (!right && !m->unknown) return wrong(m, "division by 0");
            *out = op == '%' || !right ? 0 : *out == INT64_MIN ? 0 : -*out;
        } else {
            *out = op == '/' ? *out / right : *out % right;
        }
    }
    return STATUS_OK;
}

static enum status sums(struct sum *m, int64_t *out)
{
    TRY(products(m, out));
    for (blanks(m); *m->at == '+' || *m->at == '-'; blanks(m)) {
        bool minus = *m->at++ == '-';
        int64_t right;
        TRY(products(m, &right));
        if (minus ? __builtin_sub_overflow(*out, right, out)
                  : __builtin_add_overflow(*out, right, out))
            return wrong(m, "overflow");
    }
    return STATUS_OK;
}

enum status shell_sum(struct shell *s, const char *text, int line, struct text *out)
{
    struct text expanded = {0};
    enum status st = shell_expand_one(s, text, strlen(text), line, &expanded);
    struct sum m = {.s = s, .at = expanded.data, .line = line};
    int64_t value = 0;
    if (!st) st = sums(&m, &value);
    if (!st && *m.at) st = wrong(&m, "syntax error");
    if (!st && m.unknown) text_adds(out, "$(sum...)");
    if (!st && !m.unknown) text_addf(out, "%lld", (long long)value);
    text_release(&expanded);
    return st;
}
