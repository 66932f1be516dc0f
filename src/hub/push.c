// SPDX-License-Identifier: Apache-2.0
#include "hub/push.h"

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "hub/hub.h"
#include "hub/lfs.h"
#include "hub/url.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 256, SAMPLE_BYTES = 512, MAX_REGULAR_BYTES = 64 << 20, CHUNK_BYTES = 1 << 20 };

struct pushed_file {
    char *name, *path; /* owned */
    uint64_t size;
    bool is_lfs, is_skipped; /* skipped: ignored by the Hub, or unchanged */
    char sha256[DIGEST_HEX], git_sha1[DIGEST_HEX];
};

/* A push in progress. */
struct push_session {
    const struct push *push;
    struct hub_path repo;
    struct client client;
    struct pushed_file *files;
    size_t count;
};

static enum status hash_file(struct pushed_file *f)
{
    char head[32];
    struct digest sha256, sha1;
    unsigned char *chunk = heap(CHUNK_BYTES);
    enum status st = STATUS_OK;
    int fd = open(f->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) FAIL_OUT(IO, "%s: %s", f->path, strerror(errno));
    digest_init(&sha256, DIGEST_SHA256);
    digest_init(&sha1, DIGEST_SHA1);
    int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)f->size);
    digest_add(&sha1, head, (size_t)n + 1);
    for (uint64_t at = 0; at < f->size;) {
        size_t len = f->size - at < CHUNK_BYTES ? (size_t)(f->size - at) : CHUNK_BYTES;
        TRY_OUT(file_read_at(fd, f->path, chunk, len, at));
        digest_add(&sha256, chunk, len);
        if (f->size <= MAX_REGULAR_BYTES) digest_add(&sha1, chunk, len);
        at += len;
    }
    digest_hex(&sha256, f->sha256);
    digest_hex(&sha1, f->git_sha1);
out:
    if (fd >= 0) close(fd);
    free(chunk);
    return st;
}

static enum status find_files(struct push_session *s)
{
    struct file_list names;
    enum status st = STATUS_OK;
    bool has_weights = false;
    TRY(file_list_dir(&names, s->push->folder));
    s->files = heap((names.count + 1) * sizeof *s->files);
    for (size_t i = 0; i < names.count; i++) {
        const char *name = names.paths[i];
        bool weights = hub_is_weights(name);
        if (!hub_is_model_file(name) && strcmp(name, "README.md")) continue;
        struct pushed_file *f = &s->files[s->count++];
        *f = (struct pushed_file){.name = heap_strdup(name),
                                  .path = file_join(s->push->folder, name)};
        has_weights |= weights;
        TRY_OUT(file_size(f->path, &f->size));
        TRY_OUT(hash_file(f));
    }
    if (!has_weights || !file_exists_in(s->push->folder, "config.json"))
        FAIL_OUT(MISSING, "%s: expected a Hugging Face folder with config.json and weights",
                 s->push->folder);
out:
    file_list_release(&names);
    return st;
}

static void add_base64(struct text *t, const unsigned char *bytes, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < len; i += 3) {
        size_t n = len - i < 3 ? len - i : 3;
        uint32_t word = (uint32_t)bytes[i] << 16;
        if (n > 1) word |= (uint32_t)bytes[i + 1] << 8;
        if (n > 2) word |= bytes[i + 2];
        for (size_t k = 0; k < 4; k++)
            text_add(t, k <= n ? &digits[word >> (18 - 6 * k) & 63] : "=", 1);
    }
}

/* POSTs to an API of the repository: /api/models/ORG/NAME/VERB/REVISION. */
static enum status post(struct push_session *s, const char *verb, const char *type,
                        const struct text *body, struct json **root)
{
    struct text_sink answer = client_text_sink();
    struct text url = {0}, header = {0};
    struct http_response a;
    enum status st = STATUS_OK;
    text_addf(&url, "%s/api/models/%s/%s/", s->push->settings->endpoint, s->repo.repo, verb);
    url_append_escaped(&url, s->repo.revision, false);
    text_addf(&header, "Content-Type: %s", type);
    const char *headers[] = {header.data, NULL};
    const struct client_request q = {.method = "POST",
                                     .url = url.data,
                                     .what = s->repo.name,
                                     .headers = headers,
                                     .body = {.bytes = body->data, .size = body->len},
                                     .sink = &answer.sink};
    TRY_OUT(client_send(&s->client, &q, &a));
    TRY_OUT(json_parse(answer.text.data ? answer.text.data : "", answer.text.len, url.data, root));
out:
    text_release(&answer.text);
    text_release(&url);
    text_release(&header);
    return st;
}

