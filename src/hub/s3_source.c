// SPDX-License-Identifier: Apache-2.0
#include "hub/s3_source.h"

#include "hub/env.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ECS_HOST "169.254.170.2"
static const char instance_url[] = "http://169.254.169.254";

enum { CONTAINER_TIMEOUT_S = 2, CONTAINER_ATTEMPTS = 3, STS_TIMEOUT_S = 60, STS_ATTEMPTS = 4 };

void s3_source_release(struct s3_source *s)
{
    free(s->name);
    free(s->url);
    free(s->token);
    free(s->token_file);
    free(s->role_arn);
    free(s->session_name);
    free(s->command);
    *s = (struct s3_source){0};
}

/* An http or https URL without user information, whose host ends where libcurl ends it. */
static bool is_plain_url(const char *url)
{
    if (strncmp(url, "https://", 8) && strncmp(url, "http://", 7)) return false;
    for (const char *at = url; *at; at++)
        if (*at <= ' ' || *at > '~' || *at == '\\' || *at == '@' || *at == '#') return false;
    return true;
}

static void drop_slashes(char *url)
{
    for (size_t n = strlen(url); n && url[n - 1] == '/';) url[--n] = 0;
}

/* --- web identity --- */

/* AWS's endpoint of STS in the region, unless another is configured. */
static char *find_sts(const struct s3_profile *p, const char *region)
{
    struct text t = {0};
    char *url = s3_profile_setting(p, "AWS_ENDPOINT_URL_STS", "services.sts.endpoint_url");
    const char *all = env_find("AWS_ENDPOINT_URL");
    if (all && !env_find("AWS_ENDPOINT_URL_STS")) free(url), url = heap_strdup(all);
    if (!url) url = s3_profile_key(p, "endpoint_url");
    if (url) return url;
    text_addf(&t, "https://sts.%s.amazonaws.com%s", region, strncmp(region, "cn-", 3) ? "" : ".cn");
    return t.data;
}

/* AssumeRole with the credentials of another profile needs a signed request to STS. */
static enum status check_assume_role(const struct s3_profile *p)
{
    char *role = s3_profile_key(p, "role_arn");
    char *file = s3_profile_key(p, "web_identity_token_file");
    bool assumes = role && !file;
    free(role), free(file);
    if (assumes)
        FAIL(CONFIG,
             "s3://: the profile \"%s\" assumes a role (role_arn), which is not supported; run "
             "eval \"$(aws configure export-credentials --profile %s --format env)\", or use a "
             "profile with credential_process",
             p->name, p->name);
    return STATUS_OK;
}

enum status s3_source_web_identity(const struct s3_profile *p, const char *region,
                                   struct s3_source *s)
{
    TRY(check_assume_role(p));
    char *file = s3_profile_setting(p, "AWS_WEB_IDENTITY_TOKEN_FILE", "web_identity_token_file");
    if (!file) return STATUS_OK;
    *s = (struct s3_source){.kind = S3_SOURCE_WEB_IDENTITY,
                            .name = heap_strdup("STS (AWS_WEB_IDENTITY_TOKEN_FILE)"),
                            .url = find_sts(p, region),
                            .token_file = file,
                            .role_arn = s3_profile_setting(p, "AWS_ROLE_ARN", "role_arn"),
                            .session_name =
                                s3_profile_setting(p, "AWS_ROLE_SESSION_NAME", "role_session_name"),
                            .timeout_s = STS_TIMEOUT_S,
                            .attempts = STS_ATTEMPTS};
    drop_slashes(s->url);
    if (!s->role_arn)
        FAIL(CONFIG, "s3://: the web identity token file is set, but no role: set AWS_ROLE_ARN");
    if (!is_plain_url(s->url) || strchr(s->url, '?'))
        FAIL(CONFIG, "s3://: the endpoint URL of STS must be http://HOST[:PORT] or "
                     "https://HOST[:PORT]");
    return STATUS_OK;
}

/* --- the profile --- */

void s3_source_process(const struct s3_profile *p, struct s3_source *s)
{
    char *command = s3_profile_key(p, "credential_process");
    if (command)
        *s = (struct s3_source){.kind = S3_SOURCE_PROCESS,
                                .name = heap_strdup("credential_process"),
                                .command = command};
}

enum status s3_source_check_sso(const struct s3_profile *p)
{
    char *session = s3_profile_key(p, "sso_session"), *url = s3_profile_key(p, "sso_start_url");
    bool is_sso = session || url;
    free(session), free(url);
    if (is_sso)
        FAIL(CONFIG,
             "s3://: the profile \"%s\" requires SSO, which is not supported; after `aws sso "
             "login` run eval \"$(aws configure export-credentials --profile %s --format env)\", "
             "or set credential_process in a profile to aws configure export-credentials "
             "--profile %s --format process",
             p->name, p->name, p->name);
    return STATUS_OK;
}

