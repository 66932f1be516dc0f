// SPDX-License-Identifier: Apache-2.0
#include "hub/listing.h"

#include "base/file.h"
#include "base/json.h"
#include "hub/url.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_FILES = 1 << 20, MAX_PAGES = 1 << 14 };

void listing_release(struct listing *l)
{
    for (size_t i = 0; i < l->count; i++) free(l->files[i].path), free(l->files[i].etag);
    free(l->files);
    *l = (struct listing){0};
}

void listing_append(struct listing *l, const struct hub_file *file)
{
    if ((l->count & (l->count - 1)) == 0)
        l->files = heap_grow(l->files, l->count ? 2 * l->count : 1, sizeof *l->files);
    l->files[l->count] = *file;
    struct hub_file *f = &l->files[l->count++];
    f->path = heap_strdup(file->path);
    if (file->etag) f->etag = heap_strdup(file->etag);
}

void listing_hash_object(struct hub_file *f)
{
    struct text t = {0};
    struct digest d;
    text_addf(&t, "%s %llu %s", f->etag, (unsigned long long)f->size, f->path);
    f->kind = DIGEST_SHA256;
    digest_init(&d, f->kind);
    digest_add(&d, t.data, t.len);
    digest_hex(&d, f->hash);
    text_release(&t);
}

bool listing_is_etag(const char *etag)
{
    size_t n = strlen(etag);
    if (n < 3 || n > 120 || etag[0] != '"' || etag[n - 1] != '"') return false;
    for (size_t i = 1; i + 1 < n; i++)
        if (etag[i] <= ' ' || etag[i] > '~' || etag[i] == '"') return false;
    return true;
}

static enum status set_hash(struct hub_file *f, enum digest_kind kind, const char *hash)
{
    f->kind = kind;
    if (!digest_is_hex(hash, kind == DIGEST_SHA1 ? 40 : 64))
        FAIL(DATA, "%s: invalid hash \"%.80s\"", f->path, hash);
    memcpy(f->hash, hash, strlen(hash) + 1);
    return STATUS_OK;
}

static enum status parse_entry(const struct json *v, struct hub_file *f)
{
    const struct json *lfs = json_get(v, "lfs");
    const char *path, *type, *hash;
    int64_t size;
    *f = (struct hub_file){0};
    TRY(json_get_string(v, "path", &path));
    TRY(json_get_string(v, "type", &type));
    if (!hub_path_is_contained(path)) FAIL(DATA, "invalid file path \"%.200s\"", path);
    f->path = heap_strdup(path); /* the caller frees it, even on failure */
    f->is_folder = strcmp(type, "file") != 0;
    if (f->is_folder) return STATUS_OK;
    TRY(json_get_int(v, "size", 0, INT64_C(1) << 50, &size));
    if (json_is_object(lfs)) TRY(json_get_int(lfs, "size", 0, INT64_C(1) << 50, &size));
    TRY(json_get_string(json_is_object(lfs) ? lfs : v, "oid", &hash));
    TRY(set_hash(f, json_is_object(lfs) ? DIGEST_SHA256 : DIGEST_SHA1, hash));
    f->size = (uint64_t)size;
    return STATUS_OK;
}

enum status listing_add_page(struct listing *l, const char *json, size_t len, const char *what)
{
    struct json *root;
    enum status st = STATUS_OK;
    TRY(json_parse(json, len, what, &root));
    if (!json_is_array(root)) FAIL_OUT(DATA, "%s: list of files: expected a JSON array", what);
    for (const struct json *v = json_first(root); v; v = json_next(v)) {
        struct hub_file f = {0};
        st = l->count < MAX_FILES ? parse_entry(v, &f)
                                  : FAILURE(DATA, "more than %d files", MAX_FILES);
        if (!st) listing_append(l, &f);
        free(f.path);
        if (st) {
            status_prefix(st, "%s: list of files", what);
            goto out;
        }
    }
out:
    json_free(root);
    return st;
}

static void begin_url(const struct client *c, const struct hub_path *p, const char *verb,
                      const char *revision, struct text *url)
{
    text_addf(url, "%s/api/%s/%s/%s/", c->settings->endpoint, p->is_dataset ? "datasets" : "models",
              p->repo, verb);
    url_append_escaped(url, revision, false);
}

