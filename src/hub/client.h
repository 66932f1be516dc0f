/* client.h -- sends requests to the Hub or to an object store: retries with backoff, and follows
 * the Hub's redirects.
 *
 * Token    Sent to the configured endpoint only, never to hosts that it redirects to.
 * Signing  Requests to an object store are signed (SigV4) with the settings' credentials or those
 *          of their role, if any.  If the store calls those of a role expired, they are refreshed
 *          and the request is sent once more.
 * Retries  408, 416, 429, 5xx, S3's RequestTimeout, broken connections, and a 403 from a host
 *          redirected to, whose signed URL may have expired: up to 5 attempts without progress,
 *          with Retry-After or exponential backoff between them.  So a request's effect may happen
 *          twice. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "hub/http.h"
#include "hub/hub_settings.h"

#include <stdint.h>

struct client {
    const struct hub_settings *settings; /* borrowed */
    struct http *http;
    const atomic_bool *cancel; /* ends requests with REQUEUE; NULL: a caught signal does */
};

/* UNSUPPORTED: built without libcurl. */
enum status client_open(struct client *c, const struct hub_settings *settings);
void client_close(struct client *c);

/* Receives the body.  Each attempt requests the bytes from `have` on. */
struct sink {
    uint64_t have;
    enum status (*restart)(struct sink *s); /* discards everything and sets `have` to 0 */
    enum status (*append)(struct sink *s, const void *bytes, size_t len); /* advances `have` */
};

/* A sink that keeps a small response in memory. */
struct text_sink {
    struct sink sink; /* first */
    struct text text; /* owned by the caller */
};
struct text_sink client_text_sink(void); /* DATA: a response of more than 64 MiB */

struct client_request {
    const char *method; /* NULL: GET */
    const char *url;
    const char *what;           /* for messages: the path and the file */
    const char *const *headers; /* as in http.h */
    struct http_body body;
    struct sink *sink;   /* NULL: discards the response's body */
    bool has_signed_url; /* sends no token: the URL itself is signed */
};
/* Succeeds if the response is a 2xx; *a is the last response.  MISSING: 404.  CONFIG: 401, 403.
 * IO: no response, or another status.  DATA: an invalid response.  REQUEUE: canceled.  Errors of
 * sink->append. */
enum status client_send(struct client *c, const struct client_request *r, struct http_response *a);

/* GET.  `next`, unless NULL, becomes the URL of the next page from the Link header, or empty. */
enum status client_get(struct client *c, const char *url, const char *what, struct sink *sink,
                       struct text *next);
