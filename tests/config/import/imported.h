/* imported.h -- what tests of imports share: the file that comes out is loaded, and its effective
 * values are compared with a list of "section.key=value". */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test.h"

#include "base/file.h"
#include "config/import/import.h"
#include "config/sections.h"

enum { IMPORTED_MOST = 40 };

/* The value of "section.key" as TOML. */
static inline void imported_value(const struct config *c, const char *key, struct text *out)
{
    const struct config_section *section;
    const struct option *row = config_find(key, &section);
    if (!row) print_error("no key %s\n", key);
    CHECK(row);
    option_write(row, (const char *)c + section->offset, out);
}

/* Was each key of the file told, and why? */
static inline void imported_all_told(const struct import *im)
{
    for (size_t i = 0; i < im->num_items; i++) {
        if (!im->items[i].told) print_error("nothing is said of %s\n", im->items[i].key);
        CHECK(im->items[i].told);
    }
    for (size_t i = 0; i < im->num_notes; i++) {
        const struct import_note *n = &im->notes[i];
        if (!n->ours[0] && !n->text[0]) print_error("%s has no reason\n", n->key);
        CHECK(n->ours[0] || n->text[0]);
    }
}

/* Writes the import, loads what was written, and looks for each wanted value. */
static inline void imported_check(const struct import *im, const char *const *wanted)
{
    struct text toml = {0};
    struct config c;
    char *path = file_join(test_folder(), "imported.toml");
    imported_all_told(im);
    import_write(im, &toml);
    CHECK_STATUS(OK, file_write(path, toml.data, toml.len));
    CHECK_STATUS(OK, config_load(&c, path, NULL, 0));
    if (im->num_ranks) CHECK_STATUS(OK, config_check(&c, (int)im->num_ranks));
    for (size_t i = 0; i < IMPORTED_MOST && wanted[i]; i++) {
        const char *equals = strchr(wanted[i], '=');
        char *key = heap_string(wanted[i], (size_t)(equals - wanted[i]));
        struct text value = {0};
        imported_value(&c, key, &value);
        if (strcmp(value.data, equals + 1))
            print_error("%s is %s, wanted %s\n", key, value.data, equals + 1);
        CHECK(!strcmp(value.data, equals + 1));
        text_release(&value);
        free(key);
    }
    CHECK(c.data.num_sources == im->num_sources);
    config_release(&c);
    text_release(&toml);
    free(path);
}

/* Is there a note of that kind about that key whose text holds `part`? */
static inline bool imported_says(const struct import *im, enum import_verdict verdict,
                                 const char *key, const char *part)
{
    for (size_t i = 0; i < im->num_notes; i++)
        if (im->notes[i].verdict == verdict && !strcmp(im->notes[i].key, key) &&
            strstr(im->notes[i].text, part))
            return true;
    return false;
}

/* The text with the first `from` replaced; the caller frees. */
static inline char *imported_edit(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    struct text out = {0};
    if (!at) print_error("the text has no \"%s\"\n", from);
    CHECK(at);
    text_add(&out, text, (size_t)(at - text));
    text_adds(&out, to);
    text_adds(&out, at + strlen(from));
    return out.data;
}
