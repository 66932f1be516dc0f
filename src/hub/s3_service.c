// SPDX-License-Identifier: Apache-2.0
#include "hub/s3_service.h"

#include "base/clock.h"
#include "base/file.h"
#include "hub/url.h"
#include "hub/xml.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 64 << 10, MAX_TOKEN_BYTES = 64 << 10, MAX_ROLE = 64 };

/* A conversation with one service. */
struct s3_service {
    const struct s3_source *source;
    const struct s3_call *call;
    struct http *http;
    struct text answer; /* the last response's body */
};

static enum status add_answer(void *context, const struct http_response *a, const void *bytes,
                              size_t len)
{
    struct s3_service *v = context;
    (void)a;
    if (len > MAX_BYTES - v->answer.len)
        FAIL(DATA, "s3://: %s: the response is larger than %d bytes", v->source->name, MAX_BYTES);
    text_add(&v->answer, bytes, len);
    return STATUS_OK;
}

static bool is_success(const struct http_response *a) { return !a->broken && a->status == 200; }

/* Fills in the rest of *r, and sends it until an attempt gets a response that another would not
 * change. */
static enum status send(struct s3_service *v, struct http_request *r, struct http_response *a)
{
    const struct s3_source *s = v->source;
    r->on_body = add_answer;
    r->context = v;
    r->cancel = v->call->cancel;
    r->timeout_s = s->timeout_s;
    r->is_direct = s->kind != S3_SOURCE_WEB_IDENTITY;
    for (int tries = 1;; tries++) {
        text_clear(&v->answer);
        text_adds(&v->answer, "");
        TRY(http_send(v->http, r, a));
        bool is_final = !a->broken && a->status < 500 && a->status != 429;
        if (is_final || tries == s->attempts) return STATUS_OK;
        if (s->kind != S3_SOURCE_INSTANCE) v->call->wait(v->call->context, tries);
    }
}

/* `status` for a response without the expected answer.  The URL of a container is a secret, too. */
static enum status fail_answer(const struct s3_service *v, enum status status,
                               const struct http_response *a, const char *path)
{
    const struct s3_source *s = v->source;
    bool is_secret = s->kind == S3_SOURCE_CONTAINER;
    struct text why = {0};
    if (a->broken)
        text_addf(&why, "no response: %s", a->error);
    else
        text_addf(&why, "HTTP %d", a->status);
    status_fail(status, __FILE__, __LINE__, "s3://: %s: %s%s%s%s", s->name, is_secret ? "" : s->url,
                is_secret ? "" : path, is_secret ? "" : ": ", why.data);
    text_release(&why);
    return status;
}

/* A token becomes part of a header or of a form. */
static bool is_token(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] < ' ' || text[i] > '~') return false;
    return len > 0;
}

static enum status read_token_file(const struct s3_source *s, struct text *token)
{
    enum status st = file_read(s->token_file, MAX_TOKEN_BYTES, token);
    if (!st && is_token(token->data, token->len)) return STATUS_OK;
    if (st) return status_prefix(STATUS_CONFIG, "s3://: %s: cannot read the token file", s->name);
    FAIL(CONFIG, "s3://: %s: %s: expected one token of printable ASCII, without a line break",
         s->name, s->token_file);
}

/* --- container --- */

static enum status fetch_container(struct s3_service *v, struct s3_keys *out)
{
    const struct s3_source *s = v->source;
    struct text token = {0}, header = {0};
    struct http_response a;
    enum status st = STATUS_OK;
    if (s->token) text_adds(&token, s->token);
    if (s->token_file) TRY_OUT(read_token_file(s, &token));
    if (token.len && !is_token(token.data, token.len))
        FAIL_OUT(CONFIG, "s3://: AWS_CONTAINER_AUTHORIZATION_TOKEN: expected printable ASCII");
    text_addf(&header, "Authorization: %s", token.len ? token.data : "");
    const char *headers[] = {"Accept: application/json", token.len ? header.data : NULL, NULL};
    TRY_OUT(send(v, &(struct http_request){.url = s->url, .headers = headers}, &a));
    if (!is_success(&a)) {
        st = fail_answer(v, STATUS_IO, &a, "");
        goto out;
    }
    TRY_OUT(s3_keys_parse(&v->answer, s->name, out));
out:
    text_release(&token);
    text_release(&header);
    return st;
}

