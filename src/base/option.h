/* option.h -- one row per option: field, default, bounds, unit, help.
 *
 * Each room owns room.opts, a list of
 *     OPT(kind, name, default, least, most, unit, help)
 * which gives a struct's fields (OPT_FIELD), the parser, --help, docs/options.md and the
 * config.toml of a run.  For a CHOICE the unit column lists the allowed words: "causal|masked".
 * Memory   TEXT and LIST values are borrowed from the configuration that set them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_kind {
    OPTION_INT,    /* whole number */
    OPTION_REAL,   /* number */
    OPTION_BOOL,   /* true or false */
    OPTION_AUTO,   /* true, false or "auto" */
    OPTION_TEXT,   /* string */
    OPTION_CHOICE, /* one of the words in `unit` */
    OPTION_LIST,   /* array of strings */
};

enum option_auto { AUTO = -1, NO, YES };

struct option_list {
    const char **items;
    size_t count;
};

typedef int64_t option_INT;
typedef double option_REAL;
typedef bool option_BOOL;
typedef enum option_auto option_AUTO;
typedef const char *option_TEXT;
typedef const char *option_CHOICE;
typedef struct option_list option_LIST;

#define OPT_FIELD(kind, name, preset, least, most, unit, help) option_##kind name;
