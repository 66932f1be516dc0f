// SPDX-License-Identifier: Apache-2.0
#include "hub/s3_server.h"
#include "hub/server.h"
#include "test.h"

#include "hub/xml.h"

#include <unistd.h>

enum { HASH = 32, BLOCK = 64 };

struct s3_request {
    struct server_request http;
    char path[1024], query[2048], key[256];
};

/* --- SigV4, from AWS's description of it, with its own HMAC --- */

static void hash_hex(const void *bytes, size_t len, char hex[DIGEST_HEX])
{
    struct digest d;
    digest_init(&d, DIGEST_SHA256);
    digest_add(&d, bytes, len);
    digest_hex(&d, hex);
}

static void unhex(const char *hex, unsigned char out[HASH])
{
    for (int i = 0; i < HASH; i++) {
        unsigned byte = 0;
        sscanf(hex + (size_t)i * 2, "%2x", &byte);
        out[i] = (unsigned char)byte;
    }
}

static void hmac(const void *key, size_t key_bytes, const char *text, unsigned char out[HASH])
{
    unsigned char pad[BLOCK] = {0}, inner[HASH];
    char hex[DIGEST_HEX];
    for (int side = 0; side < 2; side++) {
        struct digest d;
        memset(pad, 0, sizeof pad);
        memcpy(pad, key, key_bytes); /* keys here are shorter than a block */
        for (int i = 0; i < BLOCK; i++) pad[i] ^= side ? 0x5c : 0x36;
        digest_init(&d, DIGEST_SHA256);
        digest_add(&d, pad, sizeof pad);
        if (side)
            digest_add(&d, inner, sizeof inner);
        else
            digest_add(&d, text, strlen(text));
        digest_hex(&d, hex);
        unhex(hex, side ? out : inner);
    }
}

