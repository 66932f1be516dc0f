/* test_object_store.c -- runs whose data and checkpoints are in a bucket. */
// SPDX-License-Identifier: Apache-2.0
#include "hub/metadata_server.h"
#include "hub/s3_server.h"
#include "system/runs.h"

#include "base/clock.h"
#include "hub/http.h"

static const char *const variables[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
                                        "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL",
                                        "LLAMERO_S3_CACHE"};
static const char session[] = "session/token+hidden==";

static void set_environment(const struct s3_server *s)
{
    const char *const values[] = {S3_KEY_ID, S3_SECRET, session, s->endpoint, test_folder()};
    for (size_t i = 0; i < 5; i++) setenv(variables[i], values[i], 1);
}

static void check_no_secrets(const char *text)
{
    CHECK(!strstr(text, S3_SECRET) && !strstr(text, "hidden") && !strstr(text, S3_KEY_ID));
}

/* Searches all files below a folder, which a run wrote. */
static void check_no_secrets_below(const char *folder)
{
    struct file_list names;
    CHECK_STATUS(OK, file_list_dir(&names, folder));
    for (size_t i = 0; i < names.count; i++) {
        char *path = file_join(folder, names.paths[i]);
        struct text bytes = {0};
        if (file_is_dir(path)) {
            check_no_secrets_below(path);
        } else {
            CHECK_STATUS(OK, file_read(path, 1 << 30, &bytes));
            const char *const secrets[] = {S3_SECRET, session, S3_KEY_ID};
            for (size_t k = 0; k < 3; k++)
                CHECK(!memmem(bytes.data, bytes.len, secrets[k], strlen(secrets[k])));
        }
        text_release(&bytes);
        free(path);
    }
    file_list_release(&names);
}

TEST(a_run_resumes_from_the_copies_of_its_checkpoints)
{
    if (!s3_available()) skip();
    struct s3_server *s = calloc(1, sizeof *s);
    struct text err = {0}, corpus = {0};
    const char *folder = test_folder(), *local = test_path(folder, "corpus.txt");
    const char *config = test_path(folder, "run.toml"), *dump = test_path(folder, "out");
    const char *other = test_path(folder, "other"), *straight = test_path(folder, "straight");
    s->session = session;
    s3_server_start(s);
    set_environment(s);
    runs_write_corpus(local, 60000);
    CHECK_STATUS(OK, file_read(local, 1 << 20, &corpus));
    s3_server_put(s, "data/corpus.txt", corpus.data, corpus.len);
    runs_write_config(config, "s3://bucket/data/*.txt");
    const char *settings = "training.steps=4 checkpoint.enable=true checkpoint.interval=2 "
                           "lr_scheduler.total_steps=8 checkpoint.copy_to=s3://bucket/runs/one";
    CHECK(runs_train(config, dump, settings, &err) == 0);
    check_no_secrets(err.data);
    check_no_secrets_below(dump);
    CHECK(strstr(err.data, "to s3://bucket/runs/one in"));
    CHECK(s3_server_object(s, "runs/one/step-4/manifest.json"));

    settings = "training.steps=8 checkpoint.enable=true checkpoint.interval=2 "
               "lr_scheduler.total_steps=8 checkpoint.copy_to=s3://bucket/runs/one";
    CHECK(runs_train(config, other, settings, &err) == 0); /* a node with an empty disk */
    CHECK(strstr(err.data, "fetching step-4") && strstr(err.data, "resuming from"));
    check_no_secrets(err.data);
    settings = "training.steps=3 checkpoint.load_step=2 checkpoint.enable=true "
               "lr_scheduler.total_steps=8 checkpoint.copy_to=s3://bucket/runs/one";
    CHECK(runs_train(config, test_path(folder, "older"), settings, &err) == 0);
    CHECK(strstr(err.data, "fetching step-2") && strstr(err.data, "resuming from"));
    settings = "training.steps=8 checkpoint.enable=true lr_scheduler.total_steps=8";
    CHECK(runs_train(config, straight, settings, &err) == 0);
    runs_check_same_files(test_path(other, "checkpoint/step-8"),
                          test_path(straight, "checkpoint/step-8"), ".safetensors");

    struct text out = {0};
    s3_server_put(s, "runs/one/step-9/config.json", "{}", 2);
    CHECK(LLAMERO(&out, &err, "checkpoint", "ls", "s3://bucket/runs/one/") == 0);
    CHECK(strstr(out.data, "step-8") && strstr(out.data, "good"));
    CHECK(strstr(out.data, "step-9") && strstr(out.data, "not finished: manifest.json is missing"));
    CHECK(LLAMERO(&out, &err, "checkpoint", "verify", "s3://bucket/runs/one") == 64);
    text_release(&out);

    /* Its weights, from the bucket, without credentials in any message. */
    int code = LLAMERO(NULL, &err, "eval", "s3://bucket/runs/one/step-8",
                       "s3://bucket/data/corpus.txt", "--tokenizer", "s3://bucket/runs/one/step-8");
    if (code) fail_msg("exit code %d: %s", code, err.data);
    /* A run that goes back sets the later copies aside, too. */
    settings = "training.steps=7 checkpoint.load_step=6 checkpoint.enable=true "
               "lr_scheduler.total_steps=8 checkpoint.copy_to=s3://bucket/runs/one";
    CHECK(runs_train(config, other, settings, &err) == 0);
    CHECK(strstr(err.data, "of step-8: deleted their manifest.json"));
    CHECK(s3_server_object(s, "runs/one/step-7/manifest.json"));
    CHECK(!s3_server_object(s, "runs/one/step-8/manifest.json"));
    setenv("AWS_SECRET_ACCESS_KEY", "hidden-and-wrong", 1);
    CHECK(LLAMERO(NULL, &err, "fetch", "s3://bucket/runs/one/step-8") == 78);
    CHECK(strstr(err.data, "SignatureDoesNotMatch"));
    check_no_secrets(err.data);
    for (size_t i = 0; i < 5; i++) unsetenv(variables[i]);
    s3_server_stop(s);
    s3_server_release(s);
    free(s);
    text_release(&err);
    text_release(&corpus);
}

