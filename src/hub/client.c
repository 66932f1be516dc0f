// SPDX-License-Identifier: Apache-2.0
#include "hub/client.h"

#include "base/log.h"
#include "hub/url.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_REDIRECTS = 10, MAX_TRIES = 5, MAX_WAIT_S = 300 };

enum status client_open(struct client *c, const struct hub_settings *settings)
{
    *c = (struct client){.settings = settings};
    if (!http_available())
        FAIL(UNSUPPORTED, "hf://: this program was built without libcurl; install "
                          "libcurl4-openssl-dev and rebuild (without HUB=0)");
    TRY(http_open(&c->http));
    return STATUS_OK;
}

void client_close(struct client *c)
{
    if (c->http) http_close(c->http);
    *c = (struct client){0};
}

static bool is_redirect(int status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

static bool is_success(const struct http_response *a)
{
    return !a->broken && (a->status == 200 || a->status == 206);
}

/* A server may ignore the range and send the whole file: then the sink starts over. */
struct body_receiver {
    struct sink *sink;
    bool started;
};

static enum status receive_body(void *context, const struct http_response *a, const void *bytes,
                                size_t len)
{
    struct body_receiver *t = context;
    if (!t->started) {
        uint64_t begin = a->status == 206 ? a->begin : 0;
        if (begin != t->sink->have && begin == 0) TRY(t->sink->restart(t->sink));
        if (begin != t->sink->have)
            FAIL(DATA, "requested the bytes from %llu on, but got those from %llu on",
                 (unsigned long long)t->sink->have, (unsigned long long)begin);
        t->started = true;
    }
    return t->sink->append(t->sink, bytes, len);
}

/* One attempt: follows redirects until a final response. */
static enum status get_with_redirects(struct client *c, const char *url, struct sink *sink,
                                      struct http_response *a, bool *off_hub)
{
    struct text url_now = {0}, location = {0};
    enum status st = STATUS_OK;
    text_adds(&url_now, url);
    for (int hop = 0;; hop++) {
        struct body_receiver receiver = {.sink = sink};
        *off_hub = !url_same_origin(url_now.data, c->settings->endpoint);
        struct http_request r = {.url = url_now.data,
                                 .token = *off_hub ? "" : c->settings->token,
                                 .from = sink->have,
                                 .on_body = receive_body,
                                 .context = &receiver};
        TRY_OUT(http_get(c->http, &r, a));
        if (!is_redirect(a->status)) goto out;
        if (hop == MAX_REDIRECTS) FAIL_OUT(DATA, "%s: more than %d redirects", url, MAX_REDIRECTS);
        TRY_OUT(url_redirect(url_now.data, a->location, &location));
        text_clear(&url_now);
        text_adds(&url_now, location.data);
    }
out:
    text_release(&url_now);
    text_release(&location);
    return st;
}

static bool is_retryable(const struct http_response *a, bool off_hub)
{
    if (a->broken || a->status == 408 || a->status == 416 || a->status == 429) return true;
    return a->status >= 500 || (off_hub && a->status == 403);
}

static enum status fail_response(const struct client *c, const struct http_response *a,
                                 const char *url, const char *what)
{
    const struct hub_settings *s = c->settings;
    char reason[400] = "";
    if (a->code[0] || a->reason[0])
        snprintf(reason, sizeof reason, " (%s%s%s)", a->code,
                 a->code[0] && a->reason[0] ? ": " : "", a->reason);
    if (a->broken)
        FAIL(IO, "%s: %s: %s%s", what, url, a->error,
             a->status ? "" : " (without a network, set HF_HUB_OFFLINE=1 to use the cache)");
    if (a->status == 401 && s->token[0])
        FAIL(CONFIG, "%s: HTTP 401%s: no such repository, or the token in %s has no access to it",
             what, reason, s->token_from);
    if (a->status == 401)
        FAIL(CONFIG,
             "%s: HTTP 401%s: no such repository, or it requires a token: set HF_TOKEN or create "
             "$HF_HOME/token",
             what, reason);
    if (a->status == 403)
        FAIL(CONFIG,
             "%s: HTTP 403%s: the token in %s has no access; if the repository is gated, request "
             "access on %s",
             what, reason, s->token[0] ? s->token_from : "(none)", s->endpoint);
    if (a->status == 404) FAIL(MISSING, "%s: HTTP 404%s: %s does not exist", what, reason, url);
    FAIL(IO, "%s: HTTP %d%s: %s", what, a->status, reason, url);
}

static void wait_before_retry(const struct client *c, double seconds)
{
    const struct hub_settings *s = c->settings;
    struct timespec t = {.tv_sec = (time_t)seconds,
                         .tv_nsec = (long)((seconds - floor(seconds)) * 1e9)};
    if (s->wait)
        s->wait(s->context, seconds);
    else
        nanosleep(&t, NULL); /* a signal ends it early, and http_get then fails */
}

enum status client_get(struct client *c, const char *url, const char *what, struct sink *sink,
                       struct text *next)
{
    struct http_response a;
    bool off_hub = false;
    for (int tries = 1;; tries++) {
        uint64_t before = sink->have;
        TRY(get_with_redirects(c, url, sink, &a, &off_hub));
        if (is_success(&a)) break;
        if (sink->have > before) tries = 1;
        if (!is_retryable(&a, off_hub) || tries == MAX_TRIES || c->settings->once)
            return fail_response(c, &a, url, what);
        if (a.status == 416) TRY(sink->restart(sink));
        double seconds = a.retry_s >= 0 ? a.retry_s : (double)(1 << (tries - 1));
        if (seconds > MAX_WAIT_S) seconds = MAX_WAIT_S;
        char why[300];
        snprintf(why, sizeof why, "HTTP %d", a.status);
        log_line(LOG_WARN, "%s: %s; retrying in %g s", what, a.broken ? a.error : why, seconds);
        wait_before_retry(c, seconds);
    }
    if (next && !url_next_page(a.link, next)) text_clear(next);
    return STATUS_OK;
}
