// SPDX-License-Identifier: Apache-2.0
#include "hub/s3_keys.h"

#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

void s3_keys_release(struct s3_keys *k)
{
    free(k->key_id);
    free(k->secret);
    free(k->session_token);
    *k = (struct s3_keys){0};
}

bool s3_keys_is_printable(const char *text)
{
    for (; *text; text++)
        if (*text <= ' ' || *text > '~') return false;
    return true;
}

enum status s3_keys_check(const struct s3_keys *k, const char *what)
{
    if (!k->key_id[0] || !k->secret[0])
        FAIL(DATA, "%s: the %s is empty", what, k->key_id[0] ? "secret access key" : "key ID");
    if (!s3_keys_is_printable(k->key_id) || strchr(k->key_id, ':') ||
        !s3_keys_is_printable(k->secret) || !s3_keys_is_printable(k->session_token))
        FAIL(DATA, "%s: the credentials are malformed: expected printable ASCII", what);
    return STATUS_OK;
}

/* Reads `count` digits; false: fewer, or a value above `most`. */
static bool read_digits(const char **at, int count, int most, int *out)
{
    int value = 0;
    for (int i = 0; i < count; i++, (*at)++) {
        if (**at < '0' || **at > '9') return false;
        value = value * 10 + (**at - '0');
    }
    *out = value;
    return value <= most;
}

static bool skip_byte(const char **at, char byte)
{
    bool is = **at == byte;
    *at += is;
    return is;
}

bool s3_keys_parse_time(const char *text, double *seconds)
{
    struct tm t = {0};
    int hours = 0, minutes = 0;
    double fraction = 0;
    if (!read_digits(&text, 4, 9999, &t.tm_year) || !skip_byte(&text, '-') ||
        !read_digits(&text, 2, 12, &t.tm_mon) || !skip_byte(&text, '-') ||
        !read_digits(&text, 2, 31, &t.tm_mday) || !skip_byte(&text, 'T') ||
        !read_digits(&text, 2, 23, &t.tm_hour) || !skip_byte(&text, ':') ||
        !read_digits(&text, 2, 59, &t.tm_min) || !skip_byte(&text, ':') ||
        !read_digits(&text, 2, 60, &t.tm_sec) || t.tm_year < 1970 || !t.tm_mon || !t.tm_mday)
        return false;
    if (skip_byte(&text, '.'))
        for (double unit = 0.1; *text >= '0' && *text <= '9'; unit /= 10)
            fraction += unit * (*text++ - '0');
    bool is_utc = skip_byte(&text, 'Z'), is_west = !is_utc && *text == '-';
    if (!is_utc) {
        if (!is_west && *text != '+') return false;
        text++;
        if (!read_digits(&text, 2, 23, &hours)) return false;
        skip_byte(&text, ':');
        if (!read_digits(&text, 2, 59, &minutes)) return false;
    }
    if (*text) return false;
    t.tm_year -= 1900, t.tm_mon--;
    double offset = (hours * 60 + minutes) * 60;
    *seconds = (double)timegm(&t) + fraction + (is_west ? offset : -offset);
    return true;
}

/* Copies a member; `optional` ones become "". */
static enum status copy_member(const struct json *root, const char *key, bool optional, char **out)
{
    const char *value = "";
    const struct json *v = json_get(root, key);
    if (!optional || (v && !json_is_null(v))) TRY(json_get_string(root, key, &value));
    *out = heap_strdup(value);
    return STATUS_OK;
}

/* The service's own word for why it has no credentials; anything else could be a secret. */
static enum status check_code(const struct json *root)
{
    const struct json *code = json_get(root, "Code");
    if (!json_is_string(code) || json_string_is(code, "Success")) return STATUS_OK;
    const char *word = json_string(code);
    bool is_word = strlen(word) <= 64 && strspn(word, letters) == strlen(word);
    FAIL(DATA, "the response has no credentials: \"Code\" is %s",
         is_word ? word : "not \"Success\"");
}

static enum status read_document(const struct json *root, const char *token, bool optional,
                                 struct s3_keys *k)
{
    char *expiration = NULL;
    enum status st = STATUS_OK;
    if (!json_is_object(root)) FAIL(DATA, "expected a JSON object");
    TRY(check_code(root));
    TRY(copy_member(root, "AccessKeyId", false, &k->key_id));
    TRY(copy_member(root, "SecretAccessKey", false, &k->secret));
    TRY(copy_member(root, token, optional, &k->session_token));
    TRY(copy_member(root, "Expiration", optional, &expiration));
    bool is_time = s3_keys_parse_time(expiration, &k->expires_s);
    if (!is_time && (expiration[0] || !optional))
        st = FAILURE(DATA, "\"Expiration\" is not a time such as 2026-01-31T12:00:00Z");
    free(expiration);
    return st;
}

static enum status parse(const struct text *json, const char *what, bool is_process,
                         struct s3_keys *out)
{
    struct s3_keys k = {0};
    struct json *root = NULL;
    int64_t version;
    enum status st = STATUS_OK;
    TRY_OUT(json_parse(json->data ? json->data : "", json->len, what, &root));
    if (is_process && !json_as_int(json_get(root, "Version"), 1, 1, &version))
        FAIL_OUT(DATA, "%s: \"Version\" must be 1", what);
    if ((st = read_document(root, is_process ? "SessionToken" : "Token", is_process, &k))) {
        status_prefix(st, "%s", what);
        goto out;
    }
    TRY_OUT(s3_keys_check(&k, what));
    *out = k, k = (struct s3_keys){0};
out:
    s3_keys_release(&k);
    json_free(root);
    return st;
}

enum status s3_keys_parse(const struct text *json, const char *what, struct s3_keys *out)
{
    return parse(json, what, false, out);
}

enum status s3_keys_parse_process(const struct text *json, const char *what, struct s3_keys *out)
{
    return parse(json, what, true, out);
}
