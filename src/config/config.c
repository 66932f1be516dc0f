/* config.c -- reads TOML and command-line settings into struct config, row by row of the tables. */
// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"

#include "base/file.h"
#include "base/log.h"
#include "base/toml_parse.h"
#include "config/book.h"
#include "config/closest_key.h"
#include "config/datasets.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILE_BYTES = 1 << 20 };

/* The position of a value, for messages; line 0: the command line. */
struct value_position {
    const char *file;
    int line, column;
};

/* The value as the user wrote it, more or less, for messages. */
static void format_value(const struct toml *v, struct text *out)
{
    if (v->kind == TOML_INTEGER)
        text_addf(out, "%lld", (long long)v->integer);
    else if (v->kind == TOML_FLOAT)
        text_addf(out, "%g", v->real);
    else if (v->kind == TOML_BOOL)
        text_adds(out, v->boolean ? "true" : "false");
    else if (v->kind == TOML_STRING)
        option_quote(out, v->text);
    else if (v->kind == TOML_ARRAY && !v->first)
        text_adds(out, "[]");
    else
        text_adds(out, toml_kind_name(v->kind));
}

static enum status fail_value(struct value_position p, const char *key, const char *value,
                              const char *reason)
{
    if (p.line) FAIL(CONFIG, "%s:%d:%d: %s = %s: %s", p.file, p.line, p.column, key, value, reason);
    FAIL(CONFIG, "%s: %s=%s: %s", p.file, key, value, reason);
}

static bool is_section(const char *name)
{
    for (size_t s = 0; s < NUM_SECTIONS; s++)
        if (!strcmp(config_sections[s].name, name)) return true;
    return false;
}

/* " section" of "section.key" if there is one of that name. */
static const char *section_argument(const char *key, char *buffer, size_t size)
{
    snprintf(buffer, size, " %.*s", (int)strcspn(key, "."), key);
    return is_section(buffer + 1) ? buffer : "";
}

static enum status fail_unknown_key(struct value_position p, const char *key)
{
    char buffer[128];
    const char *suggestion = closest_key_find(key, buffer, sizeof buffer);
    struct text what = {0};
    text_adds(&what, p.file);
    if (p.line) text_addf(&what, ":%d:%d", p.line, p.column);
    if (is_section(key))
        text_addf(&what, ": %s is a section; expected [%s] and its keys below it", key, key);
    else if (suggestion)
        text_addf(&what, ": unknown key %s; did you mean %s?", key, suggestion);
    else
        text_addf(&what, ": unknown key %s; `llamero config explain%s` lists the keys", key,
                  section_argument(key, buffer, sizeof buffer));
    enum status st = FAILURE(CONFIG, "%s", what.data);
    text_release(&what);
    return st;
}

/* Adds position, key and value to the message of a failed option_set. */
static enum status fail_option(struct value_position p, const char *key, const char *value)
{
    char reason[512];
    snprintf(reason, sizeof reason, "%s", status_message());
    return fail_value(p, key, value, reason);
}

/* Whether the value is one of the row's words, without its quotes. */
static bool is_harmless(const struct config_foreign *f, const char *shown)
{
    size_t len = strlen(shown);
    if (len >= 2 && shown[0] == '"' && shown[len - 1] == '"') shown++, len -= 2;
    if (!len || !strcmp(shown, "[]")) return f->is_error && !f->harmless[0];
    for (const char *at = f->harmless; *at;) {
        size_t word = strcspn(at, "|");
        if (word == len && !strncmp(at, shown, len)) return true;
        at += word + (at[word] == '|');
    }
    return false;
}

/* A key that is not an option: notes it, or that it would change the result. */
static void note_foreign(struct config *c, const char *key, const struct config_foreign *f,
                         const char *shown, struct value_position p)
{
    if (is_harmless(f, shown)) return;
    if (f->is_error) {
        struct text what = {0};
        if (p.line)
            text_addf(&what, "%s:%d:%d: %s = %s", p.file, p.line, p.column, key, shown);
        else
            text_addf(&what, "%s: %s=%s", p.file, key, shown);
        text_addf(&what, ": %s", f->reason);
        refusals_add(&c->book->refusals, key, what.data);
        text_release(&what);
    } else if (f->harmless[0]) {
        log_line(LOG_WARN, "%s = %s has no effect: %s", key, shown, f->reason);
    } else {
        text_addf(&c->book->without_effect, "%s%s", c->book->without_effect.len ? ", " : "", key);
    }
}

