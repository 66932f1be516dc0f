// SPDX-License-Identifier: Apache-2.0
#include "hub/snapshot.h"

#include "base/file.h"
#include "base/log.h"
#include "base/signals.h"
#include "hub/url.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

void snapshot_init(struct snapshot *s, const struct hub_path *path, const char *cache,
                   const char *commit)
{
    *s = (struct snapshot){
        .path = path, .cache = cache, .folder = hub_path_cache_folder(path, cache)};
    snprintf(s->commit, sizeof s->commit, "%s", commit);
}

void snapshot_release(struct snapshot *s) { free(s->folder); }

char *snapshot_path(const struct snapshot *s, const char *path)
{
    struct text t = {0};
    text_addf(&t, "%s/snapshots/%s%s%s", s->folder, s->commit, path[0] ? "/" : "", path);
    return t.data;
}

bool snapshot_has(const struct snapshot *s, const struct hub_file *f)
{
    char *path = snapshot_path(s, f->path);
    uint64_t size;
    bool exists = file_exists(path) && !file_size(path, &size) && size == f->size;
    free(path);
    return exists;
}

/* A download in progress. */
struct partial_blob {
    struct sink sink; /* first */
    const struct hub_file *file;
    struct download_observer *observer;
    struct digest digest;
    char *path, *blob;
    int fd;
};

/* A Git blob's SHA-1 covers a header with the file's size. */
static void start_digest(struct partial_blob *p)
{
    char head[32];
    digest_init(&p->digest, p->file->kind);
    if (p->file->kind != DIGEST_SHA1 || p->file->etag) return;
    int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)p->file->size);
    digest_add(&p->digest, head, (size_t)n + 1);
}

static enum status restart_blob(struct sink *s)
{
    struct partial_blob *p = (struct partial_blob *)s;
    if (ftruncate(p->fd, 0)) FAIL(IO, "%s: %s", p->path, strerror(errno));
    s->have = 0;
    start_digest(p);
    return STATUS_OK;
}

static enum status append_to_blob(struct sink *s, const void *bytes, size_t len)
{
    struct partial_blob *p = (struct partial_blob *)s;
    if (len > p->file->size - s->have)
        FAIL(DATA, "%s: got more than the expected %llu bytes", p->file->path,
             (unsigned long long)p->file->size);
    TRY(file_write_at(p->fd, p->path, bytes, len, s->have));
    if (!p->file->etag) digest_add(&p->digest, bytes, len);
    s->have += len;
    if (p->observer) p->observer->on_bytes(p->observer, p->file, s->have, len);
    return STATUS_OK;
}

/* Hashes the partial file of an earlier attempt and resumes after it. */
static enum status resume_partial(struct partial_blob *p)
{
    enum { CHUNK_BYTES = 1 << 20 };
    off_t end = lseek(p->fd, 0, SEEK_END);
    if (end < 0) FAIL(IO, "%s: %s", p->path, strerror(errno));
    TRY(end > (off_t)p->file->size ? restart_blob(&p->sink) : STATUS_OK);
    uint64_t size = end > (off_t)p->file->size ? 0 : (uint64_t)end;
    unsigned char *chunk = heap(CHUNK_BYTES);
    enum status st = STATUS_OK;
    for (uint64_t at = 0; at < size && !st;) {
        size_t n = size - at < CHUNK_BYTES ? (size_t)(size - at) : CHUNK_BYTES;
        st = file_read_at(p->fd, p->path, chunk, n, at);
        if (!st) digest_add(&p->digest, chunk, n);
        at += n;
    }
    p->sink.have = size;
    free(chunk);
    return st;
}

static enum status verify(struct partial_blob *p)
{
    char hash[DIGEST_HEX];
    const struct hub_file *f = p->file;
    if (p->sink.have != f->size)
        FAIL(DATA, "%s: got %llu of %llu bytes", f->path, (unsigned long long)p->sink.have,
             (unsigned long long)f->size);
    if (f->etag) return STATUS_OK;
    digest_hex(&p->digest, hash);
    if (strcmp(hash, f->hash))
        FAIL(DATA, "%s: hash mismatch: got %s, expected %s", f->path, hash, f->hash);
    return STATUS_OK;
}

static enum status download_and_verify(struct partial_blob *p, struct client *c, const char *url,
                                       const char *what)
{
    struct text match = {0};
    const char *headers[] = {NULL, NULL};
    if (p->file->etag) {
        text_addf(&match, "If-Match: %s", p->file->etag);
        headers[0] = match.data;
    }
    struct http_response a;
    const struct client_request q = {
        .url = url, .what = what, .headers = headers, .sink = &p->sink};
    enum status st = p->sink.have < p->file->size ? client_send(c, &q, &a) : STATUS_OK;
    text_release(&match);
    TRY(st);
    TRY(verify(p));
    return STATUS_OK;
}

static enum status commit_blob(struct partial_blob *p)
{
    if (fsync(p->fd)) FAIL(IO, "%s: fsync: %s", p->path, strerror(errno));
    if (rename(p->path, p->blob)) FAIL(IO, "%s: rename: %s", p->path, strerror(errno));
    return STATUS_OK;
}

