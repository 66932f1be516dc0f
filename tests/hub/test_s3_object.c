// SPDX-License-Identifier: Apache-2.0
#include "hub/metadata_server.h"
#include "hub/s3_server.h"
#include "test.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "hub/s3_listing.h"
#include "hub/s3_object.h"
#include "hub/s3_role.h"

/* A server, a client, and a local file of `size` bytes. */
struct object_test {
    struct s3_server server;
    struct hub_settings settings;
    struct hub_path bucket;
    struct client client;
    struct text bytes;
    struct s3_file file;
    double waited;
};

static struct object_test *begin(struct object_test *t, size_t size)
{
    s3_server_start(&t->server);
    t->settings = s3_server_settings(&t->server, &t->waited);
    CHECK_STATUS(OK, client_open(&t->client, &t->settings));
    CHECK_STATUS(OK, hub_path_parse(&t->bucket, "s3://bucket"));
    for (size_t i = 0; i < size; i++) text_add(&t->bytes, &(char){(char)(i * 7 + i / 251)}, 1);
    text_adds(&t->bytes, "");
    char *path = file_join(test_folder(), "file");
    CHECK_STATUS(OK, file_write(path, t->bytes.data, size));
    t->file = (struct s3_file){&t->bucket, "a b/c+d=e.bin", path};
    return t;
}

static void end(struct object_test *t)
{
    client_close(&t->client);
    s3_server_stop(&t->server);
    CHECK(t->server.num_bad_signatures == 0);
    s3_server_release(&t->server);
    hub_settings_release(&t->settings);
    hub_path_release(&t->bucket);
    text_release(&t->bytes);
    free((char *)t->file.path);
    free(t);
}

static struct object_test *make(void) { return calloc(1, sizeof(struct object_test)); }

static void check_uploaded(struct object_test *t)
{
    const struct text *o = s3_server_object(&t->server, t->file.key);
    CHECK(o && o->len == t->bytes.len && !memcmp(o->data, t->bytes.data, o->len));
    CHECK(s3_server_num_uploads(&t->server) == 0);
}

