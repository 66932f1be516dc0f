// SPDX-License-Identifier: Apache-2.0
#include "hub/client.h"

#include "base/log.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { HOPS = 10, TRIES = 5, LONGEST_WAIT_S = 300 };

enum status client_open(struct client *c, const struct hub_settings *settings)
{
    *c = (struct client){.settings = settings};
    if (!http_is_there())
        FAIL(UNSUPPORTED, "hf://: this program was built without libcurl: install "
                          "libcurl4-openssl-dev and build it again (without HUB=0)");
    TRY(http_open(&c->http));
    return STATUS_OK;
}

void client_close(struct client *c)
{
    if (c->http) http_close(c->http);
    *c = (struct client){0};
}

void url_add(struct text *url, const char *text, bool slashes)
{
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        bool plain = byte < 128 && (isalnum(byte) || strchr("-._~", byte));
        if (plain || (slashes && byte == '/'))
            text_add(url, text, 1);
        else
            text_addf(url, "%%%02X", byte);
    }
}

bool link_next(const char *link, struct text *url)
{
    text_clear(url);
    for (const char *at = link; (at = strchr(at, '<'));) {
        const char *end = strchr(++at, '>');
        if (!end) return false;
        size_t n = strcspn(end, ",");
        char *rest = heap_string(end, n);
        bool is_next = strstr(rest, "rel=\"next\"") || strstr(rest, "rel=next");
        free(rest);
        if (is_next) text_add(url, at, (size_t)(end - at));
        if (is_next) return url->len > 0;
        at = end + n;
    }
    return false;
}

/* Length of scheme://host:port, 0: it is no address of http or https. */
static size_t origin(const char *url)
{
    size_t scheme = !strncasecmp(url, "https://", 8) ? 8 : !strncasecmp(url, "http://", 7) ? 7 : 0;
    return scheme ? scheme + strcspn(url + scheme, "/?#") : 0;
}

static bool same_origin(const char *a, const char *b)
{
    size_t n = origin(a);
    return n && n == origin(b) && !strncasecmp(a, b, n);
}

static bool is_secret(const char *url) { return !strncasecmp(url, "https:", 6); }

enum status url_redirect(const char *url, const char *location, struct text *out)
{
    text_clear(out);
    if (origin(location)) {
        text_adds(out, location);
    } else if (location[0] == '/' && location[1] == '/') {
        text_add(out, url, strcspn(url, "/"));
        text_adds(out, location);
    } else if (location[0] == '/') {
        text_add(out, url, origin(url));
        text_adds(out, location);
    }
    if (!out->len) FAIL(DATA, "%s: a redirect to \"%.200s\"", url, location);
    if (is_secret(url) && !is_secret(out->data))
        FAIL(DATA, "%s: a redirect to \"%.200s\", which anybody could read", url, out->data);
    return STATUS_OK;
}

