/* s3_settings.h -- how to reach Amazon S3 or a compatible object store, by the rules of AWS's own
 * tools.
 *
 * Credentials  In the order of find_credentials: the environment's keys; a web identity token
 *              (EKS); the profile's keys in ~/.aws/credentials; its credential_process; its keys in
 *              ~/.aws/config; the container's role (ECS, EKS); the role of the EC2 instance.
 *              Those of a role are requested when the first request to the store is sent, and
 *              refreshed (s3_role.h).  Without any, or with AWS_NO_SIGN_REQUEST=YES, requests are
 *              not signed, as public buckets allow.  They never appear in a message.
 * Region       AWS_REGION, AWS_DEFAULT_REGION, the profile's region, us-east-1.
 * Endpoint     AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's `services` (s3, endpoint_url),
 *              its endpoint_url, else Amazon's.  Bucket names become part of the path, except on
 *              Amazon's endpoint, where they become part of the host name unless they have a dot.
 * Cache        LLAMERO_S3_CACHE, $XDG_CACHE_HOME/llamero/s3 or ~/.cache/llamero/s3, with a
 *              folder for each endpoint. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "hub/hub_settings.h"

/* CONFIG: half of a key pair, an unknown profile, an invalid region or endpoint, a role that cannot
 * be assumed. */
enum status s3_settings_read(struct hub_settings *s);

/* Appends the URL of a bucket, without a slash at the end. */
void s3_settings_bucket_url(const struct hub_settings *s, const char *bucket, struct text *url);
