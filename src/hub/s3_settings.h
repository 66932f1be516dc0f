/* s3_settings.h -- how to reach Amazon S3 or a compatible object store, by the rules of AWS's own
 * tools.
 *
 * Credentials  AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; else the profile
 *              AWS_PROFILE ("default") of ~/.aws/credentials, then of ~/.aws/config.  Without any,
 *              or with AWS_NO_SIGN_REQUEST=YES, requests are not signed, as public buckets allow.
 *              They never appear in a message.
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

/* CONFIG: half of a key pair, an unknown profile, an invalid region or endpoint. */
enum status s3_settings_read(struct hub_settings *s);

/* Appends the URL of a bucket, without a slash at the end. */
void s3_settings_bucket_url(const struct hub_settings *s, const char *bucket, struct text *url);

/* Finds a key of a profile in the text of an AWS configuration file: in [profile NAME] or [NAME]
 * and, for the key "services.KEY.SUBKEY", in the [services X] that the profile names.  Heap; NULL:
 * absent.  *found becomes true if the profile exists. */
char *s3_settings_find(const char *ini, const char *profile, const char *key, bool *found);
