// SPDX-License-Identifier: Apache-2.0
#include "hub/http.h"
#include "hub/server.h"
#include "test.h"
#include "train/inputs.h"

#include "base/file.h"
#include "data/loader.h"
#include "train/run.h"

#include <unistd.h>

TEST(inputs_of_a_run_come_from_the_hub_and_are_read)
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
    struct data_config d = run_data_config(&c, &one);
    struct tokenizer *t;
    struct mesh mesh;
    struct loader *loader;
    CHECK_STATUS(OK, mesh_resolve(&mesh, &c.parallelism, 0, 1));
    CHECK_STATUS(OK, tokenizer_open(&t, "bytes", &c.tokenizer));
    struct loader_options o = run_loader_options(&c, &mesh, &d, t, 0);
    CHECK_STATUS(OK, loader_open(&loader, &o));
    loader_close(loader);
    tokenizer_close(t);

    setenv("HF_HUB_OFFLINE", "1", 1); /* the server is gone */
    CHECK_STATUS(OK, inputs_fetch(&c, comm_self()));
    unsetenv("HF_HUB_OFFLINE");
    unsetenv("HF_HUB_CACHE");
    unsetenv("HF_ENDPOINT");
    config_release(&c);
    text_release(&s.log);
}

TEST(a_tokenizer_that_nobody_names_is_fetched_from_beside_the_weights)
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
    CHECK(s.num_bodies == 1); /* the weights are not asked for yet */
    CHECK_STATUS(OK, inputs_open_tokenizer(&c, true, &t));
    CHECK(t && strstr(tokenizer_path(t), "tokenizer.json"));
    tokenizer_close(t);
    server_stop(&s);
    CHECK_STATUS(OK, inputs_fetch_tokenizer(&c, comm_self())); /* it is here: nobody is asked */
    config_release(&c);

    /* One that is not to be had is for what needs it to miss. */
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
