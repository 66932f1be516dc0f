// SPDX-License-Identifier: Apache-2.0
#include "hub/push_server.h"
#include "hub/server.h"
#include "test.h"

#include "base/json.h"

#include <unistd.h>

static void answer_json(int fd, const struct text *t)
{
    server_answer(fd, 200, "Content-Type: application/json\r\n", t->data, t->len);
}

static struct push_object *find_object(struct push_server *s, const char *oid)
{
    for (int i = 0; i < s->num_objects; i++)
        if (!strcmp(s->objects[i].oid, oid)) return &s->objects[i];
    CHECK(s->num_objects < PUSH_FILES);
    struct push_object *o = &s->objects[s->num_objects++];
    snprintf(o->oid, sizeof o->oid, "%s", oid);
    return o;
}

/* Joins the parts and compares their hash with the object's name. */
static void complete(struct push_object *o)
{
    struct digest d;
    char hex[DIGEST_HEX];
    digest_init(&d, DIGEST_SHA256);
    for (int i = 0; i < PUSH_PARTS; i++) digest_add(&d, o->parts[i].data, o->parts[i].len);
    digest_hex(&d, hex);
    o->is_complete = !strcmp(hex, o->oid);
}

/* PUT /upload/OID/NUMBER. */
static void serve_cdn(void *context, int fd)
{
    struct push_server *s = context;
    struct server_request r = {0};
    char token[256], oid[65] = "", etag[32];
    int number = 0, count = s->num_puts;
    enum push_fault fault = count < PUSH_FAULTS ? s->puts[count] : PUSH_FAULT_NONE;
    bool whole = server_receive(&r, fd, fault == PUSH_FAULT_DISCONNECT);
    s->num_puts++;
    server_header(&r, "Authorization", token, sizeof token);
    if (token[0]) s->leaked = true;
    pthread_mutex_lock(&s->lock);
    text_addf(&s->log, "%s %s\n", r.method, r.target);
    bool valid = sscanf(r.target, "/upload/%64[0-9a-f]/%d", oid, &number) == 2 &&
                 strstr(r.target, "?sig=hidden") && number >= 1 && number <= PUSH_PARTS;
    if (fault == PUSH_FAULT_UNAVAILABLE) {
        server_answer(fd, 503, "", "", 0);
    } else if (fault == PUSH_FAULT_EXPIRED || !valid) {
        server_answer(fd, 403, "", "<Error/>", 8);
    } else if (whole && fault != PUSH_FAULT_DROP) {
        struct push_object *o = find_object(s, oid);
        text_clear(&o->parts[number - 1]);
        text_add(&o->parts[number - 1], r.body.data, r.body.len);
        if (!s->chunk_bytes) complete(o);
        snprintf(etag, sizeof etag, "ETag: \"part%d\"\r\n", number);
        server_answer(fd, 200, etag, "", 0);
    }
    pthread_mutex_unlock(&s->lock);
    text_release(&r.body);
}

static void send_modes(int fd, const struct json *root, struct push_server *s)
{
    struct text t = {0};
    text_adds(&t, "{\"files\":[");
    for (const struct json *v = json_first(json_get(root, "files")); v; v = json_next(v)) {
        const char *path, *sample;
        int64_t size;
        CHECK_STATUS(OK, json_get_string(v, "path", &path));
        CHECK_STATUS(OK, json_get_string(v, "sample", &sample));
        CHECK_STATUS(OK, json_get_int(v, "size", 0, 1 << 30, &size));
        CHECK(strlen(sample) == (size_t)((size < 512 ? size : 512) + 2) / 3 * 4);
        bool lfs = strstr(path, ".safetensors") && !strstr(path, ".json");
        text_addf(&t, "%s{\"path\":\"%s\",\"uploadMode\":\"%s\",\"shouldIgnore\":false",
                  t.data[t.len - 1] == '[' ? "" : ",", path, lfs ? "lfs" : "regular");
        for (int i = 0; i < s->num_files; i++) {
            char hex[DIGEST_HEX], head[32];
            struct digest d;
            if (strcmp(s->files[i].path, path)) continue;
            digest_init(&d, DIGEST_SHA1);
            int n = snprintf(head, sizeof head, "blob %zu", s->files[i].bytes.len);
            digest_add(&d, head, (size_t)n + 1);
            digest_add(&d, s->files[i].bytes.data, s->files[i].bytes.len);
            digest_hex(&d, hex);
            text_addf(&t, ",\"oid\":\"%s\"", lfs ? s->files[i].oid : hex);
        }
        text_adds(&t, "}");
    }
    text_adds(&t, "]}");
    answer_json(fd, &t);
    text_release(&t);
}

