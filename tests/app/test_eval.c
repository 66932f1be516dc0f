// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"
#include "test.h"

TEST(eval_names_what_is_missing)
{
    struct text err = {0};
    CHECK(LLAMERO(NULL, &err, "eval", "/nowhere", "x.txt") == 66);
    CHECK(strstr(err.data, "/nowhere"));
    CHECK(LLAMERO(NULL, &err, "eval", test_folder(), "x.txt") == 66);
    CHECK(strstr(err.data, "no model found"));
    CHECK(LLAMERO(NULL, &err, "eval", "a", "b", "--batch-size", "0") == 64);
    text_release(&err);
}

/* The last weight of the file turns NaN: eval, generate and a run that starts from it fail. */
TEST(model_with_a_nan_is_not_evaluated)
{
    static const float bad = NAN;
    struct text err = {0}, bytes = {0};
    const char *folder = test_folder(), *config = test_path(folder, "c.toml");
    const char *corpus = test_path(folder, "c.txt"), *dump = test_path(folder, "run");
    const char *model = test_path(folder, "model");
    runs_write_corpus(corpus, 20000);
    runs_write_config(config, corpus);
    CHECK(runs_train(config, dump, "training.steps=2", &err) == 0);
    CHECK(LLAMERO(NULL, &err, "convert", dump, model) == 0);
    const char *file = test_path(model, "model.safetensors");
    CHECK_STATUS(OK, file_read(file, 1 << 24, &bytes));
    CHECK(LLAMERO(NULL, &err, "eval", model, corpus) == 0);
    memcpy(bytes.data + bytes.len - sizeof bad, &bad, sizeof bad);
    CHECK_STATUS(OK, file_write(file, bytes.data, bytes.len));
    text_clear(&err);
    CHECK(LLAMERO(NULL, &err, "eval", model, corpus) == 65);
    CHECK(strstr(err.data, "tensor model.") && strstr(err.data, " is nan, expected a finite"));
    text_clear(&err);
    CHECK(LLAMERO(NULL, &err, "generate", model, "--prompt", "a") == 65);
    CHECK(strstr(err.data, " is nan, expected a finite"));
    text_clear(&err);
    text_clear(&bytes);
    text_addf(&bytes, "training.steps=2 checkpoint.initial_load_path=%s", model);
    CHECK(runs_train(config, test_path(folder, "other"), bytes.data, &err) == 65);
    CHECK(strstr(err.data, " is nan, expected a finite"));
    text_release(&err), text_release(&bytes);
}
