// SPDX-License-Identifier: Apache-2.0
#include "config/import/import.h"

#include "base/json.h"
#include "config/sections.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static char *keep(const char *string) { return heap_string(string, strlen(string)); }

enum status import_init(struct import *im, const char *file, const char *format)
{
    *im = (struct import){.file = file, .format = format};
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
        free(n->key), free(n->value), free(n->ours), free(n->text);
    }
    for (size_t i = 0; i < im->num_sources; i++)
        free(im->sources[i].path), free(im->sources[i].column);
    free(im->items), free(im->notes), free(im->sources);
    config_release(&im->config);
    *im = (struct import){0};
}

void import_add_item(struct import *im, const char *key, int line, bool null,
                     const char *const *values, size_t count)
{
    im->items = heap_grow(im->items, im->num_items + 1, sizeof *im->items);
    struct import_item *item = &im->items[im->num_items++];
    *item = (struct import_item){.key = keep(key), .null = null, .line = line, .count = count};
    item->values = heap(count * sizeof *item->values);
    for (size_t i = 0; i < count; i++) item->values[i] = keep(values[i]);
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

void import_where(const struct import *im, const struct import_item *item, struct text *out)
{
    if (!item)
        text_adds(out, im->file);
    else if (item->line)
        text_addf(out, "%s:%d: %s", im->file, item->line, item->key);
    else
        text_addf(out, "command line: %s", item->key);
}

static void show(const struct import_item *item, struct text *out)
{
    if (item->null) text_adds(out, "null");
    for (size_t i = 0; i < item->count; i++) text_addf(out, "%s%s", i ? " " : "", item->values[i]);
}

enum status import_unfit(const struct import *im, const struct import_item *item, const char *want)
{
    struct text where = {0}, shown = {0};
    import_where(im, item, &where);
    show(item, &shown);
    status_fail(STATUS_CONFIG, __FILE__, __LINE__, "%s = %.200s: %s is wanted", where.data,
                shown.data ? shown.data : "nothing", want);
    text_release(&where), text_release(&shown);
    return STATUS_CONFIG;
}

enum status import_text(const struct import *im, const struct import_item *item, const char **out)
{
    if (item->count != 1) return import_unfit(im, item, "one value");
    if (out) *out = item->values[0];
    return STATUS_OK;
}

enum status import_int(const struct import *im, const struct import_item *item, int64_t least,
                       int64_t most, int64_t *out)
{
    const char *text = NULL;
    char *end, want[96];
    TRY(import_text(im, item, &text));
    errno = 0;
    *out = strtoll(text, &end, 10);
    if (end != text && !*end && !errno && *out >= least && *out <= most) return STATUS_OK;
    snprintf(want, sizeof want, "a whole number from %lld to %lld", (long long)least,
             (long long)most);
    return import_unfit(im, item, want);
}

enum status import_real(const struct import *im, const struct import_item *item, double *out)
{
    const char *text = NULL;
    char *end;
    TRY(import_text(im, item, &text));
    *out = strtod(text, &end);
    if (end == text || *end || !isfinite(*out)) return import_unfit(im, item, "a number");
    return STATUS_OK;
}

static bool truth_of(const char *word, bool *out)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcasecmp(word, words[i])) {
            *out = i % 2;
            return true;
        }
    return false;
}

enum status import_truth(const struct import *im, const struct import_item *item, bool *out)
{
    *out = true; /* a flag that is there */
    if (!item->count || (item->count == 1 && truth_of(item->values[0], out))) return STATUS_OK;
    return import_unfit(im, item, "true or false");
}

enum status import_get_int(const struct import *im, const char *key, int64_t preset, int64_t *out)
{
    const struct import_item *item = import_get(im, key);
    *out = preset;
    return item ? import_int(im, item, 0, 1LL << 50, out) : STATUS_OK;
}

enum status import_get_truth(const struct import *im, const char *key, bool preset, bool *out)
{
    const struct import_item *item = import_get(im, key);
    *out = preset;
    return item ? import_truth(im, item, out) : STATUS_OK;
}

const char *import_get_text(const struct import *im, const char *key, const char *preset)
{
    const struct import_item *item = import_get(im, key);
    return item && item->count == 1 ? item->values[0] : preset;
}

static void add_note(struct import *im, enum import_verdict verdict, const struct import_item *item,
                     const char *ours, const char *text)
{
    struct text value = {0};
    if (item) {
        show(item, &value);
        im->items[item - im->items].told = true;
    }
    im->notes = heap_grow(im->notes, im->num_notes + 1, sizeof *im->notes);
    im->notes[im->num_notes++] = (struct import_note){.verdict = verdict,
                                                      .key = keep(item ? item->key : ""),
                                                      .value = value.data ? value.data : keep(""),
                                                      .ours = keep(ours),
                                                      .text = keep(text ? text : ""),
                                                      .line = item ? item->line : 0};
}

