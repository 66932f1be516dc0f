// SPDX-License-Identifier: Apache-2.0
#include "hub/lfs.h"

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "hub/url.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PARTS = 10000, MAX_HEADERS = 16, MAX_TRIES = 2 };

#define LFS_TYPE "application/vnd.git-lfs+json"

/* An upload in progress. */
struct lfs_transfer {
    struct client *client;
    const struct lfs_file *file;
    int fd;
};

static struct client_request json_request(const struct lfs_file *f, const char *url,
                                          const struct text *json)
{
    static const char *const headers[] = {"Accept: " LFS_TYPE, "Content-Type: " LFS_TYPE, NULL};
    return (struct client_request){.method = "POST",
                                   .url = url,
                                   .what = f->what,
                                   .headers = headers,
                                   .body = {.bytes = json->data, .size = json->len}};
}

/* PUTs a part of the file to a URL that the Hub has signed. */
static enum status put_part(const struct lfs_transfer *t, const char *url,
                            const char *const *headers, const struct http_body *part,
                            struct http_response *a)
{
    const struct client_request q = {.method = "PUT",
                                     .url = url,
                                     .what = t->file->what,
                                     .headers = headers,
                                     .body = *part,
                                     .has_signed_url = true};
    TRY(client_send(t->client, &q, a));
    return STATUS_OK;
}

static bool is_header_text(const char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~') return false;
    return true;
}

/* A whole file, with the headers that the Hub requires. */
static enum status upload_basic(const struct lfs_transfer *t, const struct json *action,
                                const char *url)
{
    const char *headers[MAX_HEADERS + 1] = {0};
    char *owned[MAX_HEADERS] = {0};
    size_t count = 0;
    struct http_response a;
    const struct http_body body = {.fd = t->fd, .path = t->file->path, .size = t->file->size};
    enum status st = STATUS_OK;
    for (const struct json *h = json_first(json_get(action, "header")); h; h = json_next(h)) {
        struct text line = {0};
        bool valid = json_is_string(h) && is_header_text(json_string(h)) &&
                     is_header_text(json_key(h)) && count < MAX_HEADERS;
        if (!valid)
            FAIL_OUT(DATA, "%s: the Hub's response requires invalid headers", t->file->what);
        text_addf(&line, "%s: %s", json_key(h), json_string(h));
        headers[count] = owned[count] = line.data;
        count++;
    }
    st = put_part(t, url, headers, &body, &a);
out:
    for (size_t i = 0; i < count; i++) free(owned[i]);
    return st;
}

/* The URL of part `number`: the member of "header" whose name is that number. */
static const char *part_url(const struct json *header, uint64_t number)
{
    for (const struct json *h = json_first(header); h; h = json_next(h)) {
        char *end;
        if (json_is_string(h) && strtoull(json_key(h), &end, 10) == number && !*end &&
            end != json_key(h))
            return json_string(h);
    }
    return NULL;
}

static enum status read_chunk_size(const struct json *header, const char *what, uint64_t *bytes)
{
    const struct json *v = json_get(header, "chunk_size");
    int64_t n = 0;
    char *end;
    if (json_is_string(v)) {
        n = strtoll(json_string(v), &end, 10);
        if (*end) n = 0;
    } else {
        json_as_int(v, 1, INT64_C(1) << 40, &n);
    }
    if (n <= 0) FAIL(DATA, "%s: the Hub's chunk_size is invalid", what);
    *bytes = (uint64_t)n;
    return STATUS_OK;
}

static enum status upload_parts(const struct lfs_transfer *t, const struct json *action,
                                const char *url)
{
    const struct json *header = json_get(action, "header");
    const struct lfs_file *f = t->file;
    struct text json = {0};
    struct json_writer w = {.text = &json};
    struct http_response a;
    uint64_t chunk, number = 1;
    enum status st = STATUS_OK;
    TRY(read_chunk_size(header, f->what, &chunk));
    if (f->size / chunk >= MAX_PARTS) FAIL(DATA, "%s: the Hub requires too many parts", f->what);
    json_begin_object(&w, NULL, JSON_COMPACT);
    json_write_string(&w, "oid", f->sha256);
    json_begin_array(&w, "parts", JSON_COMPACT);
    for (uint64_t at = 0; at < f->size; at += chunk, number++) {
        struct http_body part = {.fd = t->fd, .path = f->path, .begin = at};
        const char *to = part_url(header, number);
        if (!to)
            FAIL_OUT(DATA, "%s: the Hub's response has no URL for part %llu", f->what,
                     (unsigned long long)number);
        part.size = f->size - at < chunk ? f->size - at : chunk;
        TRY_OUT(put_part(t, to, NULL, &part, &a));
        if (!a.etag[0]) FAIL_OUT(DATA, "%s: the response to a part has no ETag", f->what);
        json_begin_object(&w, NULL, JSON_COMPACT);
        json_write_int(&w, "partNumber", (int64_t)number);
        json_write_string(&w, "etag", a.etag);
        json_end_object(&w);
    }
    json_end_array(&w);
    json_end_object(&w);
    struct client_request q = json_request(f, url, &json);
    q.has_signed_url = true;
    TRY_OUT(client_send(t->client, &q, &a));
out:
    text_release(&json);
    return st;
}

