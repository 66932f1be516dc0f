// SPDX-License-Identifier: Apache-2.0
#include "hub/server.h"
#include "test.h"

#include "base/file.h"
#include "base/json.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REQUEST = 16384 };

int server_listen(char *url, size_t room)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, n) || listen(fd, 64) ||
        getsockname(fd, (struct sockaddr *)&a, &n))
        return -1;
    snprintf(url, room, "http://127.0.0.1:%d", ntohs(a.sin_port));
    return fd;
}

void server_send(int fd, const char *bytes, size_t len)
{
    while (len) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
        if (n <= 0) return;
        bytes += n, len -= (size_t)n;
    }
}

void server_answer(int fd, int status, const char *headers, const char *body, size_t len)
{
    struct text t = {0};
    text_addf(&t, "HTTP/1.1 %d X\r\nConnection: close\r\nContent-Length: %zu\r\n%s\r\n", status,
              len, headers);
    server_send(fd, t.data, t.len);
    server_send(fd, body, len);
    text_release(&t);
}

void server_header(const struct server_request *r, const char *name, char *out, size_t room)
{
    size_t n = strlen(name);
    out[0] = 0;
    for (const char *line = strstr(r->head, "\r\n"); line; line = strstr(line + 2, "\r\n")) {
        if (strncasecmp(line + 2, name, n) || line[2 + n] != ':') continue;
        const char *value = line + 3 + n;
        while (*value == ' ') value++;
        snprintf(out, room, "%.*s", (int)strcspn(value, "\r"), value);
        return;
    }
}

