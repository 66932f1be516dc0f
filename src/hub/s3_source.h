/* s3_source.h -- where the credentials of an IAM role come from, by the rules of botocore.
 *
 * Order    As in botocore: web identity, (keys in ~/.aws/credentials), credential_process, (keys in
 *          ~/.aws/config), container, EC2 instance.  s3_settings.c tries them in this order.
 * Secrets  A source has the paths of token files, whose content changes; it owns its strings. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hub/s3_profile.h"

enum s3_source_kind {
    S3_SOURCE_NONE,
    S3_SOURCE_WEB_IDENTITY, /* STS AssumeRoleWithWebIdentity: IAM roles for service accounts */
    S3_SOURCE_PROCESS,      /* credential_process */
    S3_SOURCE_CONTAINER,    /* ECS task role, EKS Pod Identity */
    S3_SOURCE_INSTANCE      /* EC2 instance metadata service, version 2 */
};

struct s3_source {
    enum s3_source_kind kind;
    char *name;               /* for messages */
    char *url;                /* of STS, the container's credentials, or the metadata service */
    char *token, *token_file; /* container, web identity (file only); NULL: none */
    char *role_arn, *session_name; /* web identity */
    char *command;                 /* credential_process */
    double timeout_s;              /* of each request */
    int attempts;                  /* for each request */
    bool is_disabled;              /* AWS_EC2_METADATA_DISABLED */
};

void s3_source_release(struct s3_source *s);

/* Each fills in *s if the environment or the profile configures that source, else leaves its kind
 * NONE.  CONFIG: the configuration is incomplete or not allowed. */

/* AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN and AWS_ROLE_SESSION_NAME, else the profile's keys.
 * CONFIG, too: the profile's role_arn requires another profile's credentials (AssumeRole). */
enum status s3_source_web_identity(const struct s3_profile *p, const char *region,
                                   struct s3_source *s);
/* The profile's credential_process. */
void s3_source_process(const struct s3_profile *p, struct s3_source *s);
/* CONFIG: the profile requires SSO. */
enum status s3_source_check_sso(const struct s3_profile *p);
/* AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, else _FULL_URI. */
enum status s3_source_container(struct s3_source *s);
/* Always configured. */
enum status s3_source_instance(const struct s3_profile *p, struct s3_source *s);

/* Whether a container's credentials may be requested from this URL: https, or http to a loopback
 * address or to the link-local addresses of ECS and EKS. */
bool s3_source_is_allowed(const char *url);
