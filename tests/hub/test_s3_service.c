// SPDX-License-Identifier: Apache-2.0
#include "hub/metadata_server.h"
#include "hub/s3_server.h"
#include "hub/server.h"
#include "test.h"

#include "base/clock.h"
#include "base/file.h"

#include <unistd.h>

static const double noon = 1769860800; /* 2026-01-31T12:00:00Z */

/* One request for credentials to a server of its own. */
struct service_test {
    struct metadata_server *server;
    struct s3_source source;
    struct s3_keys keys;
    double waited;
};

static struct service_test begin(enum s3_source_kind kind, const char *token)
{
    struct service_test t = {.server = metadata_server_make()};
    setenv("no_proxy", "*", 1); /* for STS */
    metadata_server_start(t.server);
    t.source = metadata_server_source(t.server, kind, token);
    return t;
}

static enum status fetch(struct service_test *t)
{
    const struct s3_call call = metadata_server_call(&t->waited);
    s3_keys_release(&t->keys);
    return s3_service_fetch(&t->source, &call, &t->keys);
}

static void end(struct service_test *t)
{
    metadata_server_stop(t->server);
    metadata_server_free(t->server);
    s3_source_release(&t->source);
    s3_keys_release(&t->keys);
}

static void check_keys(const struct service_test *t, const char *token)
{
    CHECK(!strcmp(t->keys.key_id, S3_KEY_ID) && !strcmp(t->keys.secret, S3_SECRET));
    CHECK(!strcmp(t->keys.session_token, token) && t->keys.expires_s == noon);
}

/* No message has a credential or a token. */
static void check_secret(void)
{
    static const char *const secrets[] = {S3_KEY_ID, S3_SECRET, METADATA_SESSION, "hidden"};
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++)
        CHECK(!strstr(status_message(), secrets[i]));
}

TEST(s3_service_reads_the_role_of_an_instance_with_imdsv2)
{
    if (!http_available()) skip();
    struct service_test t = begin(S3_SOURCE_INSTANCE, NULL);
    metadata_server_add(t.server, "hidden", noon);
    setenv("http_proxy", "http://127.0.0.1:1", 1); /* never used for it */
    unsetenv("no_proxy");
    CHECK_STATUS(OK, fetch(&t));
    unsetenv("http_proxy");
    check_keys(&t, "hidden");
    metadata_server_stop(t.server);
    CHECK(!strcmp(t.server->log.data, "PUT /latest/api/token \n"
                                      "GET /latest/meta-data/iam/security-credentials/ \n"
                                      "GET /latest/meta-data/iam/security-credentials/role \n"));
    metadata_server_start(t.server);
    end(&t);
}

TEST(s3_service_says_why_an_instance_has_no_role)
{
    if (!http_available()) skip();
    struct service_test t = begin(S3_SOURCE_INSTANCE, NULL);
    t.server->role = NULL;
    CHECK_STATUS(MISSING, fetch(&t));
    CHECK_MESSAGE("EC2 instance metadata: the instance has no IAM role");
    t.server->session = NULL; /* not EC2's, or only version 1 of it */
    int before = t.server->num_requests;
    CHECK_STATUS(MISSING, fetch(&t));
    CHECK_MESSAGE("/latest/api/token: HTTP 404");
    CHECK(t.server->num_requests == before + 1);
    t.source.is_disabled = true;
    CHECK_STATUS(MISSING, fetch(&t));
    CHECK_MESSAGE("AWS_EC2_METADATA_DISABLED is set");
    CHECK(t.server->num_requests == before + 1 && t.waited == 0);
    end(&t);
}

TEST(s3_service_soon_gives_up_an_instance_that_does_not_answer)
{
    if (!http_available()) skip();
    double begin_s = clock_monotonic_s();
    struct service_test t = {0};
    char url[64];
    int silent = server_listen(url, sizeof url); /* accepts, but never answers */
    CHECK(silent >= 0);
    t.source = (struct s3_source){.kind = S3_SOURCE_INSTANCE,
                                  .name = heap_string("EC2", 3),
                                  .url = heap_strdup(url),
                                  .timeout_s = 0.1,
                                  .attempts = 2};
    CHECK_STATUS(MISSING, fetch(&t));
    CHECK_MESSAGE("EC2: http://127.0.0.1:");
    CHECK_MESSAGE("no response: ");
    close(silent);
    CHECK_STATUS(MISSING, fetch(&t)); /* nothing listens */
    CHECK(clock_monotonic_s() - begin_s < 20);
    s3_source_release(&t.source);
}

TEST(s3_service_repeats_failed_requests)
{
    if (!http_available()) skip();
    struct service_test t = begin(S3_SOURCE_INSTANCE, NULL);
    static const int failures[] = {503, -1, 0, 500, 0, 429};
    metadata_server_add(t.server, "hidden", noon);
    memcpy(t.server->failures, failures, sizeof failures);
    t.source.attempts = 3;
    CHECK_STATUS(OK, fetch(&t));
    check_keys(&t, "hidden");
    CHECK(t.waited == 0 && t.server->num_requests == 7);
    end(&t);
    t = begin(S3_SOURCE_CONTAINER, NULL);
    metadata_server_add(t.server, "hidden", noon);
    memcpy(t.server->failures, failures, sizeof failures);
    t.source.attempts = 3;
    CHECK_STATUS(OK, fetch(&t));
    check_keys(&t, "hidden");
    CHECK(t.waited == 1 + 2 && t.server->num_requests == 3);
    t.source.attempts = 2;
    t.server->failures[3] = t.server->failures[4] = 503;
    CHECK_STATUS(IO, fetch(&t));
    CHECK_MESSAGE("container: HTTP 503");
    end(&t);
}

