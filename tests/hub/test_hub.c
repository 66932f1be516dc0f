// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "hub/http.h"
#include "hub/hub.h"
#include "hub/s3_server.h"
#include "hub/server.h"
#include "test.h"

#include "base/file.h"

static const struct server_file data_files[] = {
    {"README.md", "read me", false},
    {"data/a.jsonl", "{\"text\":\"a\"}\n", true},
    {"data/b.jsonl", "{\"text\":\"b\"}\n", false},
    {"data/deep/c.jsonl", "{\"text\":\"c\"}\n", true},
    {"data/ids.bin", "bin", true},
    {"data/ids.idx", "idx", true},
    {"data/odd name#1.txt", "odd", true},
};

static const struct server_file model_files[] = {
    {"README.md", "read me", false},
    {"config.json", "{}", false},
    {"elder/config.json", "{\"e\":1}", false},
    {"elder/pytorch_model-00001-of-00001.bin", "elder", true},
    {"elder/pytorch_model.bin.index.json", "{\"w\":1}", false},
    {"model-00001-of-00002.safetensors", "one", true},
    {"model-00002-of-00002.safetensors", "two", true},
    {"model.safetensors.index.json", "{\"x\":1}", false},
    {"original/consolidated.00.pth", "pth", true},
    {"original/params.json", "{\"y\":1}", false},
    {"original/tokenizer.model", "t", true},
    {"pytorch_model.bin", "not this one", true},
    {"tokenizer.json", "{\"z\":1}", true},
};

struct hub_test {
    struct server server;
    struct hub_settings settings;
    double waited;
};

static void begin(struct hub_test *h, bool model)
{
    if (model)
        memcpy(h->server.files, model_files, sizeof model_files);
    else
        memcpy(h->server.files, data_files, sizeof data_files);
    h->server.repo = model ? "models/org/name" : "datasets/org/name";
    server_start(&h->server);
    h->settings = server_settings(&h->server, "", &h->waited);
}

static void end(struct hub_test *h)
{
    server_stop(&h->server);
    hub_settings_release(&h->settings);
    text_release(&h->server.log);
}

/* Fetches a path into an empty cache and checks that exactly `count` files are in it then. */
static void check_fetches(const char *path, enum hub_selection what, int count)
{
    struct hub_test h = {0};
    int num_cached = 0;
    begin(&h, strncmp(path, "hf://datasets/", 14) != 0);
    CHECK_STATUS(OK, hub_fetch_with(&h.settings, path, what, comm_self()));
    for (int i = 0; i < h.server.num_files; i++) {
        struct text whole = {0};
        char *at;
        text_addf(&whole, "hf://%sorg/name@%s/%s", what == HUB_DATA ? "datasets/" : "",
                  h.server.commit, h.server.files[i].path);
        CHECK_STATUS(OK, hub_find_with(&h.settings, whole.data, &at));
        if (file_exists(at)) {
            server_check(&h.settings, whole.data, h.server.files[i].bytes);
            num_cached++;
        }
        free(at);
        text_release(&whole);
    }
    if (num_cached != count) print_error("%s: %d files, expected %d\n", path, num_cached, count);
    CHECK(num_cached == count);
    CHECK(h.server.num_bodies == count);
    CHECK_STATUS(OK, hub_fetch_with(&h.settings, path, what, comm_self()));
    CHECK(h.server.num_bodies == count); /* not fetched twice */
    end(&h);
}

