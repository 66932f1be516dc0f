/* lfs.h -- uploads a large file to the Hub by the Git LFS batch API, whole ("basic") or in parts
 * (the Hub's "multipart" transfer).
 *
 * The Hub tells by the SHA-256 whether it has the file already, so an interrupted upload of several
 * files resumes after the last one that was complete.
 * Errors   Those of client_send; DATA: an invalid response. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hub/client.h"
#include "hub/digest.h"
#include "hub/hub_path.h"

struct lfs_file {
    const char *path; /* local */
    const char *what; /* for messages */
    uint64_t size;
    char sha256[DIGEST_HEX];
};

/* *uploaded is false if the Hub had the file. */
enum status lfs_upload(struct client *c, const struct hub_path *repo, const struct lfs_file *f,
                       bool *uploaded);
