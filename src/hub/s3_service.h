/* s3_service.h -- requests credentials from a container's endpoint, from the metadata service of an
 * EC2 instance (IMDSv2), or from STS with a web identity token.
 *
 * Proxies  Never between this host and its metadata services; STS is reached as the store is.
 * Size     A response has at most 64 KiB.
 * Secrets  No message contains a token, or what a service answered besides words of error codes. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hub/http.h"
#include "hub/s3_keys.h"
#include "hub/s3_source.h"

/* How requests are canceled, and what waits between attempts. */
struct s3_call {
    const atomic_bool *cancel; /* as in http.h */
    void (*wait)(void *context, double seconds);
    void *context;
};

/* MISSING: an EC2 instance metadata service does not exist, or has no role; the message says why.
 * CONFIG: a token file is missing or malformed.  DATA: a malformed response.  IO: no response, or
 * an error.  REQUEUE: canceled. */
enum status s3_service_fetch(const struct s3_source *s, const struct s3_call *call,
                             struct s3_keys *out);