static bool is_redirect(int status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

static bool is_good(const struct http_answer *a)
{
    return !a->broken && (a->status == 200 || a->status == 206);
}

/* The body may be the whole although a part was asked for: then what there was goes. */
struct taking {
    struct sink *sink;
    bool begun;
};

static enum status take_body(void *context, const struct http_answer *a, const void *bytes,
                             size_t len)
{
    struct taking *t = context;
    if (!t->begun) {
        uint64_t begin = a->status == 206 ? a->begin : 0;
        if (begin != t->sink->have && begin == 0) TRY(t->sink->restart(t->sink));
        if (begin != t->sink->have)
            FAIL(DATA, "bytes from %llu on were asked for, and those from %llu on came",
                 (unsigned long long)t->sink->have, (unsigned long long)begin);
        t->begun = true;
    }
    return t->sink->add(t->sink, bytes, len);
}

/* One try: from the address through its redirects to an answer. */
static enum status go(struct client *c, const char *url, struct sink *sink, struct http_answer *a,
                      bool *elsewhere)
{
    struct text here = {0}, there = {0};
    enum status st = STATUS_OK;
    text_adds(&here, url);
    for (int hop = 0;; hop++) {
        struct taking taking = {.sink = sink};
        *elsewhere = !same_origin(here.data, c->settings->endpoint);
        struct http_request r = {.url = here.data,
                                 .token = *elsewhere ? "" : c->settings->token,
                                 .from = sink->have,
                                 .take = take_body,
                                 .context = &taking};
        TRY_OUT(http_get(c->http, &r, a));
        if (!is_redirect(a->status)) goto out;
        if (hop == HOPS) FAIL_OUT(DATA, "%s: more than %d redirects", url, HOPS);
        TRY_OUT(url_redirect(here.data, a->location, &there));
        text_clear(&here);
        text_adds(&here, there.data);
    }
out:
    text_release(&here);
    text_release(&there);
    return st;
}

static bool is_worth_again(const struct http_answer *a, bool elsewhere)
{
    if (a->broken || a->status == 408 || a->status == 416 || a->status == 429) return true;
    return a->status >= 500 || (elsewhere && a->status == 403);
}

static enum status refuse(const struct client *c, const struct http_answer *a, const char *url,
                          const char *what)
{
    const struct hub_settings *s = c->settings;
    char reason[400] = "";
    if (a->code[0] || a->reason[0])
        snprintf(reason, sizeof reason, " (%s%s%s)", a->code,
                 a->code[0] && a->reason[0] ? ": " : "", a->reason);
    if (a->broken)
        FAIL(IO, "%s: %s: %s%s", what, url, a->error,
             a->status ? "" : " (where there is no network, HF_HUB_OFFLINE=1 uses the cache)");
    if (a->status == 401 && s->token[0])
        FAIL(CONFIG,
             "%s: HTTP 401%s: the token in %s is not one that may read this, or there is "
             "no such repository",
             what, reason, s->token_from);
    if (a->status == 401)
        FAIL(CONFIG,
             "%s: HTTP 401%s: there is no such repository, or it needs a token, and "
             "neither HF_TOKEN nor $HF_HOME/token has one",
             what, reason);
    if (a->status == 403)
        FAIL(CONFIG,
             "%s: HTTP 403%s: the token in %s may not read this; where it is gated, ask "
             "for access on %s",
             what, reason, s->token[0] ? s->token_from : "(none)", s->endpoint);
    if (a->status == 404) FAIL(MISSING, "%s: HTTP 404%s: %s is not there", what, reason, url);
    FAIL(IO, "%s: HTTP %d%s: %s", what, a->status, reason, url);
}

static void pause_for(const struct client *c, double seconds)
{
    const struct hub_settings *s = c->settings;
    struct timespec t = {.tv_sec = (time_t)seconds,
                         .tv_nsec = (long)((seconds - floor(seconds)) * 1e9)};
    if (s->wait)
        s->wait(s->context, seconds);
    else
        nanosleep(&t, NULL); /* a signal ends it early, and the request that follows is refused */
}

enum status client_get(struct client *c, const char *url, const char *what, struct sink *sink,
                       struct text *next)
{
    struct http_answer a;
    bool elsewhere = false;
    for (int tries = 1;; tries++) {
        uint64_t before = sink->have;
        TRY(go(c, url, sink, &a, &elsewhere));
        if (is_good(&a)) break;
        if (sink->have > before) tries = 1;
        if (!is_worth_again(&a, elsewhere) || tries == TRIES) return refuse(c, &a, url, what);
        if (a.status == 416) TRY(sink->restart(sink));
        double seconds = a.retry_s >= 0 ? a.retry_s : (double)(1 << (tries - 1));
        if (seconds > LONGEST_WAIT_S) seconds = LONGEST_WAIT_S;
        char why[300];
        snprintf(why, sizeof why, "HTTP %d", a.status);
        log_line(LOG_WARN, "%s: %s; once more in %g s", what, a.broken ? a.error : why, seconds);
        pause_for(c, seconds);
    }
    if (next && !link_next(a.link, next)) text_clear(next);
    return STATUS_OK;
}
