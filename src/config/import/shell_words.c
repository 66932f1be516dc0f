/* shell_words.c -- words of a shell: where they end, and what they become. */
// SPDX-License-Identifier: Apache-2.0
#include "config/import/shell_state.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A word that grows, and those that are done. */
struct fields {
    struct shell_words *out;
    struct text now;
    bool open;  /* `now` is a word, though it may be empty */
    bool split; /* at blanks that are not quoted */
};

static enum status expand(struct shell *s, const char *at, const char *end, bool quoted, int line,
                          struct fields *f);

bool shell_is_name(const char *at, size_t len)
{
    if (!len || isdigit((unsigned char)*at)) return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)at[i]) && at[i] != '_') return false;
    return true;
}

bool shell_is_unknown(const char *value) { return strstr(value, "$(") || strstr(value, "${"); }

void shell_skip(struct shell_cursor *c)
{
    for (bool comment = true; c->at < c->end;) { /* a # behind a blank, or first */
        if (*c->at == ' ' || *c->at == '\t' || *c->at == '\r') {
            c->at++;
        } else if (*c->at == '\\' && c->at + 1 < c->end && c->at[1] == '\n') {
            c->at += 2, c->line++;
        } else if (*c->at == '#' && comment) {
            while (c->at < c->end && *c->at != '\n') c->at++;
        } else {
            return;
        }
    }
}

static const char *past(const char *at, const char *end, int depth);

/* Behind the bracket that closes what is open at `at`; NULL: none does. */
static const char *enclosed(const char *at, const char *end, char open, char close, int depth)
{
    for (int level = 1; at && at < end;) {
        if (*at == open) level++;
        if (*at == close && !--level) return at + 1;
        at = *at == open || *at == close ? at + 1 : past(at, end, depth + 1);
    }
    return NULL;
}

/* Behind one character, or all that a quote or a dollar opens. */
static const char *past(const char *at, const char *end, int depth)
{
    const char *p = at + 1;
    if (depth > SHELL_DEPTH) return NULL;
    switch (*at) {
    case '\\': return p < end ? p + 1 : p;
    case '\'': p = memchr(p, '\'', (size_t)(end - p)); return p ? p + 1 : NULL;
    case '"':
        while (p && p < end && *p != '"') p = *p == '\'' ? p + 1 : past(p, end, depth + 1);
        return p && p < end ? p + 1 : NULL;
    case '`':
        while (p < end && *p != '`') p += *p == '\\' && p + 1 < end ? 2 : 1;
        return p < end ? p + 1 : NULL;
    case '$':
        if (p < end && *p == '(') return enclosed(p + 1, end, '(', ')', depth);
        if (p < end && *p == '{') return enclosed(p + 1, end, '{', '}', depth);
        return p;
    default: return p;
    }
}

enum status shell_scan(const struct shell *s, struct shell_cursor *c, const char **raw, size_t *len)
{
    *raw = c->at;
    while (c->at < c->end && !strchr(" \t\r\n;|&<>()", *c->at)) {
        const char *next = past(c->at, c->end, 0);
        if (!next)
            FAIL(CONFIG, "%s:%d: unclosed %.20s", s->file, c->line,
                 *c->at == '\''  ? "'"
                 : *c->at == '"' ? "\""
                                 : "`, $( or ${");
        for (; c->at < next; c->at++) c->line += *c->at == '\n';
    }
    *len = (size_t)(c->at - *raw);
    return STATUS_OK;
}

static void flush(struct fields *f)
{
    if (!f->open) return;
    shell_words_add(f->out, f->now.data ? f->now.data : "", f->now.len);
    text_clear(&f->now);
    f->open = false;
}

static enum status add(struct shell *s, struct fields *f, const char *bytes, size_t len,
                       bool quoted, int line)
{
    for (size_t i = 0; i < len; i++) {
        bool blank = f->split && !quoted && strchr(" \t\n", bytes[i]);
        if (blank) {
            flush(f);
        } else {
            text_add(&f->now, bytes + i, 1);
            f->open = true;
        }
    }
    s->bytes += len + 1; /* many values of many bytes would be many gigabytes */
    if (s->bytes > SHELL_BYTES)
        FAIL(CONFIG, "%s:%d: expansions exceed %d bytes in total", s->file, line, SHELL_BYTES);
    if (f->now.len > SHELL_VALUE || f->out->count > SHELL_VALUE)
        FAIL(CONFIG, "%s:%d: value longer than %d bytes or words", s->file, line, SHELL_VALUE);
    return STATUS_OK;
}

