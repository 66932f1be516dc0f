// SPDX-License-Identifier: Apache-2.0
#include "hub/download.h"

#include "base/file.h"
#include "base/log.h"
#include "base/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

void snapshot_init(struct snapshot *s, const struct place *place, const char *cache,
                   const char *commit)
{
    *s = (struct snapshot){.place = place, .cache = cache, .folder = place_folder(place, cache)};
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
    bool there = file_exists(path) && !file_size(path, &size) && size == f->size;
    free(path);
    return there;
}

/* A file on its way. */
struct part {
    struct sink sink; /* first */
    const struct hub_file *file;
    struct download_watch *watch;
    struct digest digest;
    char *path, *blob;
    int fd;
};

/* Git hashes a file's size along with its bytes. */
static void start_digest(struct part *p)
{
    char head[32];
    digest_init(&p->digest, p->file->kind);
    if (p->file->kind != DIGEST_SHA1) return;
    int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)p->file->size);
    digest_add(&p->digest, head, (size_t)n + 1);
}

static enum status restart_part(struct sink *s)
{
    struct part *p = (struct part *)s;
    if (ftruncate(p->fd, 0)) FAIL(IO, "%s: %s", p->path, strerror(errno));
    s->have = 0;
    start_digest(p);
    return STATUS_OK;
}

static enum status add_part(struct sink *s, const void *bytes, size_t len)
{
    struct part *p = (struct part *)s;
    if (len > p->file->size - s->have)
        FAIL(DATA, "%s: more came than the %llu bytes it should have", p->file->path,
             (unsigned long long)p->file->size);
    TRY(file_write_at(p->fd, p->path, bytes, len, s->have));
    digest_add(&p->digest, bytes, len);
    s->have += len;
    if (p->watch) p->watch->got(p->watch, p->file, s->have, len);
    return STATUS_OK;
}

/* What an earlier attempt left. */
static enum status take_up(struct part *p)
{
    enum { PIECE = 1 << 20 };
    off_t end = lseek(p->fd, 0, SEEK_END);
    if (end < 0) FAIL(IO, "%s: %s", p->path, strerror(errno));
    TRY(end > (off_t)p->file->size ? restart_part(&p->sink) : STATUS_OK);
    uint64_t size = end > (off_t)p->file->size ? 0 : (uint64_t)end;
    unsigned char *piece = heap(PIECE);
    enum status st = STATUS_OK;
    for (uint64_t at = 0; at < size && !st;) {
        size_t n = size - at < PIECE ? (size_t)(size - at) : PIECE;
        st = file_read_at(p->fd, p->path, piece, n, at);
        digest_add(&p->digest, piece, n);
        at += n;
    }
    p->sink.have = size;
    free(piece);
    return st;
}

static enum status check(struct part *p)
{
    char hash[DIGEST_HEX];
    const struct hub_file *f = p->file;
    if (p->sink.have != f->size)
        FAIL(DATA, "%s: %llu bytes came of %llu", f->path, (unsigned long long)p->sink.have,
             (unsigned long long)f->size);
    digest_hex(&p->digest, hash);
    if (strcmp(hash, f->hash))
        FAIL(DATA, "%s: what came has the hash %s, and the Hub says %s", f->path, hash, f->hash);
    return STATUS_OK;
}

static enum status receive(struct part *p, struct client *c, const char *url, const char *what)
{
    if (p->sink.have < p->file->size) TRY(client_get(c, url, what, &p->sink, NULL));
    TRY(check(p));
    return STATUS_OK;
}

static enum status finish(struct part *p)
{
    if (fsync(p->fd)) FAIL(IO, "%s: fsync: %s", p->path, strerror(errno));
    if (rename(p->path, p->blob)) FAIL(IO, "%s: rename: %s", p->path, strerror(errno));
    return STATUS_OK;
}

