// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/rig.h"

TEST(checkpoint_show_as_lists_keys_dtypes_and_shapes_of_a_generation)
{
    struct saved s;
    struct text out = {0}, err = {0};
    struct json *root;
    saved_open(&s, false);
    const char *run = test_path(saved_folder(&s, STEPS(2)), "..");
    CHECK(LLAMERO(&out, &err, "checkpoint", "show", run, "--as", "frontier") == 0);
    CHECK(strstr(out.data, "model.layers.1.attention.wq.weight "));
    CHECK(strstr(out.data, " float32 [37, 16]\n") && strstr(out.data, " int32 []\n"));
    CHECK(strstr(out.data, "train_state.log_steps") && strstr(out.data, " BytesIO\n"));
    CHECK(LLAMERO(&out, &err, "checkpoint", "show", run, "--as", "new", "--json") == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "stdout", &root));
    CHECK(!strcmp(json_string(json_get(root, "generation")), "new"));
    const struct json *first = json_first(json_get(root, "keys"));
    CHECK(!strcmp(json_string(json_get(first, "key")), "tok_embeddings.weight"));
    CHECK(!strcmp(json_string(json_get(first, "dtype")), "float32"));
    CHECK(json_number(json_first(json_get(first, "shape"))) == 37);
    CHECK(strstr(out.data, "{\"key\": \"train_state.step\", \"type\": \"int\"}"));
    json_free(root);
    text_adds(&s.config_toml, "[optimizer]\nname = \"Muon\"\n");
    const char *muon = test_path(saved_folder(&s, STEPS(2)), "..");
    CHECK(LLAMERO(&out, &err, "checkpoint", "show", muon, "--as", "v0.2") == 0);
    CHECK(strstr(err.data, "the state of Muon cannot be converted: listing only the weights"));
    CHECK(strstr(out.data, "output.weight") && !strstr(out.data, "optimizer."));
    const char *model = "tests/checkpoint/data/meta-llama2";
    CHECK(LLAMERO(&out, &err, "checkpoint", "show", model, "--as", "v0.2") == 0);
    CHECK(strstr(out.data, "output.weight") && !strstr(out.data, "train_state"));
    CHECK(LLAMERO(&out, &err, "checkpoint", "show", run, "--as", "v9") == 64);
    CHECK(strstr(err.data, "--as: \"v9\": expected frontier, v0.1, v0.2 or new"));
    CHECK(LLAMERO(&out, &err, "checkpoint", "ls", run, "--as", "new") == 64);
    CHECK(strstr(err.data, "--as requires checkpoint show"));
    text_release(&out), text_release(&err);
    saved_close(&s);
}
