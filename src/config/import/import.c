// SPDX-License-Identifier: Apache-2.0
#include "config/import/import.h"

#include "base/closest.h"
#include "config/sections.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum status import_init(struct import *im, const char *file, const char *format)
{
    *im = (struct import){.file = file, .format = format, .lenient = im->lenient};
    return config_load(&im->config, NULL, NULL, 0);
}

void import_release(struct import *im)
{
    for (size_t i = 0; i < im->num_items; i++) {
        for (size_t k = 0; k < im->items[i].count; k++) free(im->items[i].values[k]);
        free(im->items[i].values), free(im->items[i].key);
    }
    for (size_t i = 0; i < im->num_notes; i++) {
        struct import_note *n = &im->notes[i];
        free(n->key), free(n->value), free(n->target), free(n->text);
    }
    for (size_t i = 0; i < im->num_sources; i++)
        free(im->sources[i].path), free(im->sources[i].column);
    free(im->items), free(im->notes), free(im->sources);
    config_release(&im->config);
    *im = (struct import){0};
}

void import_add_item(struct import *im, const char *key, int line, const char *const *values,
                     size_t count)
{
    im->items = heap_grow(im->items, im->num_items + 1, sizeof *im->items);
    struct import_item *item = &im->items[im->num_items++];
    *item = (struct import_item){
        .key = heap_strdup(key), .null = !values, .line = line, .count = values ? count : 0};
    item->values = heap(item->count * sizeof *item->values);
    for (size_t i = 0; i < item->count; i++) item->values[i] = heap_strdup(values[i]);
}

static const struct import_item *last_of(const struct import *im, const char *key)
{
    for (size_t i = im->num_items; i > 0; i--)
        if (!strcmp(im->items[i - 1].key, key)) return &im->items[i - 1];
    return NULL;
}

const struct import_item *import_get(const struct import *im, const char *key)
{
    const struct import_item *found = last_of(im, key);
    return found && !found->null ? found : NULL;
}

/* "file:line: key" or "command line: key", for messages; the file alone for NULL. */
static void add_origin(const struct import *im, const struct import_item *item, struct text *out)
{
    if (!item)
        text_adds(out, im->file);
    else if (item->line)
        text_addf(out, "%s:%d: %s", im->file, item->line, item->key);
    else
        text_addf(out, "command line: %s", item->key);
}

static void write_values(const struct import_item *item, struct text *out)
{
    if (item->null) text_adds(out, "null");
    for (size_t i = 0; i < item->count; i++) text_addf(out, "%s%s", i ? " " : "", item->values[i]);
}

enum status import_bad_value(const struct import *im, const struct import_item *item,
                             const char *expected)
{
    struct text where = {0}, shown = {0};
    add_origin(im, item, &where);
    write_values(item, &shown);
    FAILURE(CONFIG, "%s = %.200s: expected %s", where.data, shown.data ? shown.data : "nothing",
            expected);
    text_release(&where), text_release(&shown);
    return STATUS_CONFIG;
}

enum status import_parse_string(const struct import *im, const struct import_item *item,
                                const char **out)
{
    if (item->count != 1) return import_bad_value(im, item, "one value");
    if (out) *out = item->values[0];
    return STATUS_OK;
}

enum status import_parse_int(const struct import *im, const struct import_item *item, int64_t least,
                             int64_t most, int64_t *out)
{
    const char *text = NULL;
    char *end, expected[96];
    TRY(import_parse_string(im, item, &text));
    errno = 0;
    *out = strtoll(text, &end, 10);
    if (end != text && !*end && !errno && *out >= least && *out <= most) return STATUS_OK;
    snprintf(expected, sizeof expected, "a whole number from %lld to %lld", (long long)least,
             (long long)most);
    return import_bad_value(im, item, expected);
}

enum status import_parse_real(const struct import *im, const struct import_item *item, double *out)
{
    const char *text = NULL;
    char *end;
    TRY(import_parse_string(im, item, &text));
    *out = strtod(text, &end);
    if (end == text || *end || !isfinite(*out)) return import_bad_value(im, item, "a number");
    return STATUS_OK;
}

static bool parse_bool(const char *word, bool *out)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcasecmp(word, words[i])) {
            *out = i % 2;
            return true;
        }
    return false;
}

enum status import_parse_bool(const struct import *im, const struct import_item *item, bool *out)
{
    *out = true; /* a flag without a value */
    if (!item->count || (item->count == 1 && parse_bool(item->values[0], out))) return STATUS_OK;
    return import_bad_value(im, item, "true or false");
}

