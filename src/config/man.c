/* man.c -- renders the tables of options as llamero.toml(5). */
// SPDX-License-Identifier: Apache-2.0
#include "base/roff.h"
#include "config/config.h"
#include "config/sections.h"

#include <stdio.h>
#include <string.h>

void config_for_each_option(void (*each)(void *context, const char *section,
                                         const struct option *row),
                            void *context)
{
    for (size_t s = 0; s < NUM_SECTIONS; s++)
        for (size_t r = 0; r < config_sections[s].count; r++)
            each(context, config_sections[s].name, &config_sections[s].rows[r]);
    for (size_t a = 0; a < NUM_ARRAYS; a++)
        for (size_t r = 0; r < config_arrays[a].element.count; r++)
            each(context, config_arrays[a].element.name, &config_arrays[a].element.rows[r]);
}

static void add_section(const struct config_section *s, const char *open, const char *close,
                        struct text *out)
{
    char title[128];
    snprintf(title, sizeof title, "%s%s%s", open, s->name, close);
    text_addf(out, ".SS %s\n", title);
    roff_paragraphs(out, s->title);
    for (size_t r = 0; r < s->count; r++) {
        const struct option *row = &s->rows[r];
        struct text line = {0};
        roff_entry(out, row->name, "");
        roff_add(out, row->help);
        text_adds(&line, "Allowed: ");
        option_allowed(row, &line);
        text_addf(&line, ". Default: %s.", row->preset[0] ? row->preset : "\"\"");
        text_adds(out, ".br\n");
        roff_add(out, line.data);
        text_release(&line);
    }
}

void config_write_man(struct text *out)
{
    roff_begin(out, "llamero.toml", 5, "Llamero's configuration");
    roff_section(out, "NAME");
    text_adds(out, "llamero.toml \\- configuration of a run of llamero(1)\n");
    roff_section(out, "DESCRIPTION");
    roff_paragraphs(out,
                    "A TOML 1.0 file with the sections and keys of torchtitan v0.2, and more. Its "
                    "name is free. On the command line `section.key=value` or "
                    "`--section.key value` overrides a key.\n\n"
                    "`llamero init` prints commented recipes, `llamero config explain KEY` "
                    "describes a key, `llamero config show FILE` prints the effective values.");
    roff_section(out, "SECTIONS AND KEYS");
    for (size_t s = 0; s < NUM_SECTIONS; s++) {
        add_section(&config_sections[s], "[", "]", out);
        for (size_t a = 0; a < NUM_ARRAYS && !strcmp(config_sections[s].name, "data"); a++)
            add_section(&config_arrays[a].element, "[[", "]]", out);
    }
    roff_section(out, "SEE ALSO");
    text_adds(out, ".BR llamero (1),\n.BR llamero\\-config (1)\n");
}