static enum status create_repository(struct push_session *s)
{
    struct text url = {0}, json = {0};
    static const char *const headers[] = {"Content-Type: application/json", NULL};
    const char *slash = strchr(s->repo.repo, '/');
    char *organization = heap_string(s->repo.repo, (size_t)(slash - s->repo.repo));
    struct json_writer w = {.text = &json};
    struct http_response a;
    text_addf(&url, "%s/api/repos/create", s->push->settings->endpoint);
    json_begin_object(&w, NULL, JSON_COMPACT);
    json_write_string(&w, "type", "model");
    json_write_string(&w, "organization", organization);
    json_write_string(&w, "name", slash + 1);
    json_write_bool(&w, "private", s->push->is_private);
    json_end_object(&w);
    const struct client_request q = {.method = "POST",
                                     .url = url.data,
                                     .what = s->repo.name,
                                     .headers = headers,
                                     .body = {.bytes = json.data, .size = json.len}};
    enum status st = client_send(&s->client, &q, &a);
    if (st && !a.broken && a.status == 409) st = STATUS_OK; /* it exists */
    free(organization);
    text_release(&url);
    text_release(&json);
    return st;
}

static struct pushed_file *find_file(struct push_session *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (!strcmp(s->files[i].name, name)) return &s->files[i];
    return NULL;
}

static enum status read_sample(const struct pushed_file *f, struct text *base64)
{
    unsigned char sample[SAMPLE_BYTES];
    size_t n = f->size < SAMPLE_BYTES ? (size_t)f->size : SAMPLE_BYTES;
    int fd = open(f->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) FAIL(IO, "%s: %s", f->path, strerror(errno));
    enum status st = file_read_at(fd, f->path, sample, n, 0);
    close(fd);
    text_clear(base64);
    text_adds(base64, "");
    if (!st) add_base64(base64, sample, n);
    return st;
}

/* Notes how the Hub wants each file, and which ones it has. */
static enum status read_modes(struct push_session *s, const struct json *root)
{
    for (const struct json *v = json_first(json_get(root, "files")); v; v = json_next(v)) {
        const char *name, *mode;
        TRY_PREFIX(json_get_string(v, "path", &name), "%s: the Hub's response", s->repo.name);
        TRY_PREFIX(json_get_string(v, "uploadMode", &mode), "%s: the Hub's response", s->repo.name);
        struct pushed_file *f = find_file(s, name);
        const struct json *oid = json_get(v, "oid");
        if (!f || (strcmp(mode, "lfs") && strcmp(mode, "regular")))
            FAIL(DATA, "%s: the Hub's response has an unknown file or upload mode: %.80s, %.20s",
                 s->repo.name, name, mode);
        f->is_lfs = !strcmp(mode, "lfs") && f->size; /* storage rejects empty objects */
        f->is_skipped = json_true(json_get(v, "shouldIgnore")) ||
                        json_string_is(oid, f->is_lfs ? f->sha256 : f->git_sha1);
        if (!f->is_lfs && !f->is_skipped && f->size > MAX_REGULAR_BYTES)
            FAIL(DATA, "%s: the Hub requires %s (%llu bytes) within the commit instead of LFS",
                 s->repo.name, f->name, (unsigned long long)f->size);
    }
    return STATUS_OK;
}

static enum status request_modes(struct push_session *s, size_t begin, size_t end)
{
    struct text json = {0}, sample = {0};
    struct json_writer w = {.text = &json};
    struct json *root = NULL;
    enum status st = STATUS_OK;
    json_begin_object(&w, NULL, JSON_COMPACT);
    json_begin_array(&w, "files", JSON_COMPACT);
    for (size_t i = begin; i < end; i++) {
        TRY_OUT(read_sample(&s->files[i], &sample));
        json_begin_object(&w, NULL, JSON_COMPACT);
        json_write_string(&w, "path", s->files[i].name);
        json_write_int(&w, "size", (int64_t)s->files[i].size);
        json_write_string(&w, "sample", sample.data);
        json_end_object(&w);
    }
    json_end_array(&w);
    json_end_object(&w);
    TRY_OUT(post(s, "preupload", "application/json", &json, &root));
    TRY_OUT(read_modes(s, root));
out:
    json_free(root);
    text_release(&json);
    text_release(&sample);
    return st;
}

static enum status upload_large_files(struct push_session *s)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct pushed_file *p = &s->files[i];
        struct text what = {0};
        bool uploaded;
        if (!p->is_lfs || p->is_skipped) continue;
        text_addf(&what, "%s: %s", s->repo.name, p->name);
        struct lfs_file f = {.path = p->path, .what = what.data, .size = p->size};
        memcpy(f.sha256, p->sha256, sizeof f.sha256);
        enum status st = lfs_upload(&s->client, &s->repo, &f, &uploaded);
        if (!st)
            log_line(LOG_INFO, "%s: %s, %.1f MB", what.data,
                     uploaded ? "uploaded" : "already on the Hub", (double)p->size / 1e6);
        text_release(&what);
        TRY(st);
    }
    return STATUS_OK;
}

