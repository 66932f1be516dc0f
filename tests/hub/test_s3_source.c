// SPDX-License-Identifier: Apache-2.0
#include "hub/s3_source.h"
#include "test.h"

TEST(s3_source_sends_container_tokens_to_this_host_or_encrypted)
{
    static const char *const allowed[] = {
        "https://example.com/x",      "http://localhost",
        "http://LOCALHOST:80/x",      "http://127.0.0.1:9/x?a=b",
        "http://127.1.2.3/",          "http://169.254.170.2/v2/x",
        "http://169.254.170.23/v1/x", "http://[::1]:80/x",
        "http://[fd00:ec2::23]/v1/x", "http://[fd00:0ec2:0:0:0:0:0:23]/v1/x",
    };
    static const char *const rejected[] = {
        "",
        "127.0.0.1",
        "ftp://127.0.0.1",
        "file:///etc/passwd",
        "http://example.com",
        "http://10.0.0.1/",
        "http://169.254.169.254/",
        "http://169.254.170.2.example.com/",
        "http://localhost.example.com/",
        "http://127.0.0.1.example.com/",
        "http://127.0.0.1@example.com/",
        "http://example.com/@127.0.0.1",
        "http://example.com#127.0.0.1",
        "http://example.com\\@127.0.0.1",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f.0.0.1/",
        "http://[::1",
        "http://[::1]example.com",
        "http://[::2]/",
        "http://[::ffff:10.0.0.1]/",
        "http://localhost /",
        "http://",
        "https://a\r\nHost: b",
    };
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        CHECK(s3_source_is_allowed(allowed[i]));
    for (size_t i = 0; i < sizeof rejected / sizeof *rejected; i++)
        CHECK(!s3_source_is_allowed(rejected[i]));
}

static const char *const names[] = {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                                    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                                    "AWS_EC2_METADATA_DISABLED",
                                    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
                                    "AWS_METADATA_SERVICE_TIMEOUT",
                                    "AWS_METADATA_SERVICE_NUM_ATTEMPTS",
                                    "AWS_WEB_IDENTITY_TOKEN_FILE",
                                    "AWS_ROLE_ARN",
                                    "AWS_ROLE_SESSION_NAME",
                                    "AWS_ENDPOINT_URL",
                                    "AWS_ENDPOINT_URL_STS"};

/* A profile "p" with these lines. */
static struct s3_profile make_profile(const char *lines)
{
    struct s3_profile p = {.name = heap_string("p", 1)};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
    text_adds(&p.credentials, "");
    text_addf(&p.config, "[profile p]\n%s\n", lines);
    return p;
}

TEST(s3_source_of_a_container_prefers_the_relative_uri_and_the_token_file)
{
    struct s3_profile p = make_profile("");
    struct s3_source s = {0};
    CHECK_STATUS(OK, s3_source_container(&s));
    CHECK(s.kind == S3_SOURCE_NONE);
    setenv(names[1], "http://127.0.0.1:8080/x?a=b", 1);
    setenv(names[2], "token", 1);
    CHECK_STATUS(OK, s3_source_container(&s));
    CHECK(s.kind == S3_SOURCE_CONTAINER && !strcmp(s.url, "http://127.0.0.1:8080/x?a=b"));
    CHECK(!strcmp(s.token, "token") && !s.token_file && s.timeout_s == 2 && s.attempts == 3);
    s3_source_release(&s);
    setenv(names[0], "/v2/credentials/id", 1);
    setenv(names[3], "/token", 1);
    CHECK_STATUS(OK, s3_source_container(&s));
    CHECK(!strcmp(s.url, "http://169.254.170.2/v2/credentials/id"));
    CHECK(!s.token && !strcmp(s.token_file, "/token"));
    s3_source_release(&s);
    setenv(names[0], "@example.com/x", 1);
    CHECK_STATUS(CONFIG, s3_source_container(&s));
    CHECK_MESSAGE("must begin with a slash");
    s3_source_release(&s);
    unsetenv(names[0]);
    setenv(names[1], "http://example.com/secret", 1);
    CHECK_STATUS(CONFIG, s3_source_container(&s));
    CHECK_MESSAGE("AWS_CONTAINER_CREDENTIALS_FULL_URI: expected an https URL");
    CHECK(!strstr(status_message(), "secret"));
    s3_source_release(&s);
    s3_profile_release(&p);
}

