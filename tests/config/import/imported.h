/* imported.h -- for tests of importers: loads the file an import writes and compares its effective
 * values with a list of "section.key=value". */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test.h"

#include "base/file.h"
#include "config/import/import.h"
#include "config/sections.h"

enum { IMPORTED_MAX_VALUES = 40 };

/* Appends the value of "section.key" as TOML. */
static inline void imported_value(const struct config *c, const char *key, struct text *out)
{
    const struct config_section *section;
    const struct option *row = config_find(key, &section);
    if (!row) print_error("unknown key %s\n", key);
    CHECK(row);
    option_write(row, (const char *)c + section->offset, out);
}

/* Checks that every key of the file has a note, and every note a key of ours or a reason. */
static inline void imported_check_notes(const struct import *im)
{
    for (size_t i = 0; i < im->num_items; i++) {
        if (!im->items[i].handled) print_error("%s has no note\n", im->items[i].key);
        CHECK(im->items[i].handled);
    }
    for (size_t i = 0; i < im->num_notes; i++) {
        const struct import_note *n = &im->notes[i];
        if (!n->target[0] && !n->text[0]) print_error("%s has no reason\n", n->key);
        CHECK(n->target[0] || n->text[0]);
    }
}

/* Writes the import, loads the file and compares the values. */
static inline void imported_check(const struct import *im, const char *const *expected)
{
    struct text toml = {0};
    struct config c;
    char *path = file_join(test_folder(), "imported.toml");
    imported_check_notes(im);
    import_write(im, &toml);
    CHECK_STATUS(OK, file_write(path, toml.data, toml.len));
    CHECK_STATUS(OK, config_load(&c, path, NULL, 0));
    if (im->num_ranks) CHECK_STATUS(OK, config_check(&c, (int)im->num_ranks));
    for (size_t i = 0; i < IMPORTED_MAX_VALUES && expected[i]; i++) {
        const char *equals = strchr(expected[i], '=');
        char *key = heap_string(expected[i], (size_t)(equals - expected[i]));
        struct text value = {0};
        imported_value(&c, key, &value);
        if (strcmp(value.data, equals + 1))
            print_error("%s is %s, expected %s\n", key, value.data, equals + 1);
        CHECK(!strcmp(value.data, equals + 1));
        text_release(&value);
        free(key);
    }
    CHECK(c.data.num_sources == im->num_sources);
    config_release(&c);
    text_release(&toml);
    free(path);
}

/* Whether a note with that verdict and key contains `part`. */
static inline bool imported_has_note(const struct import *im, enum import_verdict verdict,
                                     const char *key, const char *part)
{
    for (size_t i = 0; i < im->num_notes; i++)
        if (im->notes[i].verdict == verdict && !strcmp(im->notes[i].key, key) &&
            strstr(im->notes[i].text, part))
            return true;
    return false;
}

/* Returns the text with the first `from` replaced; the caller frees it. */
static inline char *imported_replace(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    struct text out = {0};
    if (!at) print_error("\"%s\" not found in the text\n", from);
    CHECK(at);
    text_add(&out, text, (size_t)(at - text));
    text_adds(&out, to);
    text_adds(&out, at + strlen(from));
    return out.data;
}