/* What only running would tell, by its first word. */
static enum status add_unknown(struct shell *s, struct fields *f, const char *at, const char *end,
                               int line)
{
    struct text name = {0};
    while (at < end && isspace((unsigned char)*at)) at++;
    text_adds(&name, "$(");
    for (int i = 0; at < end && i < 40 && (isalnum((unsigned char)*at) || strchr("_./-", *at)); i++)
        text_add(&name, at++, 1);
    while (name.data[name.len - 1] == '.') name.len--; /* it may be such a mark itself */
    text_adds(&name, "...)");
    enum status st = add(s, f, name.data, name.len, true, line);
    text_release(&name);
    return st;
}

bool shell_is_of_the_system(const char *name)
{
    static const char *const names[] = {"HOME",   "PWD",      "USER",   "LOGNAME",
                                        "TMPDIR", "HOSTNAME", "RANDOM", "BASH_SOURCE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], name)) return true;
    return !strncmp(name, "SLURM_", 6);
}

/* The words of a name: a variable's, an argument's, or all of them. */
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

static enum status add_words(struct shell *s, struct fields *f, struct shell_words w, bool quoted,
                             int line)
{
    for (size_t i = 0; i < w.count; i++) {
        if (i && f->split)
            flush(f);
        else if (i)
            TRY(add(s, f, " ", 1, true, line));
        TRY(add(s, f, w.items[i], strlen(w.items[i]), quoted, line));
        if (quoted) f->open = true;
    }
    return STATUS_OK;
}

/* ${name:offset:length} of one known value. */
static enum status add_part(struct shell *s, struct fields *f, const char *value, const char *at,
                            const char *end, bool quoted, int line)
{
    const char *colon = memchr(at, ':', (size_t)(end - at));
    size_t len = strlen(value);
    struct text sums[2] = {{0}, {0}};
    enum status st = STATUS_OK;
    bool unknown = shell_is_unknown(value);
    long long part[2] = {0, (long long)len};
    for (int i = 0; i < (colon ? 2 : 1) && !st && !unknown; i++) {
        const char *from = i ? colon + 1 : at, *to = i || !colon ? end : colon;
        char *text = heap_string(from, (size_t)(to - from));
        st = shell_sum(s, text, line, &sums[i]);
        free(text);
        if (st) break;
        unknown = shell_is_unknown(sums[i].data);
        part[i] = strtoll(sums[i].data, NULL, 10);
    }
    text_release(&sums[0]), text_release(&sums[1]);
    TRY(st);
    if (unknown || part[0] < 0 || part[1] < 0) return add_unknown(s, f, "part", "part" + 4, line);
    if (part[0] > (long long)len) part[0] = (long long)len;
    if (part[1] > (long long)len - part[0]) part[1] = (long long)len - part[0];
    return add(s, f, value + part[0], (size_t)part[1], quoted, line);
}

/* What follows the name inside ${...}: a default, an alternative, a part. */
static enum status add_modified(struct shell *s, struct fields *f, const char *name,
                                struct shell_words w, const char *rest, const char *end,
                                bool quoted, int line)
{
    bool colon = *rest == ':', set = w.count > 0;
    const char *op = rest + colon;
    if (set && colon && w.count == 1 && !*w.items[0]) set = false;
    char kind = op < end ? *op : 0;
    if (kind == '+') return set ? expand(s, op + 1, end, quoted, line, f) : STATUS_OK;
    if (kind && strchr("-=?", kind)) {
        if (set) return add_words(s, f, w, quoted, line);
        if (kind == '?')
            FAIL(CONFIG, "%s:%d: %s is not set; set it with %s=VALUE", s->file, line, name, name);
        if (kind == '=') {
            struct text value = {0};
            enum status st = shell_expand_one(s, op + 1, (size_t)(end - op - 1), line, &value);
            if (!st) shell_set(s, name, value.data ? value.data : "");
            text_release(&value);
            TRY(st);
        }
        return expand(s, op + 1, end, quoted, line, f);
    }
    if (colon && w.count == 1) return add_part(s, f, w.items[0], op, end, quoted, line);
    if (!w.count) return STATUS_OK;
    return add_unknown(s, f, name, name + strlen(name), line);
}

/* ${...}, without its braces. */
static enum status add_braced(struct shell *s, struct fields *f, const char *at, const char *end,
                              bool quoted, int line)
{
    bool length = at + 1 < end && *at == '#';
    const char *from = at + length, *to = from;
    if (to < end && strchr("@*?$!", *to))
        to++;
    else
        while (to < end && (isalnum((unsigned char)*to) || *to == '_')) to++;
    if (to == from) return add_unknown(s, f, at, end, line);
    char *name = heap_string(from, (size_t)(to - from));
    struct shell_words w = look_up(s, name);
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
        w.count = 1; /* $A of an array is its first */
    }
    char system[64];
    snprintf(system, sizeof system, "${%.50s}", name);
    char *system_words[] = {system};
    if (!w.count && shell_is_of_the_system(name) && !shell_find(s, name))
        w = (struct shell_words){system_words, 1};
    if (!known)
        st = add_unknown(s, f, at, end, line);
    else if (length && w.count && shell_is_unknown(w.items[0]))
        st = add_unknown(s, f, at, end, line);
    else if (length) {
        char number[24];
        snprintf(number, sizeof number, "%zu", all ? w.count : w.count ? strlen(w.items[0]) : 0);
        st = add(s, f, number, strlen(number), quoted, line);
    } else if (to < end) {
        st = add_modified(s, f, name, w, to, end, quoted, line);
    } else {
        st = add_words(s, f, w, quoted && w.count, line);
    }
    free(name);
    return st;
}