static enum status fetch_blob(struct part *p, const struct snapshot *s, struct client *c)
{
    const struct hub_file *f = p->file;
    struct text url = {0}, what = {0};
    enum status st = STATUS_OK;
    text_addf(&url, "%s/%s%s/resolve/%s/", c->settings->endpoint,
              s->place->is_dataset ? "datasets/" : "", s->place->repo, s->commit);
    url_add(&url, f->path, true);
    text_addf(&what, "%s: %s", s->place->name, f->path);
    p->fd = open(p->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (p->fd < 0) FAIL_OUT(IO, "%s: %s", p->path, strerror(errno));
    start_digest(p);
    TRY_OUT(take_up(p));
    bool resumed = p->sink.have > 0;
    st = receive(p, c, url.data, what.data);
    if (st == STATUS_DATA && resumed) { /* what an earlier attempt left may have been wrong */
        log_line(LOG_WARN, "%s; it is fetched anew", status_message());
        TRY_OUT(restart_part(&p->sink));
        st = receive(p, c, url.data, what.data);
    }
    if (st == STATUS_DATA) unlink(p->path);
    if (!st) TRY_OUT(finish(p));
out:
    if (p->fd >= 0) close(p->fd);
    if (st) status_where(st, "%s", s->place->name);
    text_release(&url);
    text_release(&what);
    return st;
}

/* Puts the link into the snapshot, replacing what is there. */
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
    text_addf(&temporary, "%s/blobs/%s.link-%ld", s->folder, f->hash, (long)getpid());
    unlink(temporary.data);
    if (symlink(target.data, temporary.data) || rename(temporary.data, path))
        FAIL_OUT(IO, "%s: %s", path, strerror(errno));
out:
    text_release(&target);
    text_release(&temporary);
    free(path);
    return st;
}

/* Waits for a lock; where the file system has none, the hashes tell of a collision. */
static enum status take_lock(const struct snapshot *s, const char *name, int *lock)
{
    struct text path = {0};
    enum status st = STATUS_OK;
    text_addf(&path, "%s/.locks/%s", s->cache, strrchr(s->folder, '/') + 1);
    TRY_OUT(file_make_dirs(path.data));
    text_addf(&path, "/%s.lock", name);
    *lock = open(path.data, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (*lock < 0) FAIL_OUT(IO, "%s: %s", path.data, strerror(errno));
    if (flock(*lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) goto out;
    log_line(LOG_INFO, "%s: waiting for another process that fetches the same", s->place->name);
    while (flock(*lock, LOCK_EX) && errno == EINTR)
        if (signals_pending()) FAIL_OUT(REQUEUE, "stopped while waiting for %s", path.data);
out:
    text_release(&path);
    return st;
}

enum status snapshot_fetch(const struct snapshot *s, struct client *c, const struct hub_file *f,
                           struct download_watch *watch)
{
    struct part p = {
        .sink = {.restart = restart_part, .add = add_part}, .file = f, .watch = watch, .fd = -1};
    char *blobs = file_join(s->folder, "blobs");
    struct text path = {0};
    int lock = -1;
    uint64_t size = 0;
    enum status st = STATUS_OK;
    if (snapshot_has(s, f)) goto out;
    TRY_OUT(file_make_dirs(blobs));
    TRY_OUT(take_lock(s, f->hash, &lock));
    p.blob = file_join(blobs, f->hash);
    text_addf(&path, "%s.incomplete", p.blob);
    p.path = path.data;
    bool there = file_exists(p.blob) && !file_size(p.blob, &size) && size == f->size;
    if (!there) TRY_OUT(fetch_blob(&p, s, c));
    TRY_OUT(link_blob(s, f));
out:
    if (lock >= 0) close(lock);
    free(p.blob), free(blobs);
    text_release(&path);
    return st;
}

enum status snapshot_note(const struct snapshot *s)
{
    int lock = -1;
    enum status st = take_lock(s, "refs", &lock);
    if (!st) st = place_note(s->place, s->cache, s->commit);
    if (lock >= 0) close(lock);
    return st;
}
