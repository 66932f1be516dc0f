// SPDX-License-Identifier: Apache-2.0
#include "data/jsonl.h"

#include "base/json.h"

#include <string.h>

enum { MAX_DEPTH = 200 };

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

/* Moves past the closing quote of a string whose opening quote was read; *raw_len is the length
 * between the quotes. */
static enum status skip_string(struct scanner *s, size_t *raw_len)
{
    const char *begin = s->at;
    for (;;) {
        const char *quote = memchr(s->at, '"', (size_t)(s->end - s->at));
        if (!quote) return fail_here(s, "unterminated string");
        const char *back = quote;
        while (back > begin && back[-1] == '\\') back--;
        s->at = quote + 1;
        if ((quote - back) % 2) continue; /* escaped */
        *raw_len = (size_t)(quote - begin);
        return STATUS_OK;
    }
}

/* Skips a value of any type: counts brackets and skips strings. */
static enum status skip_value(struct scanner *s)
{
    int depth = 0;
    size_t raw = 0;
    do {
        skip_space(s);
        int c = peek(s);
        if (c < 0) return fail_here(s, "unexpected end of line");
        s->at++;
        if (c == '"')
            TRY(skip_string(s, &raw));
        else if (c == '{' || c == '[')
            depth++;
        else if (c == '}' || c == ']')
            depth--;
        else if (c == ',' || c == ':') {
            if (!depth) return fail_here(s, "expected a value");
        } else {
            while (s->at < s->end && !strchr(",:]} \t\r\n", *s->at)) s->at++;
        }
        if (depth > MAX_DEPTH) return fail_here(s, "nested too deeply");
        if (depth < 0) return fail_here(s, "expected a value");
    } while (depth);
    return STATUS_OK;
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

static char *append_utf8(char *to, uint32_t code)
{
    if (code < 0x80) {
        *to++ = (char)code;
        return to;
    }
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xC0, 0xE0, 0xF0};
    *to++ = (char)(lead[more] | code >> (6 * more));
    while (more--) *to++ = (char)(0x80 | (code >> (6 * more) & 0x3F));
    return to;
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
    *to = append_utf8(*to, whole);
    return true;
}

/* Appends the unescaped string to `out`. */
static enum status unescape(struct scanner *s, const char *raw, size_t len, struct text *out)
{
    static const char from_escape[] = "\"\\/bfnrt", to_escape[] = "\"\\/\b\f\n\r\t";
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
        const char *found = strchr(from_escape, stop[1]);
        if (stop[1] == 'u') {
            if (!unescape_unicode(&after, end, &to))
                return fail_here(s, "expected four hex digits after \\u");
        } else if (found && stop[1]) {
            *to++ = to_escape[found - from_escape];
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

/* Appends a value, which must be a string. */
static enum status append_string(struct scanner *value, const char *path, struct text *out)
{
    const char *begin = value->at, *where = value->where;
    if (!begin) FAIL(RECORD, "%s: the line has no key \"%s\"", where, path);
    if (*begin != '"') FAIL(RECORD, "%s: the value of \"%s\" is not a string", where, path);
    return unescape(value, begin + 1, (size_t)(value->end - begin) - 2, out);
}

/* Appends member `rest` of each object in a list, each after two line breaks. */
static enum status append_strings(struct scanner *list, const char *path, const char *rest,
                                  struct text *scratch, struct text *out)
{
    if (!list->at) FAIL(RECORD, "%s: the line has no list \"%s\"", list->where, path);
    if (*list->at != '[') FAIL(RECORD, "%s: the value of \"%s\" is not a list", list->where, path);
    list->at++;
    skip_space(list);
    for (bool more = peek(list) != ']'; more;) {
        struct scanner value;
        TRY(find_member(list, rest, strlen(rest), scratch, &value));
        size_t len = value.at ? (size_t)(value.end - value.at) : 0;
        bool null = !value.at || (len == 4 && !memcmp(value.at, "null", 4));
        if (!null) text_adds(out, "\n\n");
        if (!null) TRY(append_string(&value, path, out));
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
    struct scanner s = {line, line, line + len, where};
    struct scanner value;
    const char *list = strstr(path, "[]."), *rest = list ? list + 3 : NULL;
    struct text scratch = {0};
    enum status st = STATUS_OK;
    text_clear(out);
    if (len >= 3 && !memcmp(line, "\xEF\xBB\xBF", 3)) s.at += 3; /* a byte order mark */
    skip_space(&s);
    TRY_OUT(find_member(&s, path, list ? (size_t)(list - path) : strlen(path), &scratch, &value));
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
