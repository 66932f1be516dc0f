// SPDX-License-Identifier: Apache-2.0
#include "hub/hub_settings.h"

#include "base/file.h"
#include "base/text.h"
#include "hub/env.h"
#include "hub/s3_role.h"
#include "hub/url.h"

#include <stdlib.h>
#include <string.h>

enum status hub_settings_offline(bool *offline)
{
    bool other;
    TRY(env_read_bool("HF_HUB_OFFLINE", offline));
    TRY(env_read_bool("TRANSFORMERS_OFFLINE", &other));
    *offline |= other;
    return STATUS_OK;
}

/* $HF_HOME, $XDG_CACHE_HOME/huggingface or ~/.cache/huggingface; heap; NULL: none is set. */
static char *hf_home(void)
{
    const char *own = env_find("HF_HOME"), *cache = env_find("XDG_CACHE_HOME");
    const char *user = env_find("HOME");
    if (own) return heap_strdup(own);
    if (cache) return file_join(cache, "huggingface");
    return user ? file_join(user, ".cache/huggingface") : NULL;
}

static enum status read_token(struct hub_settings *s, const char *folder)
{
    const char *token = env_find("HF_TOKEN"), *given = env_find("HF_TOKEN_PATH");
    struct text content = {0};
    char *path = given ? heap_strdup(given) : folder ? file_join(folder, "token") : heap_strdup("");
    enum status st = STATUS_OK;
    s->token_from = token ? "HF_TOKEN" : given ? "the file of HF_TOKEN_PATH" : "$HF_HOME/token";
    if (!token && path[0] && file_exists(path)) TRY_OUT(file_read(path, 4096, &content));
    s->token = text_trimmed(token ? token : content.data ? content.data : "");
    for (const char *at = s->token; *at; at++)
        if (*at <= ' ' || *at > '~') FAIL_OUT(DATA, "%s: not a valid token", s->token_from);
out:
    text_release(&content);
    free(path);
    return st;
}

enum status hub_settings_read(struct hub_settings *s)
{
    const char *cache = env_find("HF_HUB_CACHE"), *endpoint = env_find("HF_ENDPOINT");
    char *folder = hf_home();
    enum status st = STATUS_OK;
    if (!cache) cache = env_find("HUGGINGFACE_HUB_CACHE");
    *s = (struct hub_settings){.endpoint =
                                   heap_strdup(endpoint ? endpoint : "https://huggingface.co")};
    for (size_t n = strlen(s->endpoint); n && s->endpoint[n - 1] == '/';) s->endpoint[--n] = 0;
    TRY_OUT(hub_settings_offline(&s->offline));
    if (!s->offline && !url_is_http(s->endpoint))
        FAIL_OUT(CONFIG, "environment variable HF_ENDPOINT=%.200s: expected http:// or https://",
                 s->endpoint);
    if (!cache && !folder)
        FAIL_OUT(CONFIG, "hf://: the Hub cache has no location: set HF_HOME or HOME");
    s->cache = cache ? heap_strdup(cache) : file_join(folder, "hub");
    TRY_OUT(read_token(s, folder));
out:
    free(folder);
    if (st) hub_settings_release(s);
    return st;
}

void hub_settings_release(struct hub_settings *s)
{
    free(s->endpoint);
    free(s->cache);
    free(s->token);
    free((char *)s->signer.key_id);
    free((char *)s->signer.secret);
    free((char *)s->signer.session_token);
    free((char *)s->signer.region);
    s3_role_free(s->role);
    *s = (struct hub_settings){0};
}
