/* sections.h -- the table of options of each section; internal to config/. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/options.h"

struct config_section {
    const char *name;
    size_t offset; /* of the section's struct in struct config */
    const struct option *rows;
    size_t count;
    const char *title; /* one sentence for docs/options.md */
};

enum { NUM_SECTIONS = 20 };
extern const struct config_section config_sections[NUM_SECTIONS];

/* An array of tables. */
struct config_array {
    struct config_section element; /* its name is that of the array, "data.source" */
    size_t items, count; /* offsets in struct config: a pointer to the elements, and their number */
    size_t bytes;        /* of an element */
};
enum array_name { ARRAY_source, ARRAY_stage, NUM_ARRAYS };
extern const struct config_array config_arrays[NUM_ARRAYS];
/* The array that "data.source", "data.source.key" or "data.source.0.key" is about, or NULL. */
const struct config_array *config_find_array(const char *key);
size_t config_array_count(const struct config *c, const struct config_array *a);
void *config_array_item(const struct config *c, const struct config_array *a, size_t i);
/* Appends an element with the defaults. */
enum status config_array_append(struct config *c, const struct config_array *a);

struct config_alias {
    const char *old_key, *key;
    bool is_fork; /* used only by the older torchtitan fork */
};
extern const struct config_alias config_aliases[];
extern const size_t config_num_aliases;

/* A key of torchtitan that is not an option here. */
struct config_foreign {
    const char *name;
    bool is_error;                 /* it would change the result */
    const char *harmless, *reason; /* harmless: values, separated by |, that need no message */
};
extern const struct config_foreign config_foreign[];
extern const size_t config_num_foreign;

/* The option "section.key" and its section, or NULL. */
const struct option *config_find(const char *key, const struct config_section **section);
/* The option "data.source.key" of the array, by its current or an older name, or NULL. */
const struct option *config_find_element(const struct config_array *a, const char *key);
const struct config_alias *config_find_alias(const char *key);
const struct config_foreign *config_find_foreign(const char *key);
/* Sets every option of the section to its default. */
enum status config_set_defaults(const struct config_section *section, void *into);
