// SPDX-License-Identifier: Apache-2.0
#include "base/option.h"

#include "base/closest.h"
#include "base/file.h"
#include "base/toml_parse.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "1024", or "2^53" for a large power of two. */
static void write_bound(struct text *out, double x)
{
    int exponent;
    if (x >= 1e15 && frexp(x, &exponent) == 0.5)
        text_addf(out, "2^%d", exponent - 1);
    else
        text_addf(out, fabs(x) < 1e15 && x == floor(x) ? "%.0f" : "%g", x);
}

void option_write_bounds(const struct option *o, struct text *out)
{
    write_bound(out, o->least);
    text_adds(out, " to ");
    write_bound(out, o->most);
}

/* Arrays of numbers. */
static bool has_numbers(enum option_kind kind)
{
    return kind == OPTION_INTS || kind == OPTION_REALS || kind == OPTION_RANGES;
}

void option_allowed(const struct option *o, struct text *out)
{
    static const char *const kinds[] = {[OPTION_INT] = "a whole number",
                                        [OPTION_REAL] = "a number",
                                        [OPTION_BOOL] = "true or false",
                                        [OPTION_AUTO] = "true, false or \"auto\"",
                                        [OPTION_TEXT] = "a string",
                                        [OPTION_WORD] = "",
                                        [OPTION_LIST] = "an array of strings",
                                        [OPTION_INTS] = "an array of whole numbers",
                                        [OPTION_REALS] = "an array of numbers",
                                        [OPTION_RANGES] = "an array of ranges [first, last]"};
    bool has_bounds = o->kind == OPTION_INT || o->kind == OPTION_REAL || has_numbers(o->kind);
    text_adds(out, kinds[o->kind]);
    if (o->kind == OPTION_WORD) text_add_choices(out, o->unit);
    if (!has_bounds) return;
    if (o->unit[0]) text_addf(out, " (%s)", o->unit);
    text_adds(out, " from ");
    option_write_bounds(o, out);
}

static enum status fail_expected(const struct option *o)
{
    struct text allowed = {0};
    option_allowed(o, &allowed);
    enum status st = FAILURE(CONFIG, "expected %s", allowed.data);
    text_release(&allowed);
    return st;
}

/* The word after a word of "a|b|c", or NULL. */
static const char *next_word(const char *at)
{
    const char *bar = strchr(at, '|');
    return bar ? bar + 1 : NULL;
}

/* Compares the word at `at` of a list with `word`, ignoring case, and underscores that only `word`
 * has: torch accepts any case of a schedule's name, and torchtitan's forks have
 * "interleaved_1f1b". */
static bool is_word(const char *at, const char *word)
{
    for (; *word; word++) {
        if (*word == '_' && *at != '_') continue;
        if (*at == '|' || tolower((unsigned char)*word) != tolower((unsigned char)*at++))
            return false;
    }
    return *at == '|' || !*at;
}

/* The index of `word` in the list, or -1. */
static int word_index(const char *word, const char *list)
{
    int index = 0;
    for (const char *at = list; at; at = next_word(at), index++)
        if (*word && is_word(at, word)) return index;
    return -1;
}

/* What other programs call a word of ours. */
static const struct closest_synonym word_synonyms[] = {
    {"gpu", "cuda"},
    {"nvidia", "cuda"},
    {"amd", "hip"},
    {"rocm", "hip"},
};

/* The same for a word that the option does not have, with the one that it means or resembles. */
static enum status fail_word(const struct option *o, const char *word)
{
    const char *known =
        closest_find_synonym(word_synonyms, sizeof word_synonyms / sizeof *word_synonyms, word);
    if (known && word_index(known, o->unit) < 0) known = NULL;
    struct closest c = closest_to(known ? known : word);
    size_t len = closest_offer_list(&c, o->unit);
    struct text allowed = {0};
    option_allowed(o, &allowed);
    if (len) text_addf(&allowed, "; did you mean \"%.*s\"?", (int)len, c.name);
    enum status st = FAILURE(CONFIG, "expected %s", allowed.data);
    text_release(&allowed);
    return st;
}

