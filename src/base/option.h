/* option.h -- one row per option: field, default, bounds, unit, help.
 *
 * Each room owns room.opts, a list of
 *     OPT(kind, name, default, least, most, unit, help)
 * which gives a struct's fields (OPT_FIELD), the parser, --help, docs/options.md and the
 * config.toml of a run.  For a CHOICE the unit column lists the allowed words: "causal|masked".
 * Memory   TEXT and LIST values are borrowed from the configuration that set them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

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

/* One row of a table: what OPT says, with the place of the field. */
struct option {
    const char *name;
    enum option_kind kind;
    size_t offset;
    const char *preset; /* the default, as text */
    double least, most; /* bounds, both allowed; for numbers */
    const char *unit, *help;
};

#define OPT_ROW(type, kind, name, preset, least, most, unit, help)                                 \
    {#name, OPTION_##kind, offsetof(type, name), OPT_TEXT_##kind(preset), least, most, unit, help},
#define OPT_TEXT_INT(x)    #x
#define OPT_TEXT_REAL(x)   #x
#define OPT_TEXT_BOOL(x)   ((x) ? "true" : "false")
#define OPT_TEXT_AUTO(x)   x
#define OPT_TEXT_TEXT(x)   x
#define OPT_TEXT_CHOICE(x) x
#define OPT_TEXT_LIST(x)   x

struct toml;

/* Sets the field in `into`.  TEXT borrows the value's string; LIST takes an array that
 * option_release frees.  CONFIG: wrong type, out of bounds, not one of the words; the message says
 * what is allowed, without key and place. */
enum status option_set(const struct option *o, void *into, const struct toml *value);
/* The same from the text of a default or of a command line: strings need no quotes there.  What
 * TEXT borrows from is put into *keep, which the caller frees after the configuration (or NULL). */
enum status option_set_text(const struct option *o, void *into, const char *text,
                            struct toml **keep);
void option_release(const struct option *o, void *from);

/* A string in quotes, as TOML. */
void option_quote(struct text *out, const char *string);

/* The field's value as TOML. */
void option_write(const struct option *o, const void *from, struct text *out);
/* "a whole number of tokens from 1 to 1024", "causal or masked". */
void option_allowed(const struct option *o, struct text *out);
