// SPDX-License-Identifier: Apache-2.0
#include "hub/push_server.h"
#include "test.h"

#include "base/file.h"
#include "hub/push.h"

static const struct {
    const char *name, *bytes;
    bool is_pushed;
} files[] = {
    {"config.json", "{\"a\": 1}", true},
    {"model-00001-of-00002.safetensors", "the first half of the weights", true},
    {"model-00002-of-00002.safetensors", "the second half", true},
    {"model.safetensors.index.json", "{}", true},
    {"tokenizer.json", "{\"t\": \"\xc3\xa9\"}", true},
    {"README.md", "# Model card\n", true},
    {"optimizer-00001-of-00001.safetensors", "moments", false},
    {"state.json", "{}", false},
    {"config.toml", "dump_folder = 'private'", false},
    {"manifest.json", "{}", false},
    {".lock", "", false},
};
enum { NUM_FILES = sizeof files / sizeof *files, NUM_PUSHED = 6 };

struct push_test {
    struct push_server server;
    struct hub_settings settings;
    struct push push;
    struct text url;
    double waited;
};

static void count_wait(void *context, double seconds) { *(double *)context += seconds; }

static struct push_test *begin(const struct push_server *server)
{
    struct push_test *t = calloc(1, sizeof *t);
    const char *folder = test_folder();
    for (int i = 0; i < NUM_FILES; i++)
        CHECK_STATUS(OK, file_write(test_path(folder, files[i].name), files[i].bytes,
                                    strlen(files[i].bytes)));
    t->server = *server;
    push_server_start(&t->server);
    t->settings = (struct hub_settings){.endpoint = t->server.endpoint,
                                        .token_from = "HF_TOKEN",
                                        .wait = count_wait,
                                        .context = &t->waited};
    t->settings.token = heap_string("hf_secret", 9);
    t->push = (struct push){.settings = &t->settings,
                            .folder = folder,
                            .target = "hf://org/name",
                            .message = "say \"hello\""};
    return t;
}

static void end(struct push_test *t)
{
    push_server_stop(&t->server);
    CHECK(!t->server.leaked);
    push_server_release(&t->server);
    free(t->settings.token);
    text_release(&t->url);
    free(t);
}

/* Checks the files of the commit, and the bytes of its LFS objects. */
static void check_pushed(const struct push_test *t)
{
    const struct push_server *s = &t->server;
    CHECK(s->num_files == NUM_PUSHED && !strcmp(s->summary, "say \"hello\""));
    for (int i = 0; i < NUM_FILES; i++) {
        int found = 0;
        for (int k = 0; k < s->num_files; k++) {
            if (strcmp(s->files[k].path, files[i].name)) continue;
            found++;
            if (!s->files[k].oid[0]) CHECK(!strcmp(s->files[k].bytes.data, files[i].bytes));
        }
        CHECK(found == files[i].is_pushed);
    }
    CHECK(s->num_objects == 2);
    for (int i = 0; i < 2; i++) {
        struct text whole = {0};
        for (int j = 0; j < PUSH_PARTS; j++)
            text_add(&whole, s->objects[i].parts[j].data, s->objects[i].parts[j].len);
        CHECK(!strcmp(whole.data, files[i + 1].bytes));
        text_release(&whole);
    }
}

TEST(push_commits_the_hugging_face_files)
{
    if (!http_available()) skip();
    for (size_t chunk = 0; chunk <= 10; chunk += 10) {
        struct push_test *t = begin(&(struct push_server){.exists = true, .chunk_bytes = chunk});
        CHECK_STATUS(OK, push_run(&t->push, &t->url));
        check_pushed(t);
        CHECK(strstr(t->url.data, "/org/name/commit/abc"));
        CHECK(t->server.num_puts == (chunk ? 3 + 2 : 2) && t->server.num_creates == 0);
        end(t);
    }
}

TEST(push_retries_dropped_connections)
{
    if (!http_available()) skip();
    for (size_t chunk = 0; chunk <= 10; chunk += 10) {
        struct push_test *t = begin(&(struct push_server){
            .exists = true,
            .chunk_bytes = chunk,
            .puts = {PUSH_FAULT_DISCONNECT, PUSH_FAULT_DROP, PUSH_FAULT_UNAVAILABLE},
            .posts = {PUSH_FAULT_DROP, PUSH_FAULT_UNAVAILABLE}});
        CHECK_STATUS(OK, push_run(&t->push, &t->url));
        check_pushed(t);
        CHECK(t->waited == 1 + 2 + 1 + 2 + 4);
        end(t);
    }
}

