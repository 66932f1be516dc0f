/* write.c -- the tables as a run's config.toml, as an explanation, as a page of the manual. */
// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"
#include "config/sections.h"

#include <string.h>

static void write_rows(const struct config *c, const struct section *s, const void *from,
                       bool origins, struct text *toml)
{
    for (size_t r = 0; r < s->count; r++) {
        size_t begin = toml->len;
        text_addf(toml, "%s = ", s->rows[r].name);
        option_write(&s->rows[r], from, toml);
        if (origins && c) {
            int width = (int)(toml->len - begin);
            text_addf(toml, "%*s# %s", width < 44 ? 44 - width : 1, "",
                      config_origin(c, &s->rows[r]));
        }
        text_adds(toml, "\n");
    }
}

void config_write(const struct config *c, bool origins, struct text *toml)
{
    for (size_t s = 0; s < NUM_SECTIONS; s++) {
        const struct section *section = &config_sections[s];
        text_addf(toml, "%s[%s]\n", s ? "\n" : "", section->name);
        write_rows(c, section, (const char *)c + section->offset, origins, toml);
        if (strcmp(section->name, "data")) continue;
        for (size_t i = 0; i < c->data.num_sources; i++) {
            text_adds(toml, "[[data.source]]\n");
            write_rows(NULL, &config_source_section, &c->data.sources[i], false, toml);
        }
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
        if (!strcmp(config_aliases[i].today, key.data))
            text_addf(out, "  also written: %s\n", config_aliases[i].old);
    text_release(&key);
}

enum status config_explain(const char *key, struct text *out)
{
    const struct section *section;
    const struct alias *alias = config_find_alias(key);
    const struct option *row = config_find(alias ? alias->today : key, &section);
    const struct ignored *ignored = config_find_ignored(key);
    if (row) {
        explain_row(section->name, row, out);
        return STATUS_OK;
    }
    if (!strncmp(key, "data.source.", 12))
        for (size_t r = 0; r < config_source_section.count; r++)
            if (!strcmp(config_source_section.rows[r].name, key + 12)) {
                explain_row("data.source", &config_source_section.rows[r], out);
                return STATUS_OK;
            }
    bool found = false;
    for (size_t s = 0; s < NUM_SECTIONS; s++) /* a section, or a key without its section */
        for (size_t r = 0; r < config_sections[s].count; r++)
            if (!strcmp(config_sections[s].name, key) ||
                !strcmp(config_sections[s].rows[r].name, key)) {
                explain_row(config_sections[s].name, &config_sections[s].rows[r], out);
                found = true;
            }
    if (found) return STATUS_OK;
    if (ignored) {
        text_addf(out, "%s\n  accepted, without effect: %s\n", key, ignored->why);
        return STATUS_OK;
    }
    char space[128];
    const char *nearest = config_nearest(key, space, sizeof space);
    if (nearest) FAIL(CONFIG, "no key %s; did you mean %s?", key, nearest);
    FAIL(CONFIG, "no key %s; `llamero config explain` lists them all", key);
}

/* A cell of a table may not hold a bare bar. */
static void cell(struct text *out, const char *string)
{
    for (const char *at = string; *at; at++) {
        if (*at == '|') text_adds(out, "\\");
        text_add(out, at, 1);
    }
}

static void document_section(const struct section *s, const char *brackets, struct text *out)
{
    text_addf(out,
              "\n## %s%s%s\n%s\n\n| key | default | allowed | what it does |\n|---|---|---|---|\n",
              brackets, s->name, brackets[1] ? "]]" : "]", s->title);
    for (size_t r = 0; r < s->count; r++) {
        struct text allowed = {0};
        option_allowed(&s->rows[r], &allowed);
        text_addf(out, "| `%s` | `%s` | ", s->rows[r].name,
                  s->rows[r].preset[0] ? s->rows[r].preset : "\"\"");
        cell(out, allowed.data);
        text_adds(out, " | ");
        cell(out, s->rows[r].help);
        text_adds(out, " |\n");
        text_release(&allowed);
    }
}

void config_document(struct text *out)
{
    text_adds(out,
              "# Options\n\nMade by `make docs` from the tables the program itself reads. A "
              "file in torchtitan v0.2's\nsections and keys runs as it is; anything can be set "
              "on the command line as `section.key=value`.\n");
    for (size_t s = 0; s < NUM_SECTIONS; s++) {
        document_section(&config_sections[s], "[", out);
        if (!strcmp(config_sections[s].name, "data"))
            document_section(&config_source_section, "[[", out);
    }
    text_adds(out, "\n## Older spellings\n\n| older | today |\n|---|---|\n");
    for (size_t i = 0; i < config_num_aliases; i++)
        text_addf(out, "| `%s` | `%s` |\n", config_aliases[i].old, config_aliases[i].today);
    text_adds(out, "\n## Accepted without effect\n\n| key | why |\n|---|---|\n");
    for (size_t i = 0; i < config_num_ignored; i++)
        text_addf(out, "| `%s` | %s |\n", config_ignored[i].name, config_ignored[i].why);
}
