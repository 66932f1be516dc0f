// SPDX-License-Identifier: Apache-2.0
#include "hub/client.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/signals.h"
#include "hub/s3_role.h"
#include "hub/url.h"
#include "hub/xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_REDIRECTS = 10, MAX_TRIES = 5, MAX_WAIT_S = 300, MAX_TEXT_BYTES = 64 << 20 };

enum status client_open(struct client *c, const struct hub_settings *settings)
{
    *c = (struct client){.settings = settings};
    if (!http_available())
        FAIL(UNSUPPORTED, "hf:// and s3://: this program was built without libcurl; install "
                          "libcurl4-openssl-dev and rebuild (without HUB=0)");
    TRY(http_open(&c->http));
    return STATUS_OK;
}

void client_close(struct client *c)
{
    if (c->http) http_close(c->http);
    *c = (struct client){0};
}

static enum status restart_text(struct sink *s)
{
    text_clear(&((struct text_sink *)s)->text);
    s->have = 0;
    return STATUS_OK;
}

static enum status append_text(struct sink *s, const void *bytes, size_t len)
{
    struct text *t = &((struct text_sink *)s)->text;
    if (len > MAX_TEXT_BYTES - t->len)
        FAIL(DATA, "the response is larger than %d bytes", MAX_TEXT_BYTES);
    text_add(t, bytes, len);
    s->have += len;
    return STATUS_OK;
}

struct text_sink client_text_sink(void)
{
    return (struct text_sink){.sink = {.restart = restart_text, .append = append_text}};
}