static void send_batch(int fd, const struct json *root, struct push_server *s)
{
    const struct json *one = json_first(json_get(root, "objects"));
    const char *oid;
    int64_t size;
    struct text t = {0};
    CHECK(json_string_is(json_get(root, "operation"), "upload"));
    CHECK(json_string_is(json_get(json_get(root, "ref"), "name"), "main"));
    CHECK_STATUS(OK, json_get_string(one, "oid", &oid));
    CHECK_STATUS(OK, json_get_int(one, "size", 0, 1 << 30, &size));
    const struct push_object *o = find_object(s, oid);
    text_addf(&t, "{\"transfer\":\"%s\",\"objects\":[{\"oid\":\"%s\",\"size\":%lld",
              s->chunk_bytes ? "multipart" : "basic", oid, (long long)size);
    if (!o->is_complete) {
        text_adds(&t, ",\"actions\":{\"upload\":{");
        if (s->chunk_bytes) {
            text_addf(&t,
                      "\"href\":\"%s/complete/%s?sig=hidden\",\"header\":{\"chunk_size\":\"%zu\"",
                      s->endpoint, oid, s->chunk_bytes);
            for (size_t i = 0; i * s->chunk_bytes < (size_t)size; i++)
                text_addf(&t, ",\"%05zu\":\"%s/upload/%s/%zu?sig=hidden\"", i + 1, s->cdn, oid,
                          i + 1);
            text_adds(&t, "}");
        } else {
            text_addf(&t,
                      "\"href\":\"%s/upload/%s/1?sig=hidden\",\"header\":{\"x-required\":\"yes\"}",
                      s->cdn, oid);
        }
        text_addf(&t, "},\"verify\":{\"href\":\"%s/verify\",\"header\":{}}}", s->endpoint);
    }
    text_adds(&t, "}]}");
    answer_json(fd, &t);
    text_release(&t);
}

static void complete_parts(int fd, const struct json *root, struct push_server *s)
{
    const char *oid, *etag;
    int64_t number, count = 0;
    char want[32];
    CHECK_STATUS(OK, json_get_string(root, "oid", &oid));
    for (const struct json *v = json_first(json_get(root, "parts")); v; v = json_next(v)) {
        CHECK_STATUS(OK, json_get_int(v, "partNumber", 1, PUSH_PARTS, &number));
        CHECK_STATUS(OK, json_get_string(v, "etag", &etag));
        snprintf(want, sizeof want, "\"part%lld\"", (long long)number);
        CHECK(number == ++count && !strcmp(etag, want));
    }
    complete(find_object(s, oid));
    server_answer(fd, 200, "", "{}", 2);
}

static void verify(int fd, const struct json *root, struct push_server *s)
{
    const char *oid;
    CHECK_STATUS(OK, json_get_string(root, "oid", &oid));
    if (find_object(s, oid)->is_complete)
        server_answer(fd, 200, "", "", 0);
    else
        server_answer(fd, 422, "X-Error-Message: not complete\r\n", "", 0);
}

static void decode_base64(const char *text, struct text *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned word = 0;
    int bits = 0;
    for (; *text && *text != '='; text++) {
        word = word << 6 | (unsigned)(strchr(digits, *text) - digits);
        bits += 6;
        if (bits < 8) continue;
        bits -= 8;
        text_add(out, &(char){(char)(word >> bits)}, 1);
    }
}

/* One line of a commit. */
static void commit_line(struct push_server *s, const struct json *line)
{
    const char *key, *path, *content, *text;
    const struct json *value = json_get(line, "value");
    CHECK_STATUS(OK, json_get_string(line, "key", &key));
    if (!strcmp(key, "header")) {
        CHECK_STATUS(OK, json_get_string(value, "summary", &text));
        snprintf(s->summary, sizeof s->summary, "%s", text);
        return;
    }
    CHECK_STATUS(OK, json_get_string(value, "path", &path));
    int i = 0;
    while (i < s->num_files && strcmp(s->files[i].path, path)) i++;
    if (i == s->num_files) s->num_files++;
    CHECK(s->num_files <= PUSH_FILES);
    snprintf(s->files[i].path, sizeof s->files[i].path, "%s", path);
    text_clear(&s->files[i].bytes);
    if (!strcmp(key, "lfsFile")) {
        CHECK_STATUS(OK, json_get_string(value, "oid", &text));
        CHECK(find_object(s, text)->is_complete);
        snprintf(s->files[i].oid, sizeof s->files[i].oid, "%s", text);
        return;
    }
    CHECK(!strcmp(key, "file") && json_string_is(json_get(value, "encoding"), "base64"));
    CHECK_STATUS(OK, json_get_string(value, "content", &content));
    decode_base64(content, &s->files[i].bytes);
}