static enum status fetch_blob(struct partial_blob *p, const struct snapshot *s, struct client *c)
{
    const struct hub_file *f = p->file;
    struct text url = {0}, what = {0};
    enum status st = STATUS_OK;
    if (s->base)
        text_addf(&url, "%s/", s->base);
    else
        text_addf(&url, "%s/%s%s/resolve/%s/", c->settings->endpoint,
                  s->path->is_dataset ? "datasets/" : "", s->path->repo, s->commit);
    url_append_escaped(&url, f->path, true);
    text_addf(&what, "%s: %s", s->path->name, f->path);
    p->fd = open(p->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (p->fd < 0) FAIL_OUT(IO, "%s: %s", p->path, strerror(errno));
    start_digest(p);
    TRY_OUT(resume_partial(p));
    bool resumed = p->sink.have > 0;
    st = download_and_verify(p, c, url.data, what.data);
    if (st == STATUS_DATA && resumed) { /* the partial file may be damaged */
        log_line(LOG_WARN, "%s; downloading it again from the start", status_message());
        TRY_OUT(restart_blob(&p->sink));
        st = download_and_verify(p, c, url.data, what.data);
    }
    if (st == STATUS_DATA) unlink(p->path);
    if (!st) TRY_OUT(commit_blob(p));
out:
    if (p->fd >= 0) close(p->fd);
    if (st) status_prefix(st, "%s", s->path->name);
    text_release(&url);
    text_release(&what);
    return st;
}

/* Creates or replaces the symlink in the snapshot, atomically. */
static enum status link_blob(const struct snapshot *s, const struct hub_file *f)
{
    struct text target = {0}, temporary = {0};
    char *path = snapshot_path(s, f->path), *end = strrchr(path, '/');
    enum status st = STATUS_OK;
    *end = 0;
    st = file_make_dirs(path);
    *end = '/';
    if (st) goto out;
    text_adds(&target, "../../");
    for (const char *at = f->path; (at = strchr(at, '/')); at++) text_adds(&target, "../");
    text_addf(&target, "blobs/%s", f->hash);
    if (!symlink(target.data, path)) goto out;
    if (errno != EEXIST) FAIL_OUT(IO, "%s: %s", path, strerror(errno));
    text_addf(&temporary, "%s/blobs/%s.link-%ld", s->folder, f->hash, (long)getpid());
    unlink(temporary.data);
    if (symlink(target.data, temporary.data) || rename(temporary.data, path)) {
        st = FAILURE(IO, "%s: %s", path, strerror(errno));
        unlink(temporary.data);
    }
out:
    text_release(&target);
    text_release(&temporary);
    free(path);
    return st;
}

/* Polls for the lock: a blocking flock would not return at a signal, because this thread blocks
 * signals.  On a file system without locks, a collision shows as a hash mismatch. */
static enum status acquire_lock(const struct snapshot *s, const char *name, int *lock)
{
    const struct timespec pause = {.tv_nsec = 100000000};
    struct text path = {0};
    enum status st = STATUS_OK;
    text_addf(&path, "%s/.locks/%s", s->cache, file_name(s->folder));
    TRY_OUT(file_make_dirs(path.data));
    text_addf(&path, "/%s.lock", name);
    *lock = open(path.data, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (*lock < 0) FAIL_OUT(IO, "%s: %s", path.data, strerror(errno));
    for (bool waits = false; flock(*lock, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
         waits = true) {
        if (!waits)
            log_line(LOG_INFO, "%s: waiting for another process that is downloading the same file",
                     s->path->name);
        if (signals_pending()) FAIL_OUT(REQUEUE, "interrupted while waiting for %s", path.data);
        nanosleep(&pause, NULL);
    }
out:
    text_release(&path);
    return st;
}

enum status snapshot_download(const struct snapshot *s, struct client *c, const struct hub_file *f,
                              struct download_observer *observer)
{
    struct partial_blob p = {.sink = {.restart = restart_blob, .append = append_to_blob},
                             .file = f,
                             .observer = observer,
                             .fd = -1};
    char *blobs = file_join(s->folder, "blobs");
    struct text path = {0};
    int lock = -1;
    uint64_t size = 0;
    enum status st = STATUS_OK;
    if (snapshot_has(s, f)) goto out;
    TRY_OUT(file_make_dirs(blobs));
    TRY_OUT(acquire_lock(s, f->hash, &lock));
    p.blob = file_join(blobs, f->hash);
    text_addf(&path, "%s.incomplete", p.blob);
    p.path = path.data;
    bool exists = file_exists(p.blob) && !file_size(p.blob, &size) && size == f->size;
    if (!exists) TRY_OUT(fetch_blob(&p, s, c));
    TRY_OUT(link_blob(s, f));
out:
    if (lock >= 0) close(lock);
    free(p.blob), free(blobs);
    text_release(&path);
    return st;
}

enum status snapshot_write_ref(const struct snapshot *s)
{
    int lock = -1;
    enum status st = acquire_lock(s, "refs", &lock);
    if (!st) st = hub_path_write_ref(s->path, s->cache, s->commit);
    if (lock >= 0) close(lock);
    return st;
}
