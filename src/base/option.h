/* option.h -- tables of options: one row has field, default, bounds, unit and help.
 *
 * Each room owns .opts files, lists of
 *     OPT(kind, name, default, least, most, unit, help)
 * They generate the fields of a struct (OPT_FIELD), the parser, `config explain`, docs/options.md
 * and a run's config.toml.
 *
 * An ENUM row lists its words in the unit column: from (objective, OBJECTIVE, causal, masked)
 * OPT_ENUM declares enum objective with OBJECTIVE_causal and OBJECTIVE_masked, and
 * objective_word().  A WORD row is for words from another list, as a string "cpu|h100"; the field
 * is an index into it.
 * Memory   TEXT values and the strings of a LIST are borrowed from the configuration that set
 *          them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_kind {
    OPTION_INT,                /* whole number */
    OPTION_REAL,               /* number */
    OPTION_BOOL,               /* true or false */
    OPTION_AUTO,               /* true, false or "auto" */
    OPTION_TEXT,               /* string */
    OPTION_WORD,               /* one of the words in `unit`, as its index */
    OPTION_ENUM = OPTION_WORD, /* the same, as an enum declared from the row */
    OPTION_LIST,               /* array of strings */
    OPTION_INTS,               /* array of whole numbers */
    OPTION_REALS,              /* array of numbers */
    OPTION_RANGES,             /* array of [first, last], both included */
};

enum option_auto { AUTO = -1, NO, YES };

struct option_list {
    const char **items;
    size_t count;
};

struct option_ints {
    int64_t *items;
    size_t count;
};

struct option_reals {
    double *items;
    size_t count;
};

struct option_range {
    int64_t first, last;
};
struct option_ranges {
    struct option_range *items; /* in the user's order */
    size_t count;
};

typedef int64_t option_INT;
typedef double option_REAL;
typedef bool option_BOOL;
typedef enum option_auto option_AUTO;
typedef const char *option_TEXT;
typedef int option_WORD;
typedef struct option_list option_LIST;
typedef struct option_ints option_INTS;
typedef struct option_reals option_REALS;
typedef struct option_ranges option_RANGES;

#define OPT_FIELD(kind, name, preset, least, most, unit, help) OPT_TYPE_##kind(unit) name;
#define OPT_TYPE_INT(unit)                                     option_INT
#define OPT_TYPE_REAL(unit)                                    option_REAL
#define OPT_TYPE_BOOL(unit)                                    option_BOOL
#define OPT_TYPE_AUTO(unit)                                    option_AUTO
#define OPT_TYPE_TEXT(unit)                                    option_TEXT
#define OPT_TYPE_WORD(unit)                                    option_WORD
#define OPT_TYPE_ENUM(unit)                                    enum OPT_TAG unit
#define OPT_TYPE_LIST(unit)                                    option_LIST
#define OPT_TYPE_INTS(unit)                                    option_INTS
#define OPT_TYPE_REALS(unit)                                   option_REALS
#define OPT_TYPE_RANGES(unit)                                  option_RANGES

/* Expands the ENUM rows of a table, before its struct: (tag, PREFIX, a, b) becomes
 * enum tag { PREFIX_a, PREFIX_b } and const char *tag_word(enum tag). */
#define OPT_ENUM(kind, name, preset, least, most, unit, help) OPT_ENUM_##kind(unit)
#define OPT_ENUM_INT(unit)
#define OPT_ENUM_REAL(unit)
#define OPT_ENUM_BOOL(unit)
#define OPT_ENUM_AUTO(unit)
#define OPT_ENUM_TEXT(unit)
#define OPT_ENUM_WORD(unit)
#define OPT_ENUM_LIST(unit)
#define OPT_ENUM_INTS(unit)
#define OPT_ENUM_REALS(unit)
#define OPT_ENUM_RANGES(unit)
#define OPT_ENUM_ENUM(unit) OPT_DECLARE unit
#define OPT_DECLARE(tag, prefix, ...)                                                              \
    enum tag { OPT_EACH(OPT_CONSTANT, prefix, __VA_ARGS__) };                                      \
    _Static_assert(sizeof(enum tag) == sizeof(option_WORD), "option_set stores an int");           \
    static inline const char *tag##_word(enum tag value)                                           \
    {                                                                                              \
        static const char *const words[] = {OPT_EACH(OPT_STRING, prefix, __VA_ARGS__)};            \
        return words[value];                                                                       \
    }
#define OPT_TAG(tag, ...)           tag
#define OPT_CONSTANT(prefix, word)  prefix##_##word,
#define OPT_STRING(prefix, word)    #word,
#define OPT_WORD(prefix, word)      "|" #word
#define OPT_WORDS(tag, prefix, ...) (&("" OPT_EACH(OPT_WORD, prefix, __VA_ARGS__))[1])