static void commit(int fd, const char *lines, struct push_server *s)
{
    struct text t = {0};
    while (*lines) {
        struct json *line;
        size_t n = strcspn(lines, "\n");
        CHECK_STATUS(OK, json_parse(lines, n, "commit", &line));
        commit_line(s, line);
        json_free(line);
        lines += n + 1;
    }
    s->num_commits++;
    text_addf(&t, "{\"commitUrl\":\"%s/org/name/commit/abc\",\"commitOid\":\"abc\"}", s->endpoint);
    answer_json(fd, &t);
    text_release(&t);
}

static void create(int fd, const struct json *root, struct push_server *s)
{
    CHECK(json_string_is(json_get(root, "name"), "name"));
    CHECK(json_string_is(json_get(root, "organization"), "org"));
    s->num_creates++;
    s->is_private = json_true(json_get(root, "private"));
    server_answer(fd, s->exists ? 409 : 200, "", "{}", 2);
    s->exists = true;
}

static void handle_post(struct push_server *s, int fd, const struct server_request *r)
{
    static const struct {
        const char *target;
        void (*run)(int fd, const struct json *root, struct push_server *s);
    } calls[] = {{"/api/repos/create", create},
                 {"/api/models/org/name/preupload/main", send_modes},
                 {"/org/name.git/info/lfs/objects/batch", send_batch},
                 {"/complete/", complete_parts},
                 {"/verify", verify}};
    struct json *root = NULL;
    if (!s->exists && strcmp(r->target, "/api/repos/create")) {
        server_answer(fd, 404, "X-Error-Code: RepoNotFound\r\n", "", 0);
        return;
    }
    if (!strcmp(r->target, "/api/models/org/name/commit/main")) {
        commit(fd, r->body.data, s);
        return;
    }
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (strncmp(r->target, calls[i].target, strlen(calls[i].target))) continue;
        CHECK_STATUS(OK, json_parse(r->body.data, r->body.len, "request", &root));
        calls[i].run(fd, root, s);
        json_free(root);
        return;
    }
    server_answer(fd, 404, "", "", 0);
}

static void serve_hub(void *context, int fd)
{
    struct push_server *s = context;
    struct server_request r = {0};
    char token[256];
    if (!server_receive(&r, fd, false)) return;
    int count = s->num_posts++;
    enum push_fault fault = count < PUSH_FAULTS ? s->posts[count] : PUSH_FAULT_NONE;
    pthread_mutex_lock(&s->lock);
    text_addf(&s->log, "%s %s\n", r.method, r.target);
    server_header(&r, "Authorization", token, sizeof token);
    if (fault == PUSH_FAULT_UNAVAILABLE)
        server_answer(fd, 503, "", "", 0);
    else if (fault == PUSH_FAULT_MALFORMED)
        server_answer(fd, 200, "", "[{", 2);
    else if (fault == PUSH_FAULT_INCOMPLETE)
        server_answer(fd, 200, "", "{\"files\":[{}]}", 14);
    else if (strcmp(token, !strncmp(r.target, "/complete/", 10) ? "" : "Bearer hf_secret"))
        server_answer(fd, 401, "", "", 0);
    else if (fault != PUSH_FAULT_DROP)
        handle_post(s, fd, &r);
    pthread_mutex_unlock(&s->lock);
    text_release(&r.body);
}

static void *hub_thread(void *context)
{
    struct push_server *s = context;
    server_loop(s->listening[0], s->stop[0][0], serve_hub, s);
    return NULL;
}

static void *cdn_thread(void *context)
{
    struct push_server *s = context;
    server_loop(s->listening[1], s->stop[1][0], serve_cdn, s);
    return NULL;
}

void push_server_start(struct push_server *s)
{
    setenv("no_proxy", "*", 1);
    pthread_mutex_init(&s->lock, NULL);
    s->listening[0] = server_listen(s->endpoint, sizeof s->endpoint);
    s->listening[1] = server_listen(s->cdn, sizeof s->cdn);
    for (int i = 0; i < 2; i++) {
        CHECK(s->listening[i] >= 0 && pipe(s->stop[i]) == 0);
        CHECK(pthread_create(&s->threads[i], NULL, i ? cdn_thread : hub_thread, s) == 0);
    }
}

void push_server_stop(struct push_server *s)
{
    for (int i = 0; i < 2; i++) {
        CHECK(write(s->stop[i][1], "x", 1) == 1);
        pthread_join(s->threads[i], NULL);
        close(s->listening[i]), close(s->stop[i][0]), close(s->stop[i][1]);
    }
}

void push_server_release(struct push_server *s)
{
    for (int i = 0; i < s->num_files; i++) text_release(&s->files[i].bytes);
    for (int i = 0; i < s->num_objects; i++)
        for (int j = 0; j < PUSH_PARTS; j++) text_release(&s->objects[i].parts[j]);
    pthread_mutex_destroy(&s->lock);
    text_release(&s->log);
}
