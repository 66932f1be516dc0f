/* http.h -- a single HTTP GET request over libcurl: no redirects, no retries (client.h does both).
 *
 * In a build without libcurl (make HUB=0) these functions are missing: they are weak symbols, which
 * are then NULL, and http_available() is false. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct http; /* a connection that is kept alive between requests */

struct http_response {
    int status;       /* HTTP status code; 0: no response */
    bool broken;      /* the connection failed, or closed before the response was complete */
    char error[256];  /* of the connection, if broken */
    uint64_t begin;   /* Content-Range: offset of the body's first byte in the file */
    double retry_s;   /* from Retry-After, or the RateLimit of a 429; below 0: neither */
    char code[64];    /* X-Error-Code */
    char reason[256]; /* X-Error-Message */
    char location[8192], link[8192];
};

struct http_request {
    const char *url;   /* http:// or https:// */
    const char *token; /* "": none */
    uint64_t from;     /* range request for the bytes from here to the end; 0: no range */
    /* Receives the body of a 200 or 206; other bodies are discarded. */
    enum status (*on_body)(void *context, const struct http_response *a, const void *bytes,
                           size_t len);
    void *context;
};

enum status http_open(struct http **out) __attribute__((weak));
void http_close(struct http *h) __attribute__((weak));
/* Fills in *a, even if the connection breaks.  Errors of on_body; IO: the request is invalid, or
 * the server's certificate is; REQUEUE: interrupted by a signal. */
enum status http_get(struct http *h, const struct http_request *r, struct http_response *a)
    __attribute__((weak));

static inline bool http_available(void) { return http_open != NULL; }