TEST(s3_service_sends_a_containers_token)
{
    if (!http_available()) skip();
    struct service_test t = begin(S3_SOURCE_CONTAINER, NULL);
    metadata_server_add(t.server, "hidden", noon);
    t.server->authorization = "Bearer hidden";
    t.source.token = heap_string("Bearer hidden", 13);
    CHECK_STATUS(OK, fetch(&t));
    check_keys(&t, "hidden");
    t.source.token_file = file_join(test_folder(), "token");
    CHECK_STATUS(CONFIG, fetch(&t));
    CHECK_MESSAGE("cannot read the token file");
    CHECK_STATUS(OK, file_write(t.source.token_file, "hidden old", 10));
    free(t.source.token), t.source.token = NULL;
    CHECK_STATUS(IO, fetch(&t));
    CHECK_MESSAGE("container: HTTP 401"); /* whose body quotes the token */
    check_secret();
    CHECK_STATUS(OK, file_write(t.source.token_file, "Bearer hidden", 13)); /* rotated */
    CHECK_STATUS(OK, fetch(&t));
    int before = t.server->num_requests;
    CHECK_STATUS(OK, file_write(t.source.token_file, "hidden\r\nX: y", 12));
    CHECK_STATUS(CONFIG, fetch(&t));
    CHECK_MESSAGE("without a line break");
    check_secret();
    CHECK_STATUS(OK, file_write(t.source.token_file, "", 0));
    CHECK_STATUS(CONFIG, fetch(&t));
    CHECK(t.server->num_requests == before);
    end(&t);
}

static const char sts_answer[] =
    "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"
    "<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>" S3_KEY_ID "</AccessKeyId>"
    "<SecretAccessKey>" S3_SECRET "</SecretAccessKey><SessionToken>hid&amp;den</SessionToken>"
    "<Expiration>2026-01-31T12:00:00Z</Expiration></Credentials>"
    "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>";

TEST(s3_service_exchanges_a_web_identity_token_at_sts)
{
    if (!http_available()) skip();
    struct service_test t = begin(S3_SOURCE_WEB_IDENTITY, "hidden.jwt/+=");
    metadata_server_add_bytes(t.server, sts_answer, strlen(sts_answer));
    t.source.session_name = heap_string("me@x", 4);
    CHECK_STATUS(OK, fetch(&t));
    check_keys(&t, "hid&den");
    free(t.source.session_name), t.source.session_name = NULL;
    CHECK_STATUS(OK, fetch(&t));
    metadata_server_stop(t.server);
    CHECK(strstr(t.server->log.data,
                 "POST / Action=AssumeRoleWithWebIdentity&Version=2011-06-15&"
                 "RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fa%20b&RoleSessionName=me%40x&"
                 "WebIdentityToken=hidden.jwt%2F%2B%3D\n"));
    CHECK(strstr(t.server->log.data, "&RoleSessionName=llamero-"));
    metadata_server_start(t.server);
    end(&t);
}

/* Serves one answer with an HTTP status. */
struct sts_error {
    int status;
    const char *body;
};

static void answer_error(void *context, int fd)
{
    const struct sts_error *e = context;
    struct server_request r = {0};
    if (server_receive(&r, fd, false)) server_answer(fd, e->status, "", e->body, strlen(e->body));
    text_release(&r.body);
}

struct sts_thread {
    struct sts_error error;
    int listening, stop[2];
};

static void *serve_errors(void *context)
{
    struct sts_thread *t = context;
    server_loop(t->listening, t->stop[0], answer_error, &t->error);
    return NULL;
}