static enum status add_dollar(struct shell *s, struct fields *f, const char **at, const char *end,
                              bool quoted, int line)
{
    const char *begin = *at, *to = past(begin, end, 0);
    *at = to ? to : end;
    if (begin + 1 >= end) return add(s, f, "$", 1, true, line);
    if (!to) return add_unknown(s, f, begin + 2, end, line);
    if (begin[1] == '(' && begin + 2 < end && begin[2] == '(' && to[-2] == ')') {
        char *text = heap_string(begin + 3, (size_t)(to - 2 - (begin + 3)));
        struct text sum = {0};
        enum status st = shell_sum(s, text, line, &sum);
        if (!st) st = add(s, f, sum.data, sum.len, true, line);
        text_release(&sum);
        free(text);
        return st;
    }
    if (begin[1] == '(') return add_unknown(s, f, begin + 2, to - 1, line);
    if (begin[1] == '{') return add_braced(s, f, begin + 2, to - 1, quoted, line);
    const char *name = begin + 1, *stop = name;
    if (isdigit((unsigned char)*stop) || strchr("@*?$!#-", *stop))
        stop++;
    else
        while (stop < end && (isalnum((unsigned char)*stop) || *stop == '_')) stop++;
    *at = stop;
    if (stop == name) return add(s, f, "$", 1, true, line);
    if (*name == '?') return add(s, f, "0", 1, true, line);
    if (*name == '#') {
        char number[24];
        snprintf(number, sizeof number, "%zu", s->arguments.count);
        return add(s, f, number, strlen(number), true, line);
    }
    if (strchr("$!-", *name)) return add_unknown(s, f, name, stop, line);
    return add_braced(s, f, name, stop, quoted, line);
}

static enum status expand(struct shell *s, const char *at, const char *end, bool quoted, int line,
                          struct fields *f)
{
    if (++s->depth > SHELL_DEPTH) FAIL(CONFIG, "%s:%d: nested too deeply", s->file, line);
    TRY(shell_step(s, line));
    while (at < end) {
        if (*at == '\\' && at + 1 < end) {
            bool special = !quoted || strchr("$`\"\\\n", at[1]);
            if (!special) TRY(add(s, f, at, 1, true, line));
            if (at[1] != '\n') TRY(add(s, f, at + 1, 1, true, line));
            at += 2;
        } else if (*at == '\'' && !quoted) {
            const char *to = past(at, end, 0);
            if (!to) to = end;
            f->open = true;
            TRY(add(s, f, at + 1, (size_t)(to - at - (to > at + 1 && to[-1] == '\'' ? 2 : 1)), true,
                    line));
            at = to;
        } else if (*at == '"' && !quoted) {
            const char *to = past(at, end, 0);
            bool closed = to != NULL;
            if (!to) to = end;
            bool list = to - at > 3 && at[1] == '$' && memchr(at, '@', (size_t)(to - at));
            if (!list) f->open = true; /* "" is a word, "${EMPTY[@]}" is none */
            TRY(expand(s, at + 1, to - closed, true, line, f));
            at = to;
        } else if (*at == '`') {
            const char *to = past(at, end, 0);
            TRY(add_unknown(s, f, at + 1, to ? to - 1 : end, line));
            at = to ? to : end;
        } else if (*at == '$') {
            TRY(add_dollar(s, f, &at, end, quoted, line));
        } else {
            TRY(add(s, f, at, 1, true, line));
            at++;
        }
    }
    s->depth--;
    return STATUS_OK;
}

enum status shell_expand(struct shell *s, const char *raw, size_t len, int line,
                         struct shell_words *out)
{
    struct fields f = {.out = out, .split = true};
    enum status st = expand(s, raw, raw + len, false, line, &f);
    flush(&f);
    text_release(&f.now);
    return st;
}

enum status shell_expand_one(struct shell *s, const char *raw, size_t len, int line,
                             struct text *out)
{
    struct shell_words none = {0};
    struct fields f = {.out = &none};
    enum status st = expand(s, raw, raw + len, false, line, &f);
    text_adds(out, "");
    text_add(out, f.now.data ? f.now.data : "", f.now.len);
    text_release(&f.now);
    shell_words_release(&none);
    return st;
}
