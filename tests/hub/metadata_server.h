/* metadata_server.h (tests) -- a thread that listens on a port of this host and answers like the
 * metadata service of an EC2 instance (IMDSv2), a container's credentials endpoint, and STS.
 *
 * Tests set its fields before they start it. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hub/s3_service.h"

#include <pthread.h>
#include <stdatomic.h>

#define METADATA_SESSION "imds-session-token=="

enum { METADATA_DOCUMENTS = 4, METADATA_FAILURES = 8 };

struct metadata_server {
    /* Set by the test. */
    const char *session;                       /* answered to PUT; NULL: 404 */
    const char *role;                          /* NULL: 404 */
    size_t role_bytes;                         /* 0: strlen */
    const char *authorization;                 /* required of /container; NULL: none */
    struct text documents[METADATA_DOCUMENTS]; /* of the first requests; the last one repeats */
    int num_documents;
    int failures[METADATA_FAILURES]; /* HTTP status of the first requests; 0: none, -1: closes */
    /* Results. */
    char endpoint[64];
    atomic_int num_requests, num_served; /* served: documents */
    struct text log; /* "METHOD /target body", a line each; read it after metadata_server_stop */
    /* Internal. */
    int listening, stop[2];
    pthread_t thread;
};

/* Begins a server with METADATA_SESSION and the role "role". */
struct metadata_server *metadata_server_make(void);
/* Adds a document with SECRET of s3_server.h; `expires_s` since the Unix epoch. */
void metadata_server_add(struct metadata_server *s, const char *token, double expires_s);
void metadata_server_add_bytes(struct metadata_server *s, const void *bytes, size_t len);
void metadata_server_start(struct metadata_server *s);
void metadata_server_stop(struct metadata_server *s); /* keeps the log */
void metadata_server_free(struct metadata_server *s);

/* A source of each kind at this server; web identity with a token file of `token`. */
struct s3_source metadata_server_source(const struct metadata_server *s, enum s3_source_kind kind,
                                        const char *token);
/* Waits do not sleep but add up in *waited. */
struct s3_call metadata_server_call(double *waited);
