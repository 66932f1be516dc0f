// SPDX-License-Identifier: Apache-2.0
#include "config/import/shell_expand.h"

#include "config/import/shell_arithmetic.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct expander {
    struct shell *shell;
    struct shell_words *out; /* finished words */
    struct text word;        /* the word that grows */
    int line;
    bool has_word; /* `word` counts even if it is empty */
    bool splits;   /* at blanks of unquoted values */
    bool quoted;   /* inside double quotes */
};

static enum status expand(struct expander *e, const char *at, const char *end);

static void finish_word(struct expander *e)
{
    if (!e->has_word) return;
    shell_words_add(e->out, e->word.data ? e->word.data : "", e->word.len);
    text_clear(&e->word);
    e->has_word = false;
}

static enum status add(struct expander *e, const char *bytes, size_t len, bool splits)
{
    struct shell *s = e->shell;
    for (size_t i = 0; i < len; i++) {
        if (splits && strchr(" \t\n", bytes[i])) {
            finish_word(e);
        } else {
            text_add(&e->word, bytes + i, 1);
            e->has_word = true;
        }
    }
    s->expanded_bytes += len + 1; /* bounds memory: values may double at each step */
    if (s->expanded_bytes > SHELL_MAX_BYTES)
        FAIL(CONFIG, "%s:%d: expansions exceed %d bytes in total", s->file, e->line,
             SHELL_MAX_BYTES);
    if (e->word.len > SHELL_MAX_VALUE || e->out->count > SHELL_MAX_VALUE)
        FAIL(CONFIG, "%s:%d: value longer than %d bytes or words", s->file, e->line,
             SHELL_MAX_VALUE);
    return STATUS_OK;
}

static enum status add_literal(struct expander *e, const char *bytes, size_t len)
{
    return add(e, bytes, len, false);
}

/* Adds a parameter's value, which splits at blanks unless it is quoted. */
static enum status add_value(struct expander *e, const char *bytes, size_t len)
{
    return add(e, bytes, len, e->splits && !e->quoted);
}

static enum status add_number(struct expander *e, int64_t value)
{
    char word[24];
    snprintf(word, sizeof word, "%lld", (long long)value);
    return add_literal(e, word, strlen(word));
}

enum { MAX_NAME_BYTES = 200 };

/* Adds $(NAME...) for an unknown value, where NAME is the first word of its source; it may be
 * $(A,B...) already. */
static enum status add_unknown(struct expander *e, const char *at, const char *end)
{
    struct text name = {0};
    while (at < end && isspace((unsigned char)*at)) at++;
    if (end - at > MAX_NAME_BYTES) end = at + MAX_NAME_BYTES;
    text_adds(&name, "$(");
    while (at < end && (isalnum((unsigned char)*at) || strchr("_.,/-", *at)))
        text_add(&name, at++, 1);
    while (name.data[name.len - 1] == '.') name.len--;
    text_adds(&name, "...)");
    enum status st = add_literal(e, name.data, name.len);
    text_release(&name);
    return st;
}

/* Returns the words of a variable, an argument, or all arguments. */
static struct shell_words look_up(const struct shell *s, const char *name)
{
    struct shell_words none = {0};
    const struct shell_variable *v = shell_find(s, name);
    if (v) return v->words;
    if (!strcmp(name, "@") || !strcmp(name, "*")) return s->arguments;
    if (!isdigit((unsigned char)*name)) return none;
    size_t n = (size_t)strtoul(name, NULL, 10);
    if (!n || n > s->arguments.count) return none;
    return (struct shell_words){s->arguments.items + n - 1, 1};
}

static enum status add_words(struct expander *e, struct shell_words w)
{
    for (size_t i = 0; i < w.count; i++) {
        if (i && e->splits)
            finish_word(e);
        else if (i)
            TRY(add_literal(e, " ", 1));
        TRY(add_value(e, w.items[i], strlen(w.items[i])));
        if (e->quoted) e->has_word = true;
    }
    return STATUS_OK;
}

static enum status expand_arithmetic(struct expander *e, const char *at, const char *end,
                                     int64_t *value, struct text *unknown)
{
    struct text text = {0};
    const struct shell_token source = {at, (size_t)(end - at)};
    enum status st = shell_expand_unsplit(e->shell, source, e->line, &text);
    if (!st) st = shell_arithmetic_evaluate(e->shell, text.data, e->line, value, unknown);
    text_release(&text);
    return st;
}