/* Appends the word at `index` of the list in quotes, as TOML. */
static void quote_word(struct text *out, const char *list, int index)
{
    for (; list && index > 0; index--) list = next_word(list);
    BUG_IF(!list || index < 0);
    char *word = heap_string(list, strcspn(list, "|"));
    option_quote(out, word);
    free(word);
}

static enum status set_number(const struct option *o, void *field, const struct toml *v)
{
    double x = v->kind == TOML_INTEGER ? (double)v->integer : v->real;
    if (v->kind != TOML_INTEGER && (v->kind != TOML_FLOAT || o->kind == OPTION_INT))
        return fail_expected(o);
    if (!(x >= o->least && x <= o->most)) return fail_expected(o);
    if (o->kind == OPTION_INT)
        *(option_INT *)field = v->integer;
    else
        *(option_REAL *)field = x;
    return STATUS_OK;
}

static bool is_within(const struct option *o, const struct toml *v)
{
    return v && v->kind == TOML_INTEGER && (double)v->integer >= o->least &&
           (double)v->integer <= o->most;
}

static enum status set_ints(const struct option *o, void *field, const struct toml *v)
{
    option_INTS ints = {0};
    if (v->kind != TOML_ARRAY) return fail_expected(o);
    for (const struct toml *item = v->first; item; item = item->next)
        if (!is_within(o, item)) return fail_expected(o);
    ints.items = heap(v->count * sizeof *ints.items);
    for (const struct toml *item = v->first; item; item = item->next)
        ints.items[ints.count++] = item->integer;
    free(((option_INTS *)field)->items);
    *(option_INTS *)field = ints;
    return STATUS_OK;
}

static enum status set_reals(const struct option *o, void *field, const struct toml *v)
{
    option_REALS reals = {0};
    if (v->kind != TOML_ARRAY) return fail_expected(o);
    reals.items = heap(v->count * sizeof *reals.items);
    for (const struct toml *item = v->first; item; item = item->next) {
        double x = item->kind == TOML_INTEGER ? (double)item->integer : item->real;
        bool is_number = item->kind == TOML_INTEGER || item->kind == TOML_FLOAT;
        if (!is_number || !(x >= o->least && x <= o->most)) {
            free(reals.items);
            return fail_expected(o);
        }
        reals.items[reals.count++] = x;
    }
    free(((option_REALS *)field)->items);
    *(option_REALS *)field = reals;
    return STATUS_OK;
}

/* A whole number alone is the range of that number. */
static enum status set_ranges(const struct option *o, void *field, const struct toml *v)
{
    option_RANGES ranges = {0};
    if (v->kind != TOML_ARRAY) return fail_expected(o);
    ranges.items = heap(v->count * sizeof *ranges.items);
    for (const struct toml *item = v->first; item; item = item->next) {
        const struct toml *first = item->kind == TOML_ARRAY ? item->first : item;
        const struct toml *last = item->kind == TOML_ARRAY && first ? first->next : first;
        bool is_pair = item->kind != TOML_ARRAY || item->count == 2;
        if (!is_pair || !is_within(o, first) || !is_within(o, last) ||
            last->integer < first->integer) {
            free(ranges.items);
            return fail_expected(o);
        }
        ranges.items[ranges.count++] = (struct option_range){first->integer, last->integer};
    }
    free(((option_RANGES *)field)->items);
    *(option_RANGES *)field = ranges;
    return STATUS_OK;
}

static enum status set_list(const struct option *o, void *field, const struct toml *v)
{
    option_LIST list = {0};
    if (v->kind != TOML_ARRAY) return fail_expected(o);
    for (const struct toml *item = v->first; item; item = item->next)
        if (item->kind != TOML_STRING || strlen(item->text) != item->len) return fail_expected(o);
    list.items = heap(v->count * sizeof *list.items);
    for (const struct toml *item = v->first; item; item = item->next)
        list.items[list.count++] = item->text;
    free(((option_LIST *)field)->items);
    *(option_LIST *)field = list;
    return STATUS_OK;
}

