/* import.h -- translates other programs' configurations to Llamero's, and reports what became of
 * each key.
 *
 * An importer (nxdt.c, megatron.c) adds the file's keys as items.  Rules that involve several keys
 * translate some of them, and a table of rows handles the rest; an item without a row is unknown.
 * Memory   An import owns everything it points to until import_release, except `file`. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"

enum import_verdict {
    IMPORT_TRANSLATED,   /* became one of our keys */
    IMPORT_IGNORED,      /* changes no result: no key is needed */
    IMPORT_ORIGINAL_BUG, /* a bug of the original program concerns it */
    IMPORT_UNSUPPORTED,  /* would change the result; an error unless config.accept_loss names it */
    IMPORT_UNKNOWN,      /* not a key of the original, with `lenient` */
};

/* One key or flag of the file. */
struct import_item {
    char *key;
    char **values; /* several for a list, none for a flag without a value */
    size_t count;
    bool null;    /* YAML's null */
    int line;     /* 0: the command line */
    bool handled; /* it has a note */
};

struct import_note {
    enum import_verdict verdict;
    char *key, *value, *target, *text; /* target: our key, or "" */
    const char *accept;                /* borrowed; the name in config.accept_loss; NULL: key */
    int line;
};

struct import_source {
    char *path, *column;
    double weight;
};

struct import {
    const char *file; /* borrowed */
    const char *format;
    struct config config; /* defaults, overridden by the keys set so far */
    struct import_item *items;
    size_t num_items;
    struct import_note *notes;
    size_t num_notes;
    struct import_source *sources;
    size_t num_sources;
    int64_t num_ranks; /* 0: unknown */
    bool lenient;      /* set by the caller: note unknown keys instead of failing */
};

/* Keeps `lenient`. */
enum status import_init(struct import *im, const char *file, const char *format);
void import_release(struct import *im);

/* `values` NULL: YAML's null. */
void import_add_item(struct import *im, const char *key, int line, const char *const *values,
                     size_t count);
/* Returns the last item of that name; NULL: absent or null. */
const struct import_item *import_get(const struct import *im, const char *key);

/* Fails with CONFIG: "place: key = value: expected EXPECTED". */
enum status import_bad_value(const struct import *im, const struct import_item *item,
                             const char *expected);
/* Parse the item's single value.  CONFIG: as import_bad_value. */
enum status import_parse_int(const struct import *im, const struct import_item *item, int64_t least,
                             int64_t most, int64_t *out);
enum status import_parse_real(const struct import *im, const struct import_item *item, double *out);
enum status import_parse_bool(const struct import *im, const struct import_item *item, bool *out);
enum status import_parse_string(const struct import *im, const struct import_item *item,
                                const char **out);
/* The same by key; `preset` if it is absent. */
enum status import_get_int(const struct import *im, const char *key, int64_t preset, int64_t *out);
enum status import_get_bool(const struct import *im, const char *key, bool preset, bool *out);
const char *import_get_string(const struct import *im, const char *key, const char *preset);

/* Sets our key `target` to a value in TOML's text form and adds a note with the comment `text`.
 * `item` NULL: the value is a default of the original.  CONFIG: `target` does not allow it. */
enum status import_set(struct import *im, const struct import_item *item, const char *target,
                       const char *value, const char *text);
enum status import_set_int(struct import *im, const struct import_item *item, const char *target,
                           int64_t value, const char *text);
enum status import_set_real(struct import *im, const struct import_item *item, const char *target,
                            double value, const char *text);
/* Sets `target` to the item's single value. */
enum status import_copy(struct import *im, const struct import_item *item, const char *target,
                        const char *text);
/* import_set without a comment, with printf's arguments.  CONFIG: also if the value is longer than
 * 511 bytes. */
enum status import_setf(struct import *im, const struct import_item *item, const char *target,
                        const char *form, ...) __attribute__((format(printf, 4, 5)));
void import_add_note(struct import *im, enum import_verdict verdict, const struct import_item *item,
                     const char *text);
/* Notes that a key which the file does not set has a default that is not supported. */
void import_refuse_default(struct import *im, const char *key, const char *text);
void import_add_source(struct import *im, const char *path, const char *column, double weight);

/* A key whose translation does not depend on other keys. */
enum import_row_kind {
    IMPORT_ROW_TAKE,   /* sets `target`, or rules use it; `text` is the reason if none did */
    IMPORT_ROW_IGNORE, /* changes no result beyond rounding, whatever the value */
    IMPORT_ROW_ERROR,  /* would change the result, except for the values in `target` (a|b) */
};
struct import_row {
    const char *key; /* a name that ends in .* covers all keys below it */
    enum import_row_kind kind;
    const char *target, *text;
};
bool import_has_row(const struct import_row *rows, size_t count, const char *key);
/* CONFIG: an item is not handled and has no row; the message suggests a similar name. */
enum status import_check_known(struct import *im, const struct import_row *rows, size_t count);
/* Applies their rows to all items that are not handled yet.  CONFIG: as import_set. */
enum status import_apply_rows(struct import *im, const struct import_row *rows, size_t count);

/* CONFIG: keys would change the result, and config.accept_loss does not name them (refusals.h). */
enum status import_check_refusals(struct import *im);

/* Write the result: a commented TOML file, or a JSON object with format, file, ranks, keys[] and
 * toml. */
void import_write(const struct import *im, struct text *toml);
void import_write_json(const struct import *im, struct text *json);

/* Imports NxD Training's YAML, and the config.json that model.model_config names if it exists.
 * `settings` are key=value of the YAML or section.key=value of ours. */
enum status import_nxdt(struct import *im, const char *bytes, size_t len, const char *file,
                        const char *const *settings, int num_settings);
/* Imports flags of Megatron-LM's pretrain_gpt.py; `words` may include section.key=value of ours. */
enum status import_flags(struct import *im, const char *const *words, size_t count);
/* Imports the flags with which a shell script starts pretrain_gpt.py, or `accelerate launch` starts
 * a program like frontier-guide's train.py.  The script is parsed, not run.  `words` are VAR=VALUE,
 * section.key=value of ours, and the script's arguments. */
enum status import_script(struct import *im, const char *bytes, size_t len, const char *file,
                          const char *const *words, size_t count);
