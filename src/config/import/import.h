/* import.h -- other programs' configurations as ours: what each key became, and what could not.
 *
 * A reader (import_nxdt.c, import_megatron.c) lists what the file says as items and turns them, by
 * a table and by rules that join several, into keys of ours; what is left over is unknown.
 * Memory   An import owns all it points to until import_release. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"

enum import_verdict {
    IMPORT_OURS,    /* it became a key of ours */
    IMPORT_NONE,    /* it has no meaning here */
    IMPORT_BUG,     /* the original does something else than it says */
    IMPORT_MISSING, /* it has a meaning, and is not done here */
};

/* One key or flag of the file. */
struct import_item {
    char *key;
    char **values; /* of a list several; a flag without one has none */
    size_t count;
    bool null; /* YAML's null */
    int line;  /* 0: the command line */
    bool told; /* a note says what became of it */
};

struct import_note {
    enum import_verdict verdict;
    char *key, *value, *ours, *text; /* ours "": none */
    int line;
};

struct import_source {
    char *path, *column;
    double weight;
};

struct import {
    const char *file; /* borrowed */
    const char *format;
    struct config config; /* defaults, and what was set so far */
    struct import_item *items;
    size_t num_items;
    struct import_note *notes;
    size_t num_notes;
    struct import_source *sources;
    size_t num_sources;
    int64_t num_ranks; /* of the run; 0: not known */
};

enum status import_init(struct import *im, const char *file, const char *format);
void import_release(struct import *im);

void import_add_item(struct import *im, const char *key, int line, bool null,
                     const char *const *values, size_t count);
/* The last of that name, or NULL: none, or null. */
const struct import_item *import_get(const struct import *im, const char *key);

/* CONFIG: "place: key = value: WANT is wanted". */
enum status import_unfit(const struct import *im, const struct import_item *item, const char *want);
/* The item's value.  CONFIG: place, key, value and what is wanted. */
enum status import_int(const struct import *im, const struct import_item *item, int64_t least,
                       int64_t most, int64_t *out);
enum status import_real(const struct import *im, const struct import_item *item, double *out);
enum status import_truth(const struct import *im, const struct import_item *item, bool *out);
enum status import_text(const struct import *im, const struct import_item *item, const char **out);
/* The same, `preset` where it is absent. */
enum status import_get_int(const struct import *im, const char *key, int64_t preset, int64_t *out);
enum status import_get_truth(const struct import *im, const char *key, bool preset, bool *out);
const char *import_get_text(const struct import *im, const char *key, const char *preset);

/* Sets a key of ours and notes it; `item` NULL: by what the original does without being told.
 * `ours` is in the configuration's text form.  CONFIG: the value is not allowed there. */
enum status import_set(struct import *im, const struct import_item *item, const char *ours,
                       const char *value, const char *text);
/* The item's one value as it is. */
enum status import_copy(struct import *im, const struct import_item *item, const char *ours,
                        const char *text);
enum status import_setf(struct import *im, const struct import_item *item, const char *ours,
                        const char *text, const char *form, ...)
    __attribute__((format(printf, 5, 6)));
void import_note(struct import *im, enum import_verdict verdict, const struct import_item *item,
                 const char *text);
void import_add_source(struct import *im, const char *path, const char *column, double weight);

/* What is the same for every value of a kind is a row of a table. */
enum import_how {
    IMPORT_TAKE, /* `ours` gets the value */
    IMPORT_IDLE, /* no meaning here, whatever it is */
    IMPORT_ONLY, /* one of the words in `ours` says what holds here; others are not done */
    IMPORT_CODE, /* a rule of several keys takes it; `text` is said where none has */
    IMPORT_LOST, /* not done here, whatever it is */
};
struct import_row {
    const char *key; /* a name that ends with .* stands for all below it */
    enum import_how how;
    const char *ours, *text;
};
/* CONFIG: an item that is not told and has no row; the nearest name is said. */
enum status import_known(const struct import *im, const struct import_row *rows, size_t count);
/* Every item that is not told yet by its row, so that all are.  CONFIG as import_set. */
enum status import_rows(struct import *im, const struct import_row *rows, size_t count);

/* Place for messages: "file:line: key" or "command line: key". */
void import_where(const struct import *im, const struct import_item *item, struct text *out);

/* A file of ours, commented; or an object with format, file, ranks, keys[] and toml. */
void import_write(const struct import *im, struct text *toml);
void import_write_json(const struct import *im, struct text *json);

/* NxD Training's YAML; config.json of model.model_config is read where it is there. */
enum status import_nxdt(struct import *im, const char *bytes, size_t len, const char *file,
                        const char *const *settings, int num_settings);
/* Flags of Megatron-LM's pretrain_gpt.py, with section.key=value of ours among them. */
enum status import_flags(struct import *im, const char *const *words, size_t count);
/* A script that ends in such flags, with VAR=VALUE and its other arguments in `words`; it is read,
 * never run. */
enum status import_script(struct import *im, const char *bytes, size_t len, const char *file,
                          const char *const *words, size_t count);
