/* push_server.h (tests) -- a fake Hub that accepts uploads: preupload, the Git LFS batch API with
 * basic and multipart transfers, verification, and commits.
 *
 * LFS objects go to another port, as to a CDN, which must not see the token.  Each connection is
 * one request.  Tests set its faults before they start it. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hub/hub_settings.h"

#include "base/text.h"

#include <pthread.h>
#include <stdatomic.h>

enum push_fault {
    PUSH_FAULT_NONE,
    PUSH_FAULT_UNAVAILABLE, /* 503 */
    PUSH_FAULT_DROP,        /* closes the connection without a response */
    PUSH_FAULT_DISCONNECT,  /* closes it after half of the request's body */
    PUSH_FAULT_EXPIRED,     /* 403, as for a signed URL that has expired */
    PUSH_FAULT_MALFORMED,   /* 200, not JSON */
    PUSH_FAULT_INCOMPLETE   /* 200, JSON without what belongs there */
};

enum { PUSH_FILES = 16, PUSH_PARTS = 32, PUSH_FAULTS = 16 };

struct push_object {
    char oid[65];
    bool is_complete; /* all bytes arrived, and have the right hash */
    struct text parts[PUSH_PARTS];
};

struct push_server {
    /* Set by the test. */
    bool exists;                        /* the repository */
    size_t chunk_bytes;                 /* 0: basic transfers */
    enum push_fault puts[PUSH_FAULTS];  /* of the first uploads of bytes */
    enum push_fault posts[PUSH_FAULTS]; /* of the first API requests */
    /* Results. */
    bool is_private;
    struct push_object objects[PUSH_FILES];
    int num_objects;
    struct {
        char path[128], oid[65]; /* oid: SHA-256 of an LFS file; else the bytes are here */
        struct text bytes;
    } files[PUSH_FILES]; /* of the last commit */
    int num_files, num_commits, num_creates;
    atomic_int num_puts, num_posts;
    atomic_bool leaked; /* the CDN saw the token */
    char summary[128], endpoint[64], cdn[64];
    struct text log; /* "METHOD target", a line each; read it after push_server_stop */
    /* Internal. */
    int listening[2], stop[2][2];
    pthread_t threads[2];
    pthread_mutex_t lock;
};

void push_server_start(struct push_server *s);
void push_server_stop(struct push_server *s);
void push_server_release(struct push_server *s);