/* Whether the table lists keys of the section, so that others are unknown. */
static bool has_listed_keys(const struct config_foreign *section)
{
    size_t prefix = strlen(section->name) - 1;
    for (size_t i = 0; i < config_num_foreign; i++)
        if (&config_foreign[i] != section &&
            !strncmp(config_foreign[i].name, section->name, prefix))
            return true;
    return false;
}

static enum status check_misspelled(struct value_position p, const char *key,
                                    const struct config_foreign *f)
{
    char buffer[128], where[32] = "";
    bool covers_others = f->name[strlen(f->name) - 1] == '*';
    const char *known = covers_others ? closest_key_misspelled(key, buffer, sizeof buffer) : NULL;
    if (p.line) snprintf(where, sizeof where, ":%d:%d", p.line, p.column);
    if (known) FAIL(CONFIG, "%s%s: unknown key %s; did you mean %s?", p.file, where, key, known);
    if (covers_others && has_listed_keys(f))
        log_line(LOG_WARN, "%s%s: unknown key %s has no effect, like all keys of %.*s: %s", p.file,
                 where, key, (int)strlen(f->name) - 2, f->name, f->reason);
    return STATUS_OK;
}

/* Finds the option of "section.key", by its current or an older name; *row NULL with STATUS_OK: the
 * key is accepted without effect. */
static enum status resolve_key(struct config *c, const char *key, const char *shown,
                               struct value_position p, const struct config_section **section,
                               const struct option **row)
{
    const struct config_alias *alias = config_find_alias(key);
    const struct config_foreign *foreign = config_find_foreign(key);
    *row = config_find(alias ? alias->key : key, section);
    if (alias && alias->is_fork) c->book->uses_fork = true;
    if (*row) {
        /* the fork's key implies its objective */
        if (!strcmp(key, "training.mlm_probability")) c->objective.name = OBJECTIVE_masked;
        return STATUS_OK;
    }
    if (!foreign) return fail_unknown_key(p, key);
    TRY(check_misspelled(p, key, foreign));
    note_foreign(c, key, foreign, shown, p);
    return STATUS_OK;
}

/* The value of a dotted key in a file, or NULL. */
static const struct toml *find_dotted(const struct toml *table, const char *key)
{
    for (const char *dot; table && (dot = strchr(key, '.')); key = dot + 1) {
        table = toml_find(table, key, (size_t)(dot - key));
        if (table && table->kind != TOML_TABLE) return NULL;
    }
    return table ? toml_get(table, key) : NULL;
}

/* An older spelling and the current one, of another value, in the same file: which one would win
 * depends on their order. */
static enum status check_spellings(const struct config *c, const struct config_alias *alias,
                                   const char *shown, struct value_position p)
{
    const struct config_book *book = c->book;
    const struct toml *current = p.line && book->num_trees
                                     ? find_dotted(book->trees[book->num_trees - 1], alias->key)
                                     : NULL;
    struct text other = {0};
    enum status st = STATUS_OK;
    if (!current) return STATUS_OK;
    format_value(current, &other);
    if (strcmp(other.data, shown) != 0)
        st = FAILURE(CONFIG,
                     "%s:%d:%d: %s = %s: an older spelling of %s, which is %s in line %d; set only "
                     "one",
                     p.file, p.line, p.column, alias->old_key, shown, alias->key, other.data,
                     current->line);
    text_release(&other);
    return st;
}

static enum status set_key(struct config *c, const char *key, const struct toml *value,
                           struct value_position p)
{
    const struct config_section *section;
    const struct option *row;
    struct text shown = {0};
    format_value(value, &shown);
    const struct config_alias *alias = config_find_alias(key);
    enum status st = alias ? check_spellings(c, alias, shown.data, p) : STATUS_OK;
    if (!st) st = resolve_key(c, key, shown.data, p, &section, &row);
    if (!st && row) {
        if (option_set(row, (char *)c + section->offset, value))
            st = fail_option(p, key, shown.data);
        else
            book_note_origin(c->book, row, p.file, p.line);
    }
    text_release(&shown);
    return st;
}

static enum status set_element(const struct config_array *a, void *into, const struct toml *table,
                               const char *file)
{
    for (const struct toml *v = table->first; v; v = v->next) {
        struct value_position p = {file, v->line, v->column};
        char key[160];
        snprintf(key, sizeof key, "%s.%.100s", a->element.name, v->key);
        const struct option *row = config_find_element(a, key);
        if (!row) return fail_unknown_key(p, key);
        if (option_set(row, into, v)) {
            struct text shown = {0};
            format_value(v, &shown);
            enum status st = fail_option(p, key, shown.data);
            text_release(&shown);
            return st;
        }
    }
    return STATUS_OK;
}

