/* http.h -- a single HTTP request over libcurl: no redirects, no retries (client.h does both).
 *
 * In a build without libcurl (make HUB=0) these functions are missing: they are weak symbols, which
 * are then NULL, and http_available() is false. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
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
    char etag[128];   /* ETag, with its quotes */
    char region[32];  /* x-amz-bucket-region */
    char location[8192], link[8192];
    char body[2048]; /* the beginning of the body of an error, as a string */
};

/* Credentials for AWS Signature Version 4 of S3, which libcurl computes. */
struct http_signer {
    const char *key_id, *secret, *region; /* borrowed */
    const char *session_token;            /* "": none */
};

/* A request's body: bytes in memory, or a part of an open file.  No method: none. */
struct http_body {
    const void *bytes; /* NULL: of the file */
    int fd;
    const char *path; /* for messages */
    uint64_t begin, size;
};

struct http_request {
    const char *url;                  /* http:// or https:// */
    const char *method;               /* NULL: GET */
    const char *token;                /* NULL or "": none */
    const struct http_signer *signer; /* NULL: unsigned */
    const char *const *headers;       /* "Name: value", up to a NULL; NULL: none */
    struct http_body body;            /* of a PUT or POST */
    uint64_t from; /* range request for the bytes from here to the end; 0: no range */
    /* Receives the body of a 2xx; the bodies of errors are discarded after their beginning. */
    enum status (*on_body)(void *context, const struct http_response *a, const void *bytes,
                           size_t len);
    void *context;
    const atomic_bool *cancel; /* ends the request with REQUEUE; NULL: a caught signal does */
    double timeout_s;          /* of the whole request; 0: only stalling ends it */
    bool is_direct;            /* never through a proxy */
};

enum status http_open(struct http **out) __attribute__((weak));
void http_close(struct http *h) __attribute__((weak));
/* Fills in *a, even if the connection breaks.  Errors of on_body; IO: the request is invalid, or
 * the server's certificate is, or the body cannot be read; REQUEUE: canceled. */
enum status http_send(struct http *h, const struct http_request *r, struct http_response *a)
    __attribute__((weak));

/* "libcurl/7.88.1 OpenSSL/3.0.15 ..." */
__attribute__((weak)) const char *http_library_version(void);
static inline bool http_available(void) { return http_open != NULL; }
/* Whether libcurl computes signatures that S3 accepts: those of 7.88 are, those of 7.81 are not. */
bool http_can_sign(void) __attribute__((weak));
