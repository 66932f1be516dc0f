// SPDX-License-Identifier: Apache-2.0
#include "hub/s3_object.h"

#include "base/file.h"
#include "hub/s3_settings.h"
#include "hub/url.h"
#include "hub/xml.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PARTS = 10000, CHUNK_BYTES = 1 << 20, HASH_HEADER = 128 };

static void object_url(const struct client *c, const struct hub_path *bucket, const char *key,
                       struct text *url)
{
    text_clear(url);
    s3_settings_bucket_url(c->settings, bucket->repo, url);
    text_adds(url, "/");
    url_append_escaped(url, key, true);
}

/* An object's transfer: its URL, and its name for messages. */
struct s3_transfer {
    struct client *client;
    struct text url, what;
};

static struct s3_transfer begin(struct client *c, const struct hub_path *bucket, const char *key)
{
    struct s3_transfer t = {.client = c};
    object_url(c, bucket, key, &t.url);
    text_addf(&t.what, "s3://%s/%s", bucket->repo, key);
    return t;
}

static void end(struct s3_transfer *t)
{
    text_release(&t->url);
    text_release(&t->what);
}

enum status s3_object_read(struct client *c, const struct hub_path *bucket, const char *key,
                           struct text *out)
{
    struct text_sink sink = client_text_sink();
    struct s3_transfer t = begin(c, bucket, key);
    enum status st = client_get(c, t.url.data, t.what.data, &sink.sink, NULL);
    text_clear(out);
    if (!st) text_add(out, sink.text.data ? sink.text.data : "", sink.text.len);
    text_release(&sink.text);
    end(&t);
    return st;
}

enum status s3_object_delete(struct client *c, const struct hub_path *bucket, const char *key)
{
    struct http_response a;
    struct s3_transfer t = begin(c, bucket, key);
    const struct client_request q = {.method = "DELETE", .url = t.url.data, .what = t.what.data};
    enum status st = client_send(c, &q, &a);
    end(&t);
    return st;
}

/* A file being downloaded. */
struct file_sink {
    struct sink sink; /* first */
    int fd;
    const char *path;
    uint64_t size; /* expected */
};

static enum status restart_file(struct sink *s)
{
    const struct file_sink *f = (struct file_sink *)s;
    if (ftruncate(f->fd, 0)) FAIL(IO, "%s: %s", f->path, strerror(errno));
    s->have = 0;
    return STATUS_OK;
}

static enum status append_file(struct sink *s, const void *bytes, size_t len)
{
    const struct file_sink *f = (struct file_sink *)s;
    if (len > f->size - s->have)
        FAIL(DATA, "%s: got more than the expected %llu bytes", f->path,
             (unsigned long long)f->size);
    TRY(file_write_at(f->fd, f->path, bytes, len, s->have));
    s->have += len;
    return STATUS_OK;
}

