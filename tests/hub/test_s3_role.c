// SPDX-License-Identifier: Apache-2.0
#include "hub/metadata_server.h"
#include "hub/s3_role.h"
#include "hub/s3_server.h"
#include "test.h"

#include "base/file.h"
#include "base/log.h"

static double now_s; /* of the role's clock; set while no other thread runs */
static double test_clock(void) { return now_s; }

static const double start_s = 1e9;

/* A role whose credentials a server issues. */
struct role_test {
    struct metadata_server *server;
    struct s3_role *role;
    double waited;
};

/* Each token expires at its time after the start, as a multiple of 1000 s; 0: no more of them. */
static struct role_test begin(enum s3_source_kind kind, double first, double second)
{
    struct role_test t = {.server = metadata_server_make()};
    now_s = start_s;
    if (first != 0) metadata_server_add(t.server, "first", start_s + 1000 * first);
    if (second != 0) metadata_server_add(t.server, "second", start_s + 1000 * second);
    metadata_server_start(t.server);
    struct s3_source source = metadata_server_source(t.server, kind, NULL);
    t.role = s3_role_make(&source, test_clock);
    return t;
}

static void end(struct role_test *t)
{
    s3_role_free(t->role);
    metadata_server_stop(t->server);
    metadata_server_free(t->server);
}

static enum status get(struct role_test *t, struct s3_keys *k)
{
    const struct s3_call call = metadata_server_call(&t->waited);
    return s3_role_keys(t->role, &call, k);
}

static void check_token(struct role_test *t, const char *want)
{
    struct s3_keys k;
    CHECK_STATUS(OK, get(t, &k));
    CHECK(!strcmp(k.session_token, want) && !strcmp(k.key_id, S3_KEY_ID));
    s3_keys_release(&k);
}

TEST(s3_role_requests_credentials_once_and_refreshes_them_before_they_expire)
{
    if (!http_available()) skip();
    struct role_test t = begin(S3_SOURCE_CONTAINER, 10, 20);
    CHECK(t.server->num_requests == 0);
    check_token(&t, "first");
    now_s = start_s + 10000 - 301;
    check_token(&t, "first");
    CHECK(t.server->num_served == 1);
    now_s = start_s + 10000 - 299;
    check_token(&t, "second");
    check_token(&t, "second");
    CHECK(t.server->num_served == 2);
    end(&t);
}

TEST(s3_role_keeps_credentials_that_are_valid_if_the_refresh_fails)
{
    if (!http_available()) skip();
    struct role_test t = begin(S3_SOURCE_CONTAINER, 1, 20);
    struct s3_keys k;
    const char *path = test_path(test_folder(), "log");
    struct text log = {0};
    CHECK_STATUS(OK, log_open(path));
    for (int i = 1; i < 4; i++) t.server->failures[i] = 503;
    check_token(&t, "first");
    now_s = start_s + 800;
    check_token(&t, "first"); /* with a warning */
    CHECK(t.server->num_requests == 2);
    now_s = start_s + 859;
    check_token(&t, "first"); /* no attempt within a minute */
    CHECK(t.server->num_requests == 2);
    now_s = start_s + 861;
    check_token(&t, "first");
    CHECK(t.server->num_requests == 3);
    now_s = start_s + 1001;
    CHECK_STATUS(IO, get(&t, &k)); /* expired */
    CHECK_MESSAGE("container: HTTP 503");
    CHECK(!k.key_id);
    check_token(&t, "second");
    CHECK_STATUS(OK, log_open(NULL));
    CHECK_STATUS(OK, file_read(path, 1 << 20, &log));
    CHECK(strstr(log.data, "HTTP 503; using the credentials from before until they expire"));
    CHECK(!strstr(log.data, S3_SECRET) && !strstr(log.data, S3_KEY_ID));
    text_release(&log);
    end(&t);
}

TEST(s3_role_replaces_rejected_credentials_once)
{
    if (!http_available()) skip();
    struct role_test t = begin(S3_SOURCE_CONTAINER, 10, 20);
    struct s3_keys k;
    check_token(&t, "first");
    s3_role_reject(t.role, "of another");
    check_token(&t, "first");
    s3_role_reject(t.role, S3_KEY_ID);
    check_token(&t, "second");
    check_token(&t, "second");
    CHECK(t.server->num_served == 2);
    s3_role_reject(t.role, S3_KEY_ID);
    t.server->failures[2] = 500; /* rejected ones are not used again */
    CHECK_STATUS(IO, get(&t, &k));
    check_token(&t, "second");
    end(&t);
}