TEST(s3_source_of_an_instance_follows_the_environment_and_the_profile)
{
    struct s3_profile p = make_profile("metadata_service_timeout = 3");
    struct s3_source s = {0};
    CHECK_STATUS(OK, s3_source_instance(&p, &s));
    CHECK(!strcmp(s.url, "http://169.254.169.254") && !s.is_disabled);
    CHECK(s.timeout_s == 3 && s.attempts == 1);
    s3_source_release(&s);
    setenv("AWS_METADATA_SERVICE_TIMEOUT", "5", 1);
    setenv("AWS_METADATA_SERVICE_NUM_ATTEMPTS", "4", 1);
    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://[fd00:ec2::254]/", 1);
    setenv("AWS_EC2_METADATA_DISABLED", "True", 1);
    CHECK_STATUS(OK, s3_source_instance(&p, &s));
    CHECK(!strcmp(s.url, "http://[fd00:ec2::254]") && s.is_disabled);
    CHECK(s.timeout_s == 5 && s.attempts == 4);
    s3_source_release(&s);
    static const char *const wrong[] = {"0", "-1", "1s", "x", "1001"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv("AWS_METADATA_SERVICE_TIMEOUT", wrong[i], 1);
        CHECK_STATUS(CONFIG, s3_source_instance(&p, &s));
        CHECK_MESSAGE("AWS_METADATA_SERVICE_TIMEOUT must be a whole number from 1");
        s3_source_release(&s);
    }
    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://user:secret@x", 1);
    CHECK_STATUS(CONFIG, s3_source_instance(&p, &s));
    CHECK_MESSAGE("AWS_EC2_METADATA_SERVICE_ENDPOINT must be");
    CHECK(!strstr(status_message(), "secret"));
    s3_source_release(&s);
    s3_profile_release(&p);
    p = make_profile("");
    s3_profile_release(&p);
}

static void check_sts(const struct s3_profile *p, const char *region, const char *url)
{
    struct s3_source s = {0};
    CHECK_STATUS(OK, s3_source_web_identity(p, region, &s));
    CHECK(s.kind == S3_SOURCE_WEB_IDENTITY && !strcmp(s.url, url));
    s3_source_release(&s);
}

TEST(s3_source_of_a_web_identity_finds_sts)
{
    struct s3_profile p = make_profile("web_identity_token_file = /from/profile\n"
                                       "role_arn = arn:profile\n"
                                       "services = s");
    struct s3_source s = {0};
    check_sts(&p, "eu-west-1", "https://sts.eu-west-1.amazonaws.com");
    check_sts(&p, "cn-north-1", "https://sts.cn-north-1.amazonaws.com.cn");
    text_adds(&p.config, "[services s]\nsts =\n  endpoint_url = https://profile.example/\n");
    check_sts(&p, "eu-west-1", "https://profile.example");
    setenv("AWS_ENDPOINT_URL", "https://all.example", 1);
    check_sts(&p, "eu-west-1", "https://all.example");
    setenv("AWS_ENDPOINT_URL_STS", "https://sts.example", 1);
    check_sts(&p, "eu-west-1", "https://sts.example");
    setenv("AWS_ROLE_ARN", "arn:env", 1);
    setenv("AWS_ROLE_SESSION_NAME", "me", 1);
    CHECK_STATUS(OK, s3_source_web_identity(&p, "eu-west-1", &s));
    CHECK(!strcmp(s.role_arn, "arn:env") && !strcmp(s.session_name, "me"));
    CHECK(!strcmp(s.token_file, "/from/profile"));
    s3_source_release(&s);
    s3_profile_release(&p);
    p = make_profile("");
    CHECK_STATUS(OK, s3_source_web_identity(&p, "eu-west-1", &s));
    CHECK(s.kind == S3_SOURCE_NONE);
    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/token", 1);
    CHECK_STATUS(CONFIG, s3_source_web_identity(&p, "eu-west-1", &s));
    CHECK_MESSAGE("set AWS_ROLE_ARN");
    s3_source_release(&s);
    s3_profile_release(&p);
    p = make_profile("");
    s3_profile_release(&p);
}

TEST(s3_source_says_what_replaces_sso_and_assume_role)
{
    static const char *const sso[] = {"sso_session = s", "sso_start_url = https://x.example"};
    struct s3_source s = {0};
    for (size_t i = 0; i < 2; i++) {
        struct s3_profile p = make_profile(sso[i]);
        CHECK_STATUS(CONFIG, s3_source_check_sso(&p));
        CHECK_MESSAGE("aws configure export-credentials --profile p --format env");
        CHECK_MESSAGE("credential_process");
        s3_profile_release(&p);
    }
    struct s3_profile p = make_profile("role_arn = arn:x\nsource_profile = other");
    CHECK_STATUS(OK, s3_source_check_sso(&p));
    CHECK_STATUS(CONFIG, s3_source_web_identity(&p, "us-east-1", &s));
    CHECK_MESSAGE("aws configure export-credentials --profile p");
    s3_source_release(&s);
    s3_profile_release(&p);
}