/* A TEXT row whose unit is "path|hf|s3" accepts a path and URLs of these schemes. */
static enum status check_path(const struct option *o, const char *value)
{
    size_t n = file_url_scheme(value);
    if (!n || strncmp(o->unit, "path", 4)) return STATUS_OK;
    for (const char *at = o->unit; (at = next_word(at));)
        if (strcspn(at, "|") == n && !strncmp(at, value, n)) return STATUS_OK;
    if (!next_word(o->unit)) FAIL(CONFIG, "expected a local path, got a URL");
    struct text schemes = {0};
    for (const char *at = o->unit; (at = next_word(at));)
        text_addf(&schemes, "%s%.*s://", next_word(at) ? ", " : " or ", (int)strcspn(at, "|"), at);
    enum status st = FAILURE(CONFIG, "unknown URL scheme \"%.*s\"; expected a path%s", (int)n,
                             value, schemes.data);
    text_release(&schemes);
    return st;
}

enum status option_set(const struct option *o, void *into, const struct toml *v)
{
    void *field = (char *)into + o->offset;
    bool string = v->kind == TOML_STRING && strlen(v->text) == v->len;
    switch (o->kind) {
    case OPTION_INT:
    case OPTION_REAL: return set_number(o, field, v);
    case OPTION_BOOL:
        if (v->kind != TOML_BOOL) return fail_expected(o);
        *(option_BOOL *)field = v->boolean;
        return STATUS_OK;
    case OPTION_AUTO:
        if (v->kind == TOML_BOOL)
            *(option_AUTO *)field = v->boolean ? YES : NO;
        else if (string && !strcmp(v->text, "auto"))
            *(option_AUTO *)field = AUTO;
        else
            return fail_expected(o);
        return STATUS_OK;
    case OPTION_WORD:
        if (!string) return fail_expected(o);
        if (word_index(v->text, o->unit) < 0) return fail_word(o, v->text);
        *(option_WORD *)field = word_index(v->text, o->unit);
        return STATUS_OK;
    case OPTION_TEXT:
        if (!string) return fail_expected(o);
        TRY(check_path(o, v->text));
        *(option_TEXT *)field = v->text;
        return STATUS_OK;
    case OPTION_LIST: return set_list(o, field, v);
    case OPTION_INTS: return set_ints(o, field, v);
    case OPTION_REALS: return set_reals(o, field, v);
    case OPTION_RANGES: return set_ranges(o, field, v);
    }
    BUG("unknown kind of option");
}

void option_write_real(struct text *out, double x)
{
    char digits[40];
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, x);
        if (strtod(digits, NULL) == x) break;
    }
    text_adds(out, digits);
    if (isfinite(x) && !strpbrk(digits, ".e")) text_adds(out, ".0");
}

/* Turns a bare word into TOML of the option's type.  Python's .9, 1. and True are not TOML, nor is
 * the shell's 007. */
static void text_to_toml(const struct option *o, const char *text, struct text *toml)
{
    while (o->kind == OPTION_INT && text[0] == '0' && isdigit((unsigned char)text[1])) text++;
    bool numbers = has_numbers(o->kind);
    bool list = (o->kind == OPTION_LIST || numbers) && text[0] != '[';
    bool string = o->kind == OPTION_TEXT || o->kind == OPTION_WORD ||
                  (o->kind == OPTION_AUTO && !strcmp(text, "auto"));
    bool quoted = text[0] == '"' || text[0] == '\'';
    char *end;
    double real = strtod(text, &end);
    if (o->kind == OPTION_REAL && end != text && !*end && isfinite(real)) {
        option_write_real(toml, real);
        return;
    }
    if ((!string && !list) || (string && quoted)) {
        bool python = !strcmp(text, "True") || !strcmp(text, "False");
        text_adds(toml, !python ? text : *text == 'T' ? "true" : "false");
        return;
    }
    text_adds(toml, list ? "[" : "");
    if (string) option_quote(toml, text);
    for (const char *at = text; list && *at;) { /* a,b,c */
        size_t len = strcspn(at, ",");
        char *item = heap_string(at, len);
        if (numbers)
            text_adds(toml, item);
        else
            option_quote(toml, item);
        text_adds(toml, ",");
        free(item);
        at += len + (at[len] == ',');
    }
    text_adds(toml, list ? "]" : "");
}

