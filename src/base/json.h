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

/* Of the library behind it. */
const char *json_library_version(void);

bool utf8_valid(const char *bytes, size_t len);
