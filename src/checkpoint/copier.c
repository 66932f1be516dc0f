// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/copier.h"

#include "base/activity.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/thread.h"
#include "checkpoint/copy_store.h"
#include "checkpoint/folder.h"
#include "checkpoint/interop/dcp.h"
#include "checkpoint/manifest.h"

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

enum status copier_list(const struct hub_settings *s, const char *destination,
                        struct copied_step **steps, size_t *count)
{
    struct copy_store store = {0};
    struct hub_path d = {0};
    struct folder_steps l = {0};
    enum status st = STATUS_OK;
    *steps = NULL, *count = 0;
    TRY(hub_path_parse(&d, destination));
    TRY_OUT(copy_store_open(&store, s, &d));
    TRY_OUT(copy_store_list(&store, &l));
    *steps = heap((l.count + 1) * sizeof **steps);
    for (; *count < l.count; ++*count)
        TRY_OUT(copy_store_look(&store, l.steps[*count], &(*steps)[*count]));
out:
    if (st) {
        free(*steps);
        *steps = NULL, *count = 0;
    }
    folder_steps_release(&l);
    copy_store_close(&store);
    hub_path_release(&d);
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
    struct copy_store store = {0};
    bool uploaded = false;
    char *path = folder_step_path(c->folder, step);
    double begin = clock_monotonic_s();
    enum status st = copy_store_open(&store, c->settings, &c->destination);
    store.client.cancel = &c->cancel;
    if (!st) st = copy_store_upload(&store, step, path, &uploaded);
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
    copy_store_close(&store);
    free(path);
}

static void set_aside_copies(struct copier *c, int64_t kept)
{
    struct copy_store store = {0};
    struct text deleted = {0};
    enum status st = copy_store_open(&store, c->settings, &c->destination);
    store.client.cancel = &c->cancel;
    if (!st) st = copy_store_set_aside(&store, kept, &deleted);
    if (deleted.len)
        log_line(LOG_INFO, "set aside the copies in %s of%s: deleted their %s", c->destination.name,
                 deleted.data, MANIFEST_NAME);
    if (st)
        log_line(LOG_WARN,
                 "cannot set aside the copies in %s after step %lld: %s; delete their %s, or a run "
                 "without local checkpoints resumes from them",
                 c->destination.name, (long long)kept, status_message(), MANIFEST_NAME);
    copy_store_close(&store);
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

/* Fetches load_step, or the newest step that is complete and intact. */
static enum status restore_newest(const struct copier *c, struct copy_store *store,
                                  int64_t load_step)
{
    struct folder_steps l;
    bool found = false;
    size_t num_damaged = 0;
    enum status st = STATUS_OK;
    TRY(copy_store_list(store, &l));
    for (size_t i = l.count; i-- > 0 && !found;) {
        if (load_step >= 0 && l.steps[i] != load_step) continue;
        st = copy_store_fetch(store, l.steps[i], c->folder, &found);
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
    struct copy_store store = {0};
    struct copied_step newest;
    struct folder_steps local = {0};
    bool has_abandoned;
    enum status st = STATUS_OK;
    TRY_OUT(folder_steps_read(&local, c->folder));
    TRY_OUT(folder_has_abandoned(c->folder, &has_abandoned));
    TRY_OUT(copy_store_open(&store, o->settings, &c->destination));
    if (!local.count && (!has_abandoned || o->load_step >= 0)) {
        TRY_OUT(restore_newest(c, &store, o->load_step));
        goto out;
    }
    c->pending = newest_own(c, &local);
    st = copy_store_look(&store, c->pending < 0 ? 0 : c->pending, &newest);
    if (st == STATUS_IO) {
        log_line(LOG_WARN, "%s; copies will be tried after each save", status_message());
        st = STATUS_OK;
    }
out:
    folder_steps_release(&local);
    copy_store_close(&store);
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
    *c = (struct copier){.folder = heap_strdup(o->folder),
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
