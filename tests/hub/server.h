/* server.h (tests) -- a thread that behaves like the Hugging Face Hub, on a port of this host that
 * the system chooses, and on another one like the host that holds its large files.
 *
 * Each connection is one request.  What it has, and what it does wrong, is set before a request. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hub/digest.h"
#include "hub/hub.h"

#include <pthread.h>
#include <stdatomic.h>

enum fault {
    FAULT_NONE,
    FAULT_BUSY,     /* 429, Retry-After: 7 */
    FAULT_LIMITED,  /* 429, RateLimit with t=9 */
    FAULT_SICK,     /* 503 */
    FAULT_DROP,     /* the connection ends without an answer */
    FAULT_CUT,      /* half of the body, then the connection ends */
    FAULT_SHORT,    /* half of the body, as if that were all */
    FAULT_LONG,     /* more than there should be */
    FAULT_WRONG,    /* another byte */
    FAULT_WHOLE,    /* all of it although a part was asked for */
    FAULT_NO_RANGE, /* 416 */
    FAULT_DENIED,   /* 403 without a reason */
    FAULT_LOOP,     /* redirects to itself */
    FAULT_RUBBISH   /* a body that is no JSON */
};

enum { SERVER_FILES = 64, SERVER_FAULTS = 16 };

struct server_file {
    const char *path;
    const char *bytes; /* a string */
    bool lfs;
};

struct server {
    /* The test's. */
    const char *repo; /* "datasets/org/name" or "models/org/name" */
    const char *commit;
    struct server_file files[SERVER_FILES];
    int num_files, page;              /* entries of a page; 0: all */
    const char *token;                /* NULL: none is needed */
    bool gated;                       /* 403 */
    const char *hash;                 /* said of every LFS file instead of its own */
    enum fault bodies[SERVER_FAULTS]; /* of the first answers with a file's bytes, in order */
    enum fault apis[SERVER_FAULTS];   /* of the first answers of the API */
    /* What came of it. */
    char endpoint[64], large[64];
    atomic_int num_bodies, num_apis, num_requests;
    atomic_bool leaked; /* the other host was shown a token */
    struct text log;    /* a line each request: its first one, and Range; read when stopped */
    /* Its own. */
    int listening[2], stop[2];
    pthread_t thread;
};

void server_start(struct server *s);
void server_stop(struct server *s); /* log stays */

/* Settings for that server with a cache in a new folder, which hub_settings_release releases; waits
 * are added up in *waited. */
struct hub_settings server_settings(const struct server *s, const char *token, double *waited);
/* What the file at hub_find's path holds, as one of the repository. */
void server_check(const struct hub_settings *settings, const char *path, const char *bytes);
