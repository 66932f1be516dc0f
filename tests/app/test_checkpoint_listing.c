// SPDX-License-Identifier: Apache-2.0
#include "app/checkpoint_answer.h"

TEST(checkpoint_ls_lists_steps_with_size_time_and_state)
{
    struct saved s;
    struct answer a = {0};
    struct json *root;
    saved_open(&s, false);
    const char *dump = dump_folder(&s);
    CHECK_STATUS(OK, file_remove_tree(test_path(dump, "checkpoint/step-2/state.json")));
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "ls", dump) == 0);
    CHECK(strstr(a.out.data, "step-1") && strstr(a.out.data, "good"));
    CHECK(strstr(a.out.data, "DAMAGED") && strstr(a.out.data, "state.json is missing"));
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "ls", dump, "--json") == 0);
    CHECK_STATUS(OK, json_parse(a.out.data, a.out.len, "stdout", &root));
    CHECK(json_is_array(root) && json_count(root) == 3);
    const struct json *one = json_first(root), *two = json_next(one);
    CHECK(json_number(json_get(one, "step")) == 1 && json_true(json_get(one, "valid")));
    CHECK(json_number(json_get(one, "bytes")) > 30000 && json_is_string(json_get(one, "time")));
    CHECK(strstr(json_string(json_get(one, "path")), "checkpoint/step-1"));
    CHECK(json_number(json_get(two, "step")) == 2 && !json_true(json_get(two, "valid")));
    CHECK(strstr(json_string(json_get(two, "reason")), "is missing"));
    json_free(root);
    /* The folder of the checkpoints, or one of them, will do. */
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "ls", test_path(dump, "checkpoint")) == 0);
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "ls", test_path(dump, "checkpoint/step-3")) == 0);
    CHECK(strstr(a.out.data, "step-3") && !strstr(a.out.data, "step-1"));
    answer_release(&a);
    saved_close(&s);
}

TEST(checkpoint_verify_reads_every_byte_and_reports_every_error)
{
    struct saved s;
    struct answer a = {0};
    struct json *root;
    saved_open(&s, false);
    const char *dump = dump_folder(&s), *two = test_path(dump, "checkpoint/step-2");
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "verify", dump) == 0);
    flip(test_path(two, "model-00001-of-00001.safetensors"), 5000, 4);
    flip(test_path(two, "optimizer-00001-of-00001.safetensors"), 50, 4);
    CHECK_STATUS(OK, file_write(test_path(two, "config.toml"), "", 0));
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "ls", test_path(two, "..")) == 0);
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "verify", dump) == 65);
    CHECK(strstr(a.out.data, "model-00001-of-00001.safetensors: checksum mismatch in bytes 0 to "));
    CHECK(strstr(a.out.data,
                 "optimizer-00001-of-00001.safetensors: checksum mismatch in bytes 0 to "));
    CHECK(strstr(a.out.data, "config.toml has 0 bytes, expected"));
    CHECK(strstr(a.err.data, "1 of 3 checkpoints is damaged"));
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "verify", two, "--json") == 65);
    CHECK_STATUS(OK, json_parse(a.out.data, a.out.len, "stdout", &root));
    CHECK(json_count(root) == 1 && !json_true(json_get(json_first(root), "valid")));
    json_free(root);
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "verify", test_path(dump, "checkpoint/step-1")) ==
          0);
    /* A renamed folder disagrees with its manifest. */
    CHECK(rename(test_path(dump, "checkpoint/step-1"), test_path(dump, "checkpoint/step-9")) == 0);
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "verify", dump) == 65);
    CHECK(strstr(a.out.data, "the manifest is of step 1"));
    answer_release(&a);
    saved_close(&s);
}

TEST(checkpoint_verify_reports_a_read_that_failed_once)
{
    const char *program = getenv("LLAMERO"), *library = getenv("LLAMERO_PRELOAD");
    if (!library || !*library) skip();
    char preload[600];
    struct saved s;
    struct answer a = {0};
    saved_open(&s, false);
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", library);
    const char *const words[] = {"env",
                                 preload,
                                 "FAULT=call=read,on=model-00001,nth=1,errno=EIO",
                                 program ? program : "build/llamero",
                                 "checkpoint",
                                 "verify",
                                 saved_folder(&s, STEPS(1)),
                                 NULL};
    CHECK(test_run(words, &a.out, &a.err) == 65);
    CHECK(strstr(a.out.data, "step-1") && strstr(a.out.data, "DAMAGED"));
    CHECK(strstr(a.out.data, "model-00001-of-00001.safetensors: Input/output error"));
    answer_release(&a);
    saved_close(&s);
}
