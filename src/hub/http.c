// SPDX-License-Identifier: Apache-2.0
#include "hub/http.h"

#include "base/signals.h"
#include "base/text.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { DROPPED = 1 << 20, CONNECT_S = 30, STALLED_S = 60 };

struct http {
    CURL *curl;
};

struct exchange {
    const struct http_request *request;
    struct http_answer *answer;
    enum status st; /* of take, or of being stopped */
    size_t dropped;
};

/* A header's value, without what is no plain text. */
static void keep(char *to, size_t room, const char *value, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len && n + 1 < room; i++)
        if (value[i] >= ' ' && value[i] <= '~') to[n++] = value[i];
    to[n] = 0;
}

static bool is_named(const char *line, size_t len, const char *name)
{
    size_t n = strlen(name);
    return len > n && line[n] == ':' && !strncasecmp(line, name, n);
}

/* Below 0: it says none. */
static double seconds_of(const char *value)
{
    char *end;
    double seconds = strtod(value, &end);
    return end != value && seconds >= 0 ? seconds : -1;
}

static size_t on_header(char *line, size_t one, size_t len, void *context)
{
    struct http_answer *a = ((struct exchange *)context)->answer;
    const struct {
        const char *name;
        char *to;
        size_t room;
    } texts[] = {{"Location", a->location, sizeof a->location},
                 {"Link", a->link, sizeof a->link},
                 {"X-Error-Code", a->code, sizeof a->code},
                 {"X-Error-Message", a->reason, sizeof a->reason}};
    char value[64];
    (void)one;
    if (len > 5 && !strncmp(line, "HTTP/", 5)) {
        const char *space = memchr(line, ' ', len);
        keep(value, sizeof value, space ? space : "", space ? len - (size_t)(space - line) : 0);
        *a = (struct http_answer){.status = (int)strtol(value, NULL, 10), .retry_s = -1};
        return len;
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t n = strlen(texts[i].name) + 1;
        if (!is_named(line, len, texts[i].name)) continue;
        while (n < len && line[n] == ' ') n++;
        keep(texts[i].to, texts[i].room, line + n, len - n);
    }
    if (is_named(line, len, "Retry-After")) {
        keep(value, sizeof value, line + 12, len - 12);
        a->retry_s = seconds_of(value);
    }
    if (is_named(line, len, "RateLimit") && a->status == 429 && a->retry_s < 0) {
        keep(value, sizeof value, line + 10, len - 10); /* "api";r=0;t=55 */
        const char *time = strstr(value, ";t=");
        if (time) a->retry_s = seconds_of(time + 3);
    }
    if (is_named(line, len, "Content-Range")) {
        keep(value, sizeof value, line + 14, len - 14);
        const char *number = strstr(value, "bytes ");
        if (number) a->begin = strtoull(number + 6, NULL, 10);
    }
    return len;
}

static size_t on_body(char *bytes, size_t one, size_t len, void *context)
{
    struct exchange *e = context;
    (void)one;
    if (e->answer->status == 200 || e->answer->status == 206) {
        e->st = e->request->take(e->request->context, e->answer, bytes, len);
        return e->st ? 0 : len;
    }
    e->dropped += len;
    return e->dropped > DROPPED ? 0 : len;
}

static int on_progress(void *context, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    struct exchange *e = context;
    (void)a, (void)b, (void)c, (void)d;
    if (!signals_pending()) return 0;
    e->st = status_fail(STATUS_REQUEUE, __FILE__, __LINE__, "stopped by %s while fetching",
                        signals_name(signals_pending()));
    return 1;
}

enum status http_open(struct http **out)
{
    *out = heap(sizeof **out);
    (*out)->curl = curl_easy_init();
    if ((*out)->curl) return STATUS_OK;
    http_close(*out);
    *out = NULL;
    FAIL(IO, "libcurl does not start");
}

void http_close(struct http *h)
{
    if (!h) return;
    if (h->curl) curl_easy_cleanup(h->curl);
    free(h);
}

/* Only what libcurl has known for long may fail silently: the protocols and the token may not. */
static bool prepare(CURL *c, struct exchange *e, char *error)
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
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, e);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "llamero/" LLAMERO_VERSION);
    bool good = !curl_easy_setopt(c, CURLOPT_URL, r->url);
    good &= !curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
    good &= !curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    if (r->from) good &= !curl_easy_setopt(c, CURLOPT_RANGE, range);
    if (r->token[0]) {
        good &= !curl_easy_setopt(c, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
        good &= !curl_easy_setopt(c, CURLOPT_XOAUTH2_BEARER, r->token);
    }
    return good;
}

enum status http_get(struct http *h, const struct http_request *r, struct http_answer *a)
{
    struct exchange e = {.request = r, .answer = a};
    char error[CURL_ERROR_SIZE] = "";
    *a = (struct http_answer){.retry_s = -1};
    if (!prepare(h->curl, &e, error)) FAIL(IO, "%s: libcurl refuses this", r->url);
    CURLcode code = curl_easy_perform(h->curl);
    if (e.st) return e.st;
    if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL ||
        code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
        FAIL(IO, "%s: %s", r->url, error[0] ? error : curl_easy_strerror(code));
    a->broken = code != CURLE_OK && e.dropped <= DROPPED;
    if (a->broken)
        snprintf(a->error, sizeof a->error, "%s", error[0] ? error : curl_easy_strerror(code));
    return STATUS_OK;
}