enum status import_get_int(const struct import *im, const char *key, int64_t preset, int64_t *out)
{
    const struct import_item *item = import_get(im, key);
    *out = preset;
    return item ? import_parse_int(im, item, 0, 1LL << 50, out) : STATUS_OK;
}

enum status import_get_bool(const struct import *im, const char *key, bool preset, bool *out)
{
    const struct import_item *item = import_get(im, key);
    *out = preset;
    return item ? import_parse_bool(im, item, out) : STATUS_OK;
}

const char *import_get_string(const struct import *im, const char *key, const char *preset)
{
    const struct import_item *item = import_get(im, key);
    return item && item->count == 1 ? item->values[0] : preset;
}

static void append_note(struct import *im, const struct import_note *note)
{
    im->notes = heap_grow(im->notes, im->num_notes + 1, sizeof *im->notes);
    im->notes[im->num_notes++] = *note;
}

static void add_note(struct import *im, enum import_verdict verdict, const struct import_item *item,
                     const char *target, const char *text)
{
    struct text value = {0};
    if (item) {
        write_values(item, &value);
        im->items[item - im->items].handled = true;
    }
    append_note(im, &(struct import_note){.verdict = verdict,
                                          .key = heap_strdup(item ? item->key : ""),
                                          .value = value.data ? value.data : heap_strdup(""),
                                          .target = heap_strdup(target),
                                          .text = heap_strdup(text ? text : ""),
                                          .line = item ? item->line : 0});
}

void import_add_note(struct import *im, enum import_verdict verdict, const struct import_item *item,
                     const char *text)
{
    add_note(im, verdict, item, "", text);
}

void import_refuse_default(struct import *im, const char *key, const char *text)
{
    append_note(im, &(struct import_note){.verdict = IMPORT_UNSUPPORTED,
                                          .key = heap_strdup(key),
                                          .value = heap_strdup(""),
                                          .target = heap_strdup(""),
                                          .text = heap_strdup(text)});
}

/* TOML's word for a boolean such as YAML's `on`; other values as they are. */
static const char *toml_value(const struct option *row, const char *value)
{
    bool flag;
    if ((row->kind != OPTION_BOOL && row->kind != OPTION_AUTO) || !parse_bool(value, &flag))
        return value;
    return flag ? "true" : "false";
}

enum status import_set(struct import *im, const struct import_item *item, const char *target,
                       const char *value, const char *text)
{
    const struct config_section *section;
    const struct option *row = config_find(target, &section);
    struct text where = {0};
    if (!row) {
        const struct config_foreign *foreign = config_find_foreign(target);
        BUG_IF(!foreign);
        add_note(im, IMPORT_IGNORED, item, "", foreign->reason);
        return STATUS_OK;
    }
    add_origin(im, item, &where);
    enum status st = config_assign(&im->config, target, toml_value(row, value), where.data);
    if (!st) add_note(im, IMPORT_TRANSLATED, item, target, text);
    text_release(&where);
    return st;
}

enum status import_set_int(struct import *im, const struct import_item *item, const char *target,
                           int64_t value, const char *text)
{
    char word[32];
    snprintf(word, sizeof word, "%lld", (long long)value);
    return import_set(im, item, target, word, text);
}

enum status import_set_real(struct import *im, const struct import_item *item, const char *target,
                            double value, const char *text)
{
    char word[32];
    snprintf(word, sizeof word, "%.17g", value);
    return import_set(im, item, target, word, text);
}

enum status import_copy(struct import *im, const struct import_item *item, const char *target,
                        const char *text)
{
    TRY(import_parse_string(im, item, NULL));
    return import_set(im, item, target, item->values[0], text);
}

enum status import_setf(struct import *im, const struct import_item *item, const char *target,
                        const char *form, ...)
{
    char value[512];
    va_list args;
    va_start(args, form);
    int len = vsnprintf(value, sizeof value, form, args);
    va_end(args);
    if (len < 0 || (size_t)len >= sizeof value)
        FAIL(CONFIG, "%s: %s: the value is longer than %zu bytes", im->file, target,
             sizeof value - 1);
    return import_set(im, item, target, value, "");
}

void import_add_source(struct import *im, const char *path, const char *column, double weight)
{
    im->sources = heap_grow(im->sources, im->num_sources + 1, sizeof *im->sources);
    im->sources[im->num_sources++] =
        (struct import_source){heap_strdup(path), heap_strdup(column), weight};
}

