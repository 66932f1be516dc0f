// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/copier.h"

#include "base/activity.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/thread.h"
#include "checkpoint/folder.h"
#include "checkpoint/interop/dcp.h"
#include "checkpoint/manifest.h"
#include "hub/s3_listing.h"
#include "hub/s3_object.h"
#include "hub/s3_settings.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOG_EVERY_S = 10, POLL_MS = 100 };

struct copier {
    char *folder;
    struct hub_path destination;
    const struct hub_settings *settings; /* borrowed; NULL: the environment's */
    int stop_timeout_s;
    pthread_t thread;
    bool is_running;
    atomic_bool cancel;
    /* Guarded by the lock. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t pending, busy; /* steps; -1: none */
    int64_t kept;          /* copies of later steps are to be set aside; INT64_MAX: none */
    bool closing, idle;
};

/* A connection to the store: credentials are read again for each, as they may have expired. */
struct store_session {
    struct hub_settings own;
    struct client client;
};

static enum status open_session(struct store_session *s, const struct hub_settings *given)
{
    *s = (struct store_session){0};
    if (!given) TRY(s3_settings_read(&s->own));
    TRY(client_open(&s->client, given ? given : &s->own));
    return STATUS_OK;
}

static void close_session(struct store_session *s)
{
    client_close(&s->client);
    hub_settings_release(&s->own);
}

/* PREFIX/step-N/NAME; heap. */
static char *object_key(const struct hub_path *d, int64_t step, const char *name)
{
    struct text t = {0};
    text_addf(&t, "%s%sstep-%lld/%s", d->path, d->path[0] ? "/" : "", (long long)step, name);
    return t.data;
}

static enum status list_step(struct client *c, const struct hub_path *d, int64_t step,
                             struct listing *l)
{
    char *folder = object_key(d, step, "");
    folder[strlen(folder) - 1] = 0;
    enum status st = s3_listing_fetch(c, d, &(struct tree_query){.folder = folder}, l);
    free(folder);
    return st;
}

static const struct hub_file *find_object(const struct listing *l, const char *key)
{
    for (size_t i = 0; i < l->count; i++)
        if (!l->files[i].is_folder && !strcmp(l->files[i].path, key)) return &l->files[i];
    return NULL;
}

static bool has_manifest(const struct listing *l, const struct hub_path *d, int64_t step)
{
    char *key = object_key(d, step, MANIFEST_NAME);
    bool has = find_object(l, key) != NULL;
    free(key);
    return has;
}

