// SPDX-License-Identifier: Apache-2.0
#include "hub/metadata_server.h"
#include "hub/s3_server.h"
#include "hub/server.h"
#include "test.h"

#include "base/file.h"

#include <time.h>
#include <unistd.h>

static const char role_path[] = "/latest/meta-data/iam/security-credentials/";

static void send_document(struct metadata_server *s, int fd)
{
    int last = s->num_documents - 1, number = atomic_fetch_add(&s->num_served, 1);
    CHECK(last >= 0);
    const struct text *t = &s->documents[number < last ? number : last];
    server_answer(fd, 200, "", t->data ? t->data : "", t->len);
}

static void answer_instance(struct metadata_server *s, int fd, const struct server_request *r)
{
    char session[256], ttl[16];
    size_t n = strlen(role_path);
    server_header(r, "X-aws-ec2-metadata-token", session, sizeof session);
    server_header(r, "X-aws-ec2-metadata-token-ttl-seconds", ttl, sizeof ttl);
    if (!strcmp(r->method, "PUT")) {
        bool knows = s->session && !strcmp(r->target, "/latest/api/token") && atoi(ttl) > 0;
        const char *text = knows ? s->session : "";
        server_answer(fd, knows ? 200 : 404, "", text, strlen(text));
    } else if (strcmp(session, s->session ? s->session : "")) {
        server_answer(fd, 401, "", "", 0);
    } else if (!strcmp(r->target, role_path) && s->role) {
        server_answer(fd, 200, "", s->role, s->role_bytes ? s->role_bytes : strlen(s->role));
    } else if (s->role && !strncmp(r->target, role_path, n) && !strcmp(r->target + n, s->role)) {
        send_document(s, fd);
    } else {
        server_answer(fd, 404, "", "none", 4);
    }
}

static void serve(void *context, int fd)
{
    struct metadata_server *s = context;
    struct server_request r = {0};
    char authorization[256];
    int number = atomic_fetch_add(&s->num_requests, 1);
    int failure = number < METADATA_FAILURES ? s->failures[number] : 0;
    if (!server_receive(&r, fd, false)) goto out;
    text_addf(&s->log, "%s %s %s\n", r.method, r.target, r.body.data ? r.body.data : "");
    server_header(&r, "Authorization", authorization, sizeof authorization);
    if (failure < 0) goto out;
    if (failure) /* with a body that quotes the request, as a hostile one might */
        server_answer(fd, failure, "", r.head, strlen(r.head));
    else if (!strcmp(r.method, "POST"))
        send_document(s, fd);
    else if (strncmp(r.target, "/container", 10))
        answer_instance(s, fd, &r);
    else if (s->authorization && strcmp(authorization, s->authorization))
        server_answer(fd, 401, "", r.head, strlen(r.head));
    else
        send_document(s, fd);
out:
    text_release(&r.body);
}

static void *serve_connections(void *context)
{
    struct metadata_server *s = context;
    server_loop(s->listening, s->stop[0], serve, s);
    return NULL;
}

struct metadata_server *metadata_server_make(void)
{
    struct metadata_server *s = heap(sizeof *s);
    *s = (struct metadata_server){.session = METADATA_SESSION, .role = "role"};
    return s;
}

void metadata_server_add_bytes(struct metadata_server *s, const void *bytes, size_t len)
{
    CHECK(s->num_documents < METADATA_DOCUMENTS);
    text_add(&s->documents[s->num_documents++], bytes, len);
}

void metadata_server_add(struct metadata_server *s, const char *token, double expires_s)
{
    struct text t = {0};
    char time[32];
    time_t seconds = (time_t)expires_s;
    struct tm parts;
    strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &parts));
    text_addf(&t,
              "{\"Code\": \"Success\", \"Type\": \"AWS-HMAC\", \"AccessKeyId\": \"%s\", "
              "\"SecretAccessKey\": \"%s\", \"Token\": \"%s\", \"Expiration\": \"%s\"}",
              S3_KEY_ID, S3_SECRET, token, time);
    metadata_server_add_bytes(s, t.data, t.len);
    text_release(&t);
}

void metadata_server_start(struct metadata_server *s)
{
    s->listening = server_listen(s->endpoint, sizeof s->endpoint);
    CHECK(s->listening >= 0 && pipe(s->stop) == 0);
    CHECK(pthread_create(&s->thread, NULL, serve_connections, s) == 0);
}

void metadata_server_stop(struct metadata_server *s)
{
    CHECK(write(s->stop[1], "x", 1) == 1);
    pthread_join(s->thread, NULL);
    close(s->listening), close(s->stop[0]), close(s->stop[1]);
}

void metadata_server_free(struct metadata_server *s)
{
    for (int i = 0; i < s->num_documents; i++) text_release(&s->documents[i]);
    text_release(&s->log);
    free(s);
}

struct s3_source metadata_server_source(const struct metadata_server *s, enum s3_source_kind kind,
                                        const char *token)
{
    bool is_container = kind == S3_SOURCE_CONTAINER, is_web = kind == S3_SOURCE_WEB_IDENTITY;
    struct s3_source source = {.kind = kind,
                               .name = heap_strdup(is_container ? "container"
                                                   : is_web     ? "STS"
                                                                : "EC2 instance metadata"),
                               .role_arn = heap_strdup("arn:aws:iam::1:role/a b"),
                               .timeout_s = 20,
                               .attempts = 1};
    struct text url = {0};
    text_addf(&url, "%s%s", s->endpoint, is_container ? "/container?id=1" : "");
    source.url = url.data;
    if (token) {
        source.token_file = file_join(test_folder(), "token");
        CHECK_STATUS(OK, file_write(source.token_file, token, strlen(token)));
    }
    return source;
}

static void count_wait(void *context, double seconds) { *(double *)context += seconds; }

struct s3_call metadata_server_call(double *waited)
{
    *waited = 0;
    return (struct s3_call){.wait = count_wait, .context = waited};
}
