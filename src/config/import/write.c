/* write.c -- writes an import as a commented TOML file and as JSON. */
// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"
#include "config/import/import.h"
#include "config/sections.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH = 98 };

static const char *const verdicts[] = {[IMPORT_TRANSLATED] = "ours",
                                       [IMPORT_IGNORED] = "none",
                                       [IMPORT_ORIGINAL_BUG] = "bug",
                                       [IMPORT_UNSUPPORTED] = "missing",
                                       [IMPORT_UNKNOWN] = "unknown"};

/* Writes words as comment lines, indented and broken before WIDTH.  Control characters, which TOML
 * does not allow in comments, become question marks. */
static void write_comment(const char *words, size_t indent, struct text *out)
{
    size_t column = 0;
    for (const char *at = words; *at;) {
        size_t len = strcspn(at, " \n\t");
        if (len) {
            bool first = column == 0;
            if (first || column + 1 + len > WIDTH) {
                text_addf(out, "%s#%*s", first ? "" : "\n", (int)(first ? indent : indent + 2), "");
                column = 1 + indent + (first ? 0 : 2);
            } else {
                text_adds(out, " ");
                column++;
            }
            for (size_t i = 0; i < len; i++) {
                unsigned char byte = (unsigned char)at[i];
                text_add(out, byte < 0x20 || byte == 0x7f ? "?" : at + i, 1);
            }
            column += len;
        }
        at += len;
        if (*at) at++;
    }
    text_adds(out, "\n");
}

static void write_origin(const struct import_note *n, struct text *out)
{
    text_adds(out, n->key[0] ? n->key : "(not set)");
    if (n->value[0]) text_addf(out, " = %s", n->value);
    if (n->line) text_addf(out, " (line %d)", n->line);
}

static void write_group(const struct import *im, enum import_verdict verdict, const char *title,
                        struct text *out)
{
    bool any = false;
    for (size_t i = 0; i < im->num_notes; i++) {
        const struct import_note *n = &im->notes[i];
        struct text line = {0};
        if (n->verdict != verdict) continue;
        if (!any) write_comment(title, 1, out);
        any = true;
        if (n->key[0]) write_origin(n, &line);
        text_addf(&line, "%s%s", n->key[0] && n->text[0] ? ": " : "", n->text);
        write_comment(line.data, 3, out);
        text_release(&line);
    }
    if (any) text_adds(out, "\n");
}

static const struct import_note *find_note(const struct import *im, const char *section,
                                           const char *name)
{
    const struct import_note *found = NULL;
    char key[160];
    snprintf(key, sizeof key, "%s.%s", section, name);
    for (size_t i = 0; i < im->num_notes; i++)
        if (!strcmp(im->notes[i].target, key)) found = &im->notes[i];
    return found;
}

static void write_sources(const struct import *im, struct text *toml)
{
    for (size_t i = 0; i < im->num_sources; i++) {
        const struct import_source *s = &im->sources[i];
        text_adds(toml, "\n[[data.source]]\npath = ");
        option_quote(toml, s->path);
        if (strcmp(s->column, "text"))
            text_adds(toml, "\ncolumn = "), option_quote(toml, s->column);
        text_adds(toml, "\nweight = ");
        option_write_real(toml, s->weight);
        text_adds(toml, "\n");
    }
}

static void write_section(const struct import *im, const struct config_section *s,
                          struct text *toml)
{
    bool any = false;
    for (size_t r = 0; r < s->count; r++) {
        const struct import_note *n = find_note(im, s->name, s->rows[r].name);
        struct text line = {0};
        if (!n) continue;
        if (!any) text_addf(toml, "[%s]\n", s->name);
        any = true;
        if (n->text[0]) write_comment(n->text, 1, toml);
        text_addf(&line, "%s = ", s->rows[r].name);
        option_write(&s->rows[r], (const char *)&im->config + s->offset, &line);
        if (n->key[0]) {
            struct text from = {0};
            write_origin(n, &from);
            for (size_t i = 0; i < from.len; i++)
                if ((unsigned char)from.data[i] < 0x20 || from.data[i] == 0x7f) from.data[i] = ' ';
            text_addf(&line, "%*s# %s", line.len < 40 ? (int)(40 - line.len) : 1, "", from.data);
            text_release(&from);
        }
        text_addf(toml, "%s\n", line.data);
        text_release(&line);
    }
    if (!strcmp(s->name, "data")) write_sources(im, toml);
    if (any || (!strcmp(s->name, "data") && im->num_sources)) text_adds(toml, "\n");
}

void import_write(const struct import *im, struct text *toml)
{
    struct text head = {0};
    text_addf(&head,
              "Imported from %s (%s) by `llamero config import`. A comment after a value shows its "
              "origin.",
              im->file, im->format);
    write_comment(head.data, 1, toml);
    text_release(&head);
    if (im->num_ranks) text_addf(toml, "# For %lld ranks.\n", (long long)im->num_ranks);
    text_adds(toml, "\n");
    write_group(im, IMPORT_ORIGINAL_BUG, "BUGS OF THE ORIGINAL:", toml);
    write_group(im, IMPORT_UNSUPPORTED, "ACCEPTED, ALTHOUGH THE RESULT CHANGES:", toml);
    write_group(im, IMPORT_UNKNOWN, "UNKNOWN, AND NOT USED:", toml);
    for (size_t s = 0; s < NUM_SECTIONS; s++) write_section(im, &config_sections[s], toml);
    write_group(im, IMPORT_IGNORED, "Without effect:", toml);
}

void import_write_json(const struct import *im, struct text *json)
{
    struct json_writer w = {.text = json};
    struct text toml = {0};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_string(&w, "format", im->format);
    json_write_string(&w, "file", im->file);
    json_write_int(&w, "ranks", im->num_ranks);
    json_begin_array(&w, "keys", JSON_INLINE);
    for (size_t i = 0; i < im->num_notes; i++) {
        const struct import_note *n = &im->notes[i];
        json_begin_object(&w, NULL, JSON_INLINE);
        json_write_string(&w, "verdict", verdicts[n->verdict]);
        json_write_string(&w, "key", n->key);
        json_write_string(&w, "value", n->value);
        json_write_int(&w, "line", n->line);
        json_write_string(&w, "ours", n->target);
        json_write_string(&w, "note", n->text);
        json_end_object(&w);
    }
    json_end_array(&w);
    import_write(im, &toml);
    json_write_string(&w, "toml", toml.data);
    json_end_object(&w);
    json_finish(&w);
    text_adds(json, "\n");
    text_release(&toml);
}