TEST(push_requests_new_urls_when_they_have_expired)
{
    if (!http_available()) skip();
    struct push_test *t =
        begin(&(struct push_server){.exists = true, .puts = {PUSH_FAULT_EXPIRED}});
    CHECK_STATUS(OK, push_run(&t->push, &t->url));
    check_pushed(t);
    CHECK(t->server.num_puts == 3);
    end(t);
}

TEST(push_resumes_after_the_files_that_the_hub_has)
{
    if (!http_available()) skip();
    struct push_test *t = begin(&(struct push_server){
        .exists = true, .puts = {PUSH_FAULT_NONE, PUSH_FAULT_EXPIRED, PUSH_FAULT_EXPIRED}});
    CHECK_STATUS(IO, push_run(&t->push, &t->url)); /* the second file fails */
    CHECK_MESSAGE("hf://org/name: model-00002-of-00002.safetensors: HTTP 403");
    CHECK(!strstr(status_message(), "hidden") && !strstr(status_message(), "hf_secret"));
    CHECK(t->server.num_commits == 0);
    CHECK_STATUS(OK, push_run(&t->push, &t->url));
    CHECK(t->server.num_puts == 1 + 2 + 1); /* the first was not sent again */
    check_pushed(t);
    CHECK_STATUS(OK, push_run(&t->push, &t->url)); /* nothing has changed */
    CHECK(t->server.num_commits == 1 && t->server.num_puts == 4);
    CHECK(strstr(t->url.data, "/org/name/tree/main"));
    end(t);
}

TEST(push_creates_a_repository_only_with_create)
{
    if (!http_available()) skip();
    struct push_test *t = begin(&(struct push_server){.exists = false});
    CHECK_STATUS(MISSING, push_run(&t->push, &t->url));
    CHECK_MESSAGE("--create");
    t->push.creates = t->push.is_private = true;
    CHECK_STATUS(OK, push_run(&t->push, &t->url));
    CHECK(t->server.is_private);
    check_pushed(t);
    CHECK_STATUS(OK, push_run(&t->push, &t->url)); /* 409: it exists now */
    CHECK(t->server.num_creates == 2);
    end(t);
}

TEST(push_reports_what_is_wrong)
{
    if (!http_available()) skip();
    static const char *const targets[] = {"hf://datasets/org/name/x", "hf://org/name/folder",
                                          "hf://org", "org/name", "s3://bucket/x"};
    struct push_test *t = begin(&(struct push_server){.exists = true});
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        t->push.target = targets[i];
        CHECK_STATUS(CONFIG, push_run(&t->push, &t->url));
        CHECK_MESSAGE("expected hf://");
    }
    t->push.target = "hf://org/name";
    t->settings.offline = true;
    CHECK_STATUS(CONFIG, push_run(&t->push, &t->url));
    CHECK_MESSAGE("HF_HUB_OFFLINE");
    t->settings.offline = false;
    t->push.folder = test_folder();
    CHECK_STATUS(MISSING, push_run(&t->push, &t->url));
    CHECK_MESSAGE("expected a Hugging Face folder with config.json and weights");
    t->settings.token[0] = 'x';
    CHECK_STATUS(OK, file_write(test_path(t->push.folder, "config.json"), "{}", 2));
    CHECK_STATUS(OK, file_write(test_path(t->push.folder, "model.safetensors"), "", 0));
    CHECK_STATUS(CONFIG, push_run(&t->push, &t->url));
    CHECK_MESSAGE("the token in HF_TOKEN");
    t->settings.token[0] = 0;
    CHECK_STATUS(CONFIG, push_run(&t->push, &t->url));
    CHECK_MESSAGE("set HF_TOKEN");
    end(t);
}

TEST(push_rejects_malformed_responses)
{
    if (!http_available()) skip();
    for (int i = 0; i < 2; i++) { /* preupload, the first LFS batch */
        struct push_server server = {.exists = true};
        server.posts[i] = PUSH_FAULT_MALFORMED;
        struct push_test *t = begin(&server);
        CHECK_STATUS(DATA, push_run(&t->push, &t->url));
        CHECK(t->server.num_commits == 0);
        end(t);
    }
}

TEST(push_names_the_repository_if_a_response_is_incomplete)
{
    if (!http_available()) skip();
    const int num_posts = 6; /* preupload, batch and verification of two LFS files, commit */
    for (int i = 0; i < num_posts; i += num_posts - 1) {
        struct push_server server = {.exists = true};
        server.posts[i] = PUSH_FAULT_INCOMPLETE;
        struct push_test *t = begin(&server);
        CHECK_STATUS(DATA, push_run(&t->push, &t->url));
        CHECK_MESSAGE(i ? ": the Hub's response: the key \"commitUrl\" is missing"
                        : ": the Hub's response: the key \"path\" is missing");
        CHECK_MESSAGE("hf://org/name");
        end(t);
    }
}