/* $((...)), or $(A,B...) if that depends on A and B, which are unknown. */
static enum status add_sum(struct expander *e, const char *at, const char *end)
{
    int64_t value;
    struct text unknown = {0}, literal = {0};
    enum status st = expand_arithmetic(e, at, end, &value, &unknown);
    if (unknown.len) text_addf(&literal, "$(%s...)", unknown.data);
    if (!st) st = unknown.len ? add_literal(e, literal.data, literal.len) : add_number(e, value);
    text_release(&unknown), text_release(&literal);
    return st;
}

/* ${name:offset:length} */
static enum status add_part(struct expander *e, const char *value, const char *at, const char *end)
{
    const char *colon = memchr(at, ':', (size_t)(end - at));
    int64_t len = (int64_t)strlen(value), offset = 0, count = len;
    bool known = !shell_is_unknown(value);
    struct text unknown = {0};
    enum status st = STATUS_OK;
    if (known) st = expand_arithmetic(e, at, colon ? colon : end, &offset, &unknown);
    if (known && !st && colon) st = expand_arithmetic(e, colon + 1, end, &count, &unknown);
    known = known && !unknown.len;
    text_release(&unknown);
    TRY(st);
    if (!known || offset < 0 || count < 0) return add_unknown(e, "part", "part" + 4);
    if (offset > len) offset = len;
    if (count > len - offset) count = len - offset;
    return add_value(e, value + offset, (size_t)count);
}

/* ${name:-word} and the like; `rest` starts after the name. */
static enum status add_modified(struct expander *e, const char *name, struct shell_words w,
                                const char *rest, const char *end)
{
    bool colon = *rest == ':', set = w.count > 0;
    const char *op = rest + colon;
    if (set && colon && w.count == 1 && !*w.items[0]) set = false;
    char kind = op < end ? *op : 0;
    if (kind == '+') return set ? expand(e, op + 1, end) : STATUS_OK;
    if (kind && strchr("-=?", kind)) {
        if (set) return add_words(e, w);
        if (kind == '?')
            FAIL(CONFIG, "%s:%d: %s is not set; set it with %s=VALUE", e->shell->file, e->line,
                 name, name);
        if (kind == '=') {
            struct text value = {0};
            const struct shell_token word = {op + 1, (size_t)(end - op - 1)};
            enum status st = shell_expand_unsplit(e->shell, word, e->line, &value);
            if (!st) shell_set(e->shell, name, value.data ? value.data : "");
            text_release(&value);
            TRY(st);
        }
        return expand(e, op + 1, end);
    }
    if (colon && w.count == 1) return add_part(e, w.items[0], op, end);
    if (!w.count) return STATUS_OK;
    return add_unknown(e, name, name + strlen(name));
}

/* $?, where any failure is 1. */
static enum status add_last_result(struct expander *e)
{
    static const char name[] = "status";
    if (e->shell->last_result == SHELL_UNKNOWN) return add_unknown(e, name, name + sizeof name - 1);
    return add_number(e, e->shell->last_result == SHELL_FALSE);
}

/* The content of ${...}. */
static enum status add_braced(struct expander *e, const char *at, const char *end)
{
    if (end - at == 1 && *at == '?') return add_last_result(e);
    bool length = at + 1 < end && *at == '#';
    const char *from = at + length, *to = from;
    if (to < end && strchr("@*?$!", *to))
        to++;
    else
        while (to < end && (isalnum((unsigned char)*to) || *to == '_')) to++;
    if (to == from) return add_unknown(e, at, end);
    char *name = heap_string(from, (size_t)(to - from));
    struct shell_words w = look_up(e->shell, name);
    enum status st = STATUS_OK;
    bool all = false, known = true;
    if (to < end && *to == '[') {
        const char *close = memchr(to, ']', (size_t)(end - to));
        size_t n = close ? (size_t)strtoul(to + 1, NULL, 10) : 0;
        all = close == to + 2 && (to[1] == '@' || to[1] == '*');
        known = all || (close && isdigit((unsigned char)to[1]));
        if (!all && w.count) {
            w.items += n < w.count ? n : w.count;
            w.count = n < w.count ? 1 : 0;
        }
        to = close ? close + 1 : end;
    } else if (w.count > 1 && strcmp(name, "@") && strcmp(name, "*")) {
        w.count = 1; /* $A of an array is its first element */
    }
    char system[64];
    snprintf(system, sizeof system, "${%.50s}", name);
    char *system_words[] = {system};
    if (!w.count && shell_is_system_variable(name) && !shell_find(e->shell, name))
        w = (struct shell_words){system_words, 1};
    if (!known)
        st = add_unknown(e, at, end);
    else if (length && w.count && shell_is_unknown(w.items[0]))
        st = add_unknown(e, at, end);
    else if (length) {
        st = add_number(e, (int64_t)(all ? w.count : w.count ? strlen(w.items[0]) : 0));
    } else if (to < end) {
        st = add_modified(e, name, w, to, end);
    } else {
        st = add_words(e, w);
    }
    free(name);
    return st;
}

