/* client.h -- asks the Hub for something until it is there: redirects, waiting, asking again.
 *
 * Token    Goes to the endpoint itself and to nowhere it redirects to.
 * Again    429, 5xx, broken connections and refusals of a host redirected to (signed addresses grow
 *          old) are asked again, 5 times without a byte gained, with rising pauses. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hub/http.h"
#include "hub/place.h"

#include <stdint.h>

struct client {
    const struct hub_settings *settings; /* borrowed */
    struct http *http;
};

/* UNSUPPORTED: built without libcurl. */
enum status client_open(struct client *c, const struct hub_settings *settings);
void client_close(struct client *c);

/* Where the bytes go.  Each try asks for those behind `have`. */
struct sink {
    uint64_t have;
    /* Starts over: have becomes 0. */
    enum status (*restart)(struct sink *s);
    /* Adds to have. */
    enum status (*add)(struct sink *s, const void *bytes, size_t len);
};

/* `what` is for messages: the hf:// path, and what of it.  next (or NULL) becomes the Link header's
 * rel="next", or empty.  MISSING: 404.  CONFIG: 401, 403.  IO: no answer, or another one.  DATA:
 * what is no answer of the Hub.  REQUEUE: asked to stop.  What add returns. */
enum status client_get(struct client *c, const char *url, const char *what, struct sink *sink,
                       struct text *next);

/* Adds the text as part of a URL: all but letters, digits, -._~ and, where `slashes`, / become
 * %XX. */
void url_add(struct text *url, const char *text, bool slashes);
/* A Link header's address of rel="next"; false: there is none. */
bool link_next(const char *link, struct text *url);
/* Where a redirect from `url` leads.  DATA: not to http or https, or from https to http. */
enum status url_redirect(const char *url, const char *location, struct text *out);
