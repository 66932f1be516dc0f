/* write.c -- renders the tables: config.toml of a run, `config explain`, docs/options.md. */
// SPDX-License-Identifier: Apache-2.0
#include "base/closest.h"
#include "config/book.h"
#include "config/closest_key.h"
#include "config/config.h"
#include "config/datasets.h"
#include "config/effective.h"

#include <stdio.h>
#include <string.h>

static void write_rows(const struct config *c, const struct config_section *s, const void *from,
                       bool origins, struct text *toml)
{
    for (size_t r = 0; r < s->count; r++) {
        size_t begin = toml->len;
        text_addf(toml, "%s = ", s->rows[r].name);
        option_write(&s->rows[r], from, toml);
        if (origins && c) {
            char key[128], buffer[128];
            int width = (int)(toml->len - begin);
            snprintf(key, sizeof key, "%s.%s", s->name, s->rows[r].name);
            text_addf(toml, "%*s# %s", width < 44 ? 44 - width : 1, "",
                      effective_origin(c, key, buffer, sizeof buffer));
        }
        text_adds(toml, "\n");
    }
}

static void write_array(const struct config *c, const struct config_array *a, struct text *toml)
{
    for (size_t i = 0; i < config_array_count(c, a); i++) {
        text_addf(toml, "[[%s]]\n", a->element.name);
        write_rows(NULL, &a->element, config_array_item(c, a, i), false, toml);
    }
}

void config_write(const struct config *c, bool origins, struct text *toml)
{
    struct config effective;
    effective_fill(&effective, c);
    for (size_t s = 0; s < NUM_SECTIONS; s++) {
        const struct config_section *section = &config_sections[s];
        text_addf(toml, "%s[%s]\n", s ? "\n" : "", section->name);
        write_rows(c, section, (const char *)&effective + section->offset, origins, toml);
        if (strcmp(section->name, "data")) continue;
        for (size_t a = 0; a < NUM_ARRAYS; a++) write_array(c, &config_arrays[a], toml);
    }
}

static void explain_row(const char *section, const struct option *row, struct text *out)
{
    text_addf(out, "%s.%s\n  %s\n  allowed: ", section, row->name, row->help);
    option_allowed(row, out);
    text_addf(out, "\n  default: %s\n", row->preset[0] ? row->preset : "\"\"");
    struct text key = {0};
    text_addf(&key, "%s.%s", section, row->name);
    for (size_t i = 0; i < config_num_aliases; i++)
        if (!strcmp(config_aliases[i].key, key.data))
            text_addf(out, "  also written: %s\n", config_aliases[i].old_key);
    if (!strcmp(key.data, "training.dataset") || !strcmp(key.data, "validation.dataset"))
        datasets_explain(out);
    text_release(&key);
}

/* What `config explain` looks for: a section, or a key without its section. */
struct explanation {
    const char *name;
    struct text *out;
    bool found;
};

static void explain_if_named(void *context, const char *section, const struct option *row)
{
    struct explanation *e = context;
    if (strcmp(section, e->name) && strcmp(row->name, e->name)) return;
    explain_row(section, row, e->out);
    e->found = true;
}

enum status config_explain(const char *key, struct text *out)
{
    const struct config_section *section;
    const struct config_alias *alias = config_find_alias(key);
    const struct option *row = config_find(alias ? alias->key : key, &section);
    const struct config_foreign *foreign = config_find_foreign(key);
    if (row) {
        explain_row(section->name, row, out);
        return STATUS_OK;
    }
    /* data.source.0.path */
    const struct config_array *array = config_find_array(key);
    const struct option *element = array ? config_find_element(array, key) : NULL;
    if (element) {
        explain_row(array->element.name, element, out);
        return STATUS_OK;
    }
    struct explanation e = {key, out, false};
    config_for_each_option(explain_if_named, &e);
    if (e.found) return STATUS_OK;
    if (foreign) {
        text_addf(out, "%s\n  %s: %s\n", key,
                  foreign->is_error ? "not supported, and would change the result"
                                    : "accepted, without effect",
                  foreign->reason);
        if (foreign->is_error && foreign->harmless[0])
            text_addf(out, "  allowed: %s\n", foreign->harmless);
        return STATUS_OK;
    }
    char buffer[128];
    const char *suggestion = closest_key_find(key, buffer, sizeof buffer);
    struct closest c = closest_to(key);
    for (size_t s = 0; s < NUM_SECTIONS; s++) closest_offer(&c, config_sections[s].name);
    for (size_t a = 0; a < NUM_ARRAYS; a++) closest_offer(&c, config_arrays[a].element.name);
    if (!suggestion) suggestion = c.name;
    if (suggestion) FAIL(CONFIG, "unknown key %s; did you mean %s?", key, suggestion);
    FAIL(CONFIG, "unknown key %s; `llamero config explain` lists all keys", key);
}

/* Writes a table cell: a bar must be escaped. */
static void add_cell(struct text *out, const char *string)
{
    for (const char *at = string; *at; at++) {
        if (*at == '|') text_adds(out, "\\");
        text_add(out, at, 1);
    }
}

static void document_section(const struct config_section *s, const char *brackets, struct text *out)
{
    text_addf(out,
              "\n## %s%s%s\n%s\n\n| key | default | allowed | what it does |\n|---|---|---|---|\n",
              brackets, s->name, brackets[1] ? "]]" : "]", s->title);
    for (size_t r = 0; r < s->count; r++) {
        struct text allowed = {0};
        option_allowed(&s->rows[r], &allowed);
        text_addf(out, "| `%s` | `%s` | ", s->rows[r].name,
                  s->rows[r].preset[0] ? s->rows[r].preset : "\"\"");
        add_cell(out, allowed.data);
        text_adds(out, " | ");
        add_cell(out, s->rows[r].help);
        text_adds(out, " |\n");
        text_release(&allowed);
    }
}

void config_document(struct text *out)
{
    text_adds(
        out,
        "# Options\n\nGenerated by `make docs` from the tables that the program itself uses. A "
        "file with torchtitan v0.2's\nsections and keys runs as it is. Set any key "
        "on the command line as `section.key=value`.\n");
    for (size_t s = 0; s < NUM_SECTIONS; s++) {
        document_section(&config_sections[s], "[", out);
        for (size_t a = 0; a < NUM_ARRAYS && !strcmp(config_sections[s].name, "data"); a++)
            document_section(&config_arrays[a].element, "[[", out);
    }
    datasets_document(out);
    text_adds(out, "\n## Older spellings\n\n| older | current |\n|---|---|\n");
    for (size_t i = 0; i < config_num_aliases; i++)
        text_addf(out, "| `%s` | `%s` |\n", config_aliases[i].old_key, config_aliases[i].key);
    for (int error = 0; error < 2; error++) {
        text_adds(out, error ? "\n## Errors unless config.accept_loss names them\n\n"
                               "| key | allowed | why |\n|---|---|---|\n"
                             : "\n## Accepted without effect\n\n| key | why |\n|---|---|\n");
        for (size_t i = 0; i < config_num_foreign; i++) {
            const struct config_foreign *f = &config_foreign[i];
            if (f->is_error == !error) continue;
            text_addf(out, "| `%s` | ", f->name);
            if (error) {
                add_cell(out, f->harmless);
                text_adds(out, " | ");
            }
            text_addf(out, "%s |\n", f->reason);
        }
    }
}