TEST(hub_fetches_exactly_the_files_of_a_path)
{
    if (!http_available()) skip();
    check_fetches("hf://datasets/org/name/data/*.jsonl", HUB_DATA, 2);
    check_fetches("hf://datasets/org/name/data/a.jsonl", HUB_DATA, 1);
    check_fetches("hf://datasets/org/name/*/*/?.jsonl", HUB_DATA, 1);
    check_fetches("hf://datasets/org/name/*/[ab].jsonl", HUB_DATA, 2);
    check_fetches("hf://datasets/org/name/data/ids", HUB_DATA, 2);
    check_fetches("hf://datasets/org/name/data/ids.idx", HUB_DATA, 2);
    check_fetches("hf://datasets/org/name/data/*.bin", HUB_DATA, 2);
    check_fetches("hf://datasets/org/name/data/odd name#1.txt", HUB_DATA, 1);
    check_fetches("hf://datasets/org/name@refs%2Fpr%2F1/README.md", HUB_DATA, 1);
    check_fetches("hf://org/name", HUB_WEIGHTS, 5);
    check_fetches("hf://org/name", HUB_TOKENIZER, 1);
    check_fetches("hf://org/name/original", HUB_WEIGHTS, 3);
    check_fetches("hf://org/name/elder", HUB_WEIGHTS, 3);
    check_fetches("hf://org/name/original", HUB_TOKENIZER, 1);
    check_fetches("hf://org/name/original/tokenizer.model", HUB_TOKENIZER, 1);
}

TEST(hub_find_returns_patterns_for_glob)
{
    if (!http_available()) skip();
    struct hub_test h = {0};
    struct file_list list;
    char *local;
    begin(&h, false);
    const char *path = "hf://datasets/org/name/data/*.jsonl";
    CHECK_STATUS(OK, hub_fetch_with(&h.settings, path, HUB_DATA, comm_self()));
    CHECK_STATUS(OK, hub_find_with(&h.settings, path, &local));
    CHECK_STATUS(OK, file_glob(&list, local));
    CHECK(list.count == 2);
    file_list_release(&list);
    free(local);
    end(&h);
}

TEST(hub_reports_what_does_not_exist)
{
    if (!http_available()) skip();
    struct hub_test h = {0};
    begin(&h, false);
    CHECK_STATUS(MISSING, hub_fetch_with(&h.settings, "hf://datasets/org/name/data/*.parquet",
                                         HUB_DATA, comm_self()));
    CHECK_MESSAGE("hf://datasets/org/name/data/*.parquet");
    CHECK_STATUS(MISSING,
                 hub_fetch_with(&h.settings, "hf://datasets/org/none/*", HUB_DATA, comm_self()));
    CHECK_MESSAGE("RepoNotFound");
    CHECK_STATUS(MISSING, hub_fetch_with(&h.settings, "hf://datasets/org/name/none/*", HUB_DATA,
                                         comm_self()));
    CHECK_STATUS(CONFIG,
                 hub_fetch_with(&h.settings, "hf://datasets/org/name/**/*", HUB_DATA, comm_self()));
    char *local;
    CHECK_STATUS(MISSING, hub_find_with(&h.settings, "hf://datasets/org/name/data/*", &local));
    end(&h);
}

TEST(hub_rejects_malformed_responses)
{
    if (!http_available()) skip();
    for (int i = 0; i < 2; i++) { /* the revision, the list of files */
        struct hub_test h = {0};
        h.server.apis[i] = FAULT_MALFORMED;
        begin(&h, false);
        CHECK_STATUS(DATA, hub_fetch_with(&h.settings, "hf://datasets/org/name/data/*", HUB_DATA,
                                          comm_self()));
        end(&h);
    }
}

TEST(hub_names_the_url_of_an_incomplete_response)
{
    if (!http_available()) skip();
    struct hub_test h = {0};
    h.server.apis[0] = FAULT_INCOMPLETE;
    begin(&h, false);
    CHECK_STATUS(
        DATA, hub_fetch_with(&h.settings, "hf://datasets/org/name/data/*", HUB_DATA, comm_self()));
    CHECK_MESSAGE("/revision/main?expand=sha: the key \"sha\" is missing");
    end(&h);
}

