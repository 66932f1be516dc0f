// SPDX-License-Identifier: Apache-2.0
#include "hub/s3_role.h"

#include "base/clock.h"
#include "base/log.h"
#include "hub/s3_process.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { REFRESH_S = 300, RETRY_S = 60 };

struct s3_role {
    struct s3_source source;
    double (*clock)(void);
    pthread_mutex_t lock; /* guards all below; held during requests, too */
    struct s3_keys keys;  /* key_id NULL: none yet, or `absent` */
    struct text absent;   /* why the instance has none; empty: not known */
    bool is_rejected;
    double next_s; /* no refresh before, unless they are rejected or expired */
};

struct s3_role *s3_role_make(struct s3_source *source, double (*clock)(void))
{
    struct s3_role *r = heap(sizeof *r);
    r->source = *source;
    *source = (struct s3_source){0};
    r->clock = clock ? clock : clock_wall_s;
    pthread_mutex_init(&r->lock, NULL);
    return r;
}

void s3_role_free(struct s3_role *r)
{
    if (!r) return;
    pthread_mutex_destroy(&r->lock);
    s3_keys_release(&r->keys);
    text_release(&r->absent);
    s3_source_release(&r->source);
    free(r);
}

static bool is_expired(const struct s3_role *r, const struct s3_keys *k)
{
    return k->expires_s > 0 && k->expires_s <= r->clock();
}

static bool needs_refresh(const struct s3_role *r)
{
    double now = r->clock();
    if (r->absent.len) return false;
    if (!r->keys.key_id || r->is_rejected) return true;
    if (r->keys.expires_s <= 0 || r->keys.expires_s - now >= REFRESH_S) return false;
    return now >= r->next_s || is_expired(r, &r->keys);
}

static enum status fetch(const struct s3_role *r, const struct s3_call *call, struct s3_keys *k)
{
    const struct s3_source *s = &r->source;
    if (s->kind == S3_SOURCE_PROCESS)
        TRY(s3_process_fetch(s->command, call->cancel, k));
    else
        TRY(s3_service_fetch(s, call, k));
    /* During an outage the metadata service of EC2 repeats old ones, which AWS then accepts. */
    if (is_expired(r, k) && s->kind != S3_SOURCE_INSTANCE) {
        s3_keys_release(k);
        FAIL(DATA, "s3://: %s: the credentials have expired already; check this host's clock",
             s->name);
    }
    return STATUS_OK;
}

static enum status refresh(struct s3_role *r, const struct s3_call *call)
{
    struct s3_keys k = {0};
    enum status st = fetch(r, call, &k);
    bool is_first = !r->keys.key_id,
         is_valid = !is_first && !r->is_rejected && !is_expired(r, &r->keys);
    r->next_s = r->clock() + RETRY_S;
    if (st == STATUS_MISSING && is_first && r->source.kind == S3_SOURCE_INSTANCE) {
        const char *why = status_message(), *prefix = "s3://: ";
        text_adds(&r->absent, strncmp(why, prefix, strlen(prefix)) ? why : why + strlen(prefix));
        return STATUS_OK;
    }
    if (st && st != STATUS_REQUEUE && is_valid) {
        log_line(LOG_WARN, "%s; using the credentials from before until they expire",
                 status_message());
        return STATUS_OK;
    }
    if (st == STATUS_MISSING) st = STATUS_IO; /* not a missing object */
    if (st) return st;
    s3_keys_release(&r->keys);
    r->keys = k;
    r->is_rejected = false;
    return STATUS_OK;
}

enum status s3_role_keys(struct s3_role *r, const struct s3_call *call, struct s3_keys *out)
{
    const struct s3_keys *k = &r->keys;
    enum status st = STATUS_OK;
    *out = (struct s3_keys){0};
    pthread_mutex_lock(&r->lock);
    if (needs_refresh(r)) st = refresh(r, call);
    if (!st && k->key_id)
        *out = (struct s3_keys){.key_id = heap_strdup(k->key_id),
                                .secret = heap_strdup(k->secret),
                                .session_token = heap_strdup(k->session_token),
                                .expires_s = k->expires_s};
    pthread_mutex_unlock(&r->lock);
    return st;
}

void s3_role_reject(struct s3_role *r, const char *key_id)
{
    pthread_mutex_lock(&r->lock);
    if (r->keys.key_id && !strcmp(r->keys.key_id, key_id)) r->is_rejected = true;
    pthread_mutex_unlock(&r->lock);
}

bool s3_role_is_absent(struct s3_role *r)
{
    pthread_mutex_lock(&r->lock);
    bool is = r->absent.len > 0;
    pthread_mutex_unlock(&r->lock);
    return is;
}

void s3_role_describe(struct s3_role *r, struct text *out)
{
    pthread_mutex_lock(&r->lock);
    if (r->absent.len)
        text_addf(out,
                  "AWS_ACCESS_KEY_ID and AWS_WEB_IDENTITY_TOKEN_FILE are not set, the profile has "
                  "no keys and no credential_process in ~/.aws/credentials and ~/.aws/config, "
                  "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI and AWS_CONTAINER_CREDENTIALS_FULL_URI "
                  "are not set; %s",
                  r->absent.data);
    else
        text_adds(out, r->source.name);
    pthread_mutex_unlock(&r->lock);
}
