/* lfs.h -- uploads a large file to the Hub by the Git LFS batch API, whole ("basic") or in parts
 * (the Hub's "multipart" transfer).
 *
 * The Hub identifies files by their SHA-256 and reports those that it has, so an interrupted upload
 * of several files resumes after the last complete one.
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

/* Uploads the file; *uploaded becomes false if the Hub already has it. */
enum status lfs_upload(struct client *c, const struct hub_path *repo, const struct lfs_file *f,
                       bool *uploaded);