static int compare_steps(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The steps that have a folder, complete or not. */
static enum status list_steps(struct client *c, const struct hub_path *d, struct folder_steps *l)
{
    struct listing all = {0};
    const struct tree_query query = {.folder = d->path};
    size_t n = strlen(d->path);
    enum status st = STATUS_OK;
    *l = (struct folder_steps){0};
    TRY_OUT(s3_listing_fetch(c, d, &query, &all));
    l->steps = heap((all.count + 1) * sizeof *l->steps);
    for (size_t i = 0; i < all.count; i++) {
        const char *path = all.files[i].path;
        if (n && (strncmp(path, d->path, n) || path[n] != '/')) continue;
        int64_t step = folder_parse_step(path + n + (n > 0));
        if (all.files[i].is_folder && step >= 0) l->steps[l->count++] = step;
    }
    qsort(l->steps, l->count, sizeof *l->steps, compare_steps);
out:
    listing_release(&all);
    return st;
}

enum status copier_list(const struct hub_settings *s, const char *destination,
                        struct copied_step **steps, size_t *count)
{
    struct store_session session = {0};
    struct hub_path d = {0};
    struct folder_steps l = {0};
    struct listing files = {0};
    enum status st = STATUS_OK;
    *steps = NULL, *count = 0;
    TRY(hub_path_parse(&d, destination));
    TRY_OUT(open_session(&session, s));
    TRY_OUT(list_steps(&session.client, &d, &l));
    *steps = heap((l.count + 1) * sizeof **steps);
    for (size_t i = 0; i < l.count; i++) {
        struct copied_step *to = &(*steps)[*count];
        TRY_OUT(list_step(&session.client, &d, l.steps[i], &files));
        *to = (struct copied_step){.step = l.steps[i],
                                   .is_complete = has_manifest(&files, &d, l.steps[i])};
        for (size_t k = 0; k < files.count; k++) to->bytes += files.files[k].size;
        listing_release(&files);
        ++*count;
    }
out:
    if (st) {
        free(*steps);
        *steps = NULL, *count = 0;
    }
    listing_release(&files);
    folder_steps_release(&l);
    close_session(&session);
    hub_path_release(&d);
    return st;
}

/* One step, between the store and a local folder. */
struct step_copy {
    struct client *client;
    const struct hub_path *destination;
    int64_t step;
    const char *path; /* of the local folder */
};

static enum status upload_file(const struct step_copy *s, const char *name)
{
    char *key = object_key(s->destination, s->step, name), *path = file_join(s->path, name);
    const struct s3_file f = {.bucket = s->destination, .key = key, .path = path};
    enum status st = s3_object_upload(s->client, &f, 0);
    free(key), free(path);
    return st;
}

/* Sets *has if the store has a copy with the same manifest, whose checksums cover every byte.  A
 * copy with another manifest is about to be replaced, so its manifest is deleted. */
static enum status prepare_upload(const struct step_copy *s, const struct text *local, bool *has)
{
    struct listing l = {0};
    struct text stored = {0};
    char *key = object_key(s->destination, s->step, MANIFEST_NAME);
    enum status st = STATUS_OK;
    *has = false;
    TRY_OUT(list_step(s->client, s->destination, s->step, &l));
    if (!find_object(&l, key)) goto out;
    TRY_OUT(s3_object_read(s->client, s->destination, key, &stored));
    *has = stored.len == local->len && !memcmp(stored.data, local->data, local->len);
    if (!*has) TRY_OUT(s3_object_delete(s->client, s->destination, key));
out:
    listing_release(&l);
    text_release(&stored);
    free(key);
    return st;
}

static enum status read_manifest(const struct step_copy *s, struct text *bytes)
{
    char *path = file_join(s->path, MANIFEST_NAME);
    enum status st = file_read(path, UINT64_C(256) << 20, bytes);
    free(path);
    return st;
}

/* A damaged step is not copied; nor is one completed that a run has replaced meanwhile (it saved
 * the same step again, which adds it again). */
static enum status upload_step(const struct step_copy *s, bool *uploaded)
{
    struct file_list names = {0};
    struct text manifest = {0}, now = {0};
    bool has;
    enum status st = STATUS_OK;
    *uploaded = false;
    TRY_OUT(read_manifest(s, &manifest));
    TRY_OUT(manifest_list(s->path, &names));
    TRY_OUT(prepare_upload(s, &manifest, &has));
    if (has) goto out;
    TRY_OUT(manifest_verify(s->path, NULL));
    for (size_t i = 0; i < names.count; i++) TRY_OUT(upload_file(s, names.paths[i]));
    TRY_OUT(read_manifest(s, &now));
    if (now.len != manifest.len || memcmp(now.data, manifest.data, now.len))
        FAIL_OUT(IO, "%s was replaced during the copy", s->path);
    TRY_OUT(upload_file(s, MANIFEST_NAME));
    *uploaded = true;
out:
    file_list_release(&names);
    text_release(&manifest);
    text_release(&now);
    return st;
}

static bool is_abandoned(struct copier *c, int64_t step)
{
    pthread_mutex_lock(&c->lock);
    bool is = step > c->kept;
    pthread_mutex_unlock(&c->lock);
    return is;
}

static void copy_step(struct copier *c, int64_t step)
{
    struct store_session session = {0};
    bool uploaded = false;
    char *path = folder_step_path(c->folder, step);
    double begin = clock_monotonic_s();
    enum status st = open_session(&session, c->settings);
    session.client.cancel = &c->cancel;
    struct step_copy s = {&session.client, &c->destination, step, path};
    if (!st) st = upload_step(&s, &uploaded);
    if (st && is_abandoned(c, step))
        log_line(LOG_INFO, "the copy of %s to %s is dropped", path, c->destination.name);
    else if (st == STATUS_REQUEUE)
        log_line(LOG_WARN,
                 "the copy of %s to %s was interrupted by the end of the run; the next start "
                 "completes it",
                 path, c->destination.name);
    else if (st)
        log_line(LOG_WARN, "cannot copy %s to %s: %s; the next save tries again", path,
                 c->destination.name, status_message());
    else if (uploaded)
        log_line(LOG_INFO, "copied %s to %s in %.1f s", path, c->destination.name,
                 clock_monotonic_s() - begin);
    close_session(&session);
    free(path);
}

/* The newest first, as folder_abandon does. */
static enum status delete_manifests(struct client *client, const struct hub_path *d, int64_t kept,
                                    struct text *deleted)
{
    struct folder_steps l;
    struct listing files = {0};
    enum status st = STATUS_OK;
    TRY(list_steps(client, d, &l));
    for (size_t i = l.count; i-- > 0 && l.steps[i] > kept;) {
        TRY_OUT(list_step(client, d, l.steps[i], &files));
        bool is_complete = has_manifest(&files, d, l.steps[i]);
        listing_release(&files);
        if (!is_complete) continue;
        char *key = object_key(d, l.steps[i], MANIFEST_NAME);
        st = s3_object_delete(client, d, key);
        free(key);
        if (st) goto out;
        text_addf(deleted, " step-%lld", (long long)l.steps[i]);
    }
out:
    folder_steps_release(&l);
    return st;
}

static void set_aside_copies(struct copier *c, int64_t kept)
{
    struct store_session session = {0};
    struct text deleted = {0};
    enum status st = open_session(&session, c->settings);
    session.client.cancel = &c->cancel;
    if (!st) st = delete_manifests(&session.client, &c->destination, kept, &deleted);
    if (deleted.len)
        log_line(LOG_INFO, "set aside the copies in %s of%s: deleted their %s", c->destination.name,
                 deleted.data, MANIFEST_NAME);
    if (st)
        log_line(LOG_WARN,
                 "cannot set aside the copies in %s after step %lld: %s; delete their %s, or a run "
                 "without local checkpoints resumes from them",
                 c->destination.name, (long long)kept, status_message(), MANIFEST_NAME);
    close_session(&session);
    text_release(&deleted);
}

static void *copy_thread(void *context)
{
    struct copier *c = context;
    activity_help(ACTIVITY_saving);
    pthread_mutex_lock(&c->lock);
    for (;;) {
        while (c->pending < 0 && c->kept == INT64_MAX && !c->closing)
            pthread_cond_wait(&c->changed, &c->lock);
        if (c->kept < INT64_MAX) {
            int64_t kept = c->kept;
            c->kept = INT64_MAX;
            atomic_store(&c->cancel, false); /* if copier_close has set it, it will again */
            pthread_mutex_unlock(&c->lock);
            set_aside_copies(c, kept);
            pthread_mutex_lock(&c->lock);
            continue;
        }
        if (c->pending < 0 || atomic_load(&c->cancel)) break;
        int64_t step = c->busy = c->pending;
        c->pending = -1;
        pthread_mutex_unlock(&c->lock);
        copy_step(c, step);
        pthread_mutex_lock(&c->lock);
        c->busy = -1;
    }
    c->idle = true;
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Downloads the manifest, then the files that it lists, all of which must exist. */
static enum status download_files(const struct step_copy *s, const struct listing *l)
{
    struct file_list names = {0};
    enum status st = STATUS_OK;
    const char *name = MANIFEST_NAME;
    for (size_t i = 0; !i || i <= names.count; i++) {
        char *key = object_key(s->destination, s->step, name), *path = file_join(s->path, name);
        const struct s3_file f = {.bucket = s->destination, .key = key, .path = path};
        const struct hub_file *o = find_object(l, key);
        if (o)
            st = s3_object_download(s->client, &f, o);
        else
            st = status_fail(STATUS_DATA, __FILE__, __LINE__, "s3://%s/%s is missing",
                             s->destination->repo, key);
        free(key), free(path);
        if (st) goto out;
        if (!i) TRY_OUT(manifest_list(s->path, &names));
        if (i < names.count) name = names.paths[i];
    }
out:
    file_list_release(&names);
    return st;
}

/* Fetches a step into the folder; *found is false if its copy has no manifest. */
static enum status fetch_step(const struct copier *c, struct client *client, int64_t step,
                              bool *found)
{
    char *path = folder_step_path(c->folder, step);
    struct text temporary = {0};
    struct listing l = {0};
    int64_t written;
    enum status st = STATUS_OK;
    text_addf(&temporary, "%s.tmp", path);
    struct step_copy s = {client, &c->destination, step, temporary.data};
    TRY_OUT(list_step(client, &c->destination, step, &l));
    *found = has_manifest(&l, &c->destination, step);
    if (!*found) goto out;
    log_line(LOG_INFO, "%s: fetching step-%lld, into %s", c->destination.name, (long long)step,
             c->folder);
    TRY_OUT(file_remove_tree(temporary.data));
    TRY_OUT(file_make_dirs(temporary.data));
    TRY_OUT(download_files(&s, &l));
    TRY_OUT(manifest_verify(temporary.data, NULL));
    TRY_OUT(manifest_check(temporary.data, &written));
    if (written != step)
        FAIL_OUT(DATA, "%s: the manifest of step-%lld belongs to step %lld", c->destination.name,
                 (long long)step, (long long)written);
    TRY_OUT(folder_commit(c->folder, temporary.data, step));
out:
    if (st) {
        struct failure first = {0};
        status_save(&first, st);
        file_remove_tree(temporary.data);
        status_restore(&first);
    }
    listing_release(&l);
    text_release(&temporary);
    free(path);
    return st;
}

/* Fetches load_step, or the newest step that is complete and intact. */
static enum status restore_newest(const struct copier *c, struct client *client, int64_t load_step)
{
    struct folder_steps l;
    bool found = false;
    size_t num_damaged = 0;
    enum status st = STATUS_OK;
    TRY(list_steps(client, &c->destination, &l));
    for (size_t i = l.count; i-- > 0 && !found;) {
        if (load_step >= 0 && l.steps[i] != load_step) continue;
        st = fetch_step(c, client, l.steps[i], &found);
        if (st && st != STATUS_DATA) goto out;
        if (!st) continue;
        log_line(LOG_WARN, "skipping the copy of step-%lld: %s", (long long)l.steps[i],
                 status_message());
        found = false, num_damaged++, st = STATUS_OK;
    }
    if (!found && num_damaged)
        FAIL_OUT(DATA, "%s: no intact checkpoint found (%zu damaged); move them away to start over",
                 c->destination.name, num_damaged);
out:
    folder_steps_release(&l);
    return st;
}

/* The newest step that a run wrote, not another program's DCP; -1: none. */
static int64_t newest_own(const struct copier *c, const struct folder_steps *l)
{
    for (size_t i = l->count; i-- > 0;) {
        char *path = folder_step_path(c->folder, l->steps[i]);
        bool own = !dcp_detect(path);
        free(path);
        if (own) return l->steps[i];
    }
    return -1;
}

/* Fetches the step to resume from, or checks access to the store and queues the newest step. */
static enum status visit_store(struct copier *c, const struct copier_options *o)
{
    struct store_session session = {0};
    struct folder_steps local = {0};
    bool has_abandoned;
    enum status st = STATUS_OK;
    TRY_OUT(folder_steps_read(&local, c->folder));
    TRY_OUT(folder_has_abandoned(c->folder, &has_abandoned));
    TRY_OUT(open_session(&session, o->settings));
    if (!local.count && (!has_abandoned || o->load_step >= 0)) {
        TRY_OUT(restore_newest(c, &session.client, o->load_step));
        goto out;
    }
    c->pending = newest_own(c, &local);
    struct listing l = {0};
    st = list_step(&session.client, &c->destination, c->pending < 0 ? 0 : c->pending, &l);
    listing_release(&l);
    if (st == STATUS_IO) {
        log_line(LOG_WARN, "%s; copies will be tried after each save", status_message());
        st = STATUS_OK;
    }
out:
    folder_steps_release(&local);
    close_session(&session);
    return st;
}

static enum status parse_destination(struct hub_path *p, const char *destination)
{
    if (strncmp(destination, "s3://", 5))
        FAIL(CONFIG, "checkpoint.copy_to = \"%s\": expected s3://BUCKET/PREFIX", destination);
    TRY(hub_path_parse(p, destination));
    if (strpbrk(p->path, "*?[\\"))
        FAIL(CONFIG, "checkpoint.copy_to = \"%s\": must not be a pattern", destination);
    return STATUS_OK;
}

enum status copier_check_destination(const char *destination)
{
    struct hub_path p = {0};
    enum status st = parse_destination(&p, destination);
    hub_path_release(&p);
    return st;
}

enum status copier_open(struct copier **out, const struct copier_options *o)
{
    struct copier *c = heap(sizeof *c);
    *c = (struct copier){.folder = heap_string(o->folder, strlen(o->folder)),
                         .settings = o->settings,
                         .stop_timeout_s = o->stop_timeout_s,
                         .pending = -1,
                         .busy = -1,
                         .kept = INT64_MAX};
    enum status st = STATUS_OK;
    *out = c;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    TRY_OUT(parse_destination(&c->destination, o->destination));
    TRY_OUT(visit_store(c, o));
    if (o->read_only) goto out;
    TRY_OUT(thread_start_background(&c->thread, copy_thread, c));
    c->is_running = true;
out:
    if (st) {
        copier_close(c, true);
        *out = NULL;
    }
    return st;
}

void copier_add(struct copier *c, int64_t step)
{
    pthread_mutex_lock(&c->lock);
    c->pending = step;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

int64_t copier_busy(struct copier *c)
{
    pthread_mutex_lock(&c->lock);
    int64_t step = c->busy;
    pthread_mutex_unlock(&c->lock);
    return step;
}

void copier_abandon(struct copier *c, int64_t step)
{
    if (!c->is_running) return;
    pthread_mutex_lock(&c->lock);
    if (c->pending > step) c->pending = -1;
    if (c->busy > step) atomic_store(&c->cancel, true);
    if (c->kept > step) c->kept = step;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

/* Polls, because a signal must be able to shorten the wait. */
static void wait_until_idle(struct copier *c, bool failed)
{
    double begin = clock_monotonic_s(), logged = begin, stopped = failed ? begin : -1;
    for (;;) {
        pthread_mutex_lock(&c->lock);
        bool idle = c->idle;
        int64_t step = c->busy;
        pthread_mutex_unlock(&c->lock);
        double now = clock_monotonic_s();
        if (idle) return;
        if (signals_pending() && stopped < 0) stopped = now;
        if (stopped >= 0 && now - stopped >= c->stop_timeout_s) atomic_store(&c->cancel, true);
        if (now - logged >= LOG_EVERY_S) {
            if (step < 0)
                log_line(LOG_INFO, "waiting for %s (%.0f s so far)", c->destination.name,
                         now - begin);
            else
                log_line(LOG_INFO, "waiting for the copy of step-%lld to %s (%.0f s so far)",
                         (long long)step, c->destination.name, now - begin);
            logged = now;
        }
        nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
    }
}

void copier_close(struct copier *c, bool failed)
{
    if (!c) return;
    if (c->is_running) {
        pthread_mutex_lock(&c->lock);
        c->closing = true;
        pthread_cond_signal(&c->changed);
        pthread_mutex_unlock(&c->lock);
        wait_until_idle(c, failed);
        pthread_join(c->thread, NULL);
        if (c->pending >= 0)
            log_line(LOG_WARN,
                     "step-%lld was not copied to %s before the end of the run; the next start "
                     "copies it",
                     (long long)c->pending, c->destination.name);
    }
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    hub_path_release(&c->destination);
    free(c->folder);
    free(c);
}
