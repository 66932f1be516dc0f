// SPDX-License-Identifier: Apache-2.0
#include "hub/push_server.h"
#include "system/runs.h"

#include "hub/http.h"

TEST(push_uploads_the_newest_checkpoint_of_a_run)
{
    if (!http_available()) skip();
    struct push_server s = {.chunk_bytes = 20000};
    struct text out = {0}, err = {0};
    const char *folder = test_folder(), *corpus = test_path(folder, "corpus.txt");
    const char *config = test_path(folder, "run.toml"), *dump = test_path(folder, "out");
    runs_write_corpus(corpus, 60000);
    runs_write_config(config, corpus);
    CHECK(runs_train(config, dump, "training.steps=3 checkpoint.enable=true", &err) == 0);
    push_server_start(&s);
    setenv("HF_ENDPOINT", s.endpoint, 1);
    setenv("HF_HUB_CACHE", test_folder(), 1);
    CHECK(LLAMERO(&out, &err, "push", dump, "hf://org/name") == 78);
    CHECK(strstr(err.data, "set HF_TOKEN"));
    setenv("HF_TOKEN", "hf_secret", 1);
    CHECK(LLAMERO(&out, &err, "push", dump, "hf://org/name") == 66);
    CHECK(strstr(err.data, "--create") && !strstr(err.data, "hf_secret"));
    CHECK(LLAMERO(&out, &err, "push", "--private", dump, "hf://org/name") == 64);
    CHECK(LLAMERO(&out, &err, "push", "--create", "--private", dump, "hf://org/name") == 0);
    CHECK(strstr(out.data, "/org/name/commit/abc\n") && s.is_private && s.num_commits == 1);
    CHECK(!strstr(err.data, "hf_secret") && !strstr(out.data, "hf_secret"));
    for (int i = 0; i < s.num_files; i++)
        CHECK(!strstr(s.files[i].path, "optimizer") && !strstr(s.files[i].path, "state") &&
              !strstr(s.files[i].path, ".toml") && !strstr(s.files[i].path, "manifest"));
    CHECK(s.num_files >= 3 && s.num_objects == 1 && s.num_puts > 1 && !s.leaked);

    /* A damaged checkpoint is not uploaded. */
    const char *weights = test_path(dump, "checkpoint/step-3/model-00001-of-00001.safetensors");
    struct text bytes = {0};
    CHECK_STATUS(OK, file_read(weights, 1 << 30, &bytes));
    bytes.data[bytes.len / 2] ^= 1;
    CHECK_STATUS(OK, file_write(weights, bytes.data, bytes.len));
    int posts = s.num_posts;
    CHECK(LLAMERO(&out, &err, "push", test_path(dump, "checkpoint/step-3"), "hf://org/name") == 65);
    CHECK(strstr(err.data, "checksum mismatch") && s.num_posts == posts);
    unsetenv("HF_ENDPOINT"), unsetenv("HF_HUB_CACHE"), unsetenv("HF_TOKEN");
    push_server_stop(&s);
    push_server_release(&s);
    text_release(&bytes);
    text_release(&out);
    text_release(&err);
}
