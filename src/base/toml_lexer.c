// SPDX-License-Identifier: Apache-2.0
#include "base/toml_lexer.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status toml_lexer_fail(const struct toml_lexer *l, const char *fmt, ...)
{
    char what[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    FAIL(DATA, "%s:%d:%d: %s", l->name, l->line, toml_lexer_column(l), what);
}

static bool is_newline(const struct toml_lexer *l)
{
    return toml_lexer_peek(l, 0) == '\n' ||
           (toml_lexer_peek(l, 0) == '\r' && toml_lexer_peek(l, 1) == '\n');
}

static void step_line(struct toml_lexer *l)
{
    l->at += *l->at == '\r' ? 2 : 1;
    l->line++;
    l->line_start = l->at;
}

void toml_lexer_skip_blanks(struct toml_lexer *l)
{
    while (toml_lexer_peek(l, 0) == ' ' || toml_lexer_peek(l, 0) == '\t') l->at++;
}

static bool is_control(int c) { return (c >= 0 && c < 0x20 && c != '\t') || c == 0x7F; }

static enum status skip_comment(struct toml_lexer *l)
{
    if (toml_lexer_peek(l, 0) != '#') return STATUS_OK;
    for (; l->at < l->end && !is_newline(l); l->at++)
        if (is_control(toml_lexer_peek(l, 0)))
            return toml_lexer_fail(l, "control character in a comment");
    return STATUS_OK;
}

enum status toml_lexer_end_line(struct toml_lexer *l)
{
    toml_lexer_skip_blanks(l);
    TRY(skip_comment(l));
    if (l->at == l->end) return STATUS_OK;
    if (!is_newline(l)) return toml_lexer_fail(l, "expected the end of the line");
    step_line(l);
    return STATUS_OK;
}

enum status toml_lexer_skip_lines(struct toml_lexer *l)
{
    for (;;) {
        toml_lexer_skip_blanks(l);
        TRY(skip_comment(l));
        if (!is_newline(l)) return STATUS_OK;
        step_line(l);
    }
}

static enum status read_unicode(struct toml_lexer *l, int digits, struct text *out)
{
    uint32_t code = 0;
    for (int i = 0; i < digits; i++) {
        int c = toml_lexer_peek(l, 0);
        if (c < 0 || !isxdigit(c))
            return toml_lexer_fail(l, "expected %d hex digits after \\u or \\U", digits);
        code = code << 4 | (uint32_t)(isdigit(c) ? c - '0' : tolower(c) - 'a' + 10);
        l->at++;
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
        return toml_lexer_fail(l, "U+%X is not a Unicode scalar value", code);
    text_add_utf8(out, code);
    return STATUS_OK;
}

/* After the backslash. */
static enum status read_escape(struct toml_lexer *l, bool allow_lines, struct text *out)
{
    static const char from[] = "btnfr\"\\", to[] = "\b\t\n\f\r\"\\";
    int c = toml_lexer_peek(l, 0);
    const char *found = c > 0 ? strchr(from, c) : NULL;
    if (found) {
        text_add(out, &to[found - from], 1);
        l->at++;
        return STATUS_OK;
    }
    if (c == 'u' || c == 'U') {
        l->at++;
        return read_unicode(l, c == 'u' ? 4 : 8, out);
    }
    const char *here = l->at;
    toml_lexer_skip_blanks(l);
    if (allow_lines &&
        is_newline(l)) { /* a backslash at the end of a line skips all white space after it */
        while (l->at < l->end && (is_newline(l) || *l->at == ' ' || *l->at == '\t'))
            if (is_newline(l))
                step_line(l);
            else
                l->at++;
        return STATUS_OK;
    }
    l->at = here;
    return toml_lexer_fail(l, "unknown escape sequence in a string");
}

static size_t count_quotes(const struct toml_lexer *l, int quote)
{
    size_t n = 0;
    while (n < 6 && toml_lexer_peek(l, n) == quote) n++;
    return n;
}

enum status toml_lexer_read_string(struct toml_lexer *l, bool allow_lines, struct text *out)
{
    int quote = toml_lexer_peek(l, 0);
    bool literal = quote == '\'', is_multiline = count_quotes(l, quote) >= 3;
    text_clear(out);
    text_adds(out, "");
    if (is_multiline && !allow_lines)
        return toml_lexer_fail(l, "a key must not be a multi-line string");
    l->at += is_multiline ? 3 : 1;
    if (is_multiline && is_newline(l)) step_line(l);
    for (;;) {
        int c = toml_lexer_peek(l, 0);
        if (c < 0) return toml_lexer_fail(l, "unterminated string at the end of the file");
        if (c == quote) {
            size_t n = count_quotes(l, quote);
            if (!is_multiline) {
                l->at++;
                return STATUS_OK;
            }
            if (n >= 6) return toml_lexer_fail(l, "too many quotes at the end of a string");
            for (size_t i = n >= 3 ? 3 : 0; i < n; i++) text_add(out, l->at, 1);
            l->at += n;
            if (n >= 3) return STATUS_OK;
        } else if (c == '\\' && !literal) {
            l->at++;
            TRY(read_escape(l, is_multiline, out));
        } else if (is_multiline && is_newline(l)) {
            text_add(out, l->at, *l->at == '\r' ? 2 : 1);
            step_line(l);
        } else if (is_control(c)) {
            return toml_lexer_fail(l, c == '\n'
                                          ? "unterminated string: no closing quote on this line"
                                          : "control character in a string");
        } else {
            text_add(out, l->at++, 1);
        }
    }
}

/* Copies digits without underscores, each of which must be between two digits. */
static bool plain_digits(const char *from, size_t len, char *to)
{
    int (*is_digit)(int) = len > 2 && from[1] == 'x' ? isxdigit : isdigit;
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (from[i] != '_') {
            to[n++] = from[i];
            continue;
        }
        if (i == 0 || i + 1 == len || !is_digit((unsigned char)from[i - 1]) ||
            !is_digit((unsigned char)from[i + 1]))
            return false;
    }
    to[n] = 0;
    return n > 0;
}

static bool all_digits(const char *s)
{
    if (!*s) return false;
    for (; *s; s++)
        if (!isdigit((unsigned char)*s)) return false;
    return true;
}

static bool read_radix(const char *word, struct toml *v)
{
    static const char allowed[] = "0123456789abcdefABCDEF";
    int radix = word[1] == 'x' ? 16 : word[1] == 'o' ? 8 : word[1] == 'b' ? 2 : 0;
    if (word[0] != '0' || !radix || !word[2]) return false;
    for (const char *at = word + 2; *at; at++) {
        const char *digit = strchr(allowed, *at);
        if (!digit || (radix < 16 && digit - allowed >= radix)) return false;
    }
    errno = 0;
    v->integer = strtoll(word + 2, NULL, radix);
    v->kind = TOML_INTEGER;
    return errno == 0;
}

/* [sign] digits [. digits] [e [sign] digits], without leading zeros. */
static bool read_number(const char *word, struct toml *v)
{
    const char *digits = word + (*word == '+' || *word == '-'), *at = digits;
    while (isdigit((unsigned char)*at)) at++;
    if (at == digits || (*digits == '0' && at - digits > 1)) return false;
    errno = 0;
    if (!*at) {
        v->kind = TOML_INTEGER;
        v->integer = strtoll(word, NULL, 10);
        return errno == 0;
    }
    if (*at == '.') {
        const char *fraction = ++at;
        while (isdigit((unsigned char)*at)) at++;
        if (at == fraction) return false;
    }
    if (*at == 'e' || *at == 'E') {
        at++;
        at += *at == '+' || *at == '-';
        if (!all_digits(at)) return false;
        at += strlen(at);
    }
    if (*at) return false;
    v->kind = TOML_FLOAT;
    v->real = strtod(word, NULL);
    return true;
}

static bool read_special(const char *word, struct toml *v)
{
    const char *name = word + (*word == '+' || *word == '-');
    double sign = *word == '-' ? -1 : 1;
    if (!strcmp(word, "true") || !strcmp(word, "false")) {
        v->kind = TOML_BOOL;
        v->boolean = word[0] == 't';
        return true;
    }
    if (strcmp(name, "inf") && strcmp(name, "nan")) return false;
    v->kind = TOML_FLOAT;
    v->real = copysign(name[0] == 'i' ? (double)INFINITY : (double)NAN, sign);
    return true;
}

/* Reads n digits as a number within [least, most] and advances. */
static bool read_digits(const char **at, int n, int least, int most, int *value)
{
    *value = 0;
    for (int i = 0; i < n; i++, (*at)++) {
        if (!isdigit((unsigned char)**at)) return false;
        *value = *value * 10 + (**at - '0');
    }
    return *value >= least && *value <= most;
}

static bool read_date(const char **at)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year, month, day;
    if (!read_digits(at, 4, 0, 9999, &year) || *(*at)++ != '-') return false;
    if (!read_digits(at, 2, 1, 12, &month) || *(*at)++ != '-') return false;
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return read_digits(at, 2, 1, days[month - 1] + (month == 2 && leap), &day);
}

