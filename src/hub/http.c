// SPDX-License-Identifier: Apache-2.0
#include "hub/http.h"

#include "base/activity.h"
#include "base/file.h"
#include "base/signals.h"
#include "base/text.h"
#include "hub/url.h"

#include <curl/curl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_DISCARDED = 1 << 20, CONNECT_S = 30, STALLED_S = 60 };

struct http {
    CURL *curl;
};

struct http_transfer {
    const struct http_request *request;
    struct http_response *response;
    enum status st; /* of on_body or the body's file, or REQUEUE when canceled */
    size_t discarded;
    uint64_t sent; /* of the request's body */
};

/* Copies a header's value without unprintable characters. */
static void copy_printable(char *to, size_t room, const char *value, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len && n + 1 < room; i++)
        if (value[i] >= ' ' && value[i] <= '~') to[n++] = value[i];
    to[n] = 0;
}

static bool is_header(const char *line, size_t len, const char *name)
{
    size_t n = strlen(name);
    return len > n && line[n] == ':' && !strncasecmp(line, name, n);
}

/* Below 0: not a number of seconds. */
static double parse_seconds(const char *value)
{
    char *end;
    double seconds = strtod(value, &end);
    return end != value && seconds >= 0 ? seconds : -1;
}

static size_t on_header(char *line, size_t one, size_t len, void *context)
{
    struct http_response *a = ((struct http_transfer *)context)->response;
    const struct {
        const char *name;
        char *to;
        size_t room;
    } texts[] = {{"Location", a->location, sizeof a->location},
                 {"Link", a->link, sizeof a->link},
                 {"ETag", a->etag, sizeof a->etag},
                 {"x-amz-bucket-region", a->region, sizeof a->region},
                 {"X-Error-Code", a->code, sizeof a->code},
                 {"X-Error-Message", a->reason, sizeof a->reason}};
    char value[64];
    (void)one;
    if (len > 5 && !strncmp(line, "HTTP/", 5)) {
        const char *space = memchr(line, ' ', len);
        copy_printable(value, sizeof value, space ? space : "",
                       space ? len - (size_t)(space - line) : 0);
        *a = (struct http_response){.status = (int)strtol(value, NULL, 10), .retry_s = -1};
        return len;
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t n = strlen(texts[i].name) + 1;
        if (!is_header(line, len, texts[i].name)) continue;
        while (n < len && line[n] == ' ') n++;
        copy_printable(texts[i].to, texts[i].room, line + n, len - n);
    }
    if (is_header(line, len, "Retry-After")) {
        copy_printable(value, sizeof value, line + 12, len - 12);
        a->retry_s = parse_seconds(value);
    }
    if (is_header(line, len, "RateLimit") && a->status == 429 && a->retry_s < 0) {
        copy_printable(value, sizeof value, line + 10, len - 10); /* "api";r=0;t=55 */
        const char *time = strstr(value, ";t=");
        if (time) a->retry_s = parse_seconds(time + 3);
    }
    if (is_header(line, len, "Content-Range")) {
        copy_printable(value, sizeof value, line + 14, len - 14);
        const char *number = strstr(value, "bytes ");
        if (number) a->begin = strtoull(number + 6, NULL, 10);
    }
    return len;
}

static size_t receive_body(char *bytes, size_t one, size_t len, void *context)
{
    struct http_transfer *e = context;
    (void)one;
    struct http_response *a = e->response;
    activity_tick_io();
    if (a->status >= 200 && a->status < 300) {
        e->st = e->request->on_body(e->request->context, a, bytes, len);
        return e->st ? 0 : len;
    }
    size_t room = e->discarded < sizeof a->body - 1 ? sizeof a->body - 1 - e->discarded : 0;
    memcpy(a->body + e->discarded * (room > 0), bytes, len < room ? len : room);
    e->discarded += len;
    return e->discarded > MAX_DISCARDED ? 0 : len;
}

static int on_progress(void *context, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    struct http_transfer *e = context;
    (void)a, (void)b, (void)c, (void)d;
    const atomic_bool *cancel = e->request->cancel;
    if (cancel ? !atomic_load(cancel) : !signals_pending()) return 0;
    e->st = FAILURE(REQUEUE, "interrupted by %s during a transfer",
                    cancel ? "the end of the run" : signals_name(signals_pending()));
    return 1;
}

static size_t read_body(char *to, size_t one, size_t room, void *context)
{
    struct http_transfer *e = context;
    const struct http_body *b = &e->request->body;
    size_t n = b->size - e->sent < room * one ? (size_t)(b->size - e->sent) : room * one;
    if (b->bytes)
        memcpy(to, (const char *)b->bytes + e->sent, n);
    else if (n)
        e->st = file_read_at(b->fd, b->path, to, n, b->begin + e->sent);
    if (e->st) return CURL_READFUNC_ABORT;
    activity_tick_io();
    e->sent += n;
    return n;
}

static int rewind_body(void *context, curl_off_t offset, int origin)
{
    struct http_transfer *e = context;
    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > e->request->body.size)
        return CURL_SEEKFUNC_FAIL;
    e->sent = (uint64_t)offset;
    return CURL_SEEKFUNC_OK;
}

enum status http_open(struct http **out)
{
    *out = heap(sizeof **out);
    (*out)->curl = curl_easy_init();
    if ((*out)->curl) return STATUS_OK;
    http_close(*out);
    *out = NULL;
    FAIL(IO, "cannot initialize libcurl");
}