static void write_id(const struct lfs_file *f, struct json_writer *w)
{
    json_begin_object(w, NULL, JSON_COMPACT);
    json_write_string(w, "oid", f->sha256);
    json_write_int(w, "size", (int64_t)f->size);
    json_end_object(w);
}

static void write_batch(const struct lfs_file *f, const struct hub_path *repo,
                        struct json_writer *w)
{
    static const char *const transfers[] = {"basic", "multipart"};
    json_begin_object(w, NULL, JSON_COMPACT);
    json_write_string(w, "operation", "upload");
    json_begin_array(w, "transfers", JSON_COMPACT);
    for (size_t i = 0; i < 2; i++) json_write_string(w, NULL, transfers[i]);
    json_end_array(w);
    json_write_string(w, "hash_algo", "sha256");
    json_begin_array(w, "objects", JSON_COMPACT);
    write_id(f, w);
    json_end_array(w);
    json_begin_object(w, "ref", JSON_COMPACT);
    json_write_string(w, "name", repo->revision);
    json_end_object(w);
    json_end_object(w);
}

/* Performs the actions of the one object of a batch response. */
static enum status perform(const struct lfs_transfer *t, const struct json *root, bool *uploaded)
{
    const struct lfs_file *f = t->file;
    const struct json *object = json_first(json_get(root, "objects"));
    const struct json *error = json_get(object, "error"), *actions = json_get(object, "actions");
    const struct json *upload = json_get(actions, "upload"), *verify = json_get(actions, "verify");
    const char *url, *reason = "unknown";
    struct text json = {0};
    if (!json_is_object(object) || !json_string_is(json_get(object, "oid"), f->sha256))
        FAIL(DATA, "%s: the Hub's LFS response does not list the file", f->what);
    if (json_is_object(error)) {
        if (json_is_string(json_get(error, "message")))
            reason = json_string(json_get(error, "message"));
        FAIL(IO, "%s: the Hub rejects the file: %.200s", f->what, reason);
    }
    *uploaded = json_is_object(upload);
    if (!*uploaded) return STATUS_OK;
    TRY_PREFIX(json_get_string(upload, "href", &url), "%s: the Hub's LFS response", f->what);
    /* As in huggingface_hub: "transfer" does not decide it. */
    bool multipart = json_get(json_get(upload, "header"), "chunk_size") != NULL;
    TRY(multipart ? upload_parts(t, upload, url) : upload_basic(t, upload, url));
    if (!json_is_object(verify)) return STATUS_OK;
    TRY_PREFIX(json_get_string(verify, "href", &url), "%s: the Hub's LFS response", f->what);
    write_id(f, &(struct json_writer){.text = &json});
    struct http_response a;
    struct client_request q = json_request(f, url, &json);
    static const char *const headers[] = {"Content-Type: application/json", NULL};
    q.headers = headers; /* verification is the Hub's own API */
    enum status st = client_send(t->client, &q, &a);
    text_release(&json);
    return st;
}

/* Asks for signed URLs, which expire, and uploads to them. */
static enum status upload_once(const struct lfs_transfer *t, const struct hub_path *repo,
                               bool *uploaded)
{
    struct text_sink answer = client_text_sink();
    struct text url = {0}, json = {0};
    struct json *root = NULL;
    enum status st = STATUS_OK;
    text_addf(&url, "%s/%s%s.git/info/lfs/objects/batch", t->client->settings->endpoint,
              repo->is_dataset ? "datasets/" : "", repo->repo);
    write_batch(t->file, repo, &(struct json_writer){.text = &json});
    struct http_response a;
    struct client_request q = json_request(t->file, url.data, &json);
    q.sink = &answer.sink;
    TRY_OUT(client_send(t->client, &q, &a));
    TRY_OUT(json_parse(answer.text.data ? answer.text.data : "", answer.text.len, url.data, &root));
    TRY_OUT(perform(t, root, uploaded));
out:
    json_free(root);
    text_release(&answer.text);
    text_release(&url);
    text_release(&json);
    return st;
}

enum status lfs_upload(struct client *c, const struct hub_path *repo, const struct lfs_file *f,
                       bool *uploaded)
{
    struct lfs_transfer t = {c, f, open(f->path, O_RDONLY | O_CLOEXEC)};
    enum status st = STATUS_OK;
    if (t.fd < 0) FAIL(IO, "%s: %s", f->path, strerror(errno));
    for (int tries = 1;; tries++) {
        st = upload_once(&t, repo, uploaded);
        if (st != STATUS_IO || tries == MAX_TRIES) break;
        log_line(LOG_WARN, "%s; trying again with new URLs", status_message());
    }
    close(t.fd);
    return st;
}