TEST(s3_uploads_in_one_request_or_in_parts)
{
    if (!s3_available()) skip();
    static const struct {
        size_t size, part;
        int puts;
    } cases[] = {{0, 100, 1}, {100, 100, 1}, {101, 100, 2}, {1000, 100, 10}, {3 << 20, 0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct object_test *t = begin(make(), cases[i].size);
        CHECK_STATUS(OK, s3_object_upload(&t->client, &t->file, cases[i].part));
        check_uploaded(t);
        CHECK(t->server.counts[S3_PUT] == cases[i].puts);
        CHECK(t->server.counts[S3_POST] == (cases[i].puts > 1 ? 2 : 0));
        end(t);
    }
}

TEST(s3_upload_signs_with_the_session_token)
{
    if (!s3_available()) skip();
    struct object_test *t = make();
    t->server.session = "a+session/token==";
    begin(t, 250);
    CHECK_STATUS(OK, s3_object_upload(&t->client, &t->file, 100));
    check_uploaded(t);
    end(t);
}

TEST(s3_upload_retries_each_part)
{
    if (!s3_available()) skip();
    struct object_test *t = make();
    static const enum s3_fault faults[] = {S3_FAULT_SLOW_DOWN, S3_FAULT_NONE, S3_FAULT_DROP,
                                           S3_FAULT_DISCONNECT};
    memcpy(t->server.faults[S3_PUT], faults, sizeof faults);
    t->server.faults[S3_POST][0] = S3_FAULT_SLOW_DOWN;
    t->server.faults[S3_POST][2] = S3_FAULT_DROP;
    begin(t, 250);
    CHECK_STATUS(OK, s3_object_upload(&t->client, &t->file, 100));
    check_uploaded(t);
    CHECK(t->server.counts[S3_PUT] == 3 + 3 && t->waited == 1 + 1 + 1 + 2 + 1);
    end(t);
}

TEST(s3_upload_aborts_on_failure)
{
    if (!s3_available()) skip();
    struct object_test *t = make();
    t->server.faults[S3_PUT][1] = S3_FAULT_DENIED;
    begin(t, 250);
    CHECK_STATUS(CONFIG, s3_object_upload(&t->client, &t->file, 100));
    CHECK_MESSAGE("s3://bucket/a b/c+d=e.bin: HTTP 403 (AccessDenied: because of AccessDenied");
    CHECK_MESSAGE("AWS_ACCESS_KEY_ID");
    CHECK(!strstr(status_message(), S3_KEY_ID) && !strstr(status_message(), S3_SECRET));
    CHECK(!s3_server_object(&t->server, t->file.key));
    CHECK(t->server.num_aborted == 1 && s3_server_num_uploads(&t->server) == 0);
    end(t);
}

TEST(s3_upload_notices_an_error_in_a_successful_response)
{
    if (!s3_available()) skip();
    struct object_test *t = make();
    t->server.faults[S3_POST][1] = S3_FAULT_IN_BODY;
    begin(t, 250);
    CHECK_STATUS(IO, s3_object_upload(&t->client, &t->file, 100));
    CHECK_MESSAGE("InternalError: because of InternalError & so");
    CHECK(t->server.num_aborted == 1 && !s3_server_object(&t->server, t->file.key));
    end(t);
}

TEST(s3_upload_of_changed_bytes_is_rejected)
{
    if (!s3_available()) skip();
    struct object_test *t = make();
    t->server.faults[S3_PUT][1] = S3_FAULT_CORRUPT;
    begin(t, 250);
    CHECK_STATUS(CONFIG, s3_object_upload(&t->client, &t->file, 100));
    CHECK_MESSAGE("SignatureDoesNotMatch");
    CHECK(!s3_server_object(&t->server, t->file.key));
    t->server.num_bad_signatures = 0;
    end(t);
}

TEST(s3_upload_ends_when_canceled)
{
    if (!s3_available()) skip();
    struct object_test *t = begin(make(), 250);
    atomic_bool cancel = true;
    t->client.cancel = &cancel;
    CHECK_STATUS(REQUEUE, s3_object_upload(&t->client, &t->file, 100));
    CHECK(!s3_server_object(&t->server, t->file.key));
    end(t);
}

/* Lists the one object of the server. */
static void list(struct object_test *t, struct listing *l)
{
    s3_server_put(&t->server, t->file.key, t->bytes.data, t->bytes.len);
    CHECK_STATUS(OK, s3_listing_fetch(&t->client, &t->bucket,
                                      &(struct tree_query){.folder = "", .recursive = true}, l));
    CHECK(l->count == 1);
}

TEST(s3_download_resumes_with_ranges)
{
    if (!s3_available()) skip();
    struct object_test *t = make();
    struct listing l = {0};
    struct text got = {0};
    static const enum s3_fault faults[] = {S3_FAULT_DISCONNECT, S3_FAULT_SLOW_DOWN, S3_FAULT_DROP,
                                           S3_FAULT_DISCONNECT};
    memcpy(t->server.faults[S3_GET], faults, sizeof faults);
    begin(t, 1000);
    list(t, &l);
    struct s3_file to = {&t->bucket, t->file.key, test_path(test_folder(), "copy")};
    CHECK_STATUS(OK, s3_object_download(&t->client, &to, &l.files[0]));
    CHECK_STATUS(OK, file_read(to.path, 1 << 20, &got));
    CHECK(got.len == 1000 && !memcmp(got.data, t->bytes.data, 1000));
    CHECK(strstr(t->server.log.data, "bytes=500-") && strstr(t->server.log.data, "bytes=750-"));
    CHECK_STATUS(OK, s3_object_read(&t->client, &t->bucket, t->file.key, &got));
    CHECK(got.len == 1000);
    CHECK_STATUS(OK, s3_object_delete(&t->client, &t->bucket, t->file.key));
    CHECK_STATUS(MISSING, s3_object_read(&t->client, &t->bucket, t->file.key, &got));
    CHECK_MESSAGE("NoSuchKey");
    listing_release(&l);
    text_release(&got);
    end(t);
}

TEST(s3_download_rejects_an_object_that_changed_after_it_was_listed)
{
    if (!s3_available()) skip();
    struct object_test *t = begin(make(), 1000);
    struct listing l = {0};
    list(t, &l);
    s3_server_put(&t->server, t->file.key, "new", 3);
    struct s3_file to = {&t->bucket, t->file.key, test_path(test_folder(), "copy")};
    CHECK_STATUS(IO, s3_object_download(&t->client, &to, &l.files[0]));
    CHECK_MESSAGE("HTTP 412 (PreconditionFailed");
    listing_release(&l);
    end(t);
}

TEST(s3_errors_name_the_region_and_missing_credentials)
{
    if (!s3_available()) skip();
    struct object_test *t = make();
    t->server.faults[S3_PUT][0] = S3_FAULT_OTHER;
    begin(t, 10);
    CHECK_STATUS(CONFIG, s3_object_upload(&t->client, &t->file, 0));
    CHECK_MESSAGE("set AWS_REGION=eu-north-1");
    free((char *)t->settings.signer.key_id);
    t->settings.signer.key_id = NULL;
    CHECK_STATUS(CONFIG, s3_object_upload(&t->client, &t->file, 0));
    CHECK_MESSAGE("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
    t->server.num_bad_signatures = 0;
    end(t);
}

/* --- credentials of a role --- */

static double base_s, step_s; /* of the role's clock, which advances at each look */
static double advancing_clock(void) { return base_s += step_s; }

/* Lets the settings use the role of an EC2 instance instead of their own credentials. */
static void use_role(struct object_test *t, struct metadata_server *m)
{
    struct s3_source source = metadata_server_source(m, S3_SOURCE_INSTANCE, NULL);
    free((char *)t->settings.signer.key_id);
    free((char *)t->settings.signer.secret);
    t->settings.signer.key_id = t->settings.signer.secret = NULL;
    t->settings.role = s3_role_make(&source, advancing_clock);
}

/* Uploads ten parts to a store that accepts the first session and, as `fault` or time goes by, the
 * next one. */
static void upload_with_role(enum s3_fault fault, double expires_s, double step)
{
    struct metadata_server *m = metadata_server_make();
    struct object_test *t = make();
    const char *path = test_path(test_folder(), "log");
    struct text log = {0};
    t->server.session = "first+session/token==";
    t->server.next_session = "next+session/token==";
    t->server.faults[S3_PUT][4] = fault;
    base_s = 1e9, step_s = step;
    metadata_server_add(m, t->server.session, base_s + expires_s);
    metadata_server_add(m, t->server.next_session, base_s + 1e6);
    metadata_server_start(m);
    begin(t, 1000);
    use_role(t, m);
    CHECK_STATUS(OK, log_open(path));
    CHECK_STATUS(OK, s3_object_upload(&t->client, &t->file, 100));
    CHECK_STATUS(OK, log_open(NULL));
    check_uploaded(t);
    CHECK(m->num_served == 2);
    CHECK(t->server.num_next > 0 && t->server.num_next < 10 + (fault != S3_FAULT_NONE));
    CHECK(t->server.counts[S3_PUT] == 10 + (fault != S3_FAULT_NONE) && t->waited == 0);
    CHECK_STATUS(OK, file_read(path, 1 << 20, &log));
    CHECK(!strstr(log.data, "session") && !strstr(log.data, S3_SECRET));
    text_release(&log);
    end(t);
    metadata_server_stop(m);
    metadata_server_free(m);
}

TEST(s3_upload_continues_with_refreshed_credentials)
{
    if (!s3_available()) skip();
    upload_with_role(S3_FAULT_NONE, 3600, 500);
}

TEST(s3_upload_refreshes_credentials_that_the_store_calls_expired)
{
    if (!s3_available()) skip();
    upload_with_role(S3_FAULT_EXPIRED, 1e5, 0);
}

TEST(s3_credentials_that_stay_expired_are_an_error)
{
    if (!s3_available()) skip();
    struct metadata_server *m = metadata_server_make();
    struct object_test *t = make();
    for (int i = 0; i < 3; i++) t->server.faults[S3_PUT][i] = S3_FAULT_EXPIRED;
    base_s = 1e9, step_s = 0;
    metadata_server_add(m, "hidden", base_s + 1e5);
    metadata_server_start(m);
    begin(t, 10);
    CHECK_STATUS(CONFIG, s3_object_upload(&t->client, &t->file, 0)); /* the settings' own */
    CHECK_MESSAGE("HTTP 400 (ExpiredToken: because of ExpiredToken & so): the credentials have");
    CHECK(t->server.counts[S3_PUT] == 1);
    use_role(t, m);
    CHECK_STATUS(CONFIG, s3_object_upload(&t->client, &t->file, 0));
    CHECK_MESSAGE("the credentials have expired; renew them");
    CHECK(t->server.counts[S3_PUT] == 3 && m->num_served == 2);
    CHECK(!strstr(status_message(), "hidden"));
    end(t);
    metadata_server_stop(m);
    metadata_server_free(m);
}

TEST(s3_errors_name_every_place_without_credentials)
{
    if (!s3_available()) skip();
    struct metadata_server *m = metadata_server_make();
    struct object_test *t = make();
    double begin_s = clock_monotonic_s();
    m->session = NULL;
    metadata_server_start(m);
    begin(t, 10);
    use_role(t, m);
    CHECK_STATUS(CONFIG, s3_object_upload(&t->client, &t->file, 0));
    static const char *const parts[] = {
        "HTTP 403",
        "the request was not signed, as no credentials were found",
        "AWS_ACCESS_KEY_ID and AWS_WEB_IDENTITY_TOKEN_FILE are not set",
        "no credential_process in ~/.aws/credentials and ~/.aws/config",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "are not set; EC2 instance metadata: http://127.0.0.1:",
        "/latest/api/token: HTTP 404",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) CHECK_MESSAGE(parts[i]);
    CHECK(clock_monotonic_s() - begin_s < 20 && t->server.counts[S3_PUT] == 1);
    t->server.num_bad_signatures = 0;
    end(t);
    metadata_server_stop(m);
    metadata_server_free(m);
}

TEST(s3_public_buckets_need_no_role)
{
    if (!s3_available()) skip();
    struct metadata_server *m = metadata_server_make();
    struct object_test *t = make();
    t->server.is_public = true;
    m->role = NULL;
    metadata_server_start(m);
    begin(t, 250);
    use_role(t, m);
    CHECK_STATUS(OK, s3_object_upload(&t->client, &t->file, 100));
    check_uploaded(t);
    CHECK(m->num_requests == 2);
    end(t);
    metadata_server_stop(m);
    metadata_server_free(m);
}