TEST(s3_role_rejects_credentials_that_have_expired_already)
{
    if (!http_available()) skip();
    struct role_test t = begin(S3_SOURCE_CONTAINER, -1, 0);
    struct s3_keys k;
    CHECK_STATUS(DATA, get(&t, &k));
    CHECK_MESSAGE("container: the credentials have expired already; check this host's clock");
    end(&t);
    t = begin(S3_SOURCE_INSTANCE, -1, 10); /* repeated during an outage of AWS */
    check_token(&t, "first");
    check_token(&t, "second");
    end(&t);
}

TEST(s3_role_of_an_instance_may_be_absent)
{
    if (!http_available()) skip();
    struct role_test t = begin(S3_SOURCE_INSTANCE, 10, 0);
    struct s3_keys k;
    struct text from = {0};
    t.server->session = NULL;
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(OK, get(&t, &k));
        CHECK(!k.key_id && s3_role_is_absent(t.role) && t.server->num_requests == 1);
    }
    s3_role_describe(t.role, &from);
    static const char *const places[] = {
        "AWS_ACCESS_KEY_ID",  "AWS_WEB_IDENTITY_TOKEN_FILE",
        "~/.aws/credentials", "~/.aws/config",
        "credential_process", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "EC2 instance"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) CHECK(strstr(from.data, places[i]));
    text_release(&from);
    end(&t);
    t = begin(S3_SOURCE_INSTANCE, 1, 0); /* it had one, which was then removed */
    check_token(&t, "first");
    now_s = start_s + 2000;
    t.server->session = NULL;
    CHECK_STATUS(IO, get(&t, &k));
    CHECK(!s3_role_is_absent(t.role));
    end(&t);
}

TEST(s3_role_runs_a_process_again_before_its_credentials_expire)
{
    struct text command = {0};
    struct s3_keys k;
    const char *path = test_path(test_folder(), "keys");
    double waited;
    const struct s3_call call = metadata_server_call(&waited);
    static const char *const documents[] = {
        "{\"Version\": 1, \"AccessKeyId\": \"a\", \"SecretAccessKey\": \"s\", "
        "\"Expiration\": \"2001-09-09T02:46:40Z\"}", /* 1e9 + 3600 */
        "{\"Version\": 1, \"AccessKeyId\": \"b\", \"SecretAccessKey\": \"s\"}"};
    text_addf(&command, "cat %s", path);
    struct s3_source source = {.kind = S3_SOURCE_PROCESS,
                               .name = heap_string("process", 7),
                               .command = heap_string(command.data, command.len)};
    struct s3_role *r = s3_role_make(&source, test_clock);
    now_s = start_s;
    for (int i = 0; i < 3; i++) {
        const char *document = documents[i > 0];
        CHECK_STATUS(OK, file_write(path, document, strlen(document)));
        if (i) now_s += 3400; /* the second document never expires */
        CHECK_STATUS(OK, s3_role_keys(r, &call, &k));
        CHECK(!strcmp(k.key_id, i ? "b" : "a"));
        s3_keys_release(&k);
    }
    s3_role_free(r);
    text_release(&command);
}

static void *get_many(void *context)
{
    for (int i = 0; i < 50; i++) {
        struct s3_keys k;
        if (get(context, &k) || strcmp(k.key_id, S3_KEY_ID)) return context;
        s3_role_reject(((struct role_test *)context)->role, "another");
        s3_keys_release(&k);
    }
    return NULL;
}

TEST(s3_role_is_shared_by_threads)
{
    if (!http_available()) skip();
    struct role_test t = begin(S3_SOURCE_INSTANCE, 10, 20);
    pthread_t threads[8];
    struct role_test each[8];
    void *failed;
    for (int i = 0; i < 8; i++) {
        each[i] = t;
        CHECK(!pthread_create(&threads[i], NULL, get_many, &each[i]));
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], &failed);
        CHECK(!failed);
    }
    CHECK(t.server->num_served == 1);
    end(&t);
}