static bool read_time(const char **at)
{
    int value;
    if (!read_digits(at, 2, 0, 23, &value) || *(*at)++ != ':') return false;
    if (!read_digits(at, 2, 0, 59, &value) || *(*at)++ != ':') return false;
    if (!read_digits(at, 2, 0, 60, &value)) return false;
    if (**at != '.') return true;
    const char *fraction = ++*at;
    while (isdigit((unsigned char)**at)) ++*at;
    return *at > fraction;
}

static bool read_offset(const char **at)
{
    int value;
    if (**at == 'Z' || **at == 'z') {
        ++*at;
        return true;
    }
    if (**at != '+' && **at != '-') return false;
    ++*at;
    return read_digits(at, 2, 0, 23, &value) && *(*at)++ == ':' &&
           read_digits(at, 2, 0, 59, &value);
}

static bool read_datetime(const char *word, struct toml *v)
{
    const char *at = word;
    if (isdigit((unsigned char)word[0]) && isdigit((unsigned char)word[1]) && word[2] == ':') {
        v->kind = TOML_TIME_LOCAL;
        return read_time(&at) && !*at;
    }
    if (!read_date(&at)) return false;
    v->kind = TOML_DATE_LOCAL;
    if (!*at) return true;
    if (*at != 'T' && *at != 't' && *at != ' ') return false;
    at++;
    if (!read_time(&at)) return false;
    v->kind = TOML_DATETIME_LOCAL;
    if (!*at) return true;
    v->kind = TOML_DATETIME;
    return read_offset(&at) && !*at;
}

