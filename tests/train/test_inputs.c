// SPDX-License-Identifier: Apache-2.0
#include "hub/http.h"
#include "hub/server.h"
#include "test.h"
#include "train/inputs.h"

#include "base/file.h"
#include "data/loader.h"

#include <unistd.h>

static void load(struct config *c, const char *const *settings, int n)
{
    CHECK_STATUS(OK, config_load(c, NULL, settings, n));
}

TEST(tokenizer_path_falls_back_to_older_options)
{
    struct config c;
    load(&c, (const char *const[]){"model.tokenizer_path=old.model"}, 1);
    CHECK(!strcmp(inputs_tokenizer_path(&c), "old.model"));
    config_release(&c);
    load(&c, (const char *const[]){"model.tokenizer_path=old.model", "data.tokenizer=bytes"}, 2);
    CHECK(!strcmp(inputs_tokenizer_path(&c), "bytes"));
    config_release(&c);
}

TEST(data_seed_defaults_to_the_seed_of_the_run)
{
    struct config c;
    struct source_config one;
    load(&c, (const char *const[]){"debug.seed=5", "training.dataset_path=a.txt"}, 2);
    struct data_config d = inputs_data_config(&c, &one);
    CHECK(d.seed == 5 && d.num_sources == 1 && !strcmp(d.sources[0].path, "a.txt"));
    config_release(&c);
    load(&c, (const char *const[]){"debug.seed=5", "data.seed=6"}, 2);
    CHECK(inputs_data_config(&c, &one).seed == 6);
    config_release(&c);
}

TEST(loader_options_have_the_rows_of_the_run_and_of_a_microbatch)
{
    struct config c;
    struct source_config one;
    struct mesh mesh;
    static const struct {
        const char *pipeline;
        int ranks, block;
        int64_t rows;
    } cases[] = {{"parallelism.pipeline_parallel_degree=1", 4, 2, 700 * 16},
                 {"parallelism.pipeline_parallel_degree=2", 4, 1, 700 * 16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        load(&c,
             (const char *const[]){"training.dataset_path=mock", "training.local_batch_size=2",
                                   "training.global_batch_size=16", "training.steps=700",
                                   cases[i].pipeline},
             5);
        CHECK_STATUS(OK, mesh_resolve(&mesh, &c.parallelism, 3, cases[i].ranks));
        struct data_config d = inputs_data_config(&c, &one);
        struct loader_options o = inputs_loader_options(&c, &mesh, &d, NULL, 100);
        CHECK(o.run_rows == cases[i].rows && o.block == cases[i].block);
        config_release(&c);
    }
}

TEST(inputs_are_fetched_from_the_hub)
{
    if (!http_available()) skip();
    struct server s = {.files = {{"data/a.jsonl", "{\"text\":\"one\"}\n{\"text\":\"two\"}\n", true},
                                 {"data/b.jsonl", "{\"text\":\"three\"}\n", false},
                                 {"held/c.jsonl", "{\"text\":\"four\"}\n", false},
                                 {"held/d.jsonl", "{\"text\":\"five\"}\n", false}}};
    struct config c;
    char *local;
    static const char *const settings[] = {
        "training.dataset_path=hf://datasets/org/name/data/*.jsonl",
        "validation.dataset_path=hf://datasets/org/name/held/c.jsonl", "validation.enable=true",
        "data.tokenizer=bytes"};
    server_start(&s);
    setenv("HF_ENDPOINT", s.endpoint, 1);
    setenv("HF_HUB_CACHE", test_folder(), 1);
    CHECK_STATUS(OK, config_load(&c, NULL, settings, 4));
    CHECK_STATUS(OK, inputs_fetch(&c, comm_self()));
    server_stop(&s);
    CHECK(s.num_bodies == 3);
    CHECK_STATUS(OK, hub_find("hf://datasets/org/name/held/c.jsonl", &local));
    CHECK(access(local, R_OK) == 0);
    free(local);

    struct source_config one;
    struct data_config d = inputs_data_config(&c, &one);
    struct tokenizer *t;
    struct mesh mesh;
    struct loader *loader;
    CHECK_STATUS(OK, mesh_resolve(&mesh, &c.parallelism, 0, 1));
    CHECK_STATUS(OK, tokenizer_open(&t, "bytes", &c.tokenizer));
    struct loader_options o = inputs_loader_options(&c, &mesh, &d, t, 0);
    CHECK_STATUS(OK, loader_open(&loader, &o));
    loader_close(loader);
    tokenizer_close(t);

    setenv("HF_HUB_OFFLINE", "1", 1); /* the server is stopped */
    CHECK_STATUS(OK, inputs_fetch(&c, comm_self()));
    unsetenv("HF_HUB_OFFLINE");
    unsetenv("HF_HUB_CACHE");
    unsetenv("HF_ENDPOINT");
    config_release(&c);
    text_release(&s.log);
}

TEST(default_tokenizer_is_fetched_with_the_initial_weights)
{
    if (!http_available()) skip();
    struct text json = {0};
    CHECK_STATUS(OK, file_read("tests/tokenizer/data/small.json", 1 << 20, &json));
    struct server s = {
        .repo = "models/org/name",
        .files = {{"tokenizer.json", json.data, false}, {"model.safetensors", "weights", true}}};
    struct config c;
    struct tokenizer *t;
    static const char *const settings[] = {"checkpoint.initial_load_path=hf://org/name",
                                           "data.tokenizer="};
    server_start(&s);
    setenv("HF_ENDPOINT", s.endpoint, 1);
    setenv("HF_HUB_CACHE", test_folder(), 1);
    CHECK_STATUS(OK, config_load(&c, NULL, settings, 2));
    CHECK_STATUS(OK, inputs_fetch_tokenizer(&c, comm_self()));
    CHECK(s.num_bodies == 1); /* weights are not fetched yet */
    CHECK_STATUS(OK, inputs_open_tokenizer(&c, true, &t));
    CHECK(t && strstr(tokenizer_path(t), "tokenizer.json"));
    tokenizer_close(t);
    server_stop(&s);
    CHECK_STATUS(OK, inputs_fetch_tokenizer(&c, comm_self())); /* cached: no request */
    config_release(&c);

    /* A missing default tokenizer is no error here. */
    setenv("HF_HUB_CACHE", test_folder(), 1);
    setenv("HF_HUB_OFFLINE", "1", 1);
    CHECK_STATUS(OK, config_load(&c, NULL, settings, 2));
    CHECK_STATUS(OK, inputs_fetch_tokenizer(&c, comm_self()));
    CHECK_STATUS(OK, inputs_open_tokenizer(&c, true, &t));
    CHECK(!t);
    config_release(&c);
    unsetenv("HF_HUB_OFFLINE");
    unsetenv("HF_HUB_CACHE");
    unsetenv("HF_ENDPOINT");
    text_release(&s.log), text_release(&json);
}