/* --- EC2 instance --- */

static const char role_path[] = "/latest/meta-data/iam/security-credentials/";

static enum status request_session(struct s3_service *v, struct text *header)
{
    static const char *const headers[] = {"X-aws-ec2-metadata-token-ttl-seconds: 21600", NULL};
    const struct s3_source *s = v->source;
    struct text url = {0};
    struct http_response a;
    enum status st = STATUS_OK;
    text_addf(&url, "%s/latest/api/token", s->url);
    struct http_request r = {
        .url = url.data, .method = "PUT", .headers = headers, .body = {.bytes = ""}};
    TRY_OUT(send(v, &r, &a));
    if (!is_success(&a)) {
        st = fail_answer(v, STATUS_MISSING, &a, "/latest/api/token");
        goto out;
    }
    if (!is_token(v->answer.data, v->answer.len) || v->answer.len > 1024)
        FAIL_OUT(DATA, "s3://: %s: %s: the session token is malformed", s->name, url.data);
    text_addf(header, "X-aws-ec2-metadata-token: %s", v->answer.data);
out:
    text_release(&url);
    return st;
}

/* A role's name becomes part of a URL. */
static bool is_role(const char *name, size_t len)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+=,.@-";
    return len && len <= MAX_ROLE && strspn(name, allowed) == len && strcmp(name, ".") &&
           strcmp(name, "..");
}

static enum status fetch_instance(struct s3_service *v, struct s3_keys *out)
{
    const struct s3_source *s = v->source;
    struct text header = {0}, url = {0};
    struct http_response a;
    enum status st = STATUS_OK;
    if (s->is_disabled) FAIL(MISSING, "s3://: %s: AWS_EC2_METADATA_DISABLED is set", s->name);
    TRY_OUT(request_session(v, &header));
    const char *headers[] = {header.data, NULL};
    text_addf(&url, "%s%s", s->url, role_path);
    struct http_request r = {.url = url.data, .headers = headers};
    TRY_OUT(send(v, &r, &a));
    if (!a.broken && (a.status == 404 || (a.status == 200 && !v->answer.len)))
        FAIL_OUT(MISSING, "s3://: %s: the instance has no IAM role", s->name);
    if (!is_success(&a)) {
        st = fail_answer(v, STATUS_IO, &a, role_path);
        goto out;
    }
    if (!is_role(v->answer.data, v->answer.len))
        FAIL_OUT(DATA, "s3://: %s: %s: the response is not the name of a role", s->name, url.data);
    text_adds(&url, v->answer.data);
    r.url = url.data;
    TRY_OUT(send(v, &r, &a));
    if (!is_success(&a)) {
        st = fail_answer(v, STATUS_IO, &a, url.data + strlen(s->url));
        goto out;
    }
    TRY_OUT(s3_keys_parse(&v->answer, url.data, out));
out:
    text_release(&header);
    text_release(&url);
    return st;
}

/* --- web identity --- */

static void add_parameter(struct text *form, const char *name, const char *value)
{
    text_addf(form, "%s%s=", form->len ? "&" : "", name);
    url_append_escaped(form, value, false);
}

/* STS answers errors with <ErrorResponse>, whose message could quote the token. */
static enum status fail_sts(const struct s3_service *v, const struct http_response *a,
                            const char *token)
{
    const struct s3_source *s = v->source;
    struct text code = {0}, message = {0};
    struct xml x;
    xml_init(&x, a->body, strlen(a->body), "error");
    while (!xml_next(&x) && x.event != XML_EOF) { /* the body may be cut off */
        xml_copy_leaf(&x, "/ErrorResponse/Error/Code", &code);
        xml_copy_leaf(&x, "/ErrorResponse/Error/Message", &message);
    }
    xml_release(&x);
    if (code.len > 80 || (code.len && strstr(token, code.data))) text_clear(&code);
    for (size_t i = 0; i + 8 <= message.len; i++) /* no part of the token, either */
        if (memmem(token, strlen(token), message.data + i, 8)) text_clear(&message);
    FAILURE(CONFIG, "s3://: %s: %s: HTTP %d (%s%s%.300s)", s->name, s->url, a->status,
            code.len ? code.data : "no code", message.len ? ": " : "",
            message.len ? message.data : "");
    text_release(&code);
    text_release(&message);
    return STATUS_CONFIG;
}