static int compare_words(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void add_sorted_query(struct text *t, const char *query)
{
    char copy[2048], *words[32], *next = NULL;
    size_t count = 0;
    snprintf(copy, sizeof copy, "%s", query);
    for (char *w = strtok_r(copy, "&", &next); w && count < 32; w = strtok_r(NULL, "&", &next))
        words[count++] = w;
    qsort(words, count, sizeof *words, compare_words);
    for (size_t i = 0; i < count; i++)
        text_addf(t, "%s%s%s", i ? "&" : "", words[i], strchr(words[i], '=') ? "" : "=");
}

static void add_canonical_headers(struct text *t, const struct s3_request *r, const char *names)
{
    char copy[1024], value[1024], *next = NULL;
    snprintf(copy, sizeof copy, "%s", names);
    for (char *w = strtok_r(copy, ";", &next); w; w = strtok_r(NULL, ";", &next)) {
        server_header(&r->http, w, value, sizeof value);
        text_addf(t, "%s:%s\n", w, value);
    }
}

static bool is_signed(struct s3_server *s, const struct s3_request *r)
{
    char auth[1024], hash[128], date[64], names[512] = "", scope[128] = "", have[80] = "";
    char hex[DIGEST_HEX], key[128], day[16], session[256];
    struct text canonical = {0}, string = {0};
    unsigned char k[HASH];
    server_header(&r->http, "Authorization", auth, sizeof auth);
    server_header(&r->http, "x-amz-content-sha256", hash, sizeof hash);
    server_header(&r->http, "x-amz-date", date, sizeof date);
    server_header(&r->http, "x-amz-security-token", session, sizeof session);
    if (!auth[0] && s->is_public) return true;
    if (sscanf(auth,
               "AWS4-HMAC-SHA256 Credential=%127[^,], SignedHeaders=%511[^,], "
               "Signature=%79s",
               scope, names, have) != 3)
        return false;
    char *slash = strchr(scope, '/');
    if (!slash || strlen(date) != 16) return false;
    *slash++ = 0;
    bool is_next = s->next_session && !strcmp(session, s->next_session);
    s->num_next += is_next;
    if (!is_next && strcmp(session, s->session ? s->session : "")) return false;
    if (strcmp(scope, S3_KEY_ID)) return false;
    if (!strstr(names, "host") || !strstr(names, "x-amz-content-sha256") ||
        !strstr(names, "x-amz-date") || (s->session && !strstr(names, "x-amz-security-token")))
        return false;
    hash_hex(r->http.body.len ? r->http.body.data : "", r->http.body.len, hex);
    if (strcmp(hash, hex)) return false;
    text_addf(&canonical, "%s\n%s\n", r->http.method, r->path);
    add_sorted_query(&canonical, r->query);
    text_adds(&canonical, "\n");
    add_canonical_headers(&canonical, r, names);
    text_addf(&canonical, "\n%s\n%s", names, hash);
    hash_hex(canonical.data, canonical.len, hex);
    text_addf(&string, "AWS4-HMAC-SHA256\n%s\n%s\n%s", date, slash, hex);
    snprintf(day, sizeof day, "%.8s", date);
    snprintf(key, sizeof key, "AWS4%s", S3_SECRET);
    hmac(key, strlen(key), day, k);
    hmac(k, HASH, "us-east-1", k);
    hmac(k, HASH, "s3", k);
    hmac(k, HASH, "aws4_request", k);
    hmac(k, HASH, string.data, k);
    for (int i = 0; i < HASH; i++) snprintf(key + (size_t)i * 2, 3, "%02x", k[i]);
    bool is = !strcmp(key, have) && strstr(slash, "/us-east-1/s3/aws4_request");
    text_release(&canonical);
    text_release(&string);
    return is;
}

/* --- requests --- */

static void answer_error(int fd, int status, const char *code, const char *headers)
{
    struct text t = {0};
    text_addf(&t,
              "<?xml version=\"1.0\"?>\n<Error><Code>%s</Code><Message>because of %s &amp; "
              "so</Message></Error>",
              code, code);
    server_answer(fd, status, headers, t.data, t.len);
    text_release(&t);
}

static struct s3_object *find_object(struct s3_server *s, const char *key, bool is_upload)
{
    for (int i = 0; i < s->num_objects; i++)
        if (!strcmp(s->objects[i].key, key) && s->objects[i].is_upload == is_upload)
            return &s->objects[i];
    return NULL;
}

static void remove_object(struct s3_server *s, struct s3_object *o)
{
    text_release(&o->bytes);
    for (int i = 0; i < S3_PARTS; i++) text_release(&o->parts[i]);
    *o = s->objects[--s->num_objects];
    memset(&s->objects[s->num_objects], 0, sizeof *o);
}

static struct s3_object *add_object(struct s3_server *s, const char *key, bool is_upload)
{
    struct s3_object *o = find_object(s, key, is_upload);
    if (o) remove_object(s, o);
    CHECK(s->num_objects < S3_OBJECTS);
    o = &s->objects[s->num_objects++];
    o->is_upload = is_upload;
    snprintf(o->key, sizeof o->key, "%s", key);
    return o;
}

static void set_etag(struct s3_object *o)
{
    char hex[DIGEST_HEX];
    hash_hex(o->bytes.data, o->bytes.len, hex);
    snprintf(o->etag, sizeof o->etag, "\"%.32s\"", hex);
}

void s3_server_put(struct s3_server *s, const char *key, const void *bytes, size_t len)
{
    struct s3_object *o = add_object(s, key, false);
    text_add(&o->bytes, bytes, len);
    set_etag(o);
}

const struct text *s3_server_object(struct s3_server *s, const char *key)
{
    struct s3_object *o = find_object(s, key, false);
    return o ? &o->bytes : NULL;
}

int s3_server_num_uploads(const struct s3_server *s)
{
    int n = 0;
    for (int i = 0; i < s->num_objects; i++) n += s->objects[i].is_upload;
    return n;
}

static void unescape(const char *from, char *to, size_t room)
{
    size_t n = 0;
    for (; *from && n + 1 < room; from++) {
        unsigned code;
        bool packed = *from == '%' && sscanf(from + 1, "%2x", &code) == 1;
        to[n++] = packed ? (char)code : *from;
        if (packed) from += 2;
    }
    to[n] = 0;
}

/* A parameter of the query, unescaped; false: absent. */
static bool parameter(const struct s3_request *r, const char *name, char *out, size_t room)
{
    char word[1024];
    size_t n = strlen(name);
    out[0] = 0;
    for (const char *at = r->query; *at;) {
        size_t len = strcspn(at, "&");
        if (!strncmp(at, name, n) && at[n] == '=') {
            snprintf(word, sizeof word, "%.*s", (int)(len - n - 1), at + n + 1);
            unescape(word, out, room);
            return true;
        }
        at += len + (at[len] == '&');
    }
    return false;
}

static int compare_objects(const void *a, const void *b)
{
    return strcmp(((const struct s3_object *)a)->key, ((const struct s3_object *)b)->key);
}

static void send_list(struct s3_server *s, int fd, const struct s3_request *r)
{
    char prefix[256], delimiter[8], token[64], folder[256], last[256] = "";
    struct text t = {0};
    int skip = 0, seen = 0, listed = 0;
    parameter(r, "prefix", prefix, sizeof prefix);
    parameter(r, "delimiter", delimiter, sizeof delimiter);
    if (parameter(r, "continuation-token", token, sizeof token)) skip = atoi(token + 6);
    qsort(s->objects, (size_t)s->num_objects, sizeof *s->objects, compare_objects);
    text_adds(&t, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult "
                  "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>bucket</Name>");
    for (int i = 0; i < s->num_objects; i++) {
        const struct s3_object *o = &s->objects[i];
        if (o->is_upload || strncmp(o->key, prefix, strlen(prefix))) continue;
        const char *slash = delimiter[0] ? strchr(o->key + strlen(prefix), '/') : NULL;
        if (slash) {
            snprintf(folder, sizeof folder, "%.*s", (int)(slash + 1 - o->key), o->key);
            if (!strcmp(folder, last)) continue;
            snprintf(last, sizeof last, "%s", folder);
        }
        if (seen++ < skip) continue;
        if (s->page && listed == s->page) {
            text_addf(&t,
                      "<IsTruncated>true</IsTruncated><NextContinuationToken>token/%d"
                      "</NextContinuationToken>",
                      skip + listed);
            break;
        }
        listed++;
        text_adds(&t, slash ? "<CommonPrefixes><Prefix>" : "<Contents><Key>");
        xml_escape(&t, slash ? folder : o->key);
        if (slash) {
            text_adds(&t, "</Prefix></CommonPrefixes>");
            continue;
        }
        text_adds(&t, "</Key><ETag>");
        xml_escape(&t, o->etag);
        text_addf(&t, "</ETag><Size>%zu</Size></Contents>", o->bytes.len);
    }
    text_adds(&t, "</ListBucketResult>");
    server_answer(fd, 200, "Content-Type: application/xml\r\n", t.data, t.len);
    text_release(&t);
}

static void send_object(struct s3_server *s, int fd, const struct s3_request *r,
                        enum s3_fault fault)
{
    const struct s3_object *o = find_object(s, r->key, false);
    char range[64], match[128];
    struct text head = {0};
    if (!o) {
        answer_error(fd, 404, "NoSuchKey", "");
        return;
    }
    server_header(&r->http, "Range", range, sizeof range);
    server_header(&r->http, "If-Match", match, sizeof match);
    if (match[0] && strcmp(match, o->etag)) {
        answer_error(fd, 412, "PreconditionFailed", "");
        return;
    }
    size_t from = range[0] ? strtoul(range + 6, NULL, 10) : 0, len = o->bytes.len - from;
    text_addf(&head, "HTTP/1.1 %d X\r\nConnection: close\r\nETag: %s\r\nContent-Length: %zu\r\n",
              from ? 206 : 200, o->etag, len);
    if (from)
        text_addf(&head, "Content-Range: bytes %zu-%zu/%zu\r\n", from, o->bytes.len - 1,
                  o->bytes.len);
    text_adds(&head, "\r\n");
    server_send(fd, head.data, head.len);
    server_send(fd, o->bytes.data + from, fault == S3_FAULT_DISCONNECT ? len / 2 : len);
    text_release(&head);
}

static void receive_object(struct s3_server *s, int fd, const struct s3_request *r)
{
    char number[16], id[64], etag[80], hex[DIGEST_HEX];
    bool is_part = parameter(r, "partNumber", number, sizeof number);
    struct s3_object *o = find_object(s, r->key, is_part);
    int i = is_part ? atoi(number) - 1 : 0;
    parameter(r, "uploadId", id, sizeof id);
    if (is_part && (!o || strcmp(id, "id&1") || i < 0 || i >= S3_PARTS)) {
        answer_error(fd, 404, "NoSuchUpload", "");
        return;
    }
    if (!is_part) {
        s3_server_put(s, r->key, r->http.body.data, r->http.body.len);
        o = find_object(s, r->key, false);
        snprintf(etag, sizeof etag, "ETag: %s\r\n", o->etag);
    } else {
        text_clear(&o->parts[i]);
        text_add(&o->parts[i], r->http.body.data, r->http.body.len);
        hash_hex(r->http.body.data, r->http.body.len, hex);
        snprintf(etag, sizeof etag, "ETag: \"%.32s\"\r\n", hex);
    }
    server_answer(fd, 200, etag, "", 0);
}

static void complete_upload(struct s3_server *s, int fd, const struct s3_request *r)
{
    struct s3_object *o = find_object(s, r->key, true);
    struct text want = {0}, whole = {0};
    if (!o) {
        answer_error(fd, 404, "NoSuchUpload", "");
        return;
    }
    text_adds(&want, "<CompleteMultipartUpload>");
    for (int i = 0; i < S3_PARTS && o->parts[i].len; i++) {
        char hex[DIGEST_HEX];
        hash_hex(o->parts[i].data, o->parts[i].len, hex);
        text_addf(&want, "<Part><PartNumber>%d</PartNumber><ETag>&quot;%.32s&quot;</ETag></Part>",
                  i + 1, hex);
        text_add(&whole, o->parts[i].data, o->parts[i].len);
    }
    text_adds(&want, "</CompleteMultipartUpload>");
    bool same = want.len == r->http.body.len && !memcmp(want.data, r->http.body.data, want.len);
    if (same) {
        remove_object(s, o);
        s3_server_put(s, r->key, whole.data, whole.len);
        const char *text = "<CompleteMultipartUploadResult><ETag>&quot;x-2&quot;</ETag>"
                           "</CompleteMultipartUploadResult>";
        server_answer(fd, 200, "", text, strlen(text));
    } else {
        answer_error(fd, 400, "InvalidPart", "");
    }
    text_release(&want);
    text_release(&whole);
}

static void post_object(struct s3_server *s, int fd, const struct s3_request *r)
{
    char word[64];
    if (!parameter(r, "uploads", word, sizeof word)) {
        complete_upload(s, fd, r);
        return;
    }
    const char *text = "<InitiateMultipartUploadResult><Bucket>bucket</Bucket>"
                       "<UploadId>id&amp;1</UploadId></InitiateMultipartUploadResult>";
    add_object(s, r->key, true);
    server_answer(fd, 200, "", text, strlen(text));
}

static void delete_object(struct s3_server *s, int fd, const struct s3_request *r)
{
    char id[64];
    bool is_abort = parameter(r, "uploadId", id, sizeof id);
    struct s3_object *o = find_object(s, r->key, is_abort);
    if (o) remove_object(s, o);
    if (is_abort) s->num_aborted++;
    server_answer(fd, 204, "", "", 0);
}

/* Sends the response of a fault that does not depend on the request; false: it does. */
static bool send_fault(int fd, enum s3_fault fault)
{
    switch (fault) {
    case S3_FAULT_SLOW_DOWN: answer_error(fd, 503, "SlowDown", ""); return true;
    case S3_FAULT_DROP: return true;
    case S3_FAULT_DENIED: answer_error(fd, 403, "AccessDenied", ""); return true;
    case S3_FAULT_EXPIRED: answer_error(fd, 400, "ExpiredToken", ""); return true;
    case S3_FAULT_OTHER:
        answer_error(fd, 301, "PermanentRedirect", "x-amz-bucket-region: eu-north-1\r\n");
        return true;
    case S3_FAULT_IN_BODY: answer_error(fd, 200, "InternalError", ""); return true;
    case S3_FAULT_MALFORMED: server_answer(fd, 200, "", "<ListBucketResult><Key>", 23); return true;
    default: return false;
    }
}

static void handle(struct s3_server *s, int fd, struct s3_request *r, enum s3_kind kind,
                   enum s3_fault fault)
{
    if (fault == S3_FAULT_CORRUPT && r->http.body.len) r->http.body.data[0] ^= 1;
    if (fault == S3_FAULT_EXPIRED) s->session = s->next_session;
    if (send_fault(fd, fault)) return;
    if (!is_signed(s, r)) {
        s->num_bad_signatures++;
        answer_error(fd, 403, "SignatureDoesNotMatch", "");
    } else if (strncmp(r->path, "/bucket/", 8)) {
        answer_error(fd, 404, "NoSuchBucket", "");
    } else if (kind == S3_LIST) {
        send_list(s, fd, r);
    } else if (kind == S3_GET) {
        send_object(s, fd, r, fault);
    } else if (kind == S3_POST) {
        post_object(s, fd, r);
    } else if (!strcmp(r->http.method, "PUT")) {
        receive_object(s, fd, r);
    } else {
        delete_object(s, fd, r);
    }
}

static void serve(void *context, int fd)
{
    struct s3_server *s = context;
    struct s3_request *r = heap(sizeof *r);
    char range[64];
    *r = (struct s3_request){0};
    bool cut = s->counts[S3_PUT] < S3_FAULTS &&
               s->faults[S3_PUT][s->counts[S3_PUT]] == S3_FAULT_DISCONNECT;
    bool whole = server_receive(&r->http, fd, cut);
    size_t n = strcspn(r->http.target, "?");
    snprintf(r->path, sizeof r->path, "%.*s", (int)n, r->http.target);
    snprintf(r->query, sizeof r->query, "%s", r->http.target[n] ? r->http.target + n + 1 : "");
    if (strlen(r->path) > 8) unescape(r->path + 8, r->key, sizeof r->key);
    bool get = !strcmp(r->http.method, "GET");
    enum s3_kind kind = get && !r->key[0]                 ? S3_LIST
                        : get                             ? S3_GET
                        : !strcmp(r->http.method, "POST") ? S3_POST
                                                          : S3_PUT;
    bool counts = kind != S3_PUT || !strcmp(r->http.method, "PUT");
    int number = counts ? atomic_fetch_add(&s->counts[kind], 1) : S3_FAULTS;
    enum s3_fault fault = number < S3_FAULTS ? s->faults[kind][number] : S3_FAULT_NONE;
    pthread_mutex_lock(&s->lock);
    s->num_requests++;
    server_header(&r->http, "Range", range, sizeof range);
    text_addf(&s->log, "%s %s %s\n", r->http.method, r->http.target, range);
    if (whole) handle(s, fd, r, kind, fault);
    pthread_mutex_unlock(&s->lock);
    text_release(&r->http.body);
    free(r);
}

static void *serve_connections(void *context)
{
    struct s3_server *s = context;
    server_loop(s->listening, s->stop[0], serve, s);
    return NULL;
}

void s3_server_start(struct s3_server *s)
{
    setenv("no_proxy", "*", 1);
    pthread_mutex_init(&s->lock, NULL);
    s->listening = server_listen(s->endpoint, sizeof s->endpoint);
    CHECK(s->listening >= 0 && pipe(s->stop) == 0);
    CHECK(pthread_create(&s->thread, NULL, serve_connections, s) == 0);
}

void s3_server_stop(struct s3_server *s)
{
    CHECK(write(s->stop[1], "x", 1) == 1);
    pthread_join(s->thread, NULL);
    close(s->listening), close(s->stop[0]), close(s->stop[1]);
}

void s3_server_release(struct s3_server *s)
{
    while (s->num_objects) remove_object(s, &s->objects[0]);
    pthread_mutex_destroy(&s->lock);
    text_release(&s->log);
}

static void count_wait(void *context, double seconds) { *(double *)context += seconds; }

struct hub_settings s3_server_settings(const struct s3_server *s, double *waited)
{
    *waited = 0;
    return (struct hub_settings){
        .is_s3 = true,
        .endpoint = heap_strdup(s->endpoint),
        .cache = heap_strdup(test_folder()),
        .token = heap_strdup(""),
        .token_from = "AWS_ACCESS_KEY_ID",
        .signer = {.key_id = s->is_public ? NULL : heap_strdup(S3_KEY_ID),
                   .secret = s->is_public ? NULL : heap_strdup(S3_SECRET),
                   .session_token = heap_strdup(s->session ? s->session : ""),
                   .region = heap_strdup("us-east-1")},
        .wait = count_wait,
        .context = waited};
}