enum status s3_object_download(struct client *c, const struct s3_file *f, const struct hub_file *o)
{
    struct file_sink sink = {
        .sink = {.restart = restart_file, .append = append_file}, .path = f->path, .size = o->size};
    struct s3_transfer t = begin(c, f->bucket, f->key);
    struct text match = {0};
    struct http_response a;
    enum status st = STATUS_OK;
    text_addf(&match, "If-Match: %s", o->etag);
    const char *headers[] = {match.data, NULL};
    sink.fd = open(f->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (sink.fd < 0) FAIL_OUT(IO, "%s: %s", f->path, strerror(errno));
    const struct client_request q = {
        .url = t.url.data, .what = t.what.data, .headers = headers, .sink = &sink.sink};
    TRY_OUT(client_send(c, &q, &a));
    if (sink.sink.have != o->size)
        FAIL_OUT(DATA, "%s: got %llu of %llu bytes", t.what.data,
                 (unsigned long long)sink.sink.have, (unsigned long long)o->size);
    if (fsync(sink.fd)) FAIL_OUT(IO, "%s: fsync: %s", f->path, strerror(errno));
out:
    if (sink.fd >= 0) close(sink.fd);
    text_release(&match);
    end(&t);
    return st;
}

/* "x-amz-content-sha256: ..." of a body. */
static enum status hash_body(const struct http_body *b, char header[HASH_HEADER])
{
    struct digest d;
    char hex[DIGEST_HEX];
    enum status st = STATUS_OK;
    unsigned char *chunk = b->bytes ? NULL : heap(CHUNK_BYTES);
    digest_init(&d, DIGEST_SHA256);
    if (b->bytes) digest_add(&d, b->bytes, b->size);
    for (uint64_t at = 0; chunk && at < b->size && !st;) {
        size_t n = b->size - at < CHUNK_BYTES ? (size_t)(b->size - at) : CHUNK_BYTES;
        st = file_read_at(b->fd, b->path, chunk, n, b->begin + at);
        if (!st) digest_add(&d, chunk, n);
        at += n;
    }
    digest_hex(&d, hex);
    snprintf(header, HASH_HEADER, "x-amz-content-sha256: %s", hex);
    free(chunk);
    return st;
}

/* A request with a body to the object's URL. */
struct object_request {
    const char *method, *query; /* query "": none */
    struct http_body body;
    struct sink *answer; /* NULL: discarded */
};

static enum status send_body(const struct s3_transfer *t, const struct object_request *r,
                             struct http_response *a)
{
    char hash[HASH_HEADER];
    struct text url = {0};
    enum status st = hash_body(&r->body, hash);
    const char *headers[] = {hash, "Content-Type: application/octet-stream", NULL};
    text_addf(&url, "%s%s%s", t->url.data, r->query[0] ? "?" : "", r->query);
    const struct client_request q = {.method = r->method,
                                     .url = url.data,
                                     .what = t->what.data,
                                     .headers = headers,
                                     .body = r->body,
                                     .sink = r->answer};
    if (!st) st = client_send(t->client, &q, a);
    text_release(&url);
    return st;
}

/* Reads one element of an XML answer.  An answer of status 200 may still hold an <Error>. */
static enum status read_answer(const struct s3_transfer *t, const struct text_sink *answer,
                               const char *path, struct text *out)
{
    struct xml x;
    struct text code = {0}, message = {0};
    enum status st = STATUS_OK;
    xml_init(&x, answer->text.data ? answer->text.data : "", answer->text.len, t->what.data);
    text_clear(out);
    do {
        TRY_OUT(xml_next(&x));
        xml_copy_leaf(&x, path, out);
        xml_copy_leaf(&x, "/Error/Code", &code);
        xml_copy_leaf(&x, "/Error/Message", &message);
    } while (x.event != XML_EOF);
    if (code.len)
        FAIL_OUT(IO, "%s: %.60s: %.200s", t->what.data, code.data, message.len ? message.data : "");
    if (!out->len) FAIL_OUT(DATA, "%s: the response has no %s", t->what.data, path);
out:
    xml_release(&x);
    text_release(&code);
    text_release(&message);
    return st;
}

/* Uploads the parts and lists them for the completing request. */
static enum status send_parts(const struct s3_transfer *t, const char *id,
                              const struct http_body *b, uint64_t part_bytes, struct text *xml)
{
    struct text query = {0};
    enum status st = STATUS_OK;
    for (uint64_t at = 0, number = 1; at < b->size; at += part_bytes, number++) {
        struct object_request part = {.method = "PUT", .body = *b};
        struct http_response a;
        part.body.begin = at;
        part.body.size = b->size - at < part_bytes ? b->size - at : part_bytes;
        text_clear(&query);
        text_addf(&query, "partNumber=%llu&uploadId=%s", (unsigned long long)number, id);
        part.query = query.data;
        TRY_OUT(send_body(t, &part, &a));
        if (!listing_is_etag(a.etag))
            FAIL_OUT(DATA, "%s: the response to a part has no ETag", t->what.data);
        text_addf(xml, "<Part><PartNumber>%llu</PartNumber><ETag>", (unsigned long long)number);
        xml_escape(xml, a.etag);
        text_adds(xml, "</ETag></Part>");
    }
out:
    text_release(&query);
    return st;
}

/* Best effort, even when the transfer was canceled. */
static void abort_upload(const struct s3_transfer *t, const char *id)
{
    static const atomic_bool never = false;
    struct hub_settings settings = *t->client->settings;
    struct client c = *t->client;
    struct failure first = {0};
    struct http_response a;
    struct text url = {0};
    status_save(&first, STATUS_IO); /* keeps the caller's message */
    text_addf(&url, "%s?uploadId=%s", t->url.data, id);
    settings.once = true; /* the run may be about to end: a bucket's lifecycle rules do the rest */
    c.settings = &settings;
    c.cancel = &never;
    client_send(&c,
                &(struct client_request){.method = "DELETE", .url = url.data, .what = t->what.data},
                &a);
    text_release(&url);
    status_restore(&first);
}

static enum status upload_parts(const struct s3_transfer *t, const struct http_body *b,
                                uint64_t part_bytes)
{
    struct text_sink answer = client_text_sink();
    struct text id = {0}, escaped = {0}, xml = {0}, query = {0};
    struct http_response a;
    enum status st = STATUS_OK;
    struct object_request r = {
        .method = "POST", .query = "uploads=", .body = {.bytes = ""}, .answer = &answer.sink};
    TRY_OUT(send_body(t, &r, &a));
    TRY_OUT(read_answer(t, &answer, "/InitiateMultipartUploadResult/UploadId", &id));
    url_append_escaped(&escaped, id.data, false);
    text_adds(&xml, "<CompleteMultipartUpload>");
    st = send_parts(t, escaped.data, b, part_bytes, &xml);
    text_adds(&xml, "</CompleteMultipartUpload>");
    text_addf(&query, "uploadId=%s", escaped.data);
    answer.sink.restart(&answer.sink);
    r.query = query.data;
    r.body = (struct http_body){.bytes = xml.data, .size = xml.len};
    if (!st) st = send_body(t, &r, &a);
    if (!st) st = read_answer(t, &answer, "/CompleteMultipartUploadResult/ETag", &id);
    if (st) abort_upload(t, escaped.data);
out:
    text_release(&answer.text);
    text_release(&id);
    text_release(&escaped);
    text_release(&xml);
    text_release(&query);
    return st;
}

enum status s3_object_upload(struct client *c, const struct s3_file *f, uint64_t part_bytes)
{
    struct s3_transfer t = begin(c, f->bucket, f->key);
    struct object_request r = {.method = "PUT", .query = "", .body = {.path = f->path, .fd = -1}};
    struct http_body *body = &r.body;
    struct http_response a;
    enum status st = STATUS_OK;
    TRY_OUT(file_size(f->path, &body->size));
    body->fd = open(f->path, O_RDONLY | O_CLOEXEC);
    if (body->fd < 0) FAIL_OUT(IO, "%s: %s", f->path, strerror(errno));
    uint64_t least = (body->size / MAX_PARTS + (1 << 20)) >> 20 << 20;
    if (!part_bytes) part_bytes = least > S3_PART_BYTES ? least : S3_PART_BYTES;
    st = body->size > part_bytes ? upload_parts(&t, body, part_bytes) : send_body(&t, &r, &a);
out:
    if (body->fd >= 0) close(body->fd);
    end(&t);
    return st;
}