bool server_receive(struct server_request *r, int fd, bool cut)
{
    size_t len = 0;
    char *end, value[64], chunk[65536];
    while (!(end = strstr(r->head, "\r\n\r\n")) && len < sizeof r->head - 1) {
        ssize_t n = recv(fd, r->head + len, sizeof r->head - 1 - len, 0);
        if (n <= 0) return false;
        r->head[len += (size_t)n] = 0;
    }
    if (!end || sscanf(r->head, "%15s %2999s", r->method, r->target) != 2) return false;
    server_header(r, "Content-Length", value, sizeof value);
    size_t want = strtoul(value, NULL, 10);
    text_add(&r->body, end + 4, len - (size_t)(end + 4 - r->head));
    server_header(r, "Expect", value, sizeof value);
    if (value[0]) server_send(fd, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    cut = cut && !strcmp(r->method, "PUT");
    if (cut) want /= 2;
    while (r->body.len < want) {
        ssize_t n = recv(fd, chunk, sizeof chunk, 0);
        if (n <= 0) return false;
        text_add(&r->body, chunk, (size_t)n);
    }
    return !cut;
}

void server_loop(int listening, int stop, void (*serve)(void *context, int fd), void *context)
{
    for (;;) {
        struct pollfd wait[2] = {{listening, POLLIN, 0}, {stop, POLLIN, 0}};
        if (poll(wait, 2, -1) < 0) continue;
        if (wait[1].revents) return;
        int fd = accept(listening, NULL, NULL);
        if (fd < 0) continue;
        serve(context, fd);
        shutdown(fd, SHUT_WR);
        char rest[4096]; /* closing with unread bytes would reset the connection */
        while (recv(fd, rest, sizeof rest, 0) > 0) {
        }
        close(fd);
    }
}

/* Sends the response of a fault that does not depend on the request; false: it does. */
static bool send_fault(int fd, enum fault fault, const char *url)
{
    struct text t = {0};
    text_addf(&t, "Location: %s\r\n", url);
    switch (fault) {
    case FAULT_RETRY_AFTER: server_answer(fd, 429, "Retry-After: 7\r\n", "slow", 4); break;
    case FAULT_RETRY_LATE: server_answer(fd, 429, "Retry-After: 300\r\n", "slow", 4); break;
    case FAULT_RATE_LIMIT:
        server_answer(fd, 429, "RateLimit: \"api\";r=0;t=9\r\n", "slow", 4);
        break;
    case FAULT_UNAVAILABLE: server_answer(fd, 503, "", "sick", 4); break;
    case FAULT_DROP: break;
    case FAULT_NO_RANGE: server_answer(fd, 416, "", "", 0); break;
    case FAULT_FORBIDDEN: server_answer(fd, 403, "", "old", 3); break;
    case FAULT_LOOP: server_answer(fd, 302, t.data, "", 0); break;
    case FAULT_MALFORMED: server_answer(fd, 200, "", "[{", 2); break;
    case FAULT_INCOMPLETE: server_answer(fd, 200, "", "{}", 2); break;
    default: text_release(&t); return false;
    }
    text_release(&t);
    return true;
}

static void send_file(struct server *s, int fd, const struct server_file *f, const char *request)
{
    int number = atomic_fetch_add(&s->num_bodies, 1);
    enum fault fault = number < SERVER_FAULTS ? s->bodies[number] : FAULT_NONE;
    struct text body = {0}, head = {0}, loop = {0};
    const char *range = strstr(request, "Range: bytes=");
    size_t len = strlen(f->bytes), from = range ? strtoul(range + 13, NULL, 10) : 0;
    if (fault == FAULT_IGNORES_RANGE) from = 0;
    text_adds(&body, f->bytes);
    text_addf(&loop, "/blob/%s", f->path);
    if (fault == FAULT_LONG) text_adds(&body, "more");
    if (fault == FAULT_SHORT) body.data[body.len = len / 2] = 0;
    if (fault == FAULT_CORRUPT) body.data[len - 1] ^= 1;
    if (from > len) from = len;
    if (from) text_addf(&head, "Content-Range: bytes %zu-%zu/%zu\r\n", from, len - 1, len);
    if (fault == FAULT_DISCONNECT) {
        text_addf(&head, "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n\r\n", from ? 206 : 200,
                  body.len - from);
        if (from) {
            text_clear(&head);
            text_addf(&head,
                      "HTTP/1.1 206 X\r\nContent-Range: bytes %zu-%zu/%zu\r\n"
                      "Content-Length: %zu\r\n\r\n",
                      from, len - 1, len, body.len - from);
        }
        server_send(fd, head.data, head.len);
        server_send(fd, body.data + from, (body.len - from) / 2);
    } else if (!send_fault(fd, fault, loop.data)) {
        server_answer(fd, from ? 206 : 200, head.data ? head.data : "", body.data + from,
                      body.len - from);
    }
    text_release(&loop);
    text_release(&body);
    text_release(&head);
}

static void append_file_entry(const struct server *s, const struct server_file *f, struct text *t)
{
    char hash[DIGEST_HEX], head[64];
    struct digest d;
    size_t len = strlen(f->bytes);
    digest_init(&d, f->lfs ? DIGEST_SHA256 : DIGEST_SHA1);
    if (!f->lfs) digest_add(&d, head, (size_t)snprintf(head, sizeof head, "blob %zu", len) + 1);
    digest_add(&d, f->bytes, len);
    digest_hex(&d, hash);
    if (f->lfs && s->hash) snprintf(hash, sizeof hash, "%s", s->hash);
    text_addf(t, "{\"type\":\"file\",\"path\":");
    json_quote(t, f->path);
    if (f->lfs)
        text_addf(t,
                  ",\"oid\":\"%040d\",\"size\":%zu,\"lfs\":{\"oid\":\"%s\",\"size\":%zu,"
                  "\"pointerSize\":130}}",
                  0, len, hash, len);
    else
        text_addf(t, ",\"oid\":\"%s\",\"size\":%zu}", hash, len);
}

/* Appends file i, or the subfolder it is in, as an entry of `folder`; nothing if it is elsewhere or
 * the subfolder was listed before. */
static void append_entry(const struct server *s, int i, const char *folder, bool recursive,
                         struct text *t)
{
    const char *path = s->files[i].path, *below = path;
    size_t n = strlen(folder);
    if (n && (strncmp(path, folder, n) || path[n] != '/')) return;
    if (n) below += n + 1;
    size_t end = strcspn(below, "/");
    if (recursive || !below[end]) {
        append_file_entry(s, &s->files[i], t);
        return;
    }
    size_t whole = (size_t)(below - path) + end;
    for (int j = 0; j < i; j++)
        if (!strncmp(s->files[j].path, path, whole + 1)) return;
    text_addf(t, "{\"type\":\"directory\",\"oid\":\"%040d\",\"size\":0,\"path\":\"%.*s\"}", 1,
              (int)whole, path);
}

static void send_tree(struct server *s, int fd, char *target)
{
    struct text body = {0}, head = {0}, one = {0};
    char *query = strchr(target, '?'), *folder = strchr(target, '/');
    bool recursive = query && strstr(query, "recursive=true");
    const char *cursor = query ? strstr(query, "cursor=") : NULL;
    int skip = cursor ? atoi(cursor + 7) : 0, seen = 0, listed = 0;
    if (query) *query = 0;
    text_adds(&body, "[");
    for (int i = 0; i < s->num_files; i++) {
        text_clear(&one);
        append_entry(s, i, folder ? folder + 1 : "", recursive, &one);
        if (!one.len || seen++ < skip) continue;
        if (s->page && listed == s->page) {
            text_addf(&head,
                      "Link: <%s/x>; rel=\"first\", <%s/api/%s/tree/%s?recursive=%s&cursor=%d>; "
                      "rel=\"next\"\r\n",
                      s->endpoint, s->endpoint, s->repo, target, recursive ? "true" : "false",
                      skip + listed);
            break;
        }
        text_addf(&body, "%s%s", listed++ ? "," : "", one.data);
    }
    text_adds(&body, "]");
    bool absent = folder && folder[1] && !listed;
    server_answer(fd, absent ? 404 : 200,
                  absent      ? "X-Error-Code: EntryNotFound\r\n"
                  : head.data ? head.data
                              : "",
                  body.data, body.len);
    text_release(&body);
    text_release(&head);
    text_release(&one);
}

static void send_api(struct server *s, int fd, char *target)
{
    int number = atomic_fetch_add(&s->num_apis, 1);
    struct text t = {0};
    if (send_fault(fd, number < SERVER_FAULTS ? s->apis[number] : FAULT_NONE, target)) return;
    char *rest = target + 5 + strlen(s->repo);
    if (strncmp(target + 5, s->repo, strlen(s->repo)) || *rest != '/') {
        server_answer(fd, 404, "X-Error-Code: RepoNotFound\r\n", "", 0);
    } else if (!strncmp(rest, "/revision/main", 14) ||
               !strncmp(rest, "/revision/refs%2Fpr%2F1", 23)) {
        text_addf(&t, "{\"id\":\"x\",\"sha\":\"%s\"}", s->commit);
        server_answer(fd, 200, "", t.data, t.len);
    } else if (!strncmp(rest, "/tree/", 6) && !strncmp(rest + 6, s->commit, 40)) {
        send_tree(s, fd, rest + 6);
    } else {
        server_answer(fd, 404, "X-Error-Code: RevisionNotFound\r\n", "", 0);
    }
    text_release(&t);
}

/* The file that a URL refers to. */
static const struct server_file *file_of(const struct server *s, const char *url)
{
    char path[512];
    size_t n = 0;
    for (; *url && *url != '?' && n + 1 < sizeof path; url++) {
        unsigned code;
        bool packed = *url == '%' && sscanf(url + 1, "%2x", &code) == 1;
        path[n++] = packed ? (char)code : *url;
        if (packed) url += 2;
    }
    path[n] = 0;
    for (int i = 0; i < s->num_files; i++)
        if (!strcmp(s->files[i].path, path)) return &s->files[i];
    return NULL;
}

static void send_resolve(struct server *s, int fd, const char *target, const char *request)
{
    struct text want = {0}, head = {0};
    bool data = !strncmp(s->repo, "datasets/", 9);
    text_addf(&want, "/%s/resolve/%s/", data ? s->repo : s->repo + 7, s->commit);
    bool right = !strncmp(target, want.data, want.len);
    const struct server_file *f = right ? file_of(s, target + want.len) : NULL;
    text_addf(&head, "X-Repo-Commit: %s\r\nLocation: %s/blob/%s?signed=1\r\n", s->commit, s->cdn,
              right ? target + want.len : "");
    if (!f)
        server_answer(fd, 404, "X-Error-Code: EntryNotFound\r\n", "", 0);
    else if (f->lfs)
        server_answer(fd, 302, head.data, "Found", 5);
    else
        send_file(s, fd, f, request);
    text_release(&want);
    text_release(&head);
}

static void serve(struct server *s, int fd, bool cdn)
{
    char request[REQUEST] = "", target[4096] = "", want[256];
    size_t len = 0;
    while (!strstr(request, "\r\n\r\n") && len < sizeof request - 1) {
        ssize_t n = recv(fd, request + len, sizeof request - 1 - len, 0);
        if (n <= 0) return;
        request[len += (size_t)n] = 0;
    }
    const char *space = strchr(request, ' '), *range = strstr(request, "Range: ");
    const char *token = strstr(request, "Authorization: ");
    if (space) snprintf(target, sizeof target, "%.*s", (int)strcspn(space + 1, " "), space + 1);
    atomic_fetch_add(&s->num_requests, 1);
    text_addf(&s->log, "%s %s %.*s\n", cdn ? "large" : "hub", target,
              range ? (int)strcspn(range, "\r") : 0, range ? range : "");
    if (cdn) {
        const struct server_file *f = strncmp(target, "/blob/", 6) ? NULL : file_of(s, target + 6);
        if (token) atomic_store(&s->leaked, true);
        if (f)
            send_file(s, fd, f, request);
        else
            server_answer(fd, 404, "", "", 0);
        return;
    }
    snprintf(want, sizeof want, "Authorization: Bearer %s\r\n", s->token ? s->token : "");
    if (s->token && (!token || strncmp(token, want, strlen(want))))
        server_answer(fd, 401, "X-Error-Code: RepoNotFound\r\n", "", 0);
    else if (s->gated)
        server_answer(fd, 403, "X-Error-Code: GatedRepo\r\nX-Error-Message: ask first\r\n", "", 0);
    else if (!strncmp(target, "/api/", 5))
        send_api(s, fd, target);
    else
        send_resolve(s, fd, target, request);
}

static void *serve_connections(void *context)
{
    struct server *s = context;
    for (;;) {
        struct pollfd wait[3] = {
            {s->listening[0], POLLIN, 0}, {s->listening[1], POLLIN, 0}, {s->stop[0], POLLIN, 0}};
        if (poll(wait, 3, -1) < 0) continue;
        if (wait[2].revents) return NULL;
        for (int i = 0; i < 2; i++) {
            if (!wait[i].revents) continue;
            int fd = accept(s->listening[i], NULL, NULL);
            if (fd < 0) continue;
            serve(s, fd, i == 1);
            shutdown(fd, SHUT_WR);
            char rest[256]; /* closing with unread bytes would reset the connection */
            while (recv(fd, rest, sizeof rest, 0) > 0) {
            }
            close(fd);
        }
    }
}

void server_start(struct server *s)
{
    setenv("no_proxy", "*", 1);
    if (!s->commit) s->commit = "0123456789abcdef0123456789abcdef01234567";
    if (!s->repo) s->repo = "datasets/org/name";
    while (s->num_files < SERVER_FILES && s->files[s->num_files].path) s->num_files++;
    s->listening[0] = server_listen(s->endpoint, sizeof s->endpoint);
    s->listening[1] = server_listen(s->cdn, sizeof s->cdn);
    CHECK(s->listening[0] >= 0 && s->listening[1] >= 0);
    CHECK(pipe(s->stop) == 0);
    CHECK(pthread_create(&s->thread, NULL, serve_connections, s) == 0);
}

void server_stop(struct server *s)
{
    CHECK(write(s->stop[1], "x", 1) == 1);
    pthread_join(s->thread, NULL);
    for (int i = 0; i < 2; i++) close(s->listening[i]), close(s->stop[i]);
}

static void count_wait(void *context, double seconds) { *(double *)context += seconds; }

struct hub_settings server_settings(const struct server *s, const char *token, double *waited)
{
    const char *cache = test_folder();
    *waited = 0;
    return (struct hub_settings){.endpoint = heap_strdup(s->endpoint),
                                 .cache = heap_strdup(cache),
                                 .token = heap_strdup(token),
                                 .token_from = "HF_TOKEN",
                                 .wait = count_wait,
                                 .context = waited};
}

void server_check(const struct hub_settings *settings, const char *path, const char *bytes)
{
    char *local;
    struct text held = {0};
    CHECK_STATUS(OK, hub_find_with(settings, path, &local));
    CHECK_STATUS(OK, file_read(local, 1 << 20, &held));
    CHECK(!strcmp(held.data, bytes));
    text_release(&held);
    free(local);
}
