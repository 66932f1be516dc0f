/* hub_settings.h -- how to reach the Hub or an object store, and where the cache is: from the
 * environment variables of huggingface_hub; for s3://, from AWS's variables and files
 * (s3_settings.h). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "hub/http.h"

#include <stdbool.h>

struct s3_role;

struct hub_settings {
    char *endpoint;         /* HF_ENDPOINT, default https://huggingface.co; no trailing slash */
    char *cache;            /* HF_HUB_CACHE, default $HF_HOME/hub or ~/.cache/huggingface/hub */
    char *token;            /* HF_TOKEN, or the content of its file; "": none */
    const char *token_from; /* for messages: HF_TOKEN, or which file */
    bool offline;           /* HF_HUB_OFFLINE */
    bool is_s3;
    struct http_signer signer; /* S3: owned; key_id NULL: as `role`, else not signed */
    struct s3_role *role;      /* S3: temporary credentials; owned; NULL: none */
    bool once;                 /* fail at the first error instead of trying again */
    /* Waits before a request is retried; NULL: sleeps. */
    void (*wait)(void *context, double seconds);
    void *context;
};

/* Reads the Hub's settings.  CONFIG: the location of the cache is unknown, HF_HUB_OFFLINE is not
 * a boolean, or, unless offline, HF_ENDPOINT is not an http or https URL.  DATA: the token is
 * malformed. */
enum status hub_settings_read(struct hub_settings *s);
void hub_settings_release(struct hub_settings *s);

/* *offline: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE.  CONFIG: one of them is not a boolean. */
enum status hub_settings_offline(bool *offline);
