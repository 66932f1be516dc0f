// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include "base/checksum.h"
#include "base/file.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* struct json is never defined: its pointers are cJSON's, cast. */
static const cJSON *to_cjson(const struct json *v) { return (const cJSON *)v; }
static const struct json *from_cjson(const cJSON *v) { return (const struct json *)v; }

/* cJSON reports an allocation that failed as malformed JSON; heap ends the process instead. */
__attribute__((constructor)) static void set_allocator(void)
{
    cJSON_InitHooks(&(cJSON_Hooks){heap, free});
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* cJSON's nesting limit of 1000 bounds the recursion. */
static enum status check_duplicate_keys(const cJSON *v, const char *name)
{
    size_t n = 0, i = 0;
    for (const cJSON *c = v->child; c; c = c->next) {
        if (c->child) TRY(check_duplicate_keys(c, name));
        n++;
    }
    if (!cJSON_IsObject(v) || n < 2) return STATUS_OK;
    const char **keys = heap(n * sizeof *keys);
    for (const cJSON *c = v->child; c; c = c->next) keys[i++] = c->string;
    qsort(keys, n, sizeof *keys, by_name);
    const char *twice = NULL;
    for (i = 1; i < n && !twice; i++)
        if (!strcmp(keys[i - 1], keys[i])) twice = keys[i];
    enum status st = STATUS_OK;
    if (twice) st = FAILURE(DATA, "%s: duplicate key \"%s\"", name, twice);
    free(keys);
    return st;
}

static const char *skip_digits(const char *at, const char *end)
{
    while (at < end && isdigit((unsigned char)*at)) at++;
    return at;
}

/* The end of a number with the grammar of RFC 8259; NULL: malformed. */
static const char *skip_number(const char *at, const char *end)
{
    const char *digits = at += *at == '-';
    at = skip_digits(at, end);
    if (at == digits || (*digits == '0' && at > digits + 1)) return NULL;
    if (at < end && *at == '.') {
        digits = at + 1;
        if ((at = skip_digits(digits, end)) == digits) return NULL;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        at++;
        digits = at += at < end && (*at == '+' || *at == '-');
        if ((at = skip_digits(digits, end)) == digits) return NULL;
    }
    return at;
}

/* Finds what cJSON accepts and RFC 8259 does not; NULL: nothing.  Sets *what to its name.  Counts
 * escaped NULs, which would end a C string. */
static const char *find_lenience(const char *bytes, size_t len, size_t *nuls, const char **what)
{
    bool quoted = false;
    *nuls = 0;
    for (const char *at = bytes, *end = bytes + len; at < end; at++) {
        unsigned char c = (unsigned char)*at;
        if (c == '"') {
            quoted = !quoted;
        } else if (c < ' ' && (quoted || !strchr("\t\r\n", c))) {
            return *what = "control character", at;
        } else if (quoted && c == '\\' && end - at >= 2) {
            *what = "malformed \\u escape";
            for (int i = 2; at[1] == 'u' && i < 6; i++)
                if (end - at < 6 || !isxdigit((unsigned char)at[i])) return at;
            *nuls += end - at >= 6 && !memcmp(at, "\\u0000", 6);
            at++;
        } else if (!quoted && (c == '-' || isdigit(c))) {
            const char *after = skip_number(at, end);
            if (!after) return *what = "malformed number", at;
            at = after - 1;
        }
    }
    return NULL;
}

/* Replaces each \u0000 by the bytes C0 80, and adds four spaces after the string, so that later
 * byte offsets do not change. */
static char *encode_nuls(const char *bytes, size_t len)
{
    char *copy = heap_string(bytes, len), *to = copy;
    size_t owed = 0; /* bytes by which the current string has become shorter */
    bool quoted = false;
    for (const char *at = bytes, *end = bytes + len; at < end;) {
        if (quoted && *at == '\\' && end - at >= 6 && !memcmp(at, "\\u0000", 6)) {
            *to++ = '\xC0', *to++ = '\x80';
            at += 6, owed += 4;
            continue;
        }
        bool escaped = quoted && *at == '\\' && end - at >= 2;
        if (*at == '"') quoted = !quoted;
        *to++ = *at++;
        if (escaped) *to++ = *at++;
        for (; !quoted && owed; owed--) *to++ = ' ';
    }
    memset(to, ' ', (size_t)(copy + len - to)); /* of a string without an end */
    return copy;
}

enum status json_parse(const char *bytes, size_t len, const char *name, struct json **out)
{
    *out = NULL;
    if (!len) FAIL(DATA, "%s: not valid JSON: empty", name);
    size_t nuls;
    if (memchr(bytes, 0, len) || !text_is_utf8(bytes, len))
        FAIL(DATA, "%s: not valid JSON: a NUL, or bytes that are not UTF-8", name);
    const char *what, *wrong = find_lenience(bytes, len, &nuls, &what);
    if (wrong)
        FAIL(DATA, "%s: not valid JSON near byte %zu: %s", name, (size_t)(wrong - bytes), what);
    char *encoded = nuls ? encode_nuls(bytes, len) : NULL;
    if (encoded) bytes = encoded;
    const char *end = NULL;
    enum status st = STATUS_OK;
    cJSON *root = cJSON_ParseWithLengthOpts(bytes, len, &end, 0);
    if (!root)
        FAIL_OUT(DATA, "%s: not valid JSON near byte %zu", name, end ? (size_t)(end - bytes) : 0);
    while (end < bytes + len && strchr(" \t\r\n", *end)) end++;
    if (end != bytes + len)
        FAIL_OUT(DATA, "%s: trailing data after the JSON value at byte %zu", name,
                 (size_t)(end - bytes));
    TRY_OUT(check_duplicate_keys(root, name));
    *out = (struct json *)root;
out:
    free(encoded);
    if (st) cJSON_Delete(root);
    return st;
}

enum status json_read(const char *path, uint64_t limit, struct json **out)
{
    struct text t = {0};
    *out = NULL;
    enum status st = file_read(path, limit, &t);
    if (!st) st = json_parse(t.data, t.len, path, out);
    text_release(&t);
    return st;
}

enum status json_read_checksummed(const char *path, uint64_t limit, const char *key,
                                  struct json **out)
{
    struct text t = {0}, line = {0};
    enum status st = STATUS_OK;
    const char *last = NULL;
    *out = NULL;
    TRY_OUT(file_read(path, limit, &t));
    text_addf(&line, "\n\"%s\": ", key);
    for (const char *at = t.data; at && (at = strstr(at, line.data)); at++) last = at + 1;
    if (!last) FAIL_OUT(DATA, "%s: truncated", path);
    text_addf(&line, "\"%08x\"}\n", checksum_crc32c(0, t.data, (size_t)(last - t.data)));
    if (strcmp(last, line.data + 1)) FAIL_OUT(DATA, "%s: checksum mismatch", path);
    TRY_OUT(json_parse(t.data, t.len, path, out));
out:
    text_release(&t), text_release(&line);
    return st;
}

void json_free(struct json *root) { cJSON_Delete((cJSON *)root); }

bool json_is_object(const struct json *v) { return cJSON_IsObject(to_cjson(v)); }
bool json_is_array(const struct json *v) { return cJSON_IsArray(to_cjson(v)); }
bool json_is_string(const struct json *v) { return cJSON_IsString(to_cjson(v)); }
bool json_is_number(const struct json *v) { return cJSON_IsNumber(to_cjson(v)); }
bool json_is_bool(const struct json *v) { return cJSON_IsBool(to_cjson(v)); }
bool json_is_null(const struct json *v) { return cJSON_IsNull(to_cjson(v)); }
bool json_true(const struct json *v) { return cJSON_IsTrue(to_cjson(v)); }

const struct json *json_get(const struct json *object, const char *key)
{
    return json_is_object(object)
               ? from_cjson(cJSON_GetObjectItemCaseSensitive(to_cjson(object), key))
               : NULL;
}

const struct json *json_first(const struct json *v)
{
    return v ? from_cjson(to_cjson(v)->child) : NULL;
}
const struct json *json_next(const struct json *v) { return from_cjson(to_cjson(v)->next); }

const struct json *json_item(const struct json *array, size_t index)
{
    const struct json *item = json_first(array);
    for (; item && index; index--) item = json_next(item);
    return item;
}

size_t json_count(const struct json *v)
{
    size_t n = 0;
    for (const struct json *c = json_first(v); c; c = json_next(c)) n++;
    return n;
}

const char *json_key(const struct json *v) { return to_cjson(v)->string; }

const char *json_string(const struct json *v)
{
    BUG_IF(!json_is_string(v));
    return to_cjson(v)->valuestring;
}

bool json_string_is(const struct json *v, const char *text)
{
    return json_is_string(v) && !strcmp(json_string(v), text);
}

double json_number(const struct json *v)
{
    BUG_IF(!json_is_number(v));
    return to_cjson(v)->valuedouble;
}

bool json_as_int(const struct json *v, int64_t least, int64_t most, int64_t *out)
{
    if (!json_is_number(v)) return false;
    double x = to_cjson(v)->valuedouble;
    if (!(fabs(x) <= (double)JSON_MAX_INT) || x != floor(x)) return false;
    if ((int64_t)x < least || (int64_t)x > most) return false;
    *out = (int64_t)x;
    return true;
}

enum status json_get_int(const struct json *object, const char *key, int64_t least, int64_t most,
                         int64_t *out)
{
    const struct json *v = json_get(object, key);
    if (!v) FAIL(DATA, "the key \"%s\" is missing", key);
    if (json_as_int(v, least, most, out)) return STATUS_OK;
    if (least == most) FAIL(DATA, "\"%s\" must be %lld", key, (long long)least);
    FAIL(DATA, "\"%s\" must be a whole number from %lld to %lld", key, (long long)least,
         (long long)most);
}

enum status json_get_string(const struct json *object, const char *key, const char **out)
{
    const struct json *v = json_get(object, key);
    if (!v) FAIL(DATA, "the key \"%s\" is missing", key);
    if (!json_is_string(v)) FAIL(DATA, "\"%s\" is not a string", key);
    *out = json_string(v);
    return STATUS_OK;
}

static bool is_space(char c) { return c && strchr(" \t\r\n", c); }

static const char *skip_space(const char *at)
{
    while (is_space(*at)) at++;
    return at;
}

/* `at` is at the opening quote. */
static const char *skip_string(const char *at)
{
    for (at++; *at != '"'; at++)
        if (*at == '\\') at++;
    return at + 1;
}

static const char *skip_value(const char *at)
{
    int depth = 0;
    for (; depth || !strchr(",}]", *at); at++) {
        if (*at == '"') {
            at = skip_string(at) - 1;
            continue;
        }
        depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
    }
    while (is_space(at[-1])) at--;
    return at;
}

bool json_member_text(const char *object, const char *key, struct text *out)
{
    const char *at = skip_space(object);
    size_t len = strlen(key);
    BUG_IF(*at != '{');
    for (at = skip_space(at + 1); *at == '"'; at = skip_space(at + 1)) {
        const char *name = at + 1, *end = skip_string(at);
        at = skip_space(skip_space(end) + 1); /* past the colon */
        const char *value = at;
        at = skip_value(value);
        if ((size_t)(end - 1 - name) == len && !strncmp(name, key, len)) {
            text_add(out, value, (size_t)(at - value));
            return true;
        }
        at = skip_space(at);
        if (*at != ',') break;
    }
    return false;
}

void json_quote(struct text *t, const char *string)
{
    static const char plain[] = "\n\t\r\"\\", letters[] = "ntr\"\\";
    const unsigned char *at = (const unsigned char *)string, *end = at + strlen(string);
    text_adds(t, "\"");
    while (at < end) {
        size_t n = text_utf8_length(at, end);
        const char *known = strchr(plain, *at);
        if (known)
            text_addf(t, "\\%c", letters[known - plain]);
        else if (!n)
            text_adds(t, "\\ufffd"); /* file names need not be UTF-8, JSON must be */
        else if (*at < 0x20)
            text_addf(t, "\\u%04x", *at);
        else
            text_add(t, at, n);
        at += n ? n : 1;
    }
    text_adds(t, "\"");
}

void json_real(struct text *t, double value)
{
    if (isfinite(value))
        text_addf(t, "%.17g", value);
    else
        text_adds(t, "null");
}

/* The comma and white space before an element of the innermost container, or, with `ends`, before
 * its closing bracket. */
static void write_separator(struct json_writer *w, bool ends)
{
    struct json_writer_level *level = &w->levels[w->depth - 1];
    int spaces = w->indent - 1;
    bool lines = level->layout == JSON_LINES;
    if (level->has_elements && !ends) text_adds(w->text, ",");
    if (w->indent || lines)
        text_addf(w->text, "\n%*s", w->indent ? spaces : 2 * (w->depth - ends), "");
    else if (level->has_elements && !ends && level->layout == JSON_INLINE)
        text_adds(w->text, " ");
    level->has_elements = true;
    w->indent = 0;
}

/* Writes the separator, key and colon before a value. */
static void write_prefix(struct json_writer *w, const char *key)
{
    if (key) json_write_key(w, key);
    if (w->after_key) {
        w->after_key = false;
    } else if (w->depth) {
        if (!w->levels[w->depth - 1].is_array) BUG("a member of a JSON object needs a key");
        write_separator(w, false);
    } else {
        if (w->has_root) BUG("more than one JSON root");
        w->has_root = true;
    }
}

void json_write_key(struct json_writer *w, const char *key)
{
    if (!w->depth || w->levels[w->depth - 1].is_array || w->after_key)
        BUG("a JSON key outside an object, or after another key");
    write_separator(w, false);
    json_quote(w->text, key);
    text_adds(w->text, w->levels[w->depth - 1].layout == JSON_COMPACT ? ":" : ": ");
    w->after_key = true;
}

static void begin_container(struct json_writer *w, const char *key, enum json_layout layout,
                            bool is_array)
{
    write_prefix(w, key);
    if (w->depth == JSON_MAX_DEPTH) BUG("JSON nested too deep");
    w->levels[w->depth++] = (struct json_writer_level){layout, is_array, false};
    text_adds(w->text, is_array ? "[" : "{");
}

static void end_container(struct json_writer *w, bool is_array)
{
    if (!w->depth || w->levels[w->depth - 1].is_array != is_array || w->after_key)
        BUG("a JSON object or array is closed where none is open");
    write_separator(w, true);
    text_adds(w->text, is_array ? "]" : "}");
    w->depth--;
}

void json_begin_object(struct json_writer *w, const char *key, enum json_layout layout)
{
    begin_container(w, key, layout, false);
}

void json_end_object(struct json_writer *w) { end_container(w, false); }

void json_begin_array(struct json_writer *w, const char *key, enum json_layout layout)
{
    begin_container(w, key, layout, true);
}

void json_end_array(struct json_writer *w) { end_container(w, true); }

void json_write_string(struct json_writer *w, const char *key, const char *value)
{
    write_prefix(w, key);
    if (value)
        json_quote(w->text, value);
    else
        text_adds(w->text, "null");
}

void json_write_int(struct json_writer *w, const char *key, int64_t value)
{
    write_prefix(w, key);
    text_addf(w->text, "%lld", (long long)value);
}

void json_write_int_or_null(struct json_writer *w, const char *key, int64_t value)
{
    if (value < 0)
        json_write_null(w, key);
    else
        json_write_int(w, key, value);
}

void json_write_real(struct json_writer *w, const char *key, double value)
{
    write_prefix(w, key);
    json_real(w->text, value);
}

void json_write_bool(struct json_writer *w, const char *key, bool value)
{
    json_write_raw(w, key, value ? "true" : "false");
}

void json_write_null(struct json_writer *w, const char *key) { json_write_raw(w, key, "null"); }

void json_write_raw(struct json_writer *w, const char *key, const char *value)
{
    write_prefix(w, key);
    text_adds(w->text, value);
}

void json_write_format(struct json_writer *w, const char *key, const char *fmt, ...)
{
    va_list ap;
    write_prefix(w, key);
    size_t begin = w->text->len;
    va_start(ap, fmt);
    text_addv(w->text, fmt, ap);
    va_end(ap);
    const char *value = w->text->data + begin;
    value += *value == '-';
    if (strncmp(value, "nan", 3) && strncmp(value, "inf", 3)) return;
    w->text->len = begin;
    text_adds(w->text, "null");
}

void json_newline(struct json_writer *w, int spaces)
{
    if (!w->depth || w->after_key) BUG("a JSON line break must come before an element");
    w->indent = 1 + spaces;
}

void json_end_checksummed(struct json_writer *w, const char *key)
{
    json_newline(w, 0);
    json_write_key(w, key);
    size_t covered = w->text->len - strlen(key) - strlen("\"\": ");
    json_write_format(w, NULL, "\"%08x\"", checksum_crc32c(0, w->text->data, covered));
    json_end_object(w);
    json_finish(w);
    text_adds(w->text, "\n");
}

void json_finish(const struct json_writer *w)
{
    if (w->depth || w->after_key || !w->has_root) BUG("incomplete JSON");
}

const char *json_library_version(void) { return cJSON_Version(); }
