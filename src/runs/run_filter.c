// SPDX-License-Identifier: Apache-2.0
#include "runs/run_filter.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum run_relation { EQUAL, UNEQUAL, BELOW, AT_MOST, ABOVE, AT_LEAST, CONTAINS };

/* The longer of two that begin alike comes first. */
static const struct {
    const char *symbol;
    enum run_relation relation;
} relations[] = {{"==", EQUAL},    {"=", EQUAL}, {"!=", UNEQUAL}, {"<=", AT_MOST},
                 {">=", AT_LEAST}, {"<", BELOW}, {">", ABOVE},    {"~", CONTAINS}};

struct run_comparison {
    char *column, *value;
    enum run_relation relation;
    bool is_number, begins_alternative; /* after "or", and the first */
    double number;
    size_t at; /* character of the filter where the column begins, from 1 */
};

struct filter_parser {
    const char *text, *at;
};

static void skip_spaces(struct filter_parser *p)
{
    while (isspace((unsigned char)*p->at)) p->at++;
}

/* Number of the current character, from 1. */
static size_t position_of(const struct filter_parser *p)
{
    size_t position = 1;
    for (const char *at = p->text; at < p->at; at++)
        position += ((unsigned char)*at & 0xc0) != 0x80;
    return position;
}

/* At the current position, or at the end. */
static enum status fail_expected(const struct filter_parser *p, const char *expected)
{
    FAIL(USAGE, "--filter \"%s\": character %zu: expected %s%s", p->text, position_of(p), expected,
         *p->at ? "" : ", but the filter ends");
}

static bool is_symbol(char c) { return c && strchr("=!<>~,&|\"'", c); }

/* Bytes of a word; a value may hold "=" and the like only in quotes. */
static size_t word_length(const char *at)
{
    size_t n = 0;
    while (at[n] && !isspace((unsigned char)at[n]) && !is_symbol(at[n])) n++;
    return n;
}

static enum status parse_value(struct filter_parser *p, struct run_comparison *c)
{
    skip_spaces(p);
    if (*p->at == '"' || *p->at == '\'') {
        const char *end = strchr(p->at + 1, *p->at);
        if (!end) return fail_expected(p, "a closing quote");
        c->value = heap_string(p->at + 1, (size_t)(end - p->at - 1));
        p->at = end + 1;
        return STATUS_OK;
    }
    size_t len = word_length(p->at);
    if (!len) return fail_expected(p, "a value");
    c->value = heap_string(p->at, len);
    p->at += len;
    return STATUS_OK;
}

/* 15m as 900, for ages. */
static bool parse_duration(const char *text, double *seconds)
{
    static const char units[] = "smhd";
    static const double factors[] = {1, 60, 3600, 86400};
    size_t len = strlen(text);
    const char *unit = len > 1 ? strchr(units, text[len - 1]) : NULL;
    if (!unit) return false;
    char *number = heap_string(text, len - 1);
    bool is_number = run_cell_parse_number(number, seconds);
    free(number);
    *seconds *= factors[unit - units];
    return is_number;
}

static enum status parse_relation(struct filter_parser *p, enum run_relation *relation)
{
    skip_spaces(p);
    for (size_t i = 0; i < sizeof relations / sizeof *relations; i++) {
        size_t len = strlen(relations[i].symbol);
        if (strncmp(p->at, relations[i].symbol, len)) continue;
        *relation = relations[i].relation;
        p->at += len;
        return STATUS_OK;
    }
    return fail_expected(p, "=, !=, <, <=, >, >= or ~ after the column's name");
}

static enum status parse_comparison(struct filter_parser *p, struct run_comparison *c)
{
    skip_spaces(p);
    size_t len = word_length(p->at);
    if (!len) return fail_expected(p, "the name of a column");
    c->at = position_of(p);
    c->column = heap_string(p->at, len);
    p->at += len;
    TRY(parse_relation(p, &c->relation));
    skip_spaces(p);
    const char *value = p->at;
    TRY(parse_value(p, c));
    c->is_number = run_cell_parse_number(c->value, &c->number) ||
                   ((!strcmp(c->column, "age") || !strcmp(c->column, "eta")) &&
                    parse_duration(c->value, &c->number));
    bool is_ordering = c->relation >= BELOW && c->relation <= AT_LEAST;
    if (is_ordering && !c->is_number) {
        p->at = value;
        return fail_expected(p, "a number");
    }
    return STATUS_OK;
}

