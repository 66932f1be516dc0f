/* s3_object.h -- downloads, uploads and deletes single objects of a bucket.
 *
 * Checksums  Every request that uploads bytes carries their SHA-256, which its signature covers, so
 *            the store rejects bytes that changed on the way.
 * Parts      A file larger than one part is uploaded in parts (multipart upload), each retried on
 *            its own.  A failed upload is aborted, so that the store keeps no parts of it.
 * Errors     Those of client_send. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hub/listing.h"

enum { S3_PART_BYTES = 16 << 20 };

struct s3_file {
    const struct hub_path *bucket; /* its `path` is not used */
    const char *key;               /* of the object */
    const char *path;              /* of the local file */
};

/* `part_bytes` 0: S3_PART_BYTES, or more if the file would have more than 10,000 parts. */
enum status s3_object_upload(struct client *c, const struct s3_file *f, uint64_t part_bytes);
/* Downloads the listed object `o` to a new file, with fsync.  DATA: another size. */
enum status s3_object_download(struct client *c, const struct s3_file *f, const struct hub_file *o);
/* Reads a small object. */
enum status s3_object_read(struct client *c, const struct hub_path *bucket, const char *key,
                           struct text *out);
enum status s3_object_delete(struct client *c, const struct hub_path *bucket, const char *key);