static enum status add_dollar(struct expander *e, const char **at, const char *end)
{
    const char *begin = *at, *to = shell_lexer_past(begin, end);
    *at = to ? to : end;
    if (begin + 1 >= end) return add_literal(e, "$", 1);
    if (!to) return add_unknown(e, begin + 2, end);
    if (begin[1] == '(' && begin + 2 < end && begin[2] == '(' && to[-2] == ')') {
        return add_sum(e, begin + 3, to - 2);
    }
    if (begin[1] == '(') return add_unknown(e, begin + 2, to - 1);
    if (begin[1] == '{') return add_braced(e, begin + 2, to - 1);
    const char *name = begin + 1, *stop = name;
    if (isdigit((unsigned char)*stop) || strchr("@*?$!#-", *stop))
        stop++;
    else
        while (stop < end && (isalnum((unsigned char)*stop) || *stop == '_')) stop++;
    *at = stop;
    if (stop == name) return add_literal(e, "$", 1);
    if (*name == '#') {
        return add_number(e, (int64_t)e->shell->arguments.count);
    }
    if (strchr("$!-", *name)) return add_unknown(e, name, stop);
    return add_braced(e, name, stop);
}

static enum status expand(struct expander *e, const char *at, const char *end)
{
    struct shell *s = e->shell;
    if (++s->depth > SHELL_MAX_DEPTH) FAIL(CONFIG, "%s:%d: nested too deeply", s->file, e->line);
    TRY(shell_count_step(s, e->line));
    while (at < end) {
        if (*at == '\\' && at + 1 < end) {
            bool special = !e->quoted || strchr("$`\"\\\n", at[1]);
            if (!special) TRY(add_literal(e, at, 1));
            if (at[1] != '\n') TRY(add_literal(e, at + 1, 1));
            at += 2;
        } else if (*at == '\'' && !e->quoted) {
            const char *to = shell_lexer_past(at, end);
            if (!to) to = end;
            e->has_word = true;
            TRY(add_literal(e, at + 1,
                            (size_t)(to - at - (to > at + 1 && to[-1] == '\'' ? 2 : 1))));
            at = to;
        } else if (*at == '"' && !e->quoted) {
            const char *to = shell_lexer_past(at, end);
            bool closed = to != NULL;
            if (!to) to = end;
            bool is_list = to - at > 3 && at[1] == '$' && memchr(at, '@', (size_t)(to - at));
            if (!is_list) e->has_word = true; /* "" is a word, "${EMPTY[@]}" is not */
            e->quoted = true;
            TRY(expand(e, at + 1, to - closed));
            e->quoted = false;
            at = to;
        } else if (*at == '`') {
            const char *to = shell_lexer_past(at, end);
            TRY(add_unknown(e, at + 1, to ? to - 1 : end));
            at = to ? to : end;
        } else if (*at == '$') {
            TRY(add_dollar(e, &at, end));
        } else {
            TRY(add_literal(e, at, 1));
            at++;
        }
    }
    s->depth--;
    return STATUS_OK;
}

enum status shell_expand(struct shell *s, struct shell_token word, int line,
                         struct shell_words *out)
{
    struct expander e = {.shell = s, .out = out, .line = line, .splits = true};
    enum status st = expand(&e, word.at, word.at + word.len);
    finish_word(&e);
    text_release(&e.word);
    return st;
}

enum status shell_expand_unsplit(struct shell *s, struct shell_token word, int line,
                                 struct text *out)
{
    struct shell_words none = {0};
    struct expander e = {.shell = s, .out = &none, .line = line};
    enum status st = expand(&e, word.at, word.at + word.len);
    text_adds(out, "");
    text_add(out, e.word.data ? e.word.data : "", e.word.len);
    text_release(&e.word);
    shell_words_release(&none);
    return st;
}
