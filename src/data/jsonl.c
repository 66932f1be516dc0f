// SPDX-License-Identifier: Apache-2.0
#include "data/jsonl.h"

#include "base/json.h"

#include <string.h>

enum { MAX_DEPTH = 200 };

static const char escapes[] = "\"\\/bfnrt"; /* and u */

struct scanner {
    const char *begin, *at, *end, *where;
};

static enum status fail_here(const struct scanner *s, const char *what)
{
    FAIL(RECORD, "%s: byte %zu of the line: %s", s->where, (size_t)(s->at - s->begin), what);
}

static int peek(const struct scanner *s) { return s->at < s->end ? (unsigned char)*s->at : -1; }

static void skip_space(struct scanner *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\r' || *s->at == '\n'))
        s->at++;
}

/* Bits of the bytes of `word` that are a quote, a backslash or a control character; the lowest set
 * one is exact. */
static uint64_t find_specials(uint64_t word)
{
    const uint64_t ones = 0x0101010101010101, highs = ones << 7;
    uint64_t quote = word ^ ones * '"', back = word ^ ones * '\\';
    return ((quote - ones) & ~quote & highs) | ((back - ones) & ~back & highs) |
           ((word - ones * ' ') & ~word & highs);
}

/* Moves past characters that stand for themselves. */
static void skip_plain(struct scanner *s)
{
    uint64_t word;
    for (; s->end - s->at >= (ptrdiff_t)sizeof word; s->at += sizeof word) {
        memcpy(&word, s->at, sizeof word);
        if (find_specials(word)) break;
    }
    while (s->at < s->end && *s->at != '"' && *s->at != '\\' && (unsigned char)*s->at >= ' ')
        s->at++;
}

static int hex4(const char *at, const char *end)
{
    int code = 0;
    if (end - at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int c = (unsigned char)at[i], digit = c >= '0' && c <= '9'   ? c - '0'
                                              : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                              : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                                     : -1;
        if (digit < 0) return -1;
        code = code << 4 | digit;
    }
    return code;
}

/* Moves past an escape. */
static enum status skip_escape(struct scanner *s)
{
    int kind = s->end - s->at > 1 ? s->at[1] : 0;
    if (!kind) return fail_here(s, "unterminated string");
    if (kind == 'u' && hex4(s->at + 2, s->end) < 0)
        return fail_here(s, "expected four hex digits after \\u");
    if (kind != 'u' && !strchr(escapes, kind)) return fail_here(s, "unknown escape");
    s->at += kind == 'u' ? 6 : 2;
    return STATUS_OK;
}

/* Moves past the closing quote of a string whose opening quote was read; *raw_len is the length
 * between the quotes. */
static enum status skip_string(struct scanner *s, size_t *raw_len)
{
    const char *begin = s->at;
    for (;;) {
        skip_plain(s);
        int c = peek(s);
        if (c < 0) s->at = begin;
        if (c < 0) return fail_here(s, "unterminated string");
        if (c == '"') break;
        if (c != '\\') return fail_here(s, "control character in a string: expected an escape");
        TRY(skip_escape(s));
    }
    *raw_len = (size_t)(s->at++ - begin);
    return STATUS_OK;
}

static size_t skip_digits(struct scanner *s)
{
    const char *begin = s->at;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9') s->at++;
    return (size_t)(s->at - begin);
}

static enum status skip_number(struct scanner *s)
{
    s->at += peek(s) == '-';
    bool is_zero = peek(s) == '0';
    size_t digits = skip_digits(s);
    bool good = digits && !(is_zero && digits > 1);
    if (good && peek(s) == '.') {
        s->at++;
        good = skip_digits(s);
    }
    if (good && (peek(s) == 'e' || peek(s) == 'E')) {
        s->at++;
        s->at += peek(s) == '+' || peek(s) == '-';
        good = skip_digits(s);
    }
    return good ? STATUS_OK : fail_here(s, "not a JSON number");
}

/* A value that is neither a list nor an object. */
static enum status skip_scalar(struct scanner *s)
{
    static const char *const words[] = {"true", "false", "null"};
    size_t raw;
    int c = peek(s);
    if (c < 0) return fail_here(s, "unexpected end of line");
    if (c == '"') {
        s->at++;
        return skip_string(s, &raw);
    }
    if (c == '-' || (c >= '0' && c <= '9')) return skip_number(s);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t len = strlen(words[i]);
        if ((size_t)(s->end - s->at) < len || memcmp(s->at, words[i], len) != 0) continue;
        s->at += len;
        return STATUS_OK;
    }
    return fail_here(s, "expected a value");
}