enum status listing_fetch_commit(struct client *c, const struct hub_path *p,
                                 char commit[COMMIT_HEX])
{
    struct text_sink page = client_text_sink();
    struct text url = {0};
    struct json *root = NULL;
    const char *sha;
    enum status st = STATUS_OK;
    if (digest_is_hex(p->revision, COMMIT_HEX - 1)) {
        memcpy(commit, p->revision, COMMIT_HEX);
        return STATUS_OK;
    }
    begin_url(c, p, "revision", p->revision, &url);
    text_adds(&url, "?expand=sha");
    TRY_OUT(client_get(c, url.data, p->name, &page.sink, NULL));
    TRY_OUT(json_parse(page.text.data, page.text.len, url.data, &root));
    TRY_PREFIX_OUT(json_get_string(root, "sha", &sha), "%s", url.data);
    if (!digest_is_hex(sha, COMMIT_HEX - 1))
        FAIL_OUT(DATA, "%s: \"%.80s\" is not a commit hash", url.data, sha);
    memcpy(commit, sha, COMMIT_HEX);
out:
    json_free(root);
    text_release(&url);
    text_release(&page.text);
    return st;
}

enum status listing_fetch_tree(struct client *c, const struct hub_path *p, const char *commit,
                               const struct tree_query *q, struct listing *l)
{
    struct text_sink page = client_text_sink();
    struct text url = {0}, next = {0};
    enum status st = STATUS_OK;
    begin_url(c, p, "tree", commit, &url);
    if (q->folder[0]) text_adds(&url, "/");
    url_append_escaped(&url, q->folder, true);
    text_addf(&url, "?recursive=%s", q->recursive ? "true" : "false");
    for (int pages = 0; url.len; pages++) {
        if (pages == MAX_PAGES) FAIL_OUT(DATA, "%s: the list of files has too many pages", p->name);
        page.sink.restart(&page.sink);
        TRY_OUT(client_get(c, url.data, p->name, &page.sink, &next));
        TRY_OUT(listing_add_page(l, page.text.data ? page.text.data : "", page.text.len, p->name));
        text_clear(&url);
        text_add(&url, next.data ? next.data : "", next.len);
    }
out:
    text_release(&url);
    text_release(&next);
    text_release(&page.text);
    return st;
}

void listing_write(const struct listing *l, struct text *out)
{
    for (size_t i = 0; i < l->count; i++)
        text_addf(out, "%s %llu %s\n", l->files[i].etag ? l->files[i].etag : l->files[i].hash,
                  (unsigned long long)l->files[i].size, l->files[i].path);
}

/* A file's hash, or an object's ETag. */
static enum status parse_hash(struct hub_file *f, const char *line, size_t n)
{
    if (line[0] == '"') {
        f->etag = heap_string(line, n);
        if (listing_is_etag(f->etag)) return STATUS_OK;
    } else if (n < DIGEST_HEX) {
        memcpy(f->hash, line, n);
        f->kind = n == 40 ? DIGEST_SHA1 : DIGEST_SHA256;
        return STATUS_OK;
    }
    FAIL(DATA, "list of files from rank 0: invalid hash");
}

static enum status parse_line(struct hub_file *f, const char *line, size_t n)
{
    size_t hash = strcspn(line, " \n");
    char *end;
    if (line[hash] != ' ') FAIL(DATA, "list of files from rank 0: invalid hash");
    TRY(parse_hash(f, line, hash));
    f->size = strtoull(line + hash, &end, 10);
    if (*end != ' ' || end >= line + n) FAIL(DATA, "list of files from rank 0: invalid size");
    f->path = heap_string(end + 1, (size_t)(line + n - end - 1));
    if (f->etag) listing_hash_object(f);
    return STATUS_OK;
}

enum status listing_parse(struct listing *l, const char *lines)
{
    while (*lines) {
        struct hub_file f = {0};
        size_t n = strcspn(lines, "\n");
        enum status st = parse_line(&f, lines, n);
        if (!st && hub_path_is_contained(f.path)) listing_append(l, &f);
        free(f.path), free(f.etag);
        TRY(st);
        lines += n + (lines[n] == '\n');
    }
    return STATUS_OK;
}
