/* s3_keys.h -- AWS credentials, and the JSON documents that hold them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

struct s3_keys {
    char *key_id, *secret;
    char *session_token; /* "": none */
    double expires_s;    /* since the Unix epoch; 0: never */
};

void s3_keys_release(struct s3_keys *k);
bool s3_keys_is_printable(const char *text); /* ASCII without whitespace */
/* DATA: an empty key ID or secret, or bytes that cannot be part of a request's header.  The message
 * begins with `what` and contains no credential. */
enum status s3_keys_check(const struct s3_keys *k, const char *what);

/* The document of a metadata service or of a container's endpoint: AccessKeyId, SecretAccessKey,
 * Token and Expiration.  DATA: malformed or incomplete, or its Code is not Success. */
enum status s3_keys_parse(const struct text *json, const char *what, struct s3_keys *out);
/* The output of a credential_process, Version 1: SessionToken and Expiration may be missing. */
enum status s3_keys_parse_process(const struct text *json, const char *what, struct s3_keys *out);
/* ISO 8601 with a time zone, as 2026-01-31T12:00:00Z or 2026-01-31T12:00:00.5+01:00; false:
 * malformed. */
bool s3_keys_parse_time(const char *text, double *seconds);