/* Whether another comparison follows; *is_alternative after "or". */
static enum status parse_conjunction(struct filter_parser *p, bool *more, bool *is_alternative)
{
    static const struct {
        const char *word;
        bool is_or;
    } words[] = {{"&&", false}, {"||", true}, {",", false}, {"and", false}, {"or", true}};
    skip_spaces(p);
    *more = *p->at != 0;
    if (!*more) return STATUS_OK;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t len = strlen(words[i].word);
        bool is_word = isalpha((unsigned char)words[i].word[0]);
        if (strncmp(p->at, words[i].word, len) || (is_word && word_length(p->at) != len)) continue;
        *is_alternative = words[i].is_or;
        p->at += len;
        return STATUS_OK;
    }
    return fail_expected(p, "\"and\" or \"or\" between comparisons");
}

enum status run_filter_parse(struct run_filter *f, const char *text)
{
    struct filter_parser p = {text, text};
    bool more = true, is_alternative = true;
    enum status st = STATUS_OK;
    *f = (struct run_filter){0};
    while (more) {
        f->all = heap_grow(f->all, f->count + 1, sizeof *f->all);
        f->all[f->count] = (struct run_comparison){.begins_alternative = is_alternative};
        TRY_OUT(parse_comparison(&p, &f->all[f->count++]));
        TRY_OUT(parse_conjunction(&p, &more, &is_alternative));
    }
out:
    if (st) run_filter_release(f);
    return st;
}

void run_filter_release(struct run_filter *f)
{
    for (size_t i = 0; i < f->count; i++) free(f->all[i].column), free(f->all[i].value);
    free(f->all);
    *f = (struct run_filter){0};
}

enum status run_filter_check(const struct run_filter *f, const struct run_list *l)
{
    for (size_t i = 0; i < f->count; i++) {
        enum status st = run_cell_check_column(l, f->all[i].column);
        if (st) return status_prefix(st, "--filter: character %zu", f->all[i].at);
    }
    return STATUS_OK;
}

static bool compare_numbers(enum run_relation relation, double a, double b)
{
    switch (relation) {
    case EQUAL: return a == b;
    case UNEQUAL: return !(a == b);
    case BELOW: return a < b;
    case AT_MOST: return a <= b;
    case ABOVE: return a > b;
    case AT_LEAST: return a >= b;
    case CONTAINS: break;
    }
    return false;
}

static bool accepts(const struct run_comparison *c, const struct run_folder *r, double now_s)
{
    const struct run_cell cell = run_cell_of(r, c->column, now_s);
    bool is_unequal = c->relation == UNEQUAL;
    if (cell.kind == RUN_CELL_none) return is_unequal;
    if (cell.kind == RUN_CELL_number && c->is_number && c->relation != CONTAINS)
        return compare_numbers(c->relation, cell.number, c->number);
    char shown[40];
    snprintf(shown, sizeof shown, "%.9g", cell.number);
    if (isnan(cell.number)) snprintf(shown, sizeof shown, "nan");
    const char *text = cell.text ? cell.text : shown;
    if (c->relation == CONTAINS) return strstr(text, c->value) != NULL;
    if (c->relation == EQUAL) return !strcmp(text, c->value);
    return is_unequal && strcmp(text, c->value) != 0;
}

bool run_filter_accepts(const struct run_filter *f, const struct run_folder *r, double now_s)
{
    bool any = !f->count, all = false;
    for (size_t i = 0; i < f->count; i++) {
        if (f->all[i].begins_alternative) any |= all, all = true;
        all = all && accepts(&f->all[i], r, now_s);
    }
    return any || all;
}
