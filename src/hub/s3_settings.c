// SPDX-License-Identifier: Apache-2.0
#include "hub/s3_settings.h"

#include "base/file.h"
#include "hub/env.h"
#include "hub/s3_profile.h"
#include "hub/s3_role.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static enum status check_credentials(struct hub_settings *s, const char *secret_name)
{
    const struct http_signer *g = &s->signer;
    if (!g->key_id && !g->secret) return STATUS_OK;
    if (!g->key_id || !g->secret)
        FAIL(CONFIG, "s3://: the credentials in %s are incomplete: %s is missing", s->token_from,
             g->key_id ? secret_name : "the access key ID");
    const struct s3_keys keys = {.key_id = (char *)(uintptr_t)g->key_id,
                                 .secret = (char *)(uintptr_t)g->secret,
                                 .session_token = (char *)(uintptr_t)g->session_token};
    if (s3_keys_check(&keys, s->token_from))
        FAIL(CONFIG, "s3://: the credentials in %s are malformed", s->token_from);
    return STATUS_OK;
}

static enum status read_environment(struct hub_settings *s)
{
    const char *key_id = env_find("AWS_ACCESS_KEY_ID");
    const char *secret = env_find("AWS_SECRET_ACCESS_KEY");
    const char *session = env_find("AWS_SESSION_TOKEN");
    struct http_signer *g = &s->signer;
    if (!key_id && !secret) return STATUS_OK;
    s->token_from = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
    if (key_id) g->key_id = heap_strdup(key_id);
    if (secret) g->secret = heap_strdup(secret);
    g->session_token = heap_strdup(session ? session : "");
    return check_credentials(s, "AWS_SECRET_ACCESS_KEY");
}

/* The keys of a profile in the text of one file. */
static enum status read_file_keys(struct hub_settings *s, const char *ini, const char *profile,
                                  const char *from)
{
    struct http_signer *g = &s->signer;
    bool found;
    g->key_id = s3_profile_find(ini, profile, "aws_access_key_id", &found);
    g->secret = s3_profile_find(ini, profile, "aws_secret_access_key", &found);
    if (!g->key_id && !g->secret) return STATUS_OK;
    g->session_token = s3_profile_find(ini, profile, "aws_session_token", &found);
    if (!g->session_token) g->session_token = heap_strdup("");
    s->token_from = from;
    return check_credentials(s, "aws_secret_access_key");
}

/* The first of the places in botocore's order.  Profiles that require SSO, which botocore tries
 * before their keys, may have keys or a process here, since SSO is not supported. */
static enum status find_credentials(struct hub_settings *s, const struct s3_profile *p,
                                    struct s3_source *source)
{
    const struct http_signer *g = &s->signer;
    bool is_unsigned;
    TRY(env_read_bool("AWS_NO_SIGN_REQUEST", &is_unsigned));
    if (is_unsigned) return STATUS_OK;
    TRY(read_environment(s));
    if (g->key_id) return STATUS_OK;
    if (p->is_named && !s3_profile_exists(p))
        FAIL(CONFIG, "s3://: AWS_PROFILE=%s: neither ~/.aws/credentials nor ~/.aws/config has it",
             p->name);
    TRY(s3_source_web_identity(p, g->region, source));
    if (source->kind) return STATUS_OK;
    TRY(read_file_keys(s, p->credentials.data, p->name, "~/.aws/credentials"));
    if (g->key_id) return STATUS_OK;
    s3_source_process(p, source);
    if (source->kind) return STATUS_OK;
    TRY(read_file_keys(s, p->config.data, p->name, "~/.aws/config"));
    if (g->key_id) return STATUS_OK;
    TRY(s3_source_check_sso(p));
    TRY(s3_source_container(source));
    if (source->kind) return STATUS_OK;
    return s3_source_instance(p, source);
}

static enum status read_credentials(struct hub_settings *s, const struct s3_profile *p)
{
    struct s3_source source = {0};
    enum status st = find_credentials(s, p, &source);
    if (!st && source.kind) s->role = s3_role_make(&source, NULL);
    s3_source_release(&source);
    return st;
}

static enum status read_region(struct hub_settings *s, const struct s3_profile *p)
{
    const char *given = env_find("AWS_REGION");
    bool found;
    if (!given) given = env_find("AWS_DEFAULT_REGION");
    char *region =
        given ? heap_strdup(given) : s3_profile_find(p->config.data, p->name, "region", &found);
    if (!region) region = heap_strdup("us-east-1");
    s->signer.region = region;
    if (strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-_") != strlen(region) ||
        strlen(region) > 31)
        FAIL(CONFIG, "s3://: \"%.80s\" is not a region; expected one such as us-east-1", region);
    return STATUS_OK;
}

static enum status read_endpoint(struct hub_settings *s, const struct s3_profile *p)
{
    const char *given = env_find("AWS_ENDPOINT_URL_S3");
    bool found;
    if (!given) given = env_find("AWS_ENDPOINT_URL");
    char *url = given ? heap_strdup(given) : NULL;
    if (!url) url = s3_profile_find(p->config.data, p->name, "services.s3.endpoint_url", &found);
    if (!url) url = s3_profile_find(p->config.data, p->name, "endpoint_url", &found);
    s->endpoint = url ? url : heap_strdup("");
    for (size_t n = strlen(s->endpoint); n && s->endpoint[n - 1] == '/';) s->endpoint[--n] = 0;
    bool valid = !strncmp(s->endpoint, "https://", 8) || !strncmp(s->endpoint, "http://", 7);
    if (s->endpoint[0] &&
        (!valid || !s3_keys_is_printable(s->endpoint) || strpbrk(s->endpoint, "@?#")))
        FAIL(CONFIG, "s3://: the endpoint URL must be http://HOST[:PORT] or https://HOST[:PORT]");
    return STATUS_OK;
}

static enum status find_cache(struct hub_settings *s)
{
    const char *own = env_find("LLAMERO_S3_CACHE");
    const char *cache = env_find("XDG_CACHE_HOME"), *home = env_find("HOME");
    if (!own && !cache && !home)
        FAIL(CONFIG, "s3://: the cache has no location: set LLAMERO_S3_CACHE or HOME");
    char *all = own     ? heap_strdup(own)
                : cache ? file_join(cache, "llamero/s3")
                        : file_join(home, ".cache/llamero/s3");
    const char *host = strstr(s->endpoint, "://");
    char *name = heap_strdup(host ? host + 3 : "amazonaws.com");
    for (char *at = name; *at; at++)
        if (*at == '/' || *at == ':' || *at == '%') *at = '_';
    s->cache = file_join(all, name);
    free(all), free(name);
    return STATUS_OK;
}

enum status s3_settings_read(struct hub_settings *s)
{
    struct s3_profile p = {0};
    enum status st = STATUS_OK;
    *s = (struct hub_settings){.is_s3 = true, .token = heap_strdup(""), .token_from = ""};
    TRY_OUT(hub_settings_offline(&s->offline));
    TRY_OUT(s3_profile_read(&p));
    TRY_OUT(read_region(s, &p));
    TRY_OUT(read_endpoint(s, &p));
    TRY_OUT(read_credentials(s, &p));
    TRY_OUT(find_cache(s));
out:
    s3_profile_release(&p);
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