static enum status set_array(struct config *c, const struct config_array *a,
                             const struct toml *array, const char *file)
{
    const struct toml *t = array->kind == TOML_ARRAY ? array->first : array;
    for (; t; t = array->kind == TOML_ARRAY ? t->next : NULL) {
        if (array->kind != TOML_ARRAY || t->kind != TOML_TABLE)
            FAIL(CONFIG, "%s:%d:%d: expected [[%s]]", file, t->line, t->column, a->element.name);
        TRY(config_array_append(c, a));
        void *added = config_array_item(c, a, config_array_count(c, a) - 1);
        TRY(set_element(a, added, t, file));
        if (a == &config_arrays[ARRAY_source] && !((struct source_config *)added)->path[0])
            FAIL(CONFIG, "%s:%d:%d: path is required in [[data.source]]", file, t->line, t->column);
    }
    return STATUS_OK;
}

/* Sets every key below a table by its dotted name. */
static enum status set_table(struct config *c, const struct toml *table, const char *prefix,
                             const char *file)
{
    for (const struct toml *v = table->first; v; v = v->next) {
        struct text key = {0};
        text_addf(&key, "%s%s%s", prefix, prefix[0] ? "." : "", v->key);
        struct value_position p = {file, v->line, v->column};
        enum status st;
        const struct config_array *array = config_find_array(key.data);
        if (array)
            st = set_array(c, array, v, file);
        else if (v->kind == TOML_TABLE)
            st = set_table(c, v, key.data, file);
        else
            st = set_key(c, key.data, v, p);
        text_release(&key);
        TRY(st);
    }
    return STATUS_OK;
}

/* Adds what was expected to the message of a file that is not TOML. */
static enum status fail_not_toml(const char *path)
{
    char why[STATUS_TEXT / 2];
    bool is_script = file_has_suffix(path, ".sh"), is_yaml = file_has_suffix(path, ".yaml");
    snprintf(why, sizeof why, "%s", status_message());
    if (file_has_suffix(path, ".toml")) return STATUS_CONFIG;
    if (is_script || is_yaml || file_has_suffix(path, ".yml"))
        FAIL(CONFIG, "%s is not a TOML configuration (%s); `llamero config import %s` makes one",
             path, why, path);
    FAIL(CONFIG,
         "%s is not a TOML configuration (%s); `llamero init tiny` prints one, in which "
         "training.dataset_path names the data",
         path, why);
}

static enum status load_file(struct config *c, const char *path)
{
    struct text bytes = {0};
    struct toml *tree = NULL;
    if (file_is_dir(path) && file_exists_in(path, "config.toml"))
        FAIL(DATA, "%s: is a folder; did you mean %s%sconfig.toml?", path, path,
             path[strlen(path) - 1] == '/' ? "" : "/");
    if (file_is_dir(path)) FAIL(DATA, "%s: is a folder; expected a configuration file", path);
    enum status st = file_read(path, MAX_FILE_BYTES, &bytes);
    bool is_other = st == STATUS_DATA || (!st && toml_parse(bytes.data, bytes.len, path, &tree));
    if (is_other) st = fail_not_toml(path);
    text_release(&bytes);
    TRY(st);
    book_keep_tree(c->book, tree);
    TRY(set_table(c, tree, "", path));
    return STATUS_OK;
}

/* "data.source.N.key": of an existing source, or of one after the last; likewise of a stage. */
static enum status assign_element(struct config *c, const char *key, const char *value,
                                  const char *origin)
{
    const struct config_array *a = config_find_array(key);
    struct value_position p = {.file = origin};
    size_t number = 0, count = config_array_count(c, a), prefix = strlen(a->element.name) + 1;
    struct toml *tree = NULL;
    int digits = 0;
    char name[160];
    const char *at = key + (key[prefix - 1] ? prefix : prefix - 1);
    for (; isdigit((unsigned char)at[digits]) && digits < 6; digits++)
        number = 10 * number + (size_t)(at[digits] - '0');
    if (!digits || at[digits] != '.')
        FAIL(CONFIG, "%s: %s: expected %s.N.key, where N is 0 for the first one", origin, key,
             a->element.name);
    snprintf(name, sizeof name, "%s.%.100s", a->element.name, at + digits + 1);
    const struct option *row = config_find_element(a, name);
    if (!row) return fail_unknown_key(p, key);
    if (number > count)
        FAIL(CONFIG, "%s: %s: the configuration has %zu [[%s]]: N must be from 0 to %zu", origin,
             key, count, a->element.name, count);
    if (number == count) TRY(config_array_append(c, a));
    enum status st = option_set_text(row, config_array_item(c, a, number), value, &tree);
    book_keep_tree(c->book, tree);
    return st ? fail_option(p, key, value) : STATUS_OK;
}

