/* http.h -- one request and its answer, by libcurl; no redirect is followed, nothing sent again.
 *
 * A program that was built without libcurl (make HUB=0) has none of these functions: each is then
 * NULL, which http_is_there tells. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct http; /* connections that are kept open */

struct http_answer {
    int status;       /* of HTTP; 0: no answer came */
    bool broken;      /* the connection was not made, or ended before the answer did */
    char error[256];  /* what went wrong then */
    uint64_t begin;   /* the body's first byte is that one of the file */
    double retry_s;   /* of Retry-After, or of a 429's RateLimit; below 0: none */
    char code[64];    /* X-Error-Code */
    char reason[256]; /* X-Error-Message */
    char location[8192], link[8192];
};

struct http_request {
    const char *url;   /* http:// or https:// */
    const char *token; /* "": none */
    uint64_t from;     /* asks for the bytes from there on; 0: all */
    /* Takes the body of a 200 or 206; others' are dropped. */
    enum status (*take)(void *context, const struct http_answer *a, const void *bytes, size_t len);
    void *context;
};

enum status http_open(struct http **out) __attribute__((weak));
void http_close(struct http *h) __attribute__((weak));
/* Fills in *a, also where the connection breaks.  What take returned; IO: not to be
 * asked at all, or not whom its certificate says. */
enum status http_get(struct http *h, const struct http_request *r, struct http_answer *a)
    __attribute__((weak));

static inline bool http_is_there(void) { return http_open != NULL; }
