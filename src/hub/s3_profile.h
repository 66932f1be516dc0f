/* s3_profile.h -- a profile of AWS's configuration files: AWS_PROFILE ("default") in
 * ~/.aws/credentials and ~/.aws/config, or in the files that AWS_SHARED_CREDENTIALS_FILE and
 * AWS_CONFIG_FILE name. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

struct s3_profile {
    struct text credentials, config; /* the files' text; empty: no such file */
    char *name;                      /* owned */
    bool is_named;                   /* by AWS_PROFILE or AWS_DEFAULT_PROFILE */
};

enum status s3_profile_read(struct s3_profile *p);
void s3_profile_release(struct s3_profile *p);
bool s3_profile_exists(const struct s3_profile *p); /* in one of the files */

/* A key's value in the credentials file, else in the configuration file; heap; NULL: absent. */
char *s3_profile_key(const struct s3_profile *p, const char *key);
/* The environment variable's value, else the profile's key; heap; NULL: absent. */
char *s3_profile_setting(const struct s3_profile *p, const char *variable, const char *key);

/* Finds a key of a profile in the text of an AWS configuration file: in [profile NAME] or [NAME]
 * and, for the key "services.KEY.SUBKEY", in the [services X] that the profile names.  Heap; NULL:
 * absent.  *found becomes true if the profile exists. */
char *s3_profile_find(const char *ini, const char *profile, const char *key, bool *found);
