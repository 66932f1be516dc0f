// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"

#include "base/file.h"
#include "base/log.h"
#include "base/toml.h"
#include "config/sections.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 20 };

/* One value that was set: which row, and by whom. */
struct origin {
    const struct option *row;
    char *place; /* "run.toml:3", "command line" */
};

struct config_book {
    char *path;
    struct toml **trees; /* strings of the configuration point into them */
    size_t num_trees;
    struct origin *origins;
    size_t num_origins;
    bool fork;        /* a key of the older fork was used */
    struct text idle; /* keys without effect */
};

/* Where a value stands, for messages: file:line:column, or the command line. */
struct place {
    const char *file;
    int line, column;
};

static void keep(struct config *c, struct toml *tree)
{
    struct config_book *b = c->book;
    if (!tree) return;
    b->trees = heap_grow(b->trees, b->num_trees + 1, sizeof *b->trees);
    b->trees[b->num_trees++] = tree;
}

static void note_origin(struct config *c, const struct option *row, struct place place)
{
    struct config_book *b = c->book;
    struct text t = {0};
    if (place.line)
        text_addf(&t, "%s:%d", place.file, place.line);
    else
        text_adds(&t, place.file);
    for (size_t i = 0; i < b->num_origins; i++)
        if (b->origins[i].row == row) {
            free(b->origins[i].place);
            b->origins[i].place = t.data;
            return;
        }
    b->origins = heap_grow(b->origins, b->num_origins + 1, sizeof *b->origins);
    b->origins[b->num_origins++] = (struct origin){row, t.data};
}

const char *config_origin(const struct config *c, const struct option *row)
{
    for (size_t i = 0; i < c->book->num_origins; i++)
        if (c->book->origins[i].row == row) return c->book->origins[i].place;
    return "default";
}

/* The value as the user would recognise it. */
static void show(const struct toml *v, struct text *out)
{
    if (v->kind == TOML_INTEGER)
        text_addf(out, "%lld", (long long)v->integer);
    else if (v->kind == TOML_FLOAT)
        text_addf(out, "%g", v->real);
    else if (v->kind == TOML_BOOL)
        text_adds(out, v->truth ? "true" : "false");
    else if (v->kind == TOML_STRING)
        option_quote(out, v->text);
    else
        text_adds(out, toml_kind_name(v->kind));
}

static enum status refuse(struct place p, const char *key, const char *value, const char *why)
{
    if (p.line) FAIL(CONFIG, "%s:%d:%d: %s = %s: %s", p.file, p.line, p.column, key, value, why);
    FAIL(CONFIG, "%s: %s=%s: %s", p.file, key, value, why);
}

