/* s3_server.h (tests) -- a fake object store: a thread that listens on a port of this host, checks
 * every request's SigV4 signature with its own HMAC, and keeps objects in memory.
 *
 * Each connection is one request.  Tests set its objects and faults before they start it. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hub/http.h"
#include "hub/hub_settings.h"

#include "base/text.h"

#include <pthread.h>
#include <stdatomic.h>

#define S3_KEY_ID "AKIDEXAMPLE"
#define S3_SECRET "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"

enum s3_fault {
    S3_FAULT_NONE,
    S3_FAULT_SLOW_DOWN,  /* 503 */
    S3_FAULT_DROP,       /* closes the connection without a response */
    S3_FAULT_DISCONNECT, /* half of the response's body, or after half of the request's */
    S3_FAULT_DENIED,     /* 403 */
    S3_FAULT_OTHER,      /* 301, the bucket is in another region */
    S3_FAULT_IN_BODY,    /* 200 with an <Error> */
    S3_FAULT_CORRUPT,    /* the bytes that arrive are not those that were sent */
    S3_FAULT_MALFORMED,  /* 200 with broken XML */
    S3_FAULT_EXPIRED     /* 400 ExpiredToken, from now on for `session`, but not next_session */
};

enum { S3_OBJECTS = 128, S3_PARTS = 32, S3_FAULTS = 16, S3_KINDS = 4 };
enum s3_kind { S3_LIST, S3_GET, S3_PUT, S3_POST };

struct s3_object {
    char key[256];
    struct text bytes;
    char etag[48];
    bool is_upload; /* an unfinished multipart upload: `bytes` is unused */
    struct text parts[S3_PARTS];
};

struct s3_server {
    /* Set by the test. */
    const char *session;                       /* required token; NULL: none */
    const char *next_session;                  /* accepted, too; NULL: none */
    bool is_public;                            /* unsigned requests are accepted */
    int page;                                  /* entries per page of a list; 0: all */
    enum s3_fault faults[S3_KINDS][S3_FAULTS]; /* of the first requests of each kind */
    /* Results; lock while it runs. */
    pthread_mutex_t lock;
    struct s3_object objects[S3_OBJECTS];
    int num_objects;
    atomic_int counts[S3_KINDS], num_requests, num_bad_signatures, num_aborted;
    atomic_int num_next; /* requests with next_session */
    struct text log;     /* "METHOD /target [Range]", a line each; read it after s3_server_stop */
    char endpoint[64];
    /* Internal. */
    int listening, stop[2];
    pthread_t thread;
};

void s3_server_start(struct s3_server *s);
void s3_server_stop(struct s3_server *s); /* keeps objects and log */
void s3_server_release(struct s3_server *s);
/* Adds or replaces an object of the bucket "bucket". */
void s3_server_put(struct s3_server *s, const char *key, const void *bytes, size_t len);
const struct text *s3_server_object(struct s3_server *s, const char *key); /* NULL: none */
int s3_server_num_uploads(const struct s3_server *s);                      /* unfinished */

/* Settings for this server with a cache in a new folder; the caller releases them.  Waits do not
 * sleep but add up in *waited. */
struct hub_settings s3_server_settings(const struct s3_server *s, double *waited);

static inline bool s3_available(void) { return http_available() && http_can_sign(); }
