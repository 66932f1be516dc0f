// SPDX-License-Identifier: Apache-2.0
#include "runs/run_settings.h"

#include "base/file.h"
#include "base/toml_parse.h"
#include "runs/printable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_real(struct text *out, double value)
{
    char shortest[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(shortest, sizeof shortest, "%.*g", digits, value);
        if (strtod(shortest, NULL) == value) break;
    }
    text_adds(out, shortest);
}

static void add_value(struct text *out, const struct toml *v)
{
    bool is_array = v->kind == TOML_ARRAY;
    if (v->kind == TOML_INTEGER)
        text_addf(out, "%lld", (long long)v->integer);
    else if (v->kind == TOML_FLOAT)
        add_real(out, v->real);
    else if (v->kind == TOML_BOOL)
        text_adds(out, v->boolean ? "true" : "false");
    else if (v->text)
        printable_add(out, v->text, v->len);
    if (!is_array && v->kind != TOML_TABLE) return;
    text_adds(out, is_array ? "[" : "{");
    for (const struct toml *item = v->first; item; item = item->next) {
        if (item != v->first) text_adds(out, ", ");
        if (!is_array) printable_add(out, item->key, item->key_len), text_adds(out, " = ");
        add_value(out, item);
    }
    text_adds(out, is_array ? "]" : "}");
}

static enum status add_tree(struct run_settings *s, const struct toml *v, const char *key);

/* Members of a table, or tables of an array, whose keys are their numbers. */
static enum status add_members(struct run_settings *s, const struct toml *v, const char *key)
{
    size_t number = 0;
    for (const struct toml *item = v->first; item; item = item->next) {
        struct text name = {0};
        if (*key) text_addf(&name, "%s.", key);
        if (item->key)
            printable_add(&name, item->key, item->key_len);
        else
            text_addf(&name, "%zu", number++);
        enum status st = add_tree(s, item, name.data ? name.data : "");
        text_release(&name);
        TRY(st);
    }
    return STATUS_OK;
}

static enum status add_tree(struct run_settings *s, const struct toml *v, const char *key)
{
    bool has_tables = v->kind == TOML_ARRAY && v->first && v->first->kind == TOML_TABLE;
    if (v->kind == TOML_TABLE || has_tables) return add_members(s, v, key);
    if (s->count == RUN_SETTINGS_MOST) FAIL(DATA, "more than %d keys", RUN_SETTINGS_MOST);
    struct text value = {0};
    add_value(&value, v);
    s->all[s->count++] =
        (struct run_setting){heap_strdup(key), value.data ? value.data : heap_string("", 0)};
    return STATUS_OK;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(((const struct run_setting *)a)->key, ((const struct run_setting *)b)->key);
}

enum status run_settings_read(struct run_settings *s, const char *path)
{
    enum { MOST_BYTES = 1 << 20 };
    struct text all = {0};
    struct toml *root = NULL;
    enum status st = STATUS_OK;
    *s = (struct run_settings){0};
    TRY_OUT(file_read(path, MOST_BYTES, &all));
    TRY_OUT(toml_parse(all.data ? all.data : "", all.len, path, &root));
    s->all = heap(RUN_SETTINGS_MOST * sizeof *s->all);
    st = add_tree(s, root, "");
    if (st) status_prefix(st, "%s", path);
    s->all = heap_grow(s->all, s->count + 1, sizeof *s->all);
    qsort(s->all, s->count, sizeof *s->all, compare_keys);
out:
    text_release(&all);
    toml_free(root);
    if (st) run_settings_release(s);
    return st;
}

void run_settings_release(struct run_settings *s)
{
    for (size_t i = 0; i < s->count; i++) free(s->all[i].key), free(s->all[i].value);
    free(s->all);
    *s = (struct run_settings){0};
}

const char *run_settings_find(const struct run_settings *s, const char *key)
{
    const struct run_setting wanted = {.key = (char *)key};
    if (!s->count) return NULL;
    const struct run_setting *found =
        bsearch(&wanted, s->all, s->count, sizeof *s->all, compare_keys);
    return found ? found->value : NULL;
}

double run_settings_number(const struct run_settings *s, const char *key, double preset)
{
    const char *value = run_settings_find(s, key);
    char *end;
    if (!value || !*value) return preset;
    double number = strtod(value, &end);
    return *end ? preset : number;
}