static bool looks_like_datetime(const char *word)
{
    size_t digits = strspn(word, "0123456789");
    return (digits == 4 && word[4] == '-') || (digits == 2 && word[2] == ':');
}

/* Length of the bare word at the position; a date may have one space before its time. */
static size_t word_length(const struct toml_lexer *l)
{
    size_t n = 0;
    while (toml_lexer_peek(l, n) > 0 && strchr("+-._:", toml_lexer_peek(l, n)) == NULL
               ? isalnum(toml_lexer_peek(l, n))
               : toml_lexer_peek(l, n) > 0)
        n++;
    if (n == 10 && l->at[4] == '-' && toml_lexer_peek(l, 10) == ' ' && toml_lexer_peek(l, 11) > 0 &&
        isdigit(toml_lexer_peek(l, 11)) && toml_lexer_peek(l, 13) == ':') {
        n++;
        while (toml_lexer_peek(l, n) > 0 &&
               (isalnum(toml_lexer_peek(l, n)) || strchr("+-.:", toml_lexer_peek(l, n))))
            n++;
    }
    return n;
}

enum status toml_lexer_read_scalar(struct toml_lexer *l, struct toml *v)
{
    char raw[128], word[128];
    size_t n = word_length(l);
    if (n == 0) return toml_lexer_fail(l, "expected a value");
    if (n >= sizeof raw) return toml_lexer_fail(l, "the value is too long");
    memcpy(raw, l->at, n);
    raw[n] = 0;
    bool is_datetime = looks_like_datetime(raw), good;
    if (is_datetime) {
        good = read_datetime(raw, v);
        for (size_t i = 0; i < n; i++)
            raw[i] = (char)(raw[i] == ' ' ? 'T' : toupper((unsigned char)raw[i]));
        v->text = heap_string(raw, n);
        v->len = n;
    } else {
        good = read_special(raw, v) ||
               (plain_digits(raw, n, word) && (read_radix(word, v) || read_number(word, v)));
    }
    if (!good)
        return toml_lexer_fail(l,
                               "\"%.40s\" is not a valid TOML value (quote strings; whole numbers "
                               "have 64 bits and no leading zeros)",
                               raw);
    l->at += n;
    return STATUS_OK;
}