enum status config_assign(struct config *c, const char *key, const char *value, const char *origin)
{
    struct value_position p = {.file = origin};
    const struct config_section *section;
    const struct option *row;
    struct toml *tree = NULL;
    if (config_find_array(key)) return assign_element(c, key, value, origin);
    TRY(resolve_key(c, key, value, p, &section, &row));
    if (!row) return STATUS_OK;
    enum status st = option_set_text(row, (char *)c + section->offset, value, &tree);
    book_keep_tree(c->book, tree);
    if (st) return fail_option(p, key, value);
    book_note_origin(c->book, row, p.file, p.line);
    return STATUS_OK;
}

const char *config_key_origin(const struct config *c, const char *key)
{
    const struct config_section *section;
    return book_origin(c->book, config_find(key, &section));
}

/* "section.key=value" */
static enum status set_argument(struct config *c, const char *setting)
{
    const char *equals = strchr(setting, '=');
    if (!equals) FAIL(CONFIG, "command line: %s: expected section.key=value", setting);
    char *key = heap_string(setting, (size_t)(equals - setting));
    enum status st = config_assign(c, key, equals + 1, "command line");
    free(key);
    return st;
}

/* The fork's "llama3" has other sizes than torchtitan's "llama3" of today. */
static void resolve_family(struct config *c)
{
    if (!c->book->uses_fork || strcmp(c->model.name, "llama3")) return;
    c->model.name = "frontier";
    log_line(LOG_INFO,
             "keys of the older fork found: model.name = \"llama3\" means \"frontier\", its "
             "sizes without RoPE scaling");
}

/* Flavors such as 8B_flex have a document mask in torchtitan, whose files have no key for it. */
static void resolve_mask(struct config *c)
{
    if (book_is_default(c->book, "model.attn_mask_type") && model_shape_masks_documents(&c->model))
        c->model.attn_mask_type = ATTN_MASK_block_causal;
}

/* A written configuration has every size: a flavor named later changes none of them. */
static void warn_of_unused_flavor(const struct config *c)
{
    const char *flavor = config_key_origin(c, "model.flavor");
    const char *dim = config_key_origin(c, "model.dim");
    bool is_unused = c->model.dim && !strcmp(flavor, "command line") && strcmp(dim, flavor) != 0;
    if (is_unused)
        log_line(LOG_WARN,
                 "model.flavor=%s does not change the sizes that are set, such as model.dim = %lld "
                 "(%s); set them to 0 for those of the flavor",
                 c->model.flavor, (long long)c->model.dim, dim);
}

/* After all settings: every source has a path and a column. */
static enum status complete_sources(struct config *c)
{
    for (size_t i = 0; i < c->data.num_sources; i++) {
        struct source_config *s = &c->data.sources[i];
        snprintf(s->key, sizeof s->key, "data.source.%zu.path", i);
        if (!s->path[0]) FAIL(CONFIG, "%s is required", s->key);
        if (!s->column[0]) s->column = c->data.column;
        if (s->filter_value[0] && !s->filter_column[0])
            FAIL(CONFIG,
                 "data.source.%zu.filter_value = \"%s\" requires data.source.%zu.filter_column", i,
                 s->filter_value, i);
        for (size_t k = 0; k < i && s->name[0]; k++)
            if (!strcmp(s->name, c->data.sources[k].name))
                FAIL(CONFIG, "data.source.%zu.name = \"%s\": data.source.%zu has the same name", i,
                     s->name, k);
    }
    return STATUS_OK;
}

/* Settings of a source come last: they may change one that training.dataset names. */
static enum status resolve_sources(struct config *c, const char *const *settings, int num_settings)
{
    TRY(datasets_resolve(c, c->book->uses_fork));
    for (int i = 0; i < num_settings; i++)
        if (config_find_array(settings[i])) TRY(set_argument(c, settings[i]));
    return complete_sources(c);
}

void config_refuse(struct config *c, const char *key, const char *what)
{
    refusals_add(&c->book->refusals, key, what);
}