static enum status unknown(struct place p, const char *key)
{
    char space[128];
    const char *nearest = config_nearest(key, space, sizeof space);
    struct text where = {0};
    if (p.line)
        text_addf(&where, "%s:%d:%d", p.file, p.line, p.column);
    else
        text_adds(&where, p.file);
    enum status st =
        status_fail(STATUS_CONFIG, __FILE__, __LINE__, "%s: unknown key %s%s%s%s", where.data, key,
                    nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
    text_release(&where);
    return st;
}

/* A failure of option_set, told with key, value and place. */
static enum status explain(struct place p, const char *key, const char *value)
{
    char why[512];
    snprintf(why, sizeof why, "%s", status_message());
    return refuse(p, key, value, why);
}

static bool is_harmless(const struct ignored *i, const struct toml *v)
{
    struct text shown = {0};
    if (!i->harmless[0]) return true;
    if (v->kind == TOML_ARRAY && !v->first) return !strcmp(i->harmless, "[]");
    show(v, &shown);
    bool same = !strcmp(shown.data, i->harmless);
    text_release(&shown);
    return same;
}

/* Where "section.key" of today or of old leads; NULL with STATUS_OK: it is to be ignored. */
static enum status resolve(struct config *c, const char *key, const struct toml *value,
                           struct place p, const struct section **section,
                           const struct option **row)
{
    const struct alias *alias = config_find_alias(key);
    const struct ignored *ignored = config_find_ignored(key);
    *row = config_find(alias ? alias->today : key, section);
    if (alias && alias->fork) c->book->fork = true;
    if (*row) {
        /* the fork's key says what its program does */
        if (!strcmp(key, "training.mlm_probability")) c->objective.name = "masked";
        return STATUS_OK;
    }
    if (!ignored) return unknown(p, key);
    if (value && !is_harmless(ignored, value))
        log_line(LOG_WARN, "%s has no effect: %s", key, ignored->why);
    else if (!value || !ignored->harmless[0])
        text_addf(&c->book->idle, "%s%s", c->book->idle.len ? ", " : "", key);
    return STATUS_OK;
}

static enum status set(struct config *c, const char *key, const struct toml *value, struct place p)
{
    const struct section *section;
    const struct option *row;
    TRY(resolve(c, key, value, p, &section, &row));
    if (!row) return STATUS_OK;
    if (option_set(row, (char *)c + section->offset, value)) {
        struct text shown = {0};
        show(value, &shown);
        enum status st = explain(p, key, shown.data);
        text_release(&shown);
        return st;
    }
    note_origin(c, row, p);
    return STATUS_OK;
}

static enum status set_source(struct source_config *s, const struct toml *table, const char *file)
{
    const struct section *section = &config_source_section;
    for (const struct toml *v = table->first; v; v = v->next) {
        struct place p = {file, v->line, v->column};
        const struct option *row = NULL;
        char key[160];
        snprintf(key, sizeof key, "data.source.%.100s", v->key);
        for (size_t r = 0; r < section->count; r++)
            if (!strcmp(section->rows[r].name, v->key)) row = &section->rows[r];
        if (!row) return unknown(p, key);
        if (option_set(row, s, v)) {
            struct text shown = {0};
            show(v, &shown);
            enum status st = explain(p, key, shown.data);
            text_release(&shown);
            return st;
        }
    }
    if (s->path[0]) return STATUS_OK;
    FAIL(CONFIG, "%s:%d:%d: a [[data.source]] needs a path", file, table->line, table->column);
}

static enum status preset(const struct section *section, void *into)
{
    for (size_t r = 0; r < section->count; r++) {
        struct toml *unused = NULL;
        const struct option *row = &section->rows[r];
        /* strings of defaults are the tables' own */
        if (row->kind == OPTION_TEXT || row->kind == OPTION_CHOICE) {
            *(const char **)(void *)((char *)into + row->offset) = row->preset;
            continue;
        }
        TRY(option_set_text(row, into, row->kind == OPTION_LIST ? "[]" : row->preset, &unused));
        toml_free(unused);
    }
    return STATUS_OK;
}

static enum status set_sources(struct config *c, const struct toml *array, const char *file)
{
    if (array->kind != TOML_ARRAY)
        FAIL(CONFIG, "%s:%d:%d: data.source is written [[data.source]]", file, array->line,
             array->column);
    c->data.sources = heap(array->count * sizeof *c->data.sources);
    for (const struct toml *t = array->first; t; t = t->next) {
        if (t->kind != TOML_TABLE)
            FAIL(CONFIG, "%s:%d:%d: data.source is written [[data.source]]", file, t->line,
                 t->column);
        struct source_config *s = &c->data.sources[c->data.num_sources++];
        TRY(preset(&config_source_section, s));
        TRY(set_source(s, t, file));
    }
    return STATUS_OK;
}

/* Every leaf below a table, by its dotted name. */
static enum status set_table(struct config *c, const struct toml *table, const char *prefix,
                             const char *file)
{
    for (const struct toml *v = table->first; v; v = v->next) {
        struct text key = {0};
        text_addf(&key, "%s%s%s", prefix, prefix[0] ? "." : "", v->key);
        struct place p = {file, v->line, v->column};
        enum status st;
        if (!strcmp(key.data, "data.source"))
            st = set_sources(c, v, file);
        else if (v->kind == TOML_TABLE)
            st = set_table(c, v, key.data, file);
        else
            st = set(c, key.data, v, p);
        text_release(&key);
        TRY(st);
    }
    return STATUS_OK;
}

static enum status load_file(struct config *c, const char *path)
{
    struct text bytes = {0};
    struct toml *tree = NULL;
    enum status st = file_read(path, MOST_BYTES, &bytes);
    if (!st && toml_parse(bytes.data, bytes.len, path, &tree)) st = STATUS_CONFIG;
    text_release(&bytes);
    TRY(st);
    keep(c, tree);
    TRY(set_table(c, tree, "", path));
    return STATUS_OK;
}

enum status config_assign(struct config *c, const char *key, const char *value, const char *origin)
{
    struct place p = {.file = origin};
    const struct section *section;
    const struct option *row;
    struct toml *tree = NULL;
    TRY(resolve(c, key, NULL, p, &section, &row));
    if (!row) return STATUS_OK;
    enum status st = option_set_text(row, (char *)c + section->offset, value, &tree);
    keep(c, tree);
    if (st) return explain(p, key, value);
    note_origin(c, row, p);
    return STATUS_OK;
}

/* "section.key=value" */
static enum status load_setting(struct config *c, const char *setting)
{
    const char *equals = strchr(setting, '=');
    if (!equals) FAIL(CONFIG, "command line: %s: expected section.key=value", setting);
    char *key = heap_string(setting, (size_t)(equals - setting));
    enum status st = config_assign(c, key, equals + 1, "command line");
    free(key);
    return st;
}

/* The fork's "llama3" is another family than torchtitan's of today. */
static void settle_family(struct config *c)
{
    if (!c->book->fork || strcmp(c->model.name, "llama3")) return;
    c->model.name = "frontier";
    log_line(LOG_INFO, "the keys are the older fork's, so model.name = \"llama3\" is taken as "
                       "\"frontier\": its sizes, without rope scaling");
}

enum status config_load(struct config *c, const char *path, const char *const *settings,
                        int num_settings)
{
    memset(c, 0, sizeof *c);
    c->book = heap(sizeof *c->book);
    for (size_t s = 0; s < NUM_SECTIONS; s++)
        TRY(preset(&config_sections[s], (char *)c + config_sections[s].offset));
    if (path) TRY(load_file(c, path));
    for (int i = 0; i < num_settings; i++) TRY(load_setting(c, settings[i]));
    if (path) {
        c->book->path = heap_string(path, strlen(path));
        c->job.config_file = c->book->path;
    }
    settle_family(c);
    if (c->book->idle.len) log_line(LOG_INFO, "without effect here: %s", c->book->idle.data);
    if (c->model.norm_type == NORM_TYPE_layernorm)
        log_line(LOG_WARN, "model.norm_type = \"layernorm\": a Llama has RMSNorm, and gets it");
    return STATUS_OK;
}

void config_release(struct config *c)
{
    if (!c->book) return;
    for (size_t s = 0; s < NUM_SECTIONS; s++)
        for (size_t r = 0; r < config_sections[s].count; r++)
            option_release(&config_sections[s].rows[r], (char *)c + config_sections[s].offset);
    for (size_t i = 0; i < c->book->num_trees; i++) toml_free(c->book->trees[i]);
    for (size_t i = 0; i < c->book->num_origins; i++) free(c->book->origins[i].place);
    free(c->data.sources);
    free(c->book->trees);
    free(c->book->origins);
    text_release(&c->book->idle);
    free(c->book->path);
    free(c->book);
    memset(c, 0, sizeof *c);
}
