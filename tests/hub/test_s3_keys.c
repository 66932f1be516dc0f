// SPDX-License-Identifier: Apache-2.0
#include "hub/s3_keys.h"
#include "test.h"

static enum status parse(const char *json, bool is_process, struct s3_keys *k)
{
    struct text t = {0};
    *k = (struct s3_keys){0};
    text_adds(&t, json);
    enum status st =
        is_process ? s3_keys_parse_process(&t, "here", k) : s3_keys_parse(&t, "here", k);
    text_release(&t);
    return st;
}

TEST(s3_keys_times_have_a_zone)
{
    static const struct {
        const char *text;
        double seconds;
    } cases[] = {{"1970-01-01T00:00:00Z", 0},
                 {"2026-01-31T12:00:00Z", 1769860800},
                 {"2026-01-31T12:00:00.25Z", 1769860800.25},
                 {"2026-01-31T12:00:00+01:00", 1769857200},
                 {"2026-01-31T12:00:00-0530", 1769880600},
                 {"2024-02-29T23:59:59+00:00", 1709251199}};
    static const char *const wrong[] = {"",
                                        "never",
                                        "2026-01-31",
                                        "2026-01-31T12:00:00",
                                        "2026-01-31 12:00:00Z",
                                        "2026-13-31T12:00:00Z",
                                        "2026-00-31T12:00:00Z",
                                        "2026-01-32T12:00:00Z",
                                        "2026-01-31T24:00:00Z",
                                        "2026-01-31T12:60:00Z",
                                        "2026-01-31T12:00:00Zx",
                                        "2026-01-31T12:00:00+1",
                                        "-026-01-31T12:00:00Z",
                                        "1769860800"};
    double seconds;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(s3_keys_parse_time(cases[i].text, &seconds));
        CHECK_NEAR(seconds, cases[i].seconds, 1e-12);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK(!s3_keys_parse_time(wrong[i], &seconds));
}

#define KEYS "\"AccessKeyId\": \"AKID\", \"SecretAccessKey\": \"hidden\""
#define TIME "\"Expiration\": \"2026-01-31T12:00:00Z\""

TEST(s3_keys_come_from_json)
{
    struct s3_keys k;
    CHECK_STATUS(OK,
                 parse("{\"Code\": \"Success\", " KEYS ", \"Token\": \"t\", " TIME "}", false, &k));
    CHECK(!strcmp(k.key_id, "AKID") && !strcmp(k.secret, "hidden"));
    CHECK(!strcmp(k.session_token, "t") && k.expires_s == 1769860800);
    s3_keys_release(&k);
    CHECK_STATUS(OK, parse("{\"Version\": 1, " KEYS "}", true, &k));
    CHECK(!strcmp(k.secret, "hidden") && !k.session_token[0] && k.expires_s == 0);
    s3_keys_release(&k);
    CHECK_STATUS(OK,
                 parse("{\"Version\": 1, " KEYS ", \"SessionToken\": \"t\", " TIME "}", true, &k));
    CHECK(!strcmp(k.session_token, "t") && k.expires_s == 1769860800);
    s3_keys_release(&k);
    CHECK(!k.key_id && !k.session_token);
}

TEST(s3_keys_reject_malformed_documents_without_quoting_them)
{
    static const struct {
        const char *json, *message;
        bool is_process;
    } cases[] = {
        {"", "here: not valid JSON", false},
        {"hidden", "here: not valid JSON", false},
        {"[\"hidden\"]", "here: expected a JSON object", false},
        {"{" KEYS ", " TIME "}", "here: the key \"Token\" is missing", false},
        {"{" KEYS ", \"Token\": \"t\"}", "here: the key \"Expiration\" is missing", false},
        {"{\"SecretAccessKey\": \"hidden\", \"Token\": \"t\", " TIME "}",
         "here: the key \"AccessKeyId\" is missing", false},
        {"{\"AccessKeyId\": \"AKID\", \"Token\": \"t\", " TIME "}",
         "here: the key \"SecretAccessKey\" is missing", false},
        {"{" KEYS ", \"Token\": 7, " TIME "}", "here: \"Token\" is not a string", false},
        {"{" KEYS ", \"Token\": \"t\", \"Expiration\": \"hidden\"}", "\"Expiration\" is not a time",
         false},
        {"{\"Code\": \"AssumeRoleUnauthorizedAccess\", \"Message\": \"hidden\"}",
         "here: the response has no credentials: \"Code\" is AssumeRoleUnauthorizedAccess", false},
        {"{\"Code\": \"hidden+1\"}", "\"Code\" is not \"Success\"", false},
        {"{\"AccessKeyId\": \"AKID\\r\\nHost: x\", \"SecretAccessKey\": \"hidden\", \"Token\": "
         "\"t\", " TIME "}",
         "here: the credentials are malformed", false},
        {"{\"AccessKeyId\": \"AK:ID\", \"SecretAccessKey\": \"hidden\", \"Token\": \"t\", " TIME
         "}",
         "here: the credentials are malformed", false},
        {"{\"AccessKeyId\": \"AKID\", \"SecretAccessKey\": \"hid\\u0000den\", \"Token\": "
         "\"t\", " TIME "}",
         "here: the credentials are malformed", false},
        {"{\"AccessKeyId\": \"AKID\", \"SecretAccessKey\": \"\", \"Token\": \"t\", " TIME "}",
         "here: the secret access key is empty", false},
        {"{" KEYS "}", "\"Version\" must be 1", true},
        {"{\"Version\": 2, " KEYS "}", "\"Version\" must be 1", true},
        {"{\"Version\": 1, " KEYS ", \"Expiration\": \"soon\"}", "\"Expiration\" is not a time",
         true},
        {"{\"Version\": 1, \"AccessKeyId\": \"AKID\"}",
         "here: the key \"SecretAccessKey\" is missing", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct s3_keys k;
        CHECK_STATUS(DATA, parse(cases[i].json, cases[i].is_process, &k));
        CHECK_MESSAGE(cases[i].message);
        CHECK(!strstr(status_message(), "hidden") && !strstr(status_message(), "AKID"));
        CHECK(!k.key_id && !k.secret && !k.session_token);
    }
}
