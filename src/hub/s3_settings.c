// SPDX-License-Identifier: Apache-2.0
#include "hub/s3_settings.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_FILE_BYTES = 1 << 20 };

static char *copy_string(const char *text) { return heap_string(text, strlen(text)); }

static const char white[] = " \t\r";

static bool word_is(const char *at, size_t n, const char *word)
{
    return strlen(word) == n && !strncmp(at, word, n);
}

/* Whether the line is "[NAME]", "[KIND NAME]" or, with kind "profile", either of them. */
static bool is_section(const char *line, size_t n, const char *kind, const char *name)
{
    const char *at = line + 1, *end = memchr(line, ']', n);
    if (!end) return false;
    at += strspn(at, white);
    size_t m = strcspn(at, " \t\r\n]"), k = strlen(kind);
    bool is_kind = m == k && !strncmp(at, kind, k) && at[m] != ']';
    if (is_kind) at += m + strspn(at + m, white);
    while (end > at && strchr(white, end[-1])) end--;
    return (is_kind || !strcmp(kind, "profile")) && word_is(at, (size_t)(end - at), name);
}

/* KEY, or the indented SUBKEY below KEY, of one section. */
struct ini_key {
    const char *kind, *section, *key, *subkey; /* subkey NULL: none */
};

static char *find_in_section(const char *ini, const struct ini_key *k, bool *found)
{
    const char *key = k->key, *subkey = k->subkey;
    bool inside = false, below = false;
    char *value = NULL;
    for (const char *line = ini; *line;) {
        size_t n = strcspn(line, "\n"), indent = strspn(line, " \t");
        const char *at = line + indent, *equals = memchr(line, '=', n);
        if (*at == '[' && !indent) {
            inside = is_section(line, n, k->kind, k->section);
            if (inside) *found = true;
            below = false;
        } else if (inside && equals && *at != '#' && *at != ';') {
            const char *end = equals;
            while (end > at && strchr(white, end[-1])) end--;
            bool is_key = word_is(at, (size_t)(end - at), below && indent ? subkey : key);
            if (!indent) below = is_key && subkey;
            if (is_key && !!subkey == (indent > 0)) {
                char *raw = heap_string(equals + 1, n - (size_t)(equals + 1 - line));
                free(value);
                value = hub_settings_trimmed(raw);
                free(raw);
            }
        }
        line += n + (line[n] == '\n');
    }
    if (value && value[0]) return value;
    free(value);
    return NULL;
}

char *s3_settings_find(const char *ini, const char *profile, const char *key, bool *found)
{
    char *value = NULL;
    bool ignored;
    if (strncmp(key, "services.", 9))
        return find_in_section(ini, &(struct ini_key){"profile", profile, key, NULL}, found);
    char *services =
        find_in_section(ini, &(struct ini_key){"profile", profile, "services", NULL}, found);
    const char *dot = strchr(key + 9, '.');
    char *parent = heap_string(key + 9, (size_t)(dot - key - 9));
    if (services)
        value = find_in_section(ini, &(struct ini_key){"services", services, parent, dot + 1},
                                &ignored);
    free(parent);
    free(services);
    return value;
}

/* AWS's two files. */
struct aws_files {
    struct text credentials, config;
    const char *profile;
    bool found; /* the profile is in one of them */
};

static enum status read_file(const char *variable, const char *name, struct text *out)
{
    const char *given = hub_settings_env(variable), *home = hub_settings_env("HOME");
    char *path = given ? copy_string(given) : home ? file_join(home, name) : copy_string("");
    enum status st = STATUS_OK;
    text_clear(out);
    if (path[0] && file_exists(path)) st = file_read(path, MAX_FILE_BYTES, out);
    free(path);
    text_adds(out, "");
    return st;
}