static enum status skip_key(struct scanner *s)
{
    size_t raw;
    if (peek(s) != '"')
        return fail_here(s, peek(s) < 0 ? "unexpected end of line" : "expected a key");
    s->at++;
    TRY(skip_string(s, &raw));
    skip_space(s);
    if (peek(s) != ':') return fail_here(s, "expected : after a key");
    s->at++;
    return STATUS_OK;
}

/* Skips a value of any type, which must have the grammar of RFC 8259. */
static enum status skip_value(struct scanner *s)
{
    char closing[MAX_DEPTH]; /* brackets that close what is open */
    int depth = 0;
    for (;;) {
        skip_space(s);
        int c = peek(s);
        bool opens = c == '{' || c == '[', is_empty = false;
        if (opens && depth == MAX_DEPTH) return fail_here(s, "nested too deeply");
        if (opens) {
            s->at++;
            skip_space(s);
            closing[depth++] = (char)(c == '{' ? '}' : ']');
            is_empty = peek(s) == closing[depth - 1];
        } else {
            TRY(skip_scalar(s));
        }
        if (!opens || is_empty) {
            for (; depth && (skip_space(s), peek(s) == closing[depth - 1]); depth--) s->at++;
            if (!depth) return STATUS_OK;
            if (peek(s) < 0) return fail_here(s, "unexpected end of line");
            if (peek(s) != ',')
                return fail_here(s,
                                 closing[depth - 1] == '}' ? "expected , or }" : "expected , or ]");
            s->at++;
            skip_space(s);
        }
        if (closing[depth - 1] == '}') TRY(skip_key(s));
    }
}

/* Decodes \uXXXX, or both halves of a surrogate pair; *from points after the first u. */
static bool unescape_unicode(const char **from, const char *end, char **to)
{
    int code = hex4(*from, end);
    if (code < 0) return false;
    *from += 4;
    uint32_t whole = (uint32_t)code;
    if (code >= 0xD800 && code <= 0xDBFF && end - *from >= 6 && (*from)[0] == '\\' &&
        (*from)[1] == 'u') {
        int low = hex4(*from + 2, end);
        if (low >= 0xDC00 && low <= 0xDFFF) {
            whole = 0x10000 + ((uint32_t)(code - 0xD800) << 10) + (uint32_t)(low - 0xDC00);
            *from += 6;
        }
    }
    if (whole >= 0xD800 && whole <= 0xDFFF) whole = 0xFFFD;
    *to += text_encode_utf8(whole, *to);
    return true;
}

/* Appends the unescaped string to `out`. */
static enum status unescape(struct scanner *s, const char *raw, size_t len, struct text *out)
{
    static const char to_escape[] = "\"\\/\b\f\n\r\t";
    size_t before = out->len;
    text_reserve(out, len); /* unescaped text is never longer */
    char *to = out->data + before;
    s->at = raw; /* where an error is reported */
    for (const char *end = raw + len; s->at < end;) {
        const char *stop = memchr(s->at, '\\', (size_t)(end - s->at));
        size_t plain = (size_t)((stop ? stop : end) - s->at);
        memcpy(to, s->at, plain);
        to += plain, s->at += plain;
        if (!stop) break;
        const char *after = stop + 2; /* exists: an unescaped quote ends the string */
        const char *found = strchr(escapes, stop[1]);
        if (stop[1] == 'u') {
            if (!unescape_unicode(&after, end, &to))
                return fail_here(s, "expected four hex digits after \\u");
        } else if (found && stop[1]) {
            *to++ = to_escape[found - escapes];
        } else {
            return fail_here(s, "unknown escape");
        }
        s->at = after;
    }
    out->len = (size_t)(to - out->data);
    *to = 0;
    s->at = raw;
    if (!text_is_utf8(out->data + before, out->len - before))
        return fail_here(s, "the string is not UTF-8");
    return STATUS_OK;
}

/* Reads a key and its colon; *is_match: the key equals `key` after unescaping. */
static enum status read_key(struct scanner *s, const char *key, size_t key_len,
                            struct text *scratch, bool *is_match)
{
    size_t raw = 0;
    if (peek(s) != '"') return fail_here(s, "expected a key");
    const char *name = ++s->at;
    TRY(skip_string(s, &raw));
    if (memchr(name, '\\', raw)) {
        const char *after = s->at;
        text_clear(scratch);
        TRY(unescape(s, name, raw, scratch));
        s->at = after;
        name = scratch->data, raw = scratch->len;
    }
    *is_match = raw == key_len && !memcmp(name, key, raw);
    skip_space(s);
    if (peek(s) != ':') return fail_here(s, "expected : after a key");
    s->at++;
    skip_space(s);
    return STATUS_OK;
}