enum status option_set_text(const struct option *o, void *into, const char *text,
                            struct toml **keep)
{
    struct text toml = {0};
    *keep = NULL;
    if (!text_is_utf8(text, strlen(text))) FAIL(CONFIG, "expected text that is valid UTF-8");
    text_to_toml(o, text, &toml);
    enum status st = toml_parse_value(toml.data ? toml.data : "", toml.len, "value", keep);
    text_release(&toml);
    if (st) return fail_expected(o);
    return option_set(o, into, *keep);
}

bool option_list_contains(const struct option_list *l, const char *word)
{
    for (size_t i = 0; i < l->count; i++)
        if (!strcmp(l->items[i], word)) return true;
    return false;
}

void option_release(const struct option *o, void *from)
{
    void *field = (char *)from + o->offset;
    switch (o->kind) {
    case OPTION_LIST:
        free(((option_LIST *)field)->items), *(option_LIST *)field = (option_LIST){0};
        break;
    case OPTION_INTS:
        free(((option_INTS *)field)->items), *(option_INTS *)field = (option_INTS){0};
        break;
    case OPTION_REALS:
        free(((option_REALS *)field)->items), *(option_REALS *)field = (option_REALS){0};
        break;
    case OPTION_RANGES:
        free(((option_RANGES *)field)->items), *(option_RANGES *)field = (option_RANGES){0};
        break;
    case OPTION_INT:
    case OPTION_REAL:
    case OPTION_BOOL:
    case OPTION_AUTO:
    case OPTION_TEXT:
    case OPTION_WORD: break;
    }
}

bool option_ranges_contain(const struct option_ranges *r, int64_t number)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->items[i].first <= number && number <= r->items[i].last) return true;
    return false;
}

void option_quote(struct text *out, const char *string)
{
    text_adds(out, "\"");
    for (const char *at = string; *at; at++) {
        unsigned char c = (unsigned char)*at;
        if (c == '"' || c == '\\')
            text_addf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7F)
            text_addf(out, "\\u%04X", c);
        else
            text_add(out, at, 1);
    }
    text_adds(out, "\"");
}

/* The i-th item of an array; false: it has fewer. */
static bool write_item(const struct option *o, const void *field, size_t i, struct text *out)
{
    const option_LIST *list = field;
    const option_INTS *ints = field;
    const option_REALS *reals = field;
    const option_RANGES *ranges = field;
    const char *comma = i ? ", " : "";
    switch (o->kind) {
    case OPTION_LIST:
        if (i >= list->count) return false;
        text_adds(out, comma);
        option_quote(out, list->items[i]);
        return true;
    case OPTION_INTS:
        if (i >= ints->count) return false;
        text_addf(out, "%s%lld", comma, (long long)ints->items[i]);
        return true;
    case OPTION_REALS:
        if (i >= reals->count) return false;
        text_adds(out, comma);
        option_write_real(out, reals->items[i]);
        return true;
    case OPTION_RANGES:
        if (i >= ranges->count) return false;
        text_addf(out, "%s[%lld, %lld]", comma, (long long)ranges->items[i].first,
                  (long long)ranges->items[i].last);
        return true;
    default: BUG("not an array");
    }
}

void option_write(const struct option *o, const void *from, struct text *out)
{
    const void *field = (const char *)from + o->offset;
    switch (o->kind) {
    case OPTION_INT: text_addf(out, "%lld", (long long)*(const option_INT *)field); return;
    case OPTION_REAL: option_write_real(out, *(const option_REAL *)field); return;
    case OPTION_BOOL: text_adds(out, *(const option_BOOL *)field ? "true" : "false"); return;
    case OPTION_AUTO: {
        option_AUTO x = *(const option_AUTO *)field;
        text_adds(out, x == AUTO ? "\"auto\"" : x == YES ? "true" : "false");
        return;
    }
    case OPTION_TEXT: option_quote(out, *(const option_TEXT *)field); return;
    case OPTION_WORD: quote_word(out, o->unit, *(const option_WORD *)field); return;
    case OPTION_LIST:
    case OPTION_INTS:
    case OPTION_REALS:
    case OPTION_RANGES:
        text_adds(out, "[");
        for (size_t i = 0; write_item(o, field, i, out); i++) continue;
        text_adds(out, "]");
        return;
    }
    BUG("unknown kind of option");
}
