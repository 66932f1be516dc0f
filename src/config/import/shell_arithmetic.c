// SPDX-License-Identifier: Apache-2.0
#include "config/import/shell_arithmetic.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool shell_arithmetic_number(const char *text, int64_t *out)
{
    char *end;
    while (isspace((unsigned char)*text)) text++;
    errno = 0;
    *out = strtoll(text, &end, 10);
    while (isspace((unsigned char)*end)) end++;
    return end != text && !*end && !errno;
}

/* Parses $((...)) by recursive descent, one function per precedence level. */
struct arithmetic {
    const struct shell *s;
    const char *at;
    int line, depth;
    struct text *unknown;
};

enum { MAX_UNKNOWN_BYTES = 200 };

/* Whether "A,B" has this name. */
static bool lists_name(const struct text *names, const char *name, size_t len)
{
    for (const char *at = names->len ? names->data : ""; *at;) {
        size_t own = strcspn(at, ",");
        if (own == len && !strncmp(at, name, len)) return true;
        at += own + (at[own] == ',');
    }
    return false;
}

/* Adds a name, or those between the brackets of $(A,B...) and ${A}.  The first one always: an empty
 * list means that the value is known. */
static void add_unknown(struct arithmetic *m, const char *at)
{
    for (bool more = true; more; at++) {
        size_t len = 0;
        while (isalnum((unsigned char)at[len]) || (at[len] && strchr("_/-", at[len]))) len++;
        const char *name = len ? at : "?";
        at += len, more = *at == ',';
        if (!len) len = 1;
        bool fits = !m->unknown->len || m->unknown->len + len < MAX_UNKNOWN_BYTES;
        if (fits && !lists_name(m->unknown, name, len)) {
            if (m->unknown->len) text_adds(m->unknown, ",");
            text_add(m->unknown, name, len);
        }
    }
}

static enum status parse_sum(struct arithmetic *m, int64_t *out);

static enum status fail_at(const struct arithmetic *m, const char *why)
{
    FAIL(CONFIG, "%s:%d: $((...)): %s at \"%.30s\"", m->s->file, m->line, why, m->at);
}

static void skip_blanks(struct arithmetic *m)
{
    while (isspace((unsigned char)*m->at)) m->at++;
}

static enum status parse_factor(struct arithmetic *m, int64_t *out)
{
    *out = 0;
    if (++m->depth > SHELL_MAX_DEPTH) return fail_at(m, "nested too deeply");
    skip_blanks(m);
    if (*m->at == '(') {
        m->at++;
        TRY(parse_sum(m, out));
        skip_blanks(m);
        if (*m->at++ != ')') return m->at--, fail_at(m, "missing )");
    } else if (*m->at == '-' || *m->at == '+') {
        bool minus = *m->at++ == '-';
        TRY(parse_factor(m, out));
        if (minus && __builtin_sub_overflow(0, *out, out)) return fail_at(m, "overflow");
    } else if (!strncmp(m->at, "$(", 2) || !strncmp(m->at, "${", 2)) {
        const char *close = strchr(m->at, m->at[1] == '(' ? ')' : '}');
        add_unknown(m, m->at + 2);
        m->at = close ? close + 1 : m->at + strlen(m->at);
    } else if (isdigit((unsigned char)*m->at)) {
        char *end;
        errno = 0;
        *out = strtoll(m->at, &end, 10);
        if (errno) return fail_at(m, "overflow");
        m->at = end;
    } else {
        size_t len = 0;
        while (isalnum((unsigned char)m->at[len]) || m->at[len] == '_') len++;
        if (!shell_is_name(m->at, len)) return fail_at(m, "expected a number or a name");
        char *name = heap_string(m->at, len);
        const char *value = shell_get(m->s, name);
        bool is_unknown = value ? shell_is_unknown(value) : shell_is_system_variable(name);
        if (is_unknown) add_unknown(m, name);
        free(name);
        if (!is_unknown && value && *value && !shell_arithmetic_number(value, out))
            return fail_at(m, "not a whole number");
        m->at += len;
    }
    m->depth--;
    return STATUS_OK;
}

static enum status parse_product(struct arithmetic *m, int64_t *out)
{
    TRY(parse_factor(m, out));
    for (skip_blanks(m); *m->at && strchr("*/%", *m->at); skip_blanks(m)) {
        char op = *m->at++;
        int64_t right;
        TRY(parse_factor(m, &right));
        if (op == '*') {
            if (__builtin_mul_overflow(*out, right, out)) return fail_at(m, "overflow");
        } else if (!right || right == -1) {
            if (!right && !m->unknown->len) return fail_at(m, "division by 0");
            *out = op == '%' || !right ? 0 : *out == INT64_MIN ? 0 : -*out;
        } else {
            *out = op == '/' ? *out / right : *out % right;
        }
    }
    return STATUS_OK;
}

static enum status parse_sum(struct arithmetic *m, int64_t *out)
{
    TRY(parse_product(m, out));
    for (skip_blanks(m); *m->at == '+' || *m->at == '-'; skip_blanks(m)) {
        bool minus = *m->at++ == '-';
        int64_t right;
        TRY(parse_product(m, &right));
        if (minus ? __builtin_sub_overflow(*out, right, out)
                  : __builtin_add_overflow(*out, right, out))
            return fail_at(m, "overflow");
    }
    return STATUS_OK;
}

enum status shell_arithmetic_evaluate(const struct shell *s, const char *text, int line,
                                      int64_t *out, struct text *unknown)
{
    struct arithmetic m = {.s = s, .at = text, .line = line, .unknown = unknown};
    TRY(parse_sum(&m, out));
    if (*m.at) return fail_at(&m, "syntax error");
    return STATUS_OK;
}
