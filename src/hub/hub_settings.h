/* hub_settings.h -- how to reach the Hub, and where its cache is: the environment variables of
 * huggingface_hub. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>

struct hub_settings {
    char *endpoint;         /* HF_ENDPOINT, default https://huggingface.co; no trailing slash */
    char *cache;            /* HF_HUB_CACHE, default $HF_HOME/hub or ~/.cache/huggingface/hub */
    char *token;            /* HF_TOKEN, or the content of its file; "": none */
    const char *token_from; /* for messages: HF_TOKEN, or which file */
    bool offline;           /* HF_HUB_OFFLINE */
    bool once;              /* fail at the first error instead of trying again */
    /* Waits before a request is retried; NULL: sleeps. */
    void (*wait)(void *context, double seconds);
    void *context;
};

/* CONFIG: the location of the cache is unknown.  DATA: the token is malformed. */
enum status hub_settings_read(struct hub_settings *s);
void hub_settings_release(struct hub_settings *s);