static bool is_redirect(int status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

static bool is_success(const struct http_response *a)
{
    return !a->broken && a->status >= 200 && a->status < 300;
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
    if (!t->sink) return STATUS_OK;
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

static void wait_before_retry(void *context, double seconds)
{
    const struct client *c = context;
    const struct hub_settings *s = c->settings;
    double end = clock_monotonic_s() + seconds;
    if (s->wait) {
        s->wait(s->context, seconds);
        return;
    }
    /* A signal or a cancellation ends the wait, and http_send then fails.  Polls for both: a long
     * sleep would not return at a signal, because this thread blocks signals. */
    for (double left; (left = end - clock_monotonic_s()) > 0;) {
        const struct timespec t = {.tv_nsec = (long)(1e9 * (left < 0.1 ? left : 0.1))};
        nanosleep(&t, NULL);
        if (c->cancel ? atomic_load(c->cancel) : signals_pending() != 0) return;
    }
}

/* The credentials of one request: the settings' own, or a copy of those of its role.  `keys` is
 * released by the caller.  UNSUPPORTED: libcurl cannot sign. */
static enum status find_signer(struct client *c, struct s3_keys *keys, struct http_signer *g)
{
    const struct hub_settings *s = c->settings;
    const struct s3_call call = {.cancel = c->cancel, .wait = wait_before_retry, .context = c};
    *g = s->signer;
    if (s->role) {
        TRY(s3_role_keys(s->role, &call, keys));
        g->key_id = keys->key_id, g->secret = keys->secret, g->session_token = keys->session_token;
    }
    if (s->is_s3 && g->key_id && !http_can_sign())
        FAIL(UNSUPPORTED, "s3://: signing requests requires libcurl 7.88 or later, not %s",
             http_library_version());
    return STATUS_OK;
}

/* One attempt: follows redirects until a final response.  A redirect of anything but a GET must
 * keep the method (307, 308); an object store's would need another signature. */
static enum status send_once(struct client *c, const struct client_request *q,
                             const struct http_signer *g, struct http_response *a,
                             bool *redirected_off)
{
    const struct hub_settings *s = c->settings;
    struct text url = {0}, location = {0};
    enum status st = STATUS_OK;
    text_adds(&url, q->url);
    for (int hop = 0;; hop++) {
        struct body_receiver receiver = {.sink = q->sink};
        bool ours = !q->has_signed_url && url_same_origin(url.data, s->endpoint);
        bool same_origin = url_same_origin(url.data, q->url); /* headers may hold credentials */
        *redirected_off = hop > 0 && !ours;
        struct http_request r = {.url = url.data,
                                 .method = q->method,
                                 .token = ours && !s->is_s3 ? s->token : NULL,
                                 .signer = s->is_s3 && g->key_id ? g : NULL,
                                 .headers = same_origin ? q->headers : NULL,
                                 .body = q->body,
                                 .from = q->sink ? q->sink->have : 0,
                                 .on_body = receive_body,
                                 .context = &receiver,
                                 .cancel = c->cancel};
        TRY_OUT(http_send(c->http, &r, a));
        if (!is_redirect(a->status) || s->is_s3) goto out;
        if (q->method && a->status < 307) goto out;
        if (hop == MAX_REDIRECTS)
            FAIL_OUT(DATA, "%.*s: more than %d redirects", (int)strcspn(q->url, "?"), q->url,
                     MAX_REDIRECTS);
        TRY_OUT(url_redirect(url.data, a->location, &location));
        text_clear(&url);
        text_adds(&url, location.data);
    }
out:
    text_release(&url);
    text_release(&location);
    return st;
}

/* Moves an object store's error code and message from the body to where the Hub's are. */
static void read_s3_error(struct http_response *a)
{
    struct xml x;
    xml_init(&x, a->body, strlen(a->body), "error");
    while (!xml_next(&x) && x.event != XML_EOF) { /* the body may be cut off */
        if (xml_is_leaf(&x, "/Error/Code")) snprintf(a->code, sizeof a->code, "%s", x.text.data);
        if (xml_is_leaf(&x, "/Error/Message"))
            snprintf(a->reason, sizeof a->reason, "%s", x.text.data);
    }
    xml_release(&x);
    for (char *at = a->code; *at; at++)
        if (*at <= ' ' || *at > '~') *at = '?';
    for (char *at = a->reason; *at; at++)
        if (*at < ' ' || *at > '~') *at = '?';
}

static bool is_retryable(const struct http_response *a, bool redirected_off)
{
    if (a->broken || a->status == 408 || a->status == 416 || a->status == 429) return true;
    if (a->status == 400 && !strcmp(a->code, "RequestTimeout")) return true;
    return a->status >= 500 || (redirected_off && a->status == 403);
}

/* Temporary credentials that ended before the time they gave, or that were used after it. */
static bool has_expired(const struct http_response *a)
{
    return a->status >= 400 &&
           (!strcmp(a->code, "ExpiredToken") || !strcmp(a->code, "TokenRefreshRequired"));
}

/* 401 or 403 */
static enum status fail_s3_access(const struct hub_settings *s, int status, const char *what,
                                  const char *reason)
{
    struct text from = {0};
    if (s->role) s3_role_describe(s->role, &from);
    if (!s->role) text_adds(&from, s->token_from);
    if (s->signer.key_id || (s->role && !s3_role_is_absent(s->role)))
        FAILURE(CONFIG, "%s: HTTP %d%s: the credentials in %s have no access", what, status, reason,
                from.data);
    else
        FAILURE(CONFIG,
                "%s: HTTP %d%s: the request was not signed%s%s: set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or create ~/.aws/credentials",
                what, status, reason, from.len ? ", as no credentials were found: " : "",
                from.data);
    text_release(&from);
    return STATUS_CONFIG;
}

static enum status fail_s3_response(const struct client *c, const struct http_response *a,
                                    const char *what, const char *reason)
{
    const struct hub_settings *s = c->settings;
    bool is_other_region = a->region[0] && strcmp(a->region, s->signer.region);
    if (is_other_region && a->status != 404)
        FAIL(CONFIG, "%s: HTTP %d%s: the bucket is in the region %s: set AWS_REGION=%s", what,
             a->status, reason, a->region, a->region);
    if (has_expired(a))
        FAIL(CONFIG, "%s: HTTP %d%s: the credentials have expired; renew them", what, a->status,
             reason);
    if (a->status == 401 || a->status == 403) return fail_s3_access(s, a->status, what, reason);
    if (a->status == 404) FAIL(MISSING, "%s: HTTP 404%s", what, reason);
    FAIL(IO, "%s: HTTP %d%s", what, a->status, reason);
}

static enum status fail_response(const struct client *c, const struct http_response *a,
                                 const struct client_request *q)
{
    const struct hub_settings *s = c->settings;
    const char *what = q->what;
    int url_bytes = (int)strcspn(q->url, "?"); /* the query may be a signature */
    char reason[400] = "";
    if (a->code[0] || a->reason[0])
        snprintf(reason, sizeof reason, " (%s%s%s)", a->code,
                 a->code[0] && a->reason[0] ? ": " : "", a->reason);
    if (a->broken)
        FAIL(IO, "%s: %.*s: %s%s", what, url_bytes, q->url, a->error,
             a->status ? "" : " (without a network, set HF_HUB_OFFLINE=1 to use the cache)");
    if (s->is_s3) return fail_s3_response(c, a, what, reason);
    bool ours = !q->has_signed_url && url_same_origin(q->url, s->endpoint);
    if (!ours) FAIL(IO, "%s: HTTP %d%s: %.*s", what, a->status, reason, url_bytes, q->url);
    if (a->status == 401 && s->token[0])
        FAIL(CONFIG, "%s: HTTP 401%s: no such repository, or the token in %s has no access to it",
             what, reason, s->token_from);
    if (a->status == 401)
        FAIL(CONFIG,
             "%s: HTTP 401%s: no such repository, or it requires a token: set HF_TOKEN or create "
             "$HF_HOME/token",
             what, reason);
    if (a->status == 403 && !q->method)
        FAIL(CONFIG,
             "%s: HTTP 403%s: the token in %s has no access; if the repository is gated, request "
             "access on %s",
             what, reason, s->token[0] ? s->token_from : "(none)", s->endpoint);
    if (a->status == 403)
        FAIL(CONFIG, "%s: HTTP 403%s: the token in %s has no write access", what, reason,
             s->token[0] ? s->token_from : "(none)");
    if (a->status == 404)
        FAIL(MISSING, "%s: HTTP 404%s: %.*s does not exist", what, reason, url_bytes, q->url);
    FAIL(IO, "%s: HTTP %d%s: %.*s", what, a->status, reason, url_bytes, q->url);
}

/* Signs and sends one attempt; notes credentials that the store calls expired. */
static enum status send_signed(struct client *c, const struct client_request *q,
                               struct http_response *a, bool *redirected_off)
{
    struct s3_role *role = c->settings->role;
    struct s3_keys keys = {0};
    struct http_signer g;
    enum status st = STATUS_OK;
    TRY_OUT(find_signer(c, &keys, &g));
    TRY_OUT(send_once(c, q, &g, a, redirected_off));
    if (c->settings->is_s3 && !is_success(a)) read_s3_error(a);
    if (role && keys.key_id && has_expired(a)) s3_role_reject(role, keys.key_id);
out:
    s3_keys_release(&keys);
    return st;
}

enum status client_send(struct client *c, const struct client_request *q, struct http_response *a)
{
    bool redirected_off = false, refreshed = false;
    uint64_t most = q->sink ? q->sink->have : 0; /* a sink that starts over makes no progress */
    for (int tries = 1;; tries++) {
        TRY(send_signed(c, q, a, &redirected_off));
        if (is_success(a)) return STATUS_OK;
        if (q->sink && q->sink->have > most) most = q->sink->have, tries = 1, refreshed = false;
        if (c->settings->role && has_expired(a) && !refreshed) {
            refreshed = true, tries--;
            continue;
        }
        if (!is_retryable(a, redirected_off) || tries == MAX_TRIES || c->settings->once)
            return fail_response(c, a, q);
        if (a->status == 416 && q->sink) TRY(q->sink->restart(q->sink));
        double seconds = a->retry_s >= 0 ? a->retry_s : (double)(1 << (tries - 1));
        if (seconds > MAX_WAIT_S) seconds = MAX_WAIT_S;
        char why[300];
        snprintf(why, sizeof why, "HTTP %d", a->status);
        log_line(LOG_WARN, "%s: %s; retrying in %g s", q->what, a->broken ? a->error : why,
                 seconds);
        wait_before_retry(c, seconds);
    }
}

enum status client_get(struct client *c, const char *url, const char *what, struct sink *sink,
                       struct text *next)
{
    struct http_response a;
    const struct client_request q = {.url = url, .what = what, .sink = sink};
    TRY(client_send(c, &q, &a));
    if (next && !url_next_page(a.link, next)) text_clear(next);
    return STATUS_OK;
}
