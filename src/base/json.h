/* json.h -- reading and writing JSON (RFC 8259).  A thin, strict layer over cJSON.
 *
 * Beyond cJSON's own checks, the parser rejects trailing bytes, text that is not UTF-8, duplicate
 * keys, and the numbers, control characters and escapes that cJSON accepts and RFC 8259 does not.
 * NUL      An escaped U+0000 becomes the two bytes C0 80, as in Java's modified UTF-8: strings end
 *          in a NUL, and no valid UTF-8 contains them.
 * Units    Integers are exact below 2^53 in magnitude; larger ones are rejected as integers.
 * Memory   json_parse returns a tree that json_free frees; strings point into it. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

#define JSON_MAX_INT ((INT64_C(1) << 53) - 1) /* the largest that is read as an integer */

struct json; /* a value: object, array, string, number, true, false or null */

/* DATA: not JSON; the message has `name` and the byte offset. */
enum status json_parse(const char *bytes, size_t len, const char *name, struct json **out);
enum status json_read(const char *path, uint64_t limit, struct json **out);
void json_free(struct json *root);
/* Reads a file that json_end_checksummed wrote.  DATA: truncated, or the checksum differs. */
enum status json_read_checksummed(const char *path, uint64_t limit, const char *key,
                                  struct json **out);

bool json_is_object(const struct json *v); /* these return false for NULL */
bool json_is_array(const struct json *v);
bool json_is_string(const struct json *v);
bool json_is_number(const struct json *v);
bool json_is_bool(const struct json *v);
bool json_is_null(const struct json *v);

const struct json *json_get(const struct json *object, const char *key); /* NULL: absent */
const struct json *json_first(const struct json *object_or_array);       /* then json_next */
const struct json *json_next(const struct json *v);
const struct json *json_item(const struct json *array, size_t index); /* NULL: it has fewer */
size_t json_count(const struct json *object_or_array);
const char *json_key(const struct json *v);                  /* of an object's member */
const char *json_string(const struct json *v);               /* BUG unless a string */
bool json_string_is(const struct json *v, const char *text); /* false for other kinds */
double json_number(const struct json *v);                    /* BUG unless a number */
bool json_true(const struct json *v);

/* Required members.  DATA: missing, of another kind or out of bounds; the message has the key. */
enum status json_get_int(const struct json *object, const char *key, int64_t least, int64_t most,
                         int64_t *out);
enum status json_get_string(const struct json *object, const char *key, const char **out);
/* If v is a whole number in bounds, sets *out and returns true. */
bool json_as_int(const struct json *v, int64_t least, int64_t most, int64_t *out);

/* Appends the text of a member's value, unchanged, from the text of an object that json_parse
 * accepts; false: absent.  The key must need no escapes. */
bool json_member_text(const char *object, const char *key, struct text *out);

/* Appends the string in quotes, escaped; bytes that are not UTF-8 become U+FFFD. */
void json_quote(struct text *t, const char *string);
/* Appends a double so that it reads back as the same bits, or null if it is not finite. */
void json_real(struct text *t, double value);

/* Writes one JSON value into a text and takes care of quotes, colons, commas and line breaks.
 * Initialize with { .text = t } and end with json_finish.  Pass each value's key, or NULL in an
 * array, at the root, or after json_write_key.  Wrong nesting, a missing key or a second root is a
 * BUG. */
enum json_layout {
    JSON_COMPACT, /* {"a":1,"b":2} */
    JSON_INLINE,  /* {"a": 1, "b": 2} */
    JSON_LINES,   /* an element per line, indented by two spaces per nesting level */
};
enum { JSON_MAX_DEPTH = 16 };

struct json_writer {
    struct text *text; /* borrowed; all other fields start as zero */
    struct json_writer_level {
        enum json_layout layout;
        bool is_array, has_elements;
    } levels[JSON_MAX_DEPTH];
    int depth;
    int indent;     /* 1 + the spaces of a pending json_newline; 0: none */
    bool after_key; /* the key of the next value is written */
    bool has_root;  /* the root value has begun */
};

void json_begin_object(struct json_writer *w, const char *key, enum json_layout layout);
void json_end_object(struct json_writer *w);
void json_begin_array(struct json_writer *w, const char *key, enum json_layout layout);
void json_end_array(struct json_writer *w);
void json_write_key(struct json_writer *w, const char *key);
void json_write_string(struct json_writer *w, const char *key, const char *value); /* NULL: null */
void json_write_int(struct json_writer *w, const char *key, int64_t value);
void json_write_int_or_null(struct json_writer *w, const char *key,
                            int64_t value);                                 /* null if < 0 */
void json_write_real(struct json_writer *w, const char *key, double value); /* as json_real */
void json_write_bool(struct json_writer *w, const char *key, bool value);
void json_write_null(struct json_writer *w, const char *key);
/* Copies `value`, which must be valid JSON, unchanged. */
void json_write_raw(struct json_writer *w, const char *key, const char *value);
/* The same with printf, for numbers of other widths or precisions; one that is not finite becomes
 * null. */
void json_write_format(struct json_writer *w, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Breaks the line before the next element or closing bracket and indents it by `spaces`. */
void json_newline(struct json_writer *w, int spaces);
/* Ends the root, an object, and its text with the line "key": "CRC-32C of all text before it"}. */
void json_end_checksummed(struct json_writer *w, const char *key);
/* BUG unless exactly one complete value has been written. */
void json_finish(const struct json_writer *w);

/* cJSON's version. */
const char *json_library_version(void);