TEST(hub_makes_no_requests_when_offline)
{
    if (!http_available()) skip();
    struct hub_test h = {0};
    const char *path = "hf://datasets/org/name/data/a.jsonl";
    begin(&h, false);
    h.settings.offline = true;
    CHECK_STATUS(MISSING, hub_fetch_with(&h.settings, path, HUB_DATA, comm_self()));
    CHECK_MESSAGE("HF_HUB_OFFLINE");
    h.settings.offline = false;
    CHECK_STATUS(OK, hub_fetch_with(&h.settings, path, HUB_DATA, comm_self()));
    int requests = h.server.num_requests;
    h.settings.offline = true;
    CHECK_STATUS(OK, hub_fetch_with(&h.settings, path, HUB_DATA, comm_self()));
    CHECK(h.server.num_requests == requests);
    server_check(&h.settings, path, data_files[1].bytes);
    end(&h);
}

struct ranked {
    struct hub_test hub;
    char *caches[4];
    const char *path;
};

static enum status fetch_as_rank(const struct comm *world, void *context)
{
    struct ranked *r = context;
    struct hub_settings s = r->hub.settings;
    char *local;
    s.cache = r->caches[world->rank];
    TRY(hub_fetch_with(&s, r->path, HUB_DATA, world));
    TRY(hub_find_with(&s, r->path, &local));
    bool exists = file_exists(local);
    free(local);
    RANK_CHECK(exists);
    return STATUS_OK;
}

TEST(hub_fetches_once_per_cache)
{
    if (!http_available()) skip();
    struct ranked r = {.path = "hf://datasets/org/name/data/a.jsonl"};
    begin(&r.hub, false);
    char *other = heap_strdup(test_folder());
    for (int i = 0; i < 4; i++) r.caches[i] = i < 2 ? r.hub.settings.cache : other;
    CHECK_STATUS(OK, ranks_run(4, fetch_as_rank, &r));
    CHECK(r.hub.server.num_bodies == 2); /* two caches */
    CHECK(r.hub.server.num_apis == 2);   /* only rank 0 lists the files */
    end(&r.hub);
    free(other);
}

static enum status fetch_when_one_is_offline(const struct comm *world, void *context)
{
    struct ranked *r = context;
    struct hub_settings s = r->hub.settings;
    s.offline = world->rank == 1;
    TRY(hub_fetch_with(&s, r->path, HUB_DATA, world));
    return STATUS_OK;
}

TEST(hub_is_offline_for_all_ranks_if_one_is)
{
    if (!http_available()) skip();
    struct ranked r = {.path = "hf://datasets/org/name/data/a.jsonl"};
    begin(&r.hub, false);
    CHECK_STATUS(MISSING, ranks_run(3, fetch_when_one_is_offline, &r));
    CHECK(r.hub.server.num_requests == 0);
    end(&r.hub);
}

TEST(hub_failure_of_one_rank_fails_all)
{
    if (!http_available()) skip();
    struct ranked r = {.path = "hf://datasets/org/name/none"};
    begin(&r.hub, false);
    for (int i = 0; i < 4; i++) r.caches[i] = r.hub.settings.cache;
    CHECK_STATUS(MISSING, ranks_run(4, fetch_as_rank, &r));
    CHECK_MESSAGE("hf://datasets/org/name/none");
    end(&r.hub);
}

/* A bucket with the same files: the datasets' below data/, the model's below model/. */
struct bucket_test {
    struct s3_server server;
    struct hub_settings settings;
    double waited;
};

static struct bucket_test *begin_bucket(void)
{
    struct bucket_test *b = calloc(1, sizeof *b);
    char key[128];
    s3_server_start(&b->server);
    for (size_t i = 0; i < sizeof data_files / sizeof *data_files; i++)
        s3_server_put(&b->server, data_files[i].path, data_files[i].bytes,
                      strlen(data_files[i].bytes));
    for (size_t i = 0; i < sizeof model_files / sizeof *model_files; i++) {
        snprintf(key, sizeof key, "model/%s", model_files[i].path);
        s3_server_put(&b->server, key, model_files[i].bytes, strlen(model_files[i].bytes));
    }
    s3_server_put(&b->server, "model/", "", 0); /* as consoles mark folders */
    b->settings = s3_server_settings(&b->server, &b->waited);
    return b;
}

