// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "hub/s3_role.h"
#include "hub/s3_settings.h"

/* Clears AWS's variables and gives the process a home of its own. */
static const char *begin(void)
{
    static const char *const names[] = {"AWS_ACCESS_KEY_ID",
                                        "AWS_SECRET_ACCESS_KEY",
                                        "AWS_SESSION_TOKEN",
                                        "AWS_PROFILE",
                                        "AWS_DEFAULT_PROFILE",
                                        "AWS_REGION",
                                        "AWS_DEFAULT_REGION",
                                        "AWS_ENDPOINT_URL_S3",
                                        "AWS_ENDPOINT_URL",
                                        "AWS_NO_SIGN_REQUEST",
                                        "AWS_CONFIG_FILE",
                                        "AWS_SHARED_CREDENTIALS_FILE",
                                        "LLAMERO_S3_CACHE",
                                        "XDG_CACHE_HOME",
                                        "AWS_WEB_IDENTITY_TOKEN_FILE",
                                        "AWS_ROLE_ARN",
                                        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
    const char *home = test_folder();
    setenv("HOME", home, 1);
    CHECK_STATUS(OK, file_make_dirs(test_path(home, ".aws")));
    return home;
}

static void write_file(const char *home, const char *name, const char *text)
{
    CHECK_STATUS(OK, file_write(test_path(home, name), text, strlen(text)));
}

static const char credentials[] = "# comment\n"
                                  "[default]\n"
                                  "aws_access_key_id = AKIDDEFAULT\n"
                                  "aws_secret_access_key=secret/default+\r\n"
                                  "\n"
                                  "[ other ]\n"
                                  "aws_access_key_id = AKIDOTHER\n"
                                  "aws_secret_access_key = secret=other\n"
                                  "aws_session_token = token\n";
static const char config[] = "[default]\n"
                             "region = eu-west-1\n"
                             "s3 =\n"
                             "    region = no-where-1\n"
                             "[profile other]\n"
                             "region = eu-north-1\n"
                             "services = mine\n"
                             "endpoint_url = https://all.example\n"
                             "[services mine]\n"
                             "dynamodb =\n"
                             "  endpoint_url = http://wrong.example\n"
                             "s3 =\n"
                             "  endpoint_url = https://store.example:9000/\n"
                             "[profile config-only]\n"
                             "aws_access_key_id = AKIDCONFIG\n"
                             "aws_secret_access_key = c\n"
                             "[profile half]\n"
                             "aws_access_key_id = AKIDHALF\n"
                             "[profile sso]\n"
                             "sso_session = mine\n"
                             "[profile assumes]\n"
                             "role_arn = arn:x\n"
                             "source_profile = default\n";

TEST(s3_settings_come_from_the_environment_first)
{
    struct hub_settings s;
    struct text url = {0};
    const char *home = begin();
    write_file(home, ".aws/credentials", credentials);
    write_file(home, ".aws/config", config);
    setenv("AWS_ACCESS_KEY_ID", "AKIDENV", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "env", 1);
    setenv("AWS_SESSION_TOKEN", "session", 1);
    setenv("AWS_REGION", "us-west-2", 1);
    setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000//", 1);
    CHECK_STATUS(OK, s3_settings_read(&s));
    CHECK(s.is_s3 && !strcmp(s.signer.key_id, "AKIDENV") && !strcmp(s.signer.secret, "env"));
    CHECK(!strcmp(s.signer.session_token, "session") && !strcmp(s.signer.region, "us-west-2"));
    CHECK(!strcmp(s.cache, test_path(home, ".cache/llamero/s3/127.0.0.1_9000")));
    s3_settings_bucket_url(&s, "bucket", &url);
    CHECK(!strcmp(url.data, "http://127.0.0.1:9000/bucket"));
    hub_settings_release(&s);
    setenv("AWS_ENDPOINT_URL_S3", "https://s3.example", 1);
    CHECK_STATUS(OK, s3_settings_read(&s));
    CHECK(!strcmp(s.endpoint, "https://s3.example"));
    hub_settings_release(&s);
    begin();
    text_release(&url);
}

TEST(s3_settings_read_the_profiles_of_awss_files)
{
    struct hub_settings s;
    const char *home = begin();
    write_file(home, ".aws/credentials", credentials);
    write_file(home, ".aws/config", config);
    CHECK_STATUS(OK, s3_settings_read(&s));
    CHECK(!strcmp(s.signer.key_id, "AKIDDEFAULT") && !strcmp(s.signer.secret, "secret/default+"));
    CHECK(!s.signer.session_token[0] && !strcmp(s.signer.region, "eu-west-1") && !s.endpoint[0]);
    CHECK(!strcmp(s.cache, test_path(home, ".cache/llamero/s3/amazonaws.com")));
    hub_settings_release(&s);
    setenv("AWS_PROFILE", "other", 1);
    CHECK_STATUS(OK, s3_settings_read(&s));
    CHECK(!strcmp(s.signer.key_id, "AKIDOTHER") && !strcmp(s.signer.secret, "secret=other"));
    CHECK(!strcmp(s.signer.session_token, "token") && !strcmp(s.signer.region, "eu-north-1"));
    CHECK(!strcmp(s.endpoint, "https://store.example:9000"));
    hub_settings_release(&s);
    setenv("AWS_PROFILE", "config-only", 1);
    CHECK_STATUS(OK, s3_settings_read(&s));
    CHECK(!strcmp(s.signer.key_id, "AKIDCONFIG") && !strcmp(s.signer.region, "us-east-1"));
    CHECK(!s.endpoint[0]);
    hub_settings_release(&s);
    begin();
}

TEST(s3_settings_without_credentials_do_not_sign)
{
    struct hub_settings s;
    begin();
    CHECK_STATUS(OK, s3_settings_read(&s));
    CHECK(!s.signer.key_id && !strcmp(s.signer.region, "us-east-1"));
    hub_settings_release(&s);
    setenv("AWS_ACCESS_KEY_ID", "AKIDENV", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "env", 1);
    setenv("AWS_NO_SIGN_REQUEST", "YES", 1);
    CHECK_STATUS(OK, s3_settings_read(&s));
    CHECK(!s.signer.key_id);
    hub_settings_release(&s);
    begin();
}

/* Which place the settings' credentials are from. */
static void check_from(const char *want)
{
    struct hub_settings s;
    struct text from = {0};
    CHECK_STATUS(OK, s3_settings_read(&s));
    CHECK(!s.role == !!s.signer.key_id);
    if (s.role)
        s3_role_describe(s.role, &from);
    else
        text_addf(&from, "%s in %s", s.signer.key_id, s.token_from);
    if (strcmp(from.data, want)) print_error("%s\n", from.data);
    CHECK(!strcmp(from.data, want));
    text_release(&from);
    hub_settings_release(&s);
}

TEST(s3_settings_look_for_credentials_in_botocores_order)
{
    const char *home = begin();
    static const char keys[] = "[default]\naws_access_key_id = A\naws_secret_access_key = s\n";
    static const char all[] = "[default]\naws_access_key_id = C\naws_secret_access_key = s\n"
                              "credential_process = true\nsso_session = x\n";
    check_from("EC2 instance metadata");
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://localhost/", 1);
    check_from("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/x", 1);
    check_from("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    write_file(home, ".aws/config", keys);
    check_from("A in ~/.aws/config");
    write_file(home, ".aws/config", all);
    check_from("credential_process");
    write_file(home, ".aws/credentials", keys);
    check_from("A in ~/.aws/credentials");
    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/token", 1);
    setenv("AWS_ROLE_ARN", "arn:x", 1);
    check_from("STS (AWS_WEB_IDENTITY_TOKEN_FILE)");
    setenv("AWS_ACCESS_KEY_ID", "E", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "s", 1);
    check_from("E in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
    begin();
}

TEST(s3_settings_reject_what_is_incomplete_or_malformed)
{
    static const struct {
        const char *name, *value, *message;
    } cases[] = {
        {"AWS_ACCESS_KEY_ID", "AKIDONLY", "AWS_SECRET_ACCESS_KEY is missing"},
        {"AWS_SECRET_ACCESS_KEY", "hidden", "the access key ID is missing"},
        {"AWS_PROFILE", "half", "aws_secret_access_key is missing"},
        {"AWS_PROFILE", "none", "AWS_PROFILE=none"},
        {"AWS_PROFILE", "sso", "the profile \"sso\" requires SSO"},
        {"AWS_PROFILE", "assumes", "the profile \"assumes\" assumes a role"},
        {"AWS_WEB_IDENTITY_TOKEN_FILE", "/token", "set AWS_ROLE_ARN"},
        {"AWS_REGION", "us east:1", "not a region"},
        {"AWS_ENDPOINT_URL", "ftp://x", "must be http://"},
        {"AWS_ENDPOINT_URL", "https://user:hidden@x", "must be http://"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hub_settings s;
        const char *home = begin();
        write_file(home, ".aws/credentials", credentials);
        write_file(home, ".aws/config", config);
        setenv(cases[i].name, cases[i].value, 1);
        CHECK_STATUS(CONFIG, s3_settings_read(&s));
        CHECK_MESSAGE(cases[i].message);
        CHECK(!strstr(status_message(), "hidden") && !strstr(status_message(), "AKID"));
    }
    begin();
}

TEST(s3_buckets_are_part_of_amazons_host_name)
{
    static const struct {
        const char *region, *bucket, *url;
    } cases[] = {
        {"us-east-1", "data", "https://data.s3.us-east-1.amazonaws.com"},
        {"eu-west-1", "a.b", "https://s3.eu-west-1.amazonaws.com/a.b"},
        {"cn-north-1", "data", "https://data.s3.cn-north-1.amazonaws.com.cn"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text url = {0};
        struct hub_settings s = {.endpoint = "", .signer = {.region = cases[i].region}};
        s3_settings_bucket_url(&s, cases[i].bucket, &url);
        CHECK(!strcmp(url.data, cases[i].url));
        text_release(&url);
    }
}
