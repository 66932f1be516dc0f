/* server.h (tests) -- a fake Hugging Face Hub: a thread that listens on one port of this host for
 * the Hub and on another for the CDN that serves its LFS files.
 *
 * Each connection is one request.  Tests set its files and faults before they start it. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hub/digest.h"
#include "hub/hub.h"

#include <pthread.h>
#include <stdatomic.h>

enum fault {
    FAULT_NONE,
    FAULT_RETRY_AFTER,   /* 429, Retry-After: 7 */
    FAULT_RETRY_LATE,    /* 429, Retry-After: 300 */
    FAULT_RATE_LIMIT,    /* 429, RateLimit with t=9 */
    FAULT_UNAVAILABLE,   /* 503 */
    FAULT_DROP,          /* closes the connection without a response */
    FAULT_DISCONNECT,    /* half of the body, then closes the connection */
    FAULT_SHORT,         /* half of the body, as if it were complete */
    FAULT_LONG,          /* more bytes than listed */
    FAULT_CORRUPT,       /* one byte differs */
    FAULT_IGNORES_RANGE, /* the whole file in response to a range request */
    FAULT_NO_RANGE,      /* 416 */
    FAULT_FORBIDDEN,     /* 403 without a reason */
    FAULT_LOOP,          /* redirects to itself */
    FAULT_MALFORMED,     /* a body that is not JSON */
    FAULT_INCOMPLETE     /* an empty JSON object */
};

enum { SERVER_FILES = 64, SERVER_FAULTS = 16 };

struct server_file {
    const char *path;
    const char *bytes; /* a string */
    bool lfs;
};

struct server {
    /* Set by the test. */
    const char *repo; /* "datasets/org/name" or "models/org/name" */
    const char *commit;
    struct server_file files[SERVER_FILES];
    int num_files, page;              /* page: entries per page; 0: all */
    const char *token;                /* required; NULL: none */
    bool gated;                       /* 403 */
    const char *hash;                 /* reported for every LFS file instead of its own */
    enum fault bodies[SERVER_FAULTS]; /* of the first responses with a file's bytes */
    enum fault apis[SERVER_FAULTS];   /* of the first API responses */
    /* Results. */
    char endpoint[64], cdn[64];
    atomic_int num_bodies, num_apis, num_requests;
    atomic_bool leaked; /* the CDN received a token */
    struct text log;    /* one line per request, with its Range; read it after server_stop */
    /* Internal. */
    int listening[2], stop[2];
    pthread_t thread;
};

void server_start(struct server *s);
void server_stop(struct server *s); /* keeps the log */

/* Settings for this server with a cache in a new folder; the caller releases them.  Waits do not
 * sleep but add up in *waited. */
struct hub_settings server_settings(const struct server *s, const char *token, double *waited);
/* Checks the content of the file that hub_find returns. */
void server_check(const struct hub_settings *settings, const char *path, const char *bytes);

/* Parts that the other servers of tests share. */
struct server_request {
    char head[16384], method[16], target[3000];
    struct text body; /* released by the caller */
};
/* Listens on a free port of 127.0.0.1; `url` becomes http://127.0.0.1:PORT.  Below 0: failed. */
int server_listen(char *url, size_t room);
void server_send(int fd, const char *bytes, size_t len); /* gives up if the client closes */
void server_answer(int fd, int status, const char *headers, const char *body, size_t len);
/* Reads a request; false: the client closed.  `cut`: stops after half of a PUT's body, and is
 * false. */
bool server_receive(struct server_request *r, int fd, bool cut);
/* The value of a header; "": absent. */
void server_header(const struct server_request *r, const char *name, char *out, size_t room);
/* Accepts connections until a byte arrives at `stop`, and calls `serve` for each. */
void server_loop(int listening, int stop, void (*serve)(void *context, int fd), void *context);
