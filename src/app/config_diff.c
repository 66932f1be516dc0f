// SPDX-License-Identifier: Apache-2.0
#include "app/config_diff.h"

#include "base/file.h"
#include "base/json.h"
#include "config/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A configuration's effective values, as TOML. */
struct values {
    const char *name;
    struct item {
        char *key, *value;
    } * items;
    size_t count;
};

static void add_value(void *context, const char *key, const char *value)
{
    struct values *v = context;
    if (!strcmp(key, "job.config_file")) return; /* the file itself */
    v->items = heap_grow(v->items, v->count + 1, sizeof *v->items);
    v->items[v->count++] = (struct item){heap_strdup(key), heap_strdup(value)};
}

/* A folder stands for its config.toml. */
static enum status load_values(struct values *v, const char *path)
{
    struct config c = {0};
    char *inside = file_is_dir(path) ? file_join(path, "config.toml") : NULL;
    v->name = path;
    enum status st = config_load(&c, inside ? inside : path, NULL, 0);
    if (!st) config_for_each(&c, add_value, v);
    config_release(&c);
    free(inside);
    return st;
}

static void release_values(struct values *v)
{
    for (size_t i = 0; i < v->count; i++) free(v->items[i].key), free(v->items[i].value);
    free(v->items);
}

/* The value; NULL: the configuration has no such source or stage. */
static const char *find_value(const struct values *v, const char *key)
{
    for (size_t i = 0; i < v->count; i++)
        if (!strcmp(v->items[i].key, key)) return v->items[i].value;
    return NULL;
}

/* Numbers, strings, booleans and arrays are written alike in TOML and in JSON. */
static void print_difference(struct json_writer *w, const char *key, const char *a, const char *b)
{
    if (!w) {
        printf("%s: %s -> %s\n", key, a ? a : "(not set)", b ? b : "(not set)");
        return;
    }
    json_begin_object(w, NULL, JSON_COMPACT);
    json_write_string(w, "key", key);
    json_write_raw(w, "a", a ? a : "null");
    json_write_raw(w, "b", b ? b : "null");
    json_end_object(w);
}

static void print_differences(struct json_writer *w, const struct values *a, const struct values *b)
{
    for (size_t i = 0; i < a->count; i++) {
        const char *other = find_value(b, a->items[i].key);
        bool same = other && !strcmp(other, a->items[i].value);
        if (!same) print_difference(w, a->items[i].key, a->items[i].value, other);
    }
    for (size_t i = 0; i < b->count; i++)
        if (!find_value(a, b->items[i].key))
            print_difference(w, b->items[i].key, NULL, b->items[i].value);
}

static void print_json(const struct values *a, const struct values *b)
{
    struct text out = {0};
    struct json_writer w = {.text = &out};
    json_begin_object(&w, NULL, JSON_LINES);
    json_write_string(&w, "a", a->name);
    json_write_string(&w, "b", b->name);
    json_begin_array(&w, "differences", JSON_LINES);
    print_differences(&w, a, b);
    json_end_array(&w);
    json_end_object(&w);
    json_finish(&w);
    puts(out.data);
    text_release(&out);
}

enum status config_diff_print(const char *a, const char *b, bool is_json)
{
    struct values old = {0}, now = {0};
    enum status st = STATUS_OK;
    TRY_OUT(load_values(&old, a));
    TRY_OUT(load_values(&now, b));
    if (is_json)
        print_json(&old, &now);
    else
        print_differences(NULL, &old, &now);
out:
    release_values(&old), release_values(&now);
    return st;
}
