// SPDX-License-Identifier: Apache-2.0
#include "hub/http.h"
#include "hub/server.h"
#include "test.h"

#include "base/file.h"

/* Starts a server that requires a token, and sets the environment for its client. */
static void begin(struct server *s)
{
    s->files[0] = (struct server_file){"a.jsonl", "{\"text\":\"one\"}\n{\"text\":\"two\"}\n", true};
    s->files[1] = (struct server_file){"b.jsonl", "{\"text\":\"three\"}\n", false};
    s->token = "hf_secret";
    server_start(s);
    setenv("HF_ENDPOINT", s->endpoint, 1);
    setenv("HF_HUB_CACHE", test_folder(), 1);
    setenv("HF_TOKEN", "hf_secret", 1);
}

static void end(struct server *s)
{
    static const char *const names[] = {"HF_ENDPOINT", "HF_HUB_CACHE", "HF_TOKEN",
                                        "HF_HUB_OFFLINE"};
    server_stop(s);
    for (size_t i = 0; i < 4; i++) unsetenv(names[i]);
    text_release(&s->log);
}

TEST(fetch_fills_the_cache_for_offline_use)
{
    if (!http_available()) skip();
    struct server s = {0};
    struct text out = {0}, err = {0};
    begin(&s);
    const char *data = "hf://datasets/org/name/*.jsonl";
    CHECK(LLAMERO(&out, &err, "fetch", data) == 0);
    CHECK(strstr(out.data, "/datasets--org--name/snapshots/") && strstr(out.data, "/*.jsonl\n"));
    CHECK(strstr(err.data, "fetching 2 files"));
    CHECK(!strstr(err.data, "hf_secret") && !s.leaked);
    int requests = s.num_requests;
    setenv("HF_HUB_OFFLINE", "1", 1);
    const char *prefix = test_path(test_folder(), "ids");
    CHECK(LLAMERO(&out, &err, "prepare", "--tokenizer", "bytes", "--output", prefix, data) == 0);
    CHECK(s.num_requests == requests);
    uint64_t size; /* of 3 + 3 + 5 bytes and three ends, of 2 bytes each */
    text_clear(&out);
    text_addf(&out, "%s.bin", prefix);
    CHECK_STATUS(OK, file_size(out.data, &size));
    CHECK(size == 2 * (3 + 3 + 5 + 3));
    end(&s);
    text_release(&out);
    text_release(&err);
}

TEST(fetch_reports_what_is_wrong)
{
    if (!http_available()) skip();
    struct server s = {0};
    struct text err = {0};
    begin(&s);
    CHECK(LLAMERO(NULL, &err, "fetch", "data/*.jsonl") == 64);
    int requests = s.num_requests;
    const char *data = "hf://datasets/org/name/*.jsonl";
    CHECK(LLAMERO(NULL, &err, "fetch", data, "data/*.jsonl") == 64);
    CHECK(LLAMERO(NULL, &err, "fetch", "--tokenizer", "hf://org/name", data) == 64);
    CHECK(strstr(err.data, "--tokenizer has no effect with data or weights"));
    static const char *const others[] = {"s3://bucket/data.jsonl", "s3://bucket/a/*.parquet",
                                         "hf://org/name/model.safetensors",
                                         "hf://org/name/pytorch_model.bin"};
    for (size_t i = 0; i < 4; i++) {
        text_clear(&err);
        CHECK(LLAMERO(NULL, &err, "fetch", "--tokenizer", others[i]) == 64);
        CHECK(strstr(err.data, "--tokenizer has no effect with data or weights"));
    }
    text_clear(&err);
    CHECK(LLAMERO(NULL, &err, "fetch", "--tokenizer", "s3://bucket/ranks.txt", "hf://org/name.bin",
                  "s3://bucket/tokenizer.bin", "hf://org/name@v1.txt", "s3://data.npy/t.json",
                  "data/*.jsonl") == 64);
    CHECK(strstr(err.data, "\"data/*.jsonl\": expected hf://")); /* the others are accepted */
    CHECK(s.num_requests == requests);                           /* all paths are checked first */
    CHECK(LLAMERO(NULL, &err, "fetch", "hf://datasets/org/name/none") == 66);
    CHECK(strstr(err.data, "hf://datasets/org/name/none"));
    setenv("HF_TOKEN", "hf_wrong", 1);
    CHECK(LLAMERO(NULL, &err, "fetch", "hf://datasets/org/name/*") == 78);
    CHECK(strstr(err.data, "HTTP 401") && strstr(err.data, "the token in HF_TOKEN"));
    CHECK(!strstr(err.data, "hf_wrong"));
    end(&s);
    text_release(&err);
}