/* Skips an object; `value` becomes the raw value of member `key`, with value->at NULL if there is
 * no such member. */
static enum status find_member(struct scanner *s, const char *key, size_t key_len,
                               struct text *scratch, struct scanner *value)
{
    *value = (struct scanner){.begin = s->begin, .where = s->where};
    if (peek(s) != '{') return fail_here(s, "not a JSON object");
    s->at++;
    skip_space(s);
    for (bool more = peek(s) != '}'; more;) {
        bool is_match = false;
        TRY(read_key(s, key, key_len, scratch, &is_match));
        if (is_match && value->at)
            FAIL(RECORD, "%s: duplicate key \"%.*s\"", s->where, (int)key_len, key);
        const char *begin = s->at;
        TRY(skip_value(s));
        if (is_match) value->at = begin, value->end = s->at;
        skip_space(s);
        more = peek(s) == ',';
        s->at += more;
        skip_space(s);
    }
    if (peek(s) != '}') return fail_here(s, "expected , or }");
    s->at++;
    return STATUS_OK;
}

static bool is_null(const struct scanner *value)
{
    return value->at && value->end - value->at == 4 && !memcmp(value->at, "null", 4);
}

/* find_member; if there is no such member, "a.b" is member b of the object a. */
static enum status find_path(struct scanner *s, const char *path, size_t len, struct text *scratch,
                             struct scanner *value)
{
    struct scanner outer = *s, inner;
    const char *dot;
    TRY(find_member(s, path, len, scratch, value));
    while (!value->at && (dot = memchr(path, '.', len))) {
        TRY(find_member(&outer, path, (size_t)(dot - path), scratch, &inner));
        if (is_null(&inner)) *value = inner;
        if (is_null(&inner) || !inner.at || *inner.at != '{') break;
        len -= (size_t)(dot + 1 - path), path = dot + 1, outer = inner;
        TRY(find_member(&inner, path, len, scratch, value));
    }
    return STATUS_OK;
}

/* Appends a value, which must be a string; null is an empty one. */
static enum status append_string(struct scanner *value, const char *path, struct text *out)
{
    const char *begin = value->at, *where = value->where;
    if (!begin)
        FAIL(RECORD, "%s: the line has no key \"%s\"; set column to the key of the text", where,
             path);
    if (is_null(value)) return STATUS_OK;
    if (*begin != '"') FAIL(RECORD, "%s: the value of \"%s\" is not a string", where, path);
    return unescape(value, begin + 1, (size_t)(value->end - begin) - 2, out);
}

/* Appends the value at the path `rest` of each object in a list, each after two line breaks; again
 * of each object in a list where `rest` has another "[].". */
static enum status append_strings(struct scanner *list, const char *path, const char *rest,
                                  struct text *scratch, struct text *out)
{
    const char *inner = strstr(rest, "[].");
    size_t len = inner ? (size_t)(inner - rest) : strlen(rest);
    if (!list->at) FAIL(RECORD, "%s: the line has no list \"%s\"", list->where, path);
    if (is_null(list)) return STATUS_OK;
    if (*list->at != '[') FAIL(RECORD, "%s: the value of \"%s\" is not a list", list->where, path);
    list->at++;
    skip_space(list);
    for (bool more = peek(list) != ']'; more;) {
        struct scanner value;
        TRY(find_path(list, rest, len, scratch, &value));
        bool null = !value.at || is_null(&value);
        if (!null && inner) TRY(append_strings(&value, path, inner + 3, scratch, out));
        if (!null && !inner) text_adds(out, "\n\n");
        if (!null && !inner) TRY(append_string(&value, path, out));
        skip_space(list);
        more = peek(list) == ',';
        list->at += more;
        skip_space(list);
    }
    if (peek(list) != ']') return fail_here(list, "expected , or ]");
    return STATUS_OK;
}

enum status jsonl_text(const char *line, size_t len, const char *path, const char *where,
                       struct text *out)
{
    struct scanner s = {line, line + text_bom_length(line, len), line + len, where};
    struct scanner value;
    const char *list = strstr(path, "[]."), *rest = list ? list + 3 : NULL;
    struct text scratch = {0};
    enum status st = STATUS_OK;
    text_clear(out);
    text_adds(out, ""); /* an empty text, too, has memory */
    skip_space(&s);
    TRY_OUT(find_path(&s, path, list ? (size_t)(list - path) : strlen(path), &scratch, &value));
    skip_space(&s);
    if (s.at < s.end) {
        st = fail_here(&s, "unexpected text after the object");
        goto out;
    }
    TRY_OUT(list ? append_strings(&value, path, rest, &scratch, out)
                 : append_string(&value, path, out));
out:
    text_release(&scratch);
    return st;
}