/* Expands m(prefix, word) for each of up to eight words. */
#define OPT_EACH(m, prefix, ...)                                                                   \
    OPT_NINTH(__VA_ARGS__, OPT_8, OPT_7, OPT_6, OPT_5, OPT_4, OPT_3, OPT_2, OPT_1, 0)              \
    (m, prefix, __VA_ARGS__)
#define OPT_NINTH(a, b, c, d, e, f, g, h, ninth, ...) ninth
#define OPT_1(m, prefix, word)                        m(prefix, word)
#define OPT_2(m, prefix, word, ...)                   m(prefix, word) OPT_1(m, prefix, __VA_ARGS__)
#define OPT_3(m, prefix, word, ...)                   m(prefix, word) OPT_2(m, prefix, __VA_ARGS__)
#define OPT_4(m, prefix, word, ...)                   m(prefix, word) OPT_3(m, prefix, __VA_ARGS__)
#define OPT_5(m, prefix, word, ...)                   m(prefix, word) OPT_4(m, prefix, __VA_ARGS__)
#define OPT_6(m, prefix, word, ...)                   m(prefix, word) OPT_5(m, prefix, __VA_ARGS__)
#define OPT_7(m, prefix, word, ...)                   m(prefix, word) OPT_6(m, prefix, __VA_ARGS__)
#define OPT_8(m, prefix, word, ...)                   m(prefix, word) OPT_7(m, prefix, __VA_ARGS__)

/* A row of a table at run time. */
struct option {
    const char *name;
    enum option_kind kind;
    size_t offset;      /* of the field in its struct */
    const char *preset; /* the default, as text */
    double least, most; /* inclusive bounds of numbers, also of those in an array */
    /* unit: the words "a|b" of a WORD or ENUM; "path|hf": a path or hf:// URL; "paths": a LIST */
    const char *unit, *help;
};

#define OPT_ROW(type, kind, name, preset, least, most, unit, help)                                 \
    {#name, OPTION_##kind, offsetof(type, name),  OPT_TEXT_##kind(preset),                         \
     least, most,          OPT_UNIT_##kind(unit), help},
#define OPT_TEXT_INT(x)    #x
#define OPT_TEXT_REAL(x)   #x
#define OPT_TEXT_BOOL(x)   ((x) ? "true" : "false")
#define OPT_TEXT_AUTO(x)   x
#define OPT_TEXT_TEXT(x)   x
#define OPT_TEXT_WORD(x)   x
#define OPT_TEXT_ENUM(x)   x
#define OPT_TEXT_LIST(x)   x
#define OPT_TEXT_INTS(x)   x
#define OPT_TEXT_REALS(x)  x
#define OPT_TEXT_RANGES(x) x
#define OPT_UNIT_INT(x)    x
#define OPT_UNIT_REAL(x)   x
#define OPT_UNIT_BOOL(x)   x
#define OPT_UNIT_AUTO(x)   x
#define OPT_UNIT_TEXT(x)   x
#define OPT_UNIT_WORD(x)   x
#define OPT_UNIT_ENUM(x)   OPT_WORDS x
#define OPT_UNIT_LIST(x)   x
#define OPT_UNIT_INTS(x)   x
#define OPT_UNIT_REALS(x)  x
#define OPT_UNIT_RANGES(x) x

struct toml;

/* Sets the field in the struct `into`.  TEXT borrows the value's string; an array is allocated, and
 * option_release frees it.  CONFIG: wrong type, out of bounds or an unknown word; the message says
 * what was expected, and the caller adds key and position. */
enum status option_set(const struct option *o, void *into, const struct toml *value);
/* The same from a default or the command line, where strings need no quotes.  *keep owns the
 * strings that TEXT and LIST borrow: the caller frees it after the configuration.  It may be
 * NULL. */
enum status option_set_text(const struct option *o, void *into, const char *text,
                            struct toml **keep);
void option_release(const struct option *o, void *from);

bool option_list_contains(const struct option_list *l, const char *word);
bool option_ranges_contain(const struct option_ranges *r, int64_t number);

/* Appends a string in quotes, as TOML. */
void option_quote(struct text *out, const char *string);
/* Appends a number as TOML, with the fewest digits that read back exactly. */
void option_write_real(struct text *out, double x);

/* Appends the field's value as TOML. */
void option_write(const struct option *o, const void *from, struct text *out);
/* Appends the bounds of a number: "1 to 1024". */
void option_write_bounds(const struct option *o, struct text *out);
/* Appends what the row allows: "a whole number (tokens) from 1 to 1024", "causal or masked". */
void option_allowed(const struct option *o, struct text *out);