static void end_bucket(struct bucket_test *b)
{
    s3_server_stop(&b->server);
    CHECK(b->server.num_bad_signatures == 0);
    s3_server_release(&b->server);
    hub_settings_release(&b->settings);
    free(b);
}

/* Fetches a path of the bucket into an empty cache: `count` objects, each once. */
static void check_objects(const char *path, enum hub_selection what, int count)
{
    struct bucket_test *b = begin_bucket();
    char *local;
    CHECK_STATUS(OK, hub_fetch_with(&b->settings, path, what, comm_self()));
    if (b->server.counts[S3_GET] != count)
        fail_msg("%s: %d objects, expected %d", path, b->server.counts[S3_GET], count);
    CHECK_STATUS(OK, hub_fetch_with(&b->settings, path, what, comm_self()));
    CHECK(b->server.counts[S3_GET] == count);
    CHECK_STATUS(OK, hub_find_with(&b->settings, path, &local));
    free(local);
    end_bucket(b);
}

TEST(hub_fetches_exactly_the_objects_of_a_path)
{
    if (!s3_available()) skip();
    check_objects("s3://bucket/data/*.jsonl", HUB_DATA, 2);
    check_objects("s3://bucket/data/a.jsonl", HUB_DATA, 1);
    check_objects("s3://bucket/*/*/?.jsonl", HUB_DATA, 1);
    check_objects("s3://bucket/*/[ab].jsonl", HUB_DATA, 2);
    check_objects("s3://bucket/data/ids", HUB_DATA, 2);
    check_objects("s3://bucket/data/*.bin", HUB_DATA, 2);
    check_objects("s3://bucket/data/odd name#1.txt", HUB_DATA, 1);
    check_objects("s3://bucket/README.md", HUB_DATA, 1);
    check_objects("s3://bucket/model", HUB_WEIGHTS, 5);
    check_objects("s3://bucket/model/", HUB_WEIGHTS, 5);
    check_objects("s3://bucket/model", HUB_TOKENIZER, 1);
    check_objects("s3://bucket/model/original", HUB_WEIGHTS, 3);
    check_objects("s3://bucket/model/elder", HUB_WEIGHTS, 3);
    check_objects("s3://bucket/model/original/tokenizer.model", HUB_TOKENIZER, 1);
}

TEST(hub_reads_a_bucket_as_it_was_listed_last)
{
    if (!s3_available()) skip();
    struct bucket_test *b = begin_bucket();
    const char *path = "s3://bucket/data/*.jsonl";
    struct file_list before, after;
    char *local;
    b->server.faults[S3_GET][0] = S3_FAULT_DISCONNECT;
    CHECK_STATUS(OK, hub_fetch_with(&b->settings, path, HUB_DATA, comm_self()));
    CHECK_STATUS(OK, hub_find_with(&b->settings, path, &local));
    CHECK_STATUS(OK, file_glob(&before, local));
    free(local);
    CHECK(before.count == 2 && b->waited == 1);
    s3_server_put(&b->server, "data/b.jsonl", "new", 3);
    s3_server_put(&b->server, "data/z.jsonl", "more", 4);
    CHECK_STATUS(OK, hub_fetch_with(&b->settings, path, HUB_DATA, comm_self()));
    CHECK(b->server.counts[S3_GET] == 2 + 1 + 2); /* only what is new */
    CHECK_STATUS(OK, hub_find_with(&b->settings, path, &local));
    CHECK_STATUS(OK, file_glob(&after, local));
    free(local);
    struct text bytes = {0};
    CHECK(after.count == 3 && strcmp(after.paths[1], before.paths[1]));
    CHECK_STATUS(OK, file_read(after.paths[1], 100, &bytes));
    CHECK(!strcmp(bytes.data, "new"));
    CHECK_STATUS(OK, file_read(before.paths[1], 100, &bytes)); /* a run may still read it */
    CHECK(!strcmp(bytes.data, "{\"text\":\"b\"}\n"));
    b->settings.offline = true;
    int requests = b->server.num_requests;
    CHECK_STATUS(OK, hub_fetch_with(&b->settings, path, HUB_DATA, comm_self()));
    CHECK_STATUS(MISSING,
                 hub_fetch_with(&b->settings, "s3://bucket/data/*.bin", HUB_DATA, comm_self()));
    CHECK(b->server.num_requests == requests);
    text_release(&bytes);
    file_list_release(&before);
    file_list_release(&after);
    end_bucket(b);
}