void import_note(struct import *im, enum import_verdict verdict, const struct import_item *item,
                 const char *text)
{
    add_note(im, verdict, item, "", text);
}

/* Numbers as TOML has them (".9", "1." are none), truths as it has them. */
static void settle(const struct option *row, const char *value, struct text *out)
{
    bool truth;
    char *end;
    double real = strtod(value, &end);
    if ((row->kind == OPTION_BOOL || row->kind == OPTION_AUTO) && truth_of(value, &truth))
        text_adds(out, truth ? "true" : "false");
    else if (row->kind == OPTION_REAL && end != value && !*end && isfinite(real))
        json_real(out, real);
    else
        text_adds(out, value);
}

enum status import_set(struct import *im, const struct import_item *item, const char *ours,
                       const char *value, const char *text)
{
    const struct config_section *section;
    const struct option *row = config_find(ours, &section);
    struct text where = {0}, settled = {0};
    if (!row) {
        const struct config_ignored *idle = config_find_ignored(ours);
        BUG_IF(!idle);
        add_note(im, IMPORT_NONE, item, "", idle->reason);
        return STATUS_OK;
    }
    settle(row, value, &settled);
    import_where(im, item, &where);
    enum status st = config_assign(&im->config, ours, settled.data ? settled.data : "", where.data);
    if (!st) add_note(im, IMPORT_OURS, item, ours, text);
    text_release(&where), text_release(&settled);
    return st;
}

enum status import_copy(struct import *im, const struct import_item *item, const char *ours,
                        const char *text)
{
    TRY(import_text(im, item, NULL));
    return import_set(im, item, ours, item->values[0], text);
}

enum status import_setf(struct import *im, const struct import_item *item, const char *ours,
                        const char *text, const char *form, ...)
{
    char value[512];
    va_list args;
    va_start(args, form);
    int len = vsnprintf(value, sizeof value, form, args);
    va_end(args);
    if (len < 0 || (size_t)len >= sizeof value)
        FAIL(CONFIG, "%s: %s would be longer than %zu bytes", im->file, ours, sizeof value);
    return import_set(im, item, ours, value, text);
}

void import_add_source(struct import *im, const char *path, const char *column, double weight)
{
    im->sources = heap_grow(im->sources, im->num_sources + 1, sizeof *im->sources);
    im->sources[im->num_sources++] = (struct import_source){keep(path), keep(column), weight};
}

/* Is the item's value one of the words, as text or as a number? */
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

static enum status unknown(const struct import *im, const struct import_item *item,
                           const struct import_row *rows, size_t count)
{
    size_t best = strlen(item->key) / 3 + 1;
    const char *nearest = NULL;
    for (size_t i = 0; i < count; i++) {
        const char *name = strrchr(rows[i].key, '.'), *own = strrchr(item->key, '.');
        bool moved = best > 1 && name && own && !strcmp(name, own); /* the right key elsewhere */
        if (moved) best = 1;
        if (moved || text_is_closer(rows[i].key, item->key, &best)) nearest = rows[i].key;
    }
    struct text where = {0};
    import_where(im, item, &where);
    status_fail(STATUS_CONFIG, __FILE__, __LINE__, "%s: not known to %s%s%s%s", where.data,
                im->format, nearest ? "; did you mean " : "", nearest ? nearest : "",
                nearest ? "?" : "");
    text_release(&where);
    return STATUS_CONFIG;
}

static enum status take_row(struct import *im, const struct import_item *item,
                            const struct import_row *row)
{
    const char *value = NULL;
    if (row->how == IMPORT_TAKE && !item->null) {
        if (item->count) TRY(import_text(im, item, &value));
        return import_set(im, item, row->ours, value ? value : "true", row->text);
    }
    if (item->null && (row->how == IMPORT_TAKE || row->how == IMPORT_CODE))
        import_note(im, IMPORT_NONE, item, "the default holds");
    else if (row->how == IMPORT_LOST || (row->how == IMPORT_ONLY && !is_one_of(item, row->ours)))
        import_note(im, IMPORT_MISSING, item, row->text);
    else
        import_note(im, IMPORT_NONE, item, row->how == IMPORT_ONLY ? "so it is here" : row->text);
    return STATUS_OK;
}

enum status import_known(const struct import *im, const struct import_row *rows, size_t count)
{
    for (size_t i = 0; i < im->num_items; i++)
        if (!im->items[i].told && !find_row(rows, count, im->items[i].key))
            return unknown(im, &im->items[i], rows, count);
    return STATUS_OK;
}

enum status import_rows(struct import *im, const struct import_row *rows, size_t count)
{
    for (size_t i = 0; i < im->num_items; i++) {
        const struct import_item *item = &im->items[i];
        const struct import_row *row = find_row(rows, count, item->key);
        if (item->told || !row) continue;
        if (item != last_of(im, item->key))
            import_note(im, IMPORT_NONE, item, "it is given again behind it");
        else
            TRY(take_row(im, item, row));
    }
    return STATUS_OK;
}