void http_close(struct http *h)
{
    if (!h) return;
    if (h->curl) curl_easy_cleanup(h->curl);
    free(h);
}

static bool is_method(const struct http_request *r, const char *method)
{
    return r->method && !strcmp(r->method, method);
}

/* The method and its body. */
static bool set_method(CURL *c, struct http_transfer *e)
{
    const struct http_request *r = e->request;
    bool ok = true, put = is_method(r, "PUT"), post = is_method(r, "POST");
    if (!r->method) return true;
    if (put) ok &= !curl_easy_setopt(c, CURLOPT_UPLOAD, 1L);
    if (post) ok &= !curl_easy_setopt(c, CURLOPT_POST, 1L);
    if (!put && !post) return !curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, r->method);
    ok &= !curl_easy_setopt(c, put ? CURLOPT_INFILESIZE_LARGE : CURLOPT_POSTFIELDSIZE_LARGE,
                            (curl_off_t)r->body.size);
    ok &= !curl_easy_setopt(c, CURLOPT_READFUNCTION, read_body);
    ok &= !curl_easy_setopt(c, CURLOPT_READDATA, e);
    ok &= !curl_easy_setopt(c, CURLOPT_SEEKFUNCTION, rewind_body);
    ok &= !curl_easy_setopt(c, CURLOPT_SEEKDATA, e);
    return ok;
}

/* libcurl's signature covers the request's own headers.  S3 requires the body's SHA-256 among them,
 * which the caller adds if there is a body. */
static bool set_signer(CURL *c, const struct http_request *r, struct curl_slist **headers)
{
    static const char no_body[] =
        "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const struct http_signer *s = r->signer;
    bool has_body = is_method(r, "PUT") || is_method(r, "POST");
    if (!has_body) *headers = curl_slist_append(*headers, no_body);
    struct text provider = {0}, token = {0};
    text_addf(&provider, "aws:amz:%s:s3", s->region);
    text_addf(&token, "x-amz-security-token: %s", s->session_token);
    bool ok = !curl_easy_setopt(c, CURLOPT_AWS_SIGV4, provider.data);
    ok &= !curl_easy_setopt(c, CURLOPT_USERNAME, s->key_id);
    ok &= !curl_easy_setopt(c, CURLOPT_PASSWORD, s->secret);
    if (s->session_token[0]) *headers = curl_slist_append(*headers, token.data);
    text_release(&provider);
    text_release(&token);
    return ok;
}

/* Options that affect correctness or security must succeed: URL, redirects, range, credentials. */
static bool set_options(CURL *c, struct http_transfer *e, char *error, struct curl_slist **headers)
{
    const struct http_request *r = e->request;
    char range[32];
    snprintf(range, sizeof range, "%llu-", (unsigned long long)r->from);
    curl_easy_reset(c);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, e);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)STALLED_S);
    curl_easy_setopt(c, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, error);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, e);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, receive_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, e);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "llamero/" LLAMERO_VERSION);
    bool ok = !curl_easy_setopt(c, CURLOPT_URL, r->url);
    ok &= !curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
    ok &= set_method(c, e);
    if (r->is_direct) ok &= !curl_easy_setopt(c, CURLOPT_PROXY, "");
    if (r->timeout_s > 0)
        ok &= !curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)ceil(r->timeout_s * 1000));
    if (r->from) ok &= !curl_easy_setopt(c, CURLOPT_RANGE, range);
    for (const char *const *h = r->headers; h && *h; h++)
        *headers = curl_slist_append(*headers, *h);
    if (r->signer) ok &= set_signer(c, r, headers);
    if (*headers) ok &= !curl_easy_setopt(c, CURLOPT_HTTPHEADER, *headers);
    if (r->token && r->token[0]) {
        ok &= !curl_easy_setopt(c, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
        ok &= !curl_easy_setopt(c, CURLOPT_XOAUTH2_BEARER, r->token);
    }
    return ok;
}

enum status http_send(struct http *h, const struct http_request *r, struct http_response *a)
{
    struct http_transfer e = {.request = r, .response = a};
    struct curl_slist *headers = NULL;
    char error[CURL_ERROR_SIZE] = "";
    int url_bytes = (int)strcspn(r->url, "?"); /* the query may be a signature */
    *a = (struct http_response){.retry_s = -1};
    if (!url_is_http(r->url)) FAIL(IO, "%.*s: expected http:// or https://", url_bytes, r->url);
    bool ok = set_options(h->curl, &e, error, &headers);
    CURLcode code = ok ? curl_easy_perform(h->curl) : CURLE_OK;
    curl_easy_reset(h->curl); /* the handle forgets its credentials and the list of headers */
    curl_slist_free_all(headers);
    if (!ok) FAIL(IO, "%.*s: libcurl does not support this URL or request", url_bytes, r->url);
    if (e.st) return e.st;
    if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL ||
        code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
        FAIL(IO, "%.*s: %s", url_bytes, r->url, error[0] ? error : curl_easy_strerror(code));
    a->broken = code != CURLE_OK && e.discarded <= MAX_DISCARDED;
    if (a->broken)
        snprintf(a->error, sizeof a->error, "%s", error[0] ? error : curl_easy_strerror(code));
    return STATUS_OK;
}

const char *http_library_version(void) { return curl_version(); }

bool http_can_sign(void) { return curl_version_info(CURLVERSION_NOW)->version_num >= 0x075800; }
