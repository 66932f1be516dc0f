/* client.h -- gets a resource of the Hub: follows redirects and retries with backoff.
 *
 * Token    Sent to the configured endpoint only, never to hosts that it redirects to.
 * Retries  408, 416, 429, 5xx, broken connections, and a 403 from a host redirected to, whose
 *          signed URL may have expired: up to 5 attempts without progress, with Retry-After or
 *          exponential backoff between them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "hub/http.h"
#include "hub/hub_settings.h"

#include <stdint.h>

struct client {
    const struct hub_settings *settings; /* borrowed */
    struct http *http;
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

/* `what` is for messages: the hf:// path and the file.  `next`, unless NULL, becomes the URL of the
 * next page from the Link header, or empty.  MISSING: 404.  CONFIG: 401, 403.  IO: no response, or
 * another status.  DATA: an invalid response.  REQUEUE: interrupted by a signal.  Errors of
 * sink->append. */
enum status client_get(struct client *c, const char *url, const char *what, struct sink *sink,
                       struct text *next);