enum status config_check_refusals(const struct config *c)
{
    return refusals_check(&c->book->refusals, &c->config);
}

/* Appends a path in quotes, or an item of a list, which may be NAME=PATH, with the home folder in
 * place of its ~.  Returns whether it has one. */
static bool quote_expanded(struct text *out, const char *home, const char *word, bool is_item)
{
    const char *named = is_item ? strstr(word, "=~/") : NULL;
    const char *path = named ? named + 1 : word;
    bool expands = !strncmp(path, "~/", 2);
    struct text expanded = {0};
    text_add(&expanded, word, (size_t)(path - word));
    if (expands) text_adds(&expanded, home);
    while (expands && expanded.len && expanded.data[expanded.len - 1] == '/')
        expanded.data[--expanded.len] = 0;
    text_adds(&expanded, path + expands);
    option_quote(out, expanded.data);
    text_release(&expanded);
    return expands;
}

/* "~/a" in a path is below $HOME: a shell expands it only at the start of a word, and not in a
 * file. */
static enum status expand_home(struct config *c, const struct config_section *s, void *into)
{
    const char *home = getenv("HOME");
    for (size_t r = 0; home && home[0] && r < s->count; r++) {
        const struct option *row = &s->rows[r];
        void *field = (char *)into + row->offset;
        bool is_list = row->kind == OPTION_LIST, expands = false;
        if ((!is_list && row->kind != OPTION_TEXT) || strncmp(row->unit, "path", 4)) continue;
        struct option_list words = {field, 1};
        if (is_list) words = *(option_LIST *)field;
        struct text value = {0};
        struct toml *tree = NULL;
        text_adds(&value, is_list ? "[" : "");
        for (size_t i = 0; i < words.count; i++) {
            expands |= quote_expanded(&value, home, words.items[i], is_list);
            if (is_list) text_adds(&value, ",");
        }
        text_adds(&value, is_list ? "]" : "");
        enum status st = expands ? option_set_text(row, into, value.data, &tree) : STATUS_OK;
        book_keep_tree(c->book, tree);
        text_release(&value);
        TRY_PREFIX(st, "%s.%s: ~ is $HOME = \"%s\"", s->name, row->name, home);
    }
    return STATUS_OK;
}

static enum status expand_homes(struct config *c)
{
    for (size_t s = 0; s < NUM_SECTIONS; s++)
        TRY(expand_home(c, &config_sections[s], (char *)c + config_sections[s].offset));
    for (size_t a = 0; a < NUM_ARRAYS; a++)
        for (size_t i = 0; i < config_array_count(c, &config_arrays[a]); i++)
            TRY(expand_home(c, &config_arrays[a].element,
                            config_array_item(c, &config_arrays[a], i)));
    return STATUS_OK;
}

enum status config_load(struct config *c, const char *path, const char *const *settings,
                        int num_settings)
{
    memset(c, 0, sizeof *c);
    c->book = heap(sizeof *c->book);
    for (size_t s = 0; s < NUM_SECTIONS; s++)
        TRY(config_set_defaults(&config_sections[s], (char *)c + config_sections[s].offset));
    if (path) TRY(load_file(c, path));
    for (int i = 0; i < num_settings; i++)
        if (!config_find_array(settings[i])) TRY(set_argument(c, settings[i]));
    if (path) {
        c->book->path = heap_strdup(path);
        c->job.config_file = c->book->path;
    }
    resolve_family(c);
    resolve_mask(c);
    warn_of_unused_flavor(c);
    if (c->book->without_effect.len)
        log_line(LOG_INFO, "accepted without effect: %s", c->book->without_effect.data);
    TRY(config_check_refusals(c));
    TRY(resolve_sources(c, settings, num_settings));
    return expand_homes(c);
}

void config_release(struct config *c)
{
    if (!c->book) return;
    for (size_t s = 0; s < NUM_SECTIONS; s++)
        for (size_t r = 0; r < config_sections[s].count; r++)
            option_release(&config_sections[s].rows[r], (char *)c + config_sections[s].offset);
    for (size_t a = 0; a < NUM_ARRAYS; a++)
        for (size_t i = 0; i < config_array_count(c, &config_arrays[a]); i++)
            for (size_t r = 0; r < config_arrays[a].element.count; r++)
                option_release(&config_arrays[a].element.rows[r],
                               config_array_item(c, &config_arrays[a], i));
    free(c->data.sources), free(c->data.stages);
    book_release(c->book);
    free(c->book);
    memset(c, 0, sizeof *c);
}
