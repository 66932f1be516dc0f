/* sections.h -- every section's table, for the files of this room. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"

struct section {
    const char *name;
    size_t offset; /* of its struct in struct config */
    const struct option *rows;
    size_t count;
    const char *title; /* what the section is about */
};

enum { NUM_SECTIONS = 18 };
extern const struct section config_sections[NUM_SECTIONS];
extern const struct section config_source_section; /* a row of [[data.source]] */

struct alias {
    const char *old, *today;
    bool fork; /* only the older fork has it */
};
extern const struct alias config_aliases[];
extern const size_t config_num_aliases;

struct ignored {
    const char *name, *harmless, *why;
};
extern const struct ignored config_ignored[];
extern const size_t config_num_ignored;

/* The row of "section.key", or NULL; *section is where it is. */
const struct option *config_find(const char *key, const struct section **section);
const struct alias *config_find_alias(const char *key);
const struct ignored *config_find_ignored(const char *key);
/* The known key that looks most like this one, or NULL. */
const char *config_nearest(const char *key, char *space, size_t size);
/* Where this value came from; "default" if nobody set it. */
const char *config_origin(const struct config *c, const struct option *row);