/* A line of the commit. */
static enum status write_file(const struct pushed_file *f, struct text *lines)
{
    struct json_writer w = {.text = lines};
    struct text content = {0}, base64 = {0};
    enum status st = STATUS_OK;
    json_begin_object(&w, NULL, JSON_COMPACT);
    json_write_string(&w, "key", f->is_lfs ? "lfsFile" : "file");
    json_begin_object(&w, "value", JSON_COMPACT);
    json_write_string(&w, "path", f->name);
    if (f->is_lfs) {
        json_write_string(&w, "algo", "sha256");
        json_write_string(&w, "oid", f->sha256);
        json_write_int(&w, "size", (int64_t)f->size);
    } else {
        TRY_OUT(file_read(f->path, MAX_REGULAR_BYTES, &content));
        text_adds(&base64, "");
        add_base64(&base64, (const unsigned char *)content.data, content.len);
        json_write_string(&w, "encoding", "base64");
        json_write_string(&w, "content", base64.data);
    }
    json_end_object(&w);
    json_end_object(&w);
    text_adds(lines, "\n");
out:
    text_release(&content);
    text_release(&base64);
    return st;
}

static enum status commit(struct push_session *s, struct text *url)
{
    struct text lines = {0};
    struct json_writer w = {.text = &lines};
    struct json *root = NULL;
    const char *address;
    size_t changed = 0;
    enum status st = STATUS_OK;
    json_begin_object(&w, NULL, JSON_COMPACT);
    json_write_string(&w, "key", "header");
    json_begin_object(&w, "value", JSON_COMPACT);
    json_write_string(&w, "summary", s->push->message);
    json_write_string(&w, "description", "");
    json_end_object(&w);
    json_end_object(&w);
    text_adds(&lines, "\n");
    for (size_t i = 0; i < s->count; i++) {
        if (s->files[i].is_skipped) continue;
        TRY_OUT(write_file(&s->files[i], &lines));
        changed++;
    }
    text_clear(url);
    if (!changed) {
        log_line(LOG_INFO, "%s has all %zu files already", s->repo.name, s->count);
        text_addf(url, "%s/%s/tree/%s", s->push->settings->endpoint, s->repo.repo,
                  s->repo.revision);
        goto out;
    }
    TRY_OUT(post(s, "commit", "application/x-ndjson", &lines, &root));
    TRY_PREFIX_OUT(json_get_string(root, "commitUrl", &address), "%s: the Hub's response",
                   s->repo.name);
    text_adds(url, address);
    for (char *at = url->data; *at; at++)
        if (*at <= ' ' || *at > '~') *at = '?';
    log_line(LOG_INFO, "%s: committed %zu of %zu files", s->repo.name, changed, s->count);
out:
    json_free(root);
    text_release(&lines);
    return st;
}

/* ORG/NAME: one slash, and no URL. */
static bool looks_like_repository(const char *target)
{
    const char *slash = strchr(target, '/');
    return slash && slash != target && slash[1] && !strchr(slash + 1, '/') && *target != '.';
}

static enum status check_target(const struct push *p, struct hub_path *repo)
{
    if (strncmp(p->target, "hf://", 5))
        FAIL(CONFIG, "%s: expected hf://ORG/NAME[@BRANCH]%s%s%s", p->target,
             looks_like_repository(p->target) ? "; did you mean hf://" : "",
             looks_like_repository(p->target) ? p->target : "",
             looks_like_repository(p->target) ? "?" : "");
    if (hub_path_parse(repo, p->target) || repo->is_dataset || repo->path[0])
        FAIL(CONFIG, "%s: expected hf://ORG/NAME[@BRANCH], a repository of models", p->target);
    if (p->settings->offline) FAIL(CONFIG, "%s: HF_HUB_OFFLINE forbids requests", p->target);
    if (!p->settings->token[0])
        FAIL(CONFIG,
             "%s: a token with write access is required: set HF_TOKEN or create "
             "$HF_HOME/token",
             p->target);
    return STATUS_OK;
}

enum status push_check(const struct push *p)
{
    struct hub_path repo = {0};
    enum status st = check_target(p, &repo);
    hub_path_release(&repo);
    return st;
}

enum status push_run(const struct push *p, struct text *url)
{
    struct push_session s = {.push = p};
    enum status st = STATUS_OK;
    TRY_OUT(check_target(p, &s.repo));
    TRY_OUT(client_open(&s.client, p->settings));
    TRY_OUT(find_files(&s));
    if (p->creates) TRY_OUT(create_repository(&s));
    for (size_t i = 0; i < s.count; i += BATCH) {
        st = request_modes(&s, i, s.count - i < BATCH ? s.count : i + BATCH);
        if (st == STATUS_MISSING)
            FAIL_OUT(MISSING,
                     "%s: no such repository or branch, or the token cannot see it; --create "
                     "creates a repository",
                     s.repo.name);
        if (st) goto out;
    }
    TRY_OUT(upload_large_files(&s));
    TRY_OUT(commit(&s, url));
out:
    for (size_t i = 0; i < s.count; i++) free(s.files[i].name), free(s.files[i].path);
    free(s.files);
    client_close(&s.client);
    hub_path_release(&s.repo);
    return st;
}