/* --- container --- */

static bool is_allowed_host(const char *host, bool is_v6)
{
    static const char *const hosts[] = {ECS_HOST, "169.254.170.23"};
    struct in_addr v4;
    struct in6_addr v6, eks;
    if (is_v6)
        return inet_pton(AF_INET6, host, &v6) == 1 && inet_pton(AF_INET6, "fd00:ec2::23", &eks) &&
               (IN6_IS_ADDR_LOOPBACK(&v6) || !memcmp(&v6, &eks, sizeof v6));
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        if (!strcmp(host, hosts[i])) return true;
    if (!strcasecmp(host, "localhost")) return true;
    return inet_pton(AF_INET, host, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127;
}

bool s3_source_is_allowed(const char *url)
{
    if (!is_plain_url(url)) return false;
    if (!strncmp(url, "https://", 8)) return true;
    const char *begin = url + strlen("http://");
    bool is_v6 = *begin == '[';
    size_t n = strcspn(begin += is_v6, is_v6 ? "]/?" : ":/?");
    if (is_v6 && (begin[n] != ']' || !strchr(":/?", begin[n + 1]))) return false;
    char *host = heap_string(begin, n);
    bool is = is_allowed_host(host, is_v6);
    free(host);
    return is;
}

enum status s3_source_container(struct s3_source *s)
{
    const char *relative = env_find("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = env_find("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    const char *token = env_find("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    const char *file = env_find("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    struct text url = {0};
    if (!relative && !full) return STATUS_OK;
    if (relative && relative[0] != '/')
        FAIL(CONFIG, "s3://: AWS_CONTAINER_CREDENTIALS_RELATIVE_URI must begin with a slash");
    text_addf(&url, "%s%s", relative ? "http://" ECS_HOST : "", relative ? relative : full);
    *s = (struct s3_source){.kind = S3_SOURCE_CONTAINER,
                            .name = heap_strdup(relative ? "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"
                                                         : "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
                            .url = url.data,
                            .token_file = file ? heap_strdup(file) : NULL,
                            .token = token && !file ? heap_strdup(token) : NULL,
                            .timeout_s = CONTAINER_TIMEOUT_S,
                            .attempts = CONTAINER_ATTEMPTS};
    if (!s3_source_is_allowed(s->url))
        FAIL(CONFIG,
             "s3://: %s: expected an https URL, or http to localhost, a loopback address, " ECS_HOST
             ", 169.254.170.23 or [fd00:ec2::23]",
             s->name);
    return STATUS_OK;
}

/* --- EC2 instance --- */

static enum status read_count(const struct s3_profile *p, const char *variable, const char *key,
                              int *value)
{
    char *text = s3_profile_setting(p, variable, key), *end = text;
    *value = 1;
    if (!text) return STATUS_OK;
    long number = strtol(text, &end, 10);
    bool is = end != text && !*end && number >= 1 && number <= 1000;
    if (is) *value = (int)number;
    free(text);
    if (!is) FAIL(CONFIG, "s3://: %s must be a whole number from 1 to 1000", variable);
    return STATUS_OK;
}

enum status s3_source_instance(const struct s3_profile *p, struct s3_source *s)
{
    const char *disabled = env_find("AWS_EC2_METADATA_DISABLED");
    int timeout_s;
    *s = (struct s3_source){.kind = S3_SOURCE_INSTANCE,
                            .name = heap_strdup("EC2 instance metadata"),
                            .url = s3_profile_setting(p, "AWS_EC2_METADATA_SERVICE_ENDPOINT",
                                                      "ec2_metadata_service_endpoint"),
                            .is_disabled = disabled && !strcasecmp(disabled, "true")};
    if (!s->url) s->url = heap_strdup(instance_url);
    drop_slashes(s->url);
    if (!is_plain_url(s->url) || strchr(s->url, '?'))
        FAIL(CONFIG, "s3://: AWS_EC2_METADATA_SERVICE_ENDPOINT must be http://HOST[:PORT]");
    TRY(read_count(p, "AWS_METADATA_SERVICE_TIMEOUT", "metadata_service_timeout", &timeout_s));
    s->timeout_s = timeout_s;
    return read_count(p, "AWS_METADATA_SERVICE_NUM_ATTEMPTS", "metadata_service_num_attempts",
                      &s->attempts);
}