TEST(s3_service_shows_the_error_of_sts_but_not_the_token)
{
    if (!http_available()) skip();
#define ERROR(code, message)                                                                       \
    "<ErrorResponse><Error><Type>Sender</Type><Code>" code "</Code><Message>" message              \
    "</Message></Error></ErrorResponse>"
    static const struct {
        struct sts_error error;
        const char *message;
    } cases[] = {
        {{403, ERROR("AccessDenied", "Not authorized &amp; so")},
         "HTTP 403 (AccessDenied: Not authorized & so)"},
        {{400, ERROR("InvalidIdentityToken", "the token eyJhbGciOiJS.is wrong")},
         "HTTP 400 (InvalidIdentityToken)"},
        {{400, ERROR("eyJhbGciOiJS.hidden", "")}, "HTTP 400 (no code)"},
        {{400, "not XML eyJhbGciOiJS.hidden"}, "HTTP 400 (no code)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct service_test t = begin(S3_SOURCE_WEB_IDENTITY, "eyJhbGciOiJS.hidden");
        struct sts_thread server = {.error = cases[i].error};
        pthread_t thread;
        char url[64];
        server.listening = server_listen(url, sizeof url);
        CHECK(server.listening >= 0 && pipe(server.stop) == 0);
        CHECK(pthread_create(&thread, NULL, serve_errors, &server) == 0);
        free(t.source.url);
        t.source.url = heap_strdup(url);
        CHECK_STATUS(CONFIG, fetch(&t));
        CHECK_MESSAGE(cases[i].message);
        CHECK(!strstr(status_message(), "eyJh"));
        check_secret();
        CHECK(write(server.stop[1], "x", 1) == 1);
        pthread_join(thread, NULL);
        close(server.listening), close(server.stop[0]), close(server.stop[1]);
        end(&t);
    }
#undef ERROR
}

static void check_hostile(struct service_test *t, const char *message)
{
    CHECK_STATUS(DATA, fetch(t));
    CHECK_MESSAGE(message);
    check_secret();
    CHECK(!t->keys.key_id && strlen(status_message()) < 500);
    end(t);
}

TEST(s3_service_rejects_hostile_documents)
{
    if (!http_available()) skip();
    static const enum s3_source_kind kinds[] = {S3_SOURCE_INSTANCE, S3_SOURCE_CONTAINER,
                                                S3_SOURCE_WEB_IDENTITY};
    for (size_t i = 0; i < 3; i++) {
        bool is_xml = kinds[i] == S3_SOURCE_WEB_IDENTITY;
        const char *token = is_xml ? "hidden" : NULL;
        struct service_test t = begin(kinds[i], token);
        struct text huge = {0};
        text_reserve(&huge, 1 << 20);
        while (huge.len < 1 << 20) text_adds(&huge, is_xml ? "<!-- hidden -->" : " \"hidden\" ");
        metadata_server_add_bytes(t.server, huge.data, huge.len);
        check_hostile(&t, "the response is larger than 65536 bytes");
        text_release(&huge);
        static const char *const bytes[] = {"", "hidden", "{}\0hidden", "<a>hidden", "{}", "<a/>"};
        static const size_t lengths[] = {0, 6, 9, 9, 2, 4};
        for (size_t k = 0; k < sizeof bytes / sizeof *bytes; k++) {
            t = begin(kinds[i], token);
            metadata_server_add_bytes(t.server, bytes[k], lengths[k]);
            check_hostile(&t, "");
        }
    }
}

TEST(s3_service_rejects_hostile_answers_of_sts)
{
    if (!http_available()) skip();
    static const char *const replaced[][3] = {
        {"AccessKeyId>", "AccessKeyIx>", "has no /AssumeRoleWithWebIdentityResponse"},
        {"SessionToken>", "SessionTokex>", "/SessionToken"},
        {"T12", " 12", "Expiration is not a time"},
        {"hid&amp;", "hid&#10;", "malformed"},
        {"hid&amp;", "hid\1amp;", ""},
    };
    for (size_t i = 0; i < sizeof replaced / sizeof *replaced; i++) {
        struct service_test t = begin(S3_SOURCE_WEB_IDENTITY, "hidden");
        char *text = heap_strdup(sts_answer);
        size_t n = strlen(replaced[i][0]);
        CHECK(strlen(replaced[i][1]) == n);
        for (char *at = text; (at = strstr(at, replaced[i][0]));) memcpy(at, replaced[i][1], n);
        metadata_server_add_bytes(t.server, text, strlen(text));
        free(text);
        check_hostile(&t, replaced[i][2]);
    }
}

TEST(s3_service_rejects_names_of_roles_that_are_paths)
{
    if (!http_available()) skip();
    static const struct {
        const char *role;
        size_t len;
    } cases[] = {{"a/b", 3},  {"../../user-data", 15}, {"..", 2},     {"a?b", 3},  {"a b", 3},
                 {"a\nb", 3}, {"role\0x", 6},          {"<html>", 6}, {"a%2Fb", 5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct service_test t = begin(S3_SOURCE_INSTANCE, NULL);
        t.server->role = cases[i].role;
        t.server->role_bytes = cases[i].len;
        metadata_server_add(t.server, "hidden", noon);
        check_hostile(&t, "the response is not the name of a role");
    }
    struct text name = {0};
    while (name.len < 100) text_adds(&name, "a");
    struct service_test t = begin(S3_SOURCE_INSTANCE, NULL);
    t.server->role = name.data;
    check_hostile(&t, "the response is not the name of a role");
    t = begin(S3_SOURCE_INSTANCE, NULL);
    t.server->session = "hidden\r\nX: y";
    check_hostile(&t, "the session token is malformed");
    text_release(&name);
}

TEST(s3_service_ends_when_canceled)
{
    if (!http_available()) skip();
    struct service_test t = begin(S3_SOURCE_INSTANCE, NULL);
    struct s3_call call = metadata_server_call(&t.waited);
    atomic_bool cancel = true;
    call.cancel = &cancel;
    CHECK_STATUS(REQUEUE, s3_service_fetch(&t.source, &call, &t.keys));
    end(&t);
}