TEST(hub_reports_what_is_wrong_with_a_bucket)
{
    if (!s3_available()) skip();
    struct bucket_test *b = begin_bucket();
    CHECK_STATUS(MISSING,
                 hub_fetch_with(&b->settings, "s3://bucket/data/*.parquet", HUB_DATA, comm_self()));
    CHECK_MESSAGE("s3://bucket/data/*.parquet");
    CHECK_STATUS(MISSING, hub_fetch_with(&b->settings, "s3://other/data/*", HUB_DATA, comm_self()));
    CHECK_MESSAGE("NoSuchBucket");
    s3_server_put(&b->server, "data/../x.jsonl", "x", 1);
    s3_server_put(&b->server, "data/a\tb.jsonl", "x", 1);
    CHECK_STATUS(DATA,
                 hub_fetch_with(&b->settings, "s3://bucket/data/*.jsonl", HUB_DATA, comm_self()));
    CHECK_MESSAGE("cannot be a file's path");
    b->server.faults[S3_LIST][b->server.counts[S3_LIST]] = S3_FAULT_MALFORMED;
    CHECK_STATUS(DATA,
                 hub_fetch_with(&b->settings, "s3://bucket/data/*.bin", HUB_DATA, comm_self()));
    end_bucket(b);
}

TEST(hub_look_reports_what_the_cache_lacks_of_a_bucket)
{
    if (!s3_available()) skip();
    struct bucket_test *b = begin_bucket();
    struct text report = {0};
    const char *path = "s3://bucket/data/*.jsonl";
    bool here;
    CHECK_STATUS(OK, hub_look_with(&b->settings, &path, 1, &here, &report));
    CHECK(!here && strstr(report.data, "2 of 2 files") && !b->server.counts[S3_GET]);
    CHECK_STATUS(OK, hub_fetch_with(&b->settings, path, HUB_DATA, comm_self()));
    CHECK_STATUS(OK, hub_look_with(&b->settings, &path, 1, &here, &report));
    CHECK(here);
    path = "gs://bucket/data";
    CHECK_STATUS(CONFIG, hub_look(&path, 1, &here, &report));
    text_release(&report);
    end_bucket(b);
}

struct bucket_ranks {
    struct bucket_test *bucket;
    char *caches[4];
};

static enum status fetch_object_as_rank(const struct comm *world, void *context)
{
    struct bucket_ranks *r = context;
    struct hub_settings s = r->bucket->settings;
    char *local;
    s.cache = r->caches[world->rank];
    TRY(hub_fetch_with(&s, "s3://bucket/data/a.jsonl", HUB_DATA, world));
    TRY(hub_find_with(&s, "s3://bucket/data/a.jsonl", &local));
    bool exists = file_exists(local);
    free(local);
    RANK_CHECK(exists);
    return STATUS_OK;
}