static enum status read_files(struct aws_files *f)
{
    f->profile = hub_settings_env("AWS_PROFILE");
    if (!f->profile) f->profile = hub_settings_env("AWS_DEFAULT_PROFILE");
    if (!f->profile) f->profile = "default";
    TRY(read_file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", &f->credentials));
    TRY(read_file("AWS_CONFIG_FILE", ".aws/config", &f->config));
    return STATUS_OK;
}

static bool is_printable(const char *text)
{
    for (; *text; text++)
        if (*text <= ' ' || *text > '~') return false;
    return true;
}

static enum status check_credentials(struct hub_settings *s, const char *secret_name)
{
    const struct http_signer *g = &s->signer;
    if (!g->key_id && !g->secret) return STATUS_OK;
    if (!g->key_id || !g->secret)
        FAIL(CONFIG, "s3://: the credentials in %s are incomplete: %s is missing", s->token_from,
             g->key_id ? secret_name : "the access key ID");
    if (!is_printable(g->key_id) || strchr(g->key_id, ':') || !is_printable(g->secret) ||
        !is_printable(g->session_token))
        FAIL(CONFIG, "s3://: the credentials in %s are malformed", s->token_from);
    return STATUS_OK;
}

static enum status read_credentials(struct hub_settings *s, struct aws_files *f)
{
    const char *key_id = hub_settings_env("AWS_ACCESS_KEY_ID");
    const char *secret = hub_settings_env("AWS_SECRET_ACCESS_KEY");
    const char *session = hub_settings_env("AWS_SESSION_TOKEN");
    struct http_signer *g = &s->signer;
    if (hub_settings_env_is_true("AWS_NO_SIGN_REQUEST")) return STATUS_OK;
    if (key_id || secret) {
        s->token_from = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
        if (key_id) g->key_id = copy_string(key_id);
        if (secret) g->secret = copy_string(secret);
        g->session_token = copy_string(session ? session : "");
        return check_credentials(s, "AWS_SECRET_ACCESS_KEY");
    }
    const struct {
        const char *text, *from;
    } files[] = {{f->credentials.data, "~/.aws/credentials"}, {f->config.data, "~/.aws/config"}};
    for (size_t i = 0; i < 2 && !g->key_id && !g->secret; i++) {
        s->token_from = files[i].from;
        g->key_id = s3_settings_find(files[i].text, f->profile, "aws_access_key_id", &f->found);
        g->secret = s3_settings_find(files[i].text, f->profile, "aws_secret_access_key", &f->found);
        g->session_token =
            s3_settings_find(files[i].text, f->profile, "aws_session_token", &f->found);
        if (!g->session_token) g->session_token = copy_string("");
        if (!g->key_id && !g->secret) free((char *)g->session_token), g->session_token = NULL;
    }
    bool named = hub_settings_env("AWS_PROFILE") || hub_settings_env("AWS_DEFAULT_PROFILE");
    if (named && !f->found)
        FAIL(CONFIG, "s3://: AWS_PROFILE=%s: neither ~/.aws/credentials nor ~/.aws/config has it",
             f->profile);
    return check_credentials(s, "aws_secret_access_key");
}

static enum status read_region(struct hub_settings *s, struct aws_files *f)
{
    const char *given = hub_settings_env("AWS_REGION");
    if (!given) given = hub_settings_env("AWS_DEFAULT_REGION");
    char *region = given ? copy_string(given)
                         : s3_settings_find(f->config.data, f->profile, "region", &f->found);
    if (!region) region = copy_string("us-east-1");
    s->signer.region = region;
    if (strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-_") != strlen(region) ||
        strlen(region) > 31)
        FAIL(CONFIG, "s3://: \"%.80s\" is not a region; expected one such as us-east-1", region);
    return STATUS_OK;
}

static enum status read_endpoint(struct hub_settings *s, struct aws_files *f)
{
    const char *given = hub_settings_env("AWS_ENDPOINT_URL_S3");
    if (!given) given = hub_settings_env("AWS_ENDPOINT_URL");
    char *url = given ? copy_string(given) : NULL;
    if (!url)
        url = s3_settings_find(f->config.data, f->profile, "services.s3.endpoint_url", &f->found);
    if (!url) url = s3_settings_find(f->config.data, f->profile, "endpoint_url", &f->found);
    s->endpoint = url ? url : copy_string("");
    for (size_t n = strlen(s->endpoint); n && s->endpoint[n - 1] == '/';) s->endpoint[--n] = 0;
    bool valid = !strncmp(s->endpoint, "https://", 8) || !strncmp(s->endpoint, "http://", 7);
    if (s->endpoint[0] && (!valid || !is_printable(s->endpoint) || strpbrk(s->endpoint, "@?#")))
        FAIL(CONFIG, "s3://: the endpoint URL must be http://HOST[:PORT] or https://HOST[:PORT]");
    return STATUS_OK;
}

static enum status find_cache(struct hub_settings *s)
{
    const char *own = hub_settings_env("LLAMERO_S3_CACHE");
    const char *cache = hub_settings_env("XDG_CACHE_HOME"), *home = hub_settings_env("HOME");
    if (!own && !cache && !home)
        FAIL(CONFIG, "s3://: the cache has no location: set LLAMERO_S3_CACHE or HOME");
    char *all = own     ? copy_string(own)
                : cache ? file_join(cache, "llamero/s3")
                        : file_join(home, ".cache/llamero/s3");
    const char *host = strstr(s->endpoint, "://");
    char *name = copy_string(host ? host + 3 : "amazonaws.com");
    for (char *at = name; *at; at++)
        if (*at == '/' || *at == ':' || *at == '%') *at = '_';
    s->cache = file_join(all, name);
    free(all), free(name);
    return STATUS_OK;
}

enum status s3_settings_read(struct hub_settings *s)
{
    struct aws_files f = {0};
    enum status st = STATUS_OK;
    *s = (struct hub_settings){.is_s3 = true,
                               .token = copy_string(""),
                               .token_from = "",
                               .offline = hub_settings_offline()};
    TRY_OUT(read_files(&f));
    TRY_OUT(read_region(s, &f));
    TRY_OUT(read_endpoint(s, &f));
    TRY_OUT(read_credentials(s, &f));
    TRY_OUT(find_cache(s));
out:
    text_release(&f.credentials);
    text_release(&f.config);
    if (st) hub_settings_release(s);
    return st;
}

void s3_settings_bucket_url(const struct hub_settings *s, const char *bucket, struct text *url)
{
    const char *region = s->signer.region;
    const char *domain = strncmp(region, "cn-", 3) ? "amazonaws.com" : "amazonaws.com.cn";
    if (s->endpoint[0])
        text_addf(url, "%s/%s", s->endpoint, bucket);
    else if (strchr(bucket, '.')) /* one more level than the certificate covers */
        text_addf(url, "https://s3.%s.%s/%s", region, domain, bucket);
    else
        text_addf(url, "https://%s.s3.%s.%s", bucket, region, domain);
}
