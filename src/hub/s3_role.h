/* s3_role.h -- the temporary credentials of an IAM role, refreshed before they expire.
 *
 * Refresh  Requested at first use, and again when less than 5 minutes remain or the store has
 *          rejected them.  If that fails, the old ones are used as long as they are valid, and the
 *          next attempt is a minute later.
 * Threads  Any thread may call s3_role_keys and s3_role_reject at any time. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hub/s3_service.h"

struct s3_role;

/* Takes over the source and what it owns.  `clock` returns Unix time; NULL: clock_wall_s. */
struct s3_role *s3_role_make(struct s3_source *source, double (*clock)(void));
void s3_role_free(struct s3_role *r);

/* A copy of the current credentials; the caller releases it.  key_id NULL: an EC2 instance has
 * none, so that requests are not signed (public buckets).  Errors of s3_service_fetch and
 * s3_process_fetch. */
enum status s3_role_keys(struct s3_role *r, const struct s3_call *call, struct s3_keys *out);
/* Notes that the store calls the credentials with this key ID expired, so that the next call of
 * s3_role_keys replaces them. */
void s3_role_reject(struct s3_role *r, const char *key_id);
bool s3_role_is_absent(struct s3_role *r); /* s3_role_keys found none */
/* For messages: where the credentials are from; or all places without any, and why. */
void s3_role_describe(struct s3_role *r, struct text *out);