TEST(hub_fetches_objects_once_per_cache)
{
    if (!s3_available()) skip();
    struct bucket_ranks r = {.bucket = begin_bucket()};
    char *other = heap_strdup(test_folder());
    for (int i = 0; i < 4; i++) r.caches[i] = i < 2 ? r.bucket->settings.cache : other;
    CHECK_STATUS(OK, ranks_run(4, fetch_object_as_rank, &r));
    CHECK(r.bucket->server.counts[S3_GET] == 2 && r.bucket->server.counts[S3_LIST] == 1);
    end_bucket(r.bucket);
    free(other);
}

TEST(hub_rejects_urls_of_other_schemes)
{
    static const char *const urls[] = {"gs://b/x", "https://x/y", "S3://b/x", "s4://b/x"};
    char *local;
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        CHECK_STATUS(CONFIG, hub_fetch(urls[i], HUB_DATA, comm_self()));
        CHECK_MESSAGE("unknown URL scheme");
        CHECK_STATUS(CONFIG, hub_find(urls[i], &local));
    }
    CHECK_STATUS(CONFIG, hub_find("s3://AKIDEXAMPLE:secret@bucket/x", &local));
    CHECK(!strstr(status_message(), "secret"));
}

TEST(hub_leaves_other_paths_unchanged)
{
    char *local;
    CHECK(!hub_is_path("data/hf://x") && hub_is_path("hf://x"));
    CHECK_STATUS(OK, hub_fetch("data/*.txt", HUB_DATA, comm_self()));
    CHECK_STATUS(OK, hub_find("data/*.txt", &local));
    CHECK(!strcmp(local, "data/*.txt"));
    free(local);
}

TEST(hub_look_reports_what_the_cache_lacks_and_downloads_nothing)
{
    if (!http_available()) skip();
    struct hub_test h = {0};
    struct text report = {0};
    static const char *const paths[] = {"local.txt", "hf://datasets/org/name/data/*.jsonl",
                                        "hf://datasets/org/name/data/ids.idx"};
    bool here[3];
    begin(&h, false);
    CHECK_STATUS(OK, hub_look_with(&h.settings, paths, 3, here, &report));
    CHECK(here[0] && !here[1] && !here[2] && !h.server.num_bodies);
    CHECK(strstr(report.data, "data/*.jsonl: 2 of 2 files"));
    CHECK_STATUS(OK, hub_fetch_with(&h.settings, paths[1], HUB_DATA, comm_self()));
    text_clear(&report);
    CHECK_STATUS(OK, hub_look_with(&h.settings, paths, 3, here, &report));
    CHECK(here[0] && here[1] && !here[2] && !strstr(report.data, "jsonl"));
    const char *none = "hf://datasets/org/none/*";
    CHECK_STATUS(MISSING, hub_look_with(&h.settings, &none, 1, here, &report));
    end(&h);
    text_release(&report);
}

TEST(hub_look_without_a_hub_uses_the_cache)
{
    if (!http_available()) skip();
    struct hub_test h = {0};
    struct text report = {0};
    static const char *const paths[] = {"hf://datasets/org/name/data/*.jsonl",
                                        "hf://datasets/org/name/data/*.bin"};
    bool here[2];
    begin(&h, false);
    CHECK_STATUS(OK, hub_fetch_with(&h.settings, paths[0], HUB_DATA, comm_self()));
    server_stop(&h.server);
    CHECK_STATUS(OK, hub_look_with(&h.settings, paths, 2, here, &report));
    CHECK(here[0] && !here[1] && h.waited == 0); /* does not try again */
    CHECK(strstr(report.data, "onnect") && strstr(report.data, "*.bin: not in the cache"));
    text_clear(&report);
    h.settings.offline = true;
    CHECK_STATUS(OK, hub_look_with(&h.settings, paths, 2, here, &report));
    CHECK(here[0] && !here[1] &&
          !strcmp(report.data, "hf://datasets/org/name/data/*.bin: not in "
                               "the cache"));
    hub_settings_release(&h.settings);
    text_release(&report), text_release(&h.server.log);
}