TEST(a_fetch_uses_the_role_of_a_container_or_an_instance)
{
    if (!s3_available()) skip();
    static const char *const places[] = {"AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                         "AWS_EC2_METADATA_SERVICE_ENDPOINT"};
    struct text err = {0};
    for (size_t i = 0; i < 2; i++) {
        struct s3_server *s = calloc(1, sizeof *s);
        struct metadata_server *m = metadata_server_make();
        struct text url = {0};
        s->session = session;
        m->authorization = "hidden-token";
        metadata_server_add(m, session, clock_wall_s() + 3600);
        metadata_server_start(m);
        s3_server_start(s);
        s3_server_put(s, "data/a.txt", "text", 4);
        text_addf(&url, "%s%s", m->endpoint, i ? "/" : "/container/hidden");
        setenv("HOME", test_folder(), 1); /* without ~/.aws */
        setenv("LLAMERO_S3_CACHE", test_folder(), 1);
        setenv("AWS_ENDPOINT_URL", s->endpoint, 1);
        setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", m->authorization, 1);
        setenv(places[i], url.data, 1);
        int code = LLAMERO(NULL, &err, "fetch", "s3://bucket/data/a.txt");
        if (code) fail_msg("exit code %d: %s", code, err.data);
        check_no_secrets(err.data);
        CHECK(m->num_served == 1 && !s->num_bad_signatures);
        m->session = NULL, m->authorization = "another";
        code = LLAMERO(NULL, &err, "fetch", "s3://bucket/data/*");
        CHECK(code == (i ? 78 : 74));
        CHECK(strstr(err.data, i ? "no credentials were found" : "HTTP 401"));
        check_no_secrets(err.data);
        unsetenv(places[i]), unsetenv("AWS_CONTAINER_AUTHORIZATION_TOKEN");
        unsetenv("AWS_ENDPOINT_URL"), unsetenv("LLAMERO_S3_CACHE");
        metadata_server_stop(m);
        metadata_server_free(m);
        s3_server_stop(s);
        s3_server_release(s);
        free(s);
        text_release(&url);
    }
    text_release(&err);
}

TEST(urls_where_a_local_path_is_required_are_errors)
{
    static const char *const cases[][2] = {
        {"job.dump_folder=s3://b/x", "expected a local path, got a URL"},
        {"checkpoint.folder=s3://b/x", "expected a local path, got a URL"},
        {"training.dataset_path=gs://b/x", "unknown URL scheme \"gs\""},
        {"checkpoint.initial_load_path=gs://b/x", "unknown URL scheme \"gs\""},
        {"data.tokenizer=https://x/tokenizer.json", "unknown URL scheme \"https\""},
        {"checkpoint.copy_to=gs://b/x", "unknown URL scheme \"gs\""},
        {"checkpoint.copy_to=/backup", "expected s3://BUCKET/PREFIX"},
        {"checkpoint.copy_to=s3://b/x", "requires checkpoint.enable"},
    };
    const char *folder = test_folder(), *corpus = test_path(folder, "corpus.txt");
    const char *config = test_path(folder, "run.toml"), *dump = test_path(folder, "out");
    struct text err = {0};
    runs_write_corpus(corpus, 1000);
    runs_write_config(config, corpus);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text settings = {0};
        text_addf(&settings, "checkpoint.enable=false %s", cases[i][0]);
        int code = runs_train(config, dump, settings.data, &err);
        if (code != 78 || !strstr(err.data, cases[i][1]))
            fail_msg("%s: exit code %d, and: %s", cases[i][0], code, err.data);
        text_release(&settings);
    }
    CHECK(LLAMERO(NULL, &err, "prepare", "--tokenizer", "bytes", "--output", "s3://b/x", corpus) ==
          78);
    CHECK(LLAMERO(NULL, &err, "eval", "gs://b/model", corpus) == 78);
    CHECK(strstr(err.data, "unknown URL scheme"));
    text_release(&err);
}