/* Whether the value equals one of the words, which | separates, as text or as a number. */
static bool is_one_of(const struct import_item *item, const char *words)
{
    const char *value = item->null ? "null" : item->count == 1 ? item->values[0] : "";
    for (const char *at = words;; at++) {
        size_t len = strcspn(at, "|");
        char word[64], *end, *word_end;
        snprintf(word, sizeof word, "%.*s", (int)len, at);
        double a = strtod(value, &end), b = strtod(word, &word_end);
        bool numbers = end != value && !*end && word_end != word && !*word_end;
        if (!strcasecmp(word, value) || (numbers && a == b)) return true;
        at += len;
        if (!*at) return false;
    }
}

static const struct import_row *find_row(const struct import_row *rows, size_t count,
                                         const char *key)
{
    for (size_t i = 0; i < count; i++) {
        size_t len = strlen(rows[i].key);
        bool below = len > 2 && !strcmp(rows[i].key + len - 2, ".*");
        if (below ? !strncmp(rows[i].key, key, len - 1) : !strcmp(rows[i].key, key))
            return &rows[i];
    }
    return NULL;
}

bool import_has_row(const struct import_row *rows, size_t count, const char *key)
{
    return find_row(rows, count, key) != NULL;
}

static enum status fail_unknown(const struct import *im, const struct import_item *item,
                                const struct import_row *rows, size_t count)
{
    const char *similar = NULL;
    struct closest c = closest_to(item->key);
    for (size_t i = 0; i < count; i++) {
        const char *name = strrchr(rows[i].key, '.'), *own = strrchr(item->key, '.');
        closest_offer(&c, rows[i].key);
        if (name && own && !strcmp(name, own)) similar = rows[i].key; /* in another section */
    }
    if (c.name && (c.cost <= 2 || !similar)) similar = c.name;
    struct text where = {0};
    add_origin(im, item, &where);
    FAILURE(CONFIG, "%s: not a key of %s; %s%s%s", where.data, im->format,
            similar ? "did you mean " : "--lenient lists such keys and continues",
            similar ? similar : "", similar ? "?" : "");
    text_release(&where);
    return STATUS_CONFIG;
}

static enum status apply_row(struct import *im, const struct import_item *item,
                             const struct import_row *row)
{
    const char *value = NULL;
    if (row->kind == IMPORT_ROW_TAKE && row->target[0] && !item->null) {
        if (item->count) TRY(import_parse_string(im, item, &value));
        return import_set(im, item, row->target, value ? value : "true", row->text);
    }
    bool error = row->kind == IMPORT_ROW_ERROR;
    if (item->null && row->kind == IMPORT_ROW_TAKE)
        import_add_note(im, IMPORT_IGNORED, item, "null: the default applies");
    else if (error && !(row->target[0] && is_one_of(item, row->target))) {
        import_add_note(im, IMPORT_UNSUPPORTED, item, row->text);
        im->notes[im->num_notes - 1].accept = row->key;
    } else
        import_add_note(im, IMPORT_IGNORED, item, error ? "same here" : row->text);
    return STATUS_OK;
}

enum status import_check_known(struct import *im, const struct import_row *rows, size_t count)
{
    for (size_t i = 0; i < im->num_items; i++) {
        const struct import_item *item = &im->items[i];
        if (item->handled || find_row(rows, count, item->key)) continue;
        if (!im->lenient) return fail_unknown(im, item, rows, count);
        import_add_note(im, IMPORT_UNKNOWN, item, "not a key of the original; not used");
    }
    return STATUS_OK;
}

enum status import_check_refusals(struct import *im)
{
    for (size_t i = 0; i < im->num_notes; i++) {
        const struct import_note *n = &im->notes[i];
        struct text what = {0};
        if (n->verdict != IMPORT_UNSUPPORTED) continue;
        if (n->line) text_addf(&what, "%s:%d: ", im->file, n->line);
        text_addf(&what, "%s%s%.200s: %s", n->key, n->value[0] ? " = " : "", n->value, n->text);
        config_refuse(&im->config, n->accept ? n->accept : n->key, what.data);
        text_release(&what);
    }
    return config_check_refusals(&im->config);
}

enum status import_apply_rows(struct import *im, const struct import_row *rows, size_t count)
{
    for (size_t i = 0; i < im->num_items; i++) {
        const struct import_item *item = &im->items[i];
        const struct import_row *row = find_row(rows, count, item->key);
        if (item->handled || !row) continue;
        if (item != last_of(im, item->key))
            import_add_note(im, IMPORT_IGNORED, item, "overridden by a later one");
        else
            TRY(apply_row(im, item, row));
    }
    return STATUS_OK;
}