static enum status read_sts(const struct s3_service *v, struct s3_keys *out)
{
#define ROOT "/AssumeRoleWithWebIdentityResponse/AssumeRoleWithWebIdentityResult/Credentials"
    static const char *const paths[] = {ROOT "/AccessKeyId", ROOT "/SecretAccessKey",
                                        ROOT "/SessionToken", ROOT "/Expiration"};
    struct text found[4] = {{0}};
    struct s3_keys k = {0};
    struct xml x;
    const char *url = v->source->url;
    enum status st = STATUS_OK;
    xml_init(&x, v->answer.data, v->answer.len, url);
    do {
        TRY_OUT(xml_next(&x));
        for (size_t i = 0; i < 4; i++) xml_copy_leaf(&x, paths[i], &found[i]);
    } while (x.event != XML_EOF);
    for (size_t i = 0; i < 4; i++)
        if (!found[i].len || strlen(found[i].data) != found[i].len)
            FAIL_OUT(DATA, "s3://: %s: the response has no %s", url, paths[i]);
    if (!s3_keys_parse_time(found[3].data, &k.expires_s))
        FAIL_OUT(DATA, "s3://: %s: Expiration is not a time such as 2026-01-31T12:00:00Z", url);
    k.key_id = heap_string(found[0].data, found[0].len);
    k.secret = heap_string(found[1].data, found[1].len);
    k.session_token = heap_string(found[2].data, found[2].len);
    TRY_OUT(s3_keys_check(&k, url));
    *out = k, k = (struct s3_keys){0};
out:
    s3_keys_release(&k);
    for (size_t i = 0; i < 4; i++) text_release(&found[i]);
    xml_release(&x);
    return st;
#undef ROOT
}

static enum status fetch_web_identity(struct s3_service *v, struct s3_keys *out)
{
    static const char *const headers[] = {
        "Content-Type: application/x-www-form-urlencoded; charset=utf-8", NULL};
    const struct s3_source *s = v->source;
    struct text token = {0}, form = {0}, name = {0}, url = {0};
    struct http_response a;
    enum status st = STATUS_OK;
    TRY_OUT(read_token_file(s, &token));
    text_addf(&name, "llamero-%lld", (long long)clock_wall_s());
    text_addf(&url, "%s/", s->url);
    add_parameter(&form, "Action", "AssumeRoleWithWebIdentity");
    add_parameter(&form, "Version", "2011-06-15");
    add_parameter(&form, "RoleArn", s->role_arn);
    add_parameter(&form, "RoleSessionName", s->session_name ? s->session_name : name.data);
    add_parameter(&form, "WebIdentityToken", token.data);
    struct http_request r = {.url = url.data,
                             .method = "POST",
                             .headers = headers,
                             .body = {.bytes = form.data, .size = form.len}};
    TRY_OUT(send(v, &r, &a));
    if (!a.broken && a.status >= 400 && a.status < 500) {
        st = fail_sts(v, &a, token.data);
        goto out;
    }
    if (!is_success(&a)) {
        st = fail_answer(v, STATUS_IO, &a, "");
        goto out;
    }
    TRY_OUT(read_sts(v, out));
out:
    text_release(&token);
    text_release(&form);
    text_release(&name);
    text_release(&url);
    return st;
}

enum status s3_service_fetch(const struct s3_source *s, const struct s3_call *call,
                             struct s3_keys *out)
{
    struct s3_service v = {.source = s, .call = call};
    enum status st = STATUS_OK;
    BUG_IF(s->kind == S3_SOURCE_NONE || s->kind == S3_SOURCE_PROCESS);
    TRY(http_open(&v.http));
    if (s->kind == S3_SOURCE_CONTAINER) st = fetch_container(&v, out);
    if (s->kind == S3_SOURCE_INSTANCE) st = fetch_instance(&v, out);
    if (s->kind == S3_SOURCE_WEB_IDENTITY) st = fetch_web_identity(&v, out);
    http_close(v.http);
    text_release(&v.answer);
    return st;
}
