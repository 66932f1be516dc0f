/* json.h -- JSON (RFC 8259) in, and the pieces to write it.  A thin, strict face on cJSON.
 *
 * Refused beyond what cJSON refuses: bytes after the value, text that is not UTF-8, escaped NULs,
 * and objects that name a key twice.
 * Units    Integers are exact below 2^53; others are refused where an integer is asked for.
 * Memory   json_parse gives a tree that json_free frees; strings point into it. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

struct json; /* a value: object, array, string, number, true, false or null */

/* DATA: not JSON; the message gives `name` and the byte. */
enum status json_parse(const char *bytes, size_t len, const char *name, struct json **out);
enum status json_read(const char *path, uint64_t limit, struct json **out);
void json_free(struct json *root);

bool json_is_object(const struct json *v); /* all of these: false for NULL */
bool json_is_array(const struct json *v);
bool json_is_string(const struct json *v);
bool json_is_number(const struct json *v);
bool json_is_bool(const struct json *v);
bool json_is_null(const struct json *v);

const struct json *json_get(const struct json *object, const char *key); /* NULL: absent */
const struct json *json_first(const struct json *object_or_array);       /* then json_next */
const struct json *json_next(const struct json *v);
size_t json_count(const struct json *object_or_array);
const char *json_key(const struct json *v);                  /* the name of an object's member */
const char *json_string(const struct json *v);               /* BUG unless a string */
bool json_string_is(const struct json *v, const char *text); /* false for what is no string */
double json_number(const struct json *v);                    /* BUG unless a number */
bool json_true(const struct json *v);

/* Members that must be there and in bounds.  DATA names the key, the value and what is wanted. */
enum status json_get_int(const struct json *object, const char *key, int64_t least, int64_t most,
                         int64_t *out);
enum status json_get_string(const struct json *object, const char *key, const char **out);
/* Is v a whole number in bounds?  Then *out is it. */
bool json_as_int(const struct json *v, int64_t least, int64_t most, int64_t *out);

/* Writing is text_addf plus this: the string in quotes, escaped; bytes that are not UTF-8 become
 * U+FFFD. */
void json_quote(struct text *t, const char *string);
/* A double that reads back as the same bits, "null" if it is not finite. */
void json_real(struct text *t, double value);

/* Writes one JSON value into `text`, placing quotes, colons, commas and line breaks.  Begin with
 * { .text = t } and finish with json_finish.  Each value comes with its key, or with NULL: in an
 * array, at the root, or right after json_write_key.  Misuse (a missing key, an `end` of the wrong
 * kind, a second root) is a BUG. */
enum json_layout {
    JSON_COMPACT, /* {"a":1,"b":2} */
    JSON_INLINE,  /* {"a": 1, "b": 2} */
    JSON_LINES,   /* an element per line, indented by two spaces per nesting level */
};
enum { JSON_MAX_DEPTH = 16 };

struct json_writer {
    struct text *text; /* borrowed; the caller sets it, all else is zero at first */
    struct json_writer_level {
        enum json_layout layout;
        bool is_array, has_elements;
    } levels[JSON_MAX_DEPTH];
    int depth;
    int indent;     /* 1 + the spaces json_newline asked for; 0: no line break */
    bool after_key; /* the next value belongs to a key already written */
    bool has_root;  /* the one value allowed at the root has begun */
};

void json_begin_object(struct json_writer *w, const char *key, enum json_layout layout);
void json_end_object(struct json_writer *w);
void json_begin_array(struct json_writer *w, const char *key, enum json_layout layout);
void json_end_array(struct json_writer *w);
void json_write_key(struct json_writer *w, const char *key);
void json_write_string(struct json_writer *w, const char *key, const char *value); /* or NULL */
void json_write_int(struct json_writer *w, const char *key, int64_t value);
void json_write_real(struct json_writer *w, const char *key, double value); /* as json_real */
void json_write_bool(struct json_writer *w, const char *key, bool value);
void json_write_null(struct json_writer *w, const char *key);
/* `value` is JSON already, and copied as it is. */
void json_write_raw(struct json_writer *w, const char *key, const char *value);
/* The same from a format: numbers of other widths or precisions. */
void json_write_format(struct json_writer *w, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Breaks the line before the next element, or before the bracket that ends the container. */
void json_newline(struct json_writer *w, int spaces);
/* BUG unless one whole value has been written. */
void json_finish(const struct json_writer *w);

/* Of the library behind it. */
const char *json_library_version(void);

bool utf8_valid(const char *bytes, size_t len);
