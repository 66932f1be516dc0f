// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/rig.h"

struct answer {
    struct text out, err;
};

static void answer_release(struct answer *a)
{
    text_release(&a->out);
    text_release(&a->err);
}

/* A run's folder, with checkpoint/step-1 to step-3. */
static const char *dump_folder(struct saved *s)
{
    const char *folder = saved_folder(s, STEPS(1, 2, 3));
    return test_path(folder, "..");
}

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

TEST(checkpoint_show_prints_dimensions_step_and_files)
{
    struct saved s;
    struct answer a = {0};
    struct json *root;
    saved_open(&s, false);
    const char *dump = dump_folder(&s);
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "show", dump) == 0);
    CHECK(strstr(a.out.data, "step        3\n") && strstr(a.out.data, "tokens seen 99\n"));
    CHECK(strstr(a.out.data, "16 wide, 2 layers, 4 heads of 4 (2 for keys and values)"));
    CHECK(strstr(a.out.data, "optimizer-00001-of-00001.safetensors"));
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "show", dump, "--tensors") == 0);
    CHECK(strstr(a.out.data, "model.layers.1.mlp.down_proj.weight"));
    CHECK(strstr(a.out.data, "[16, 24]"));
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "show", dump, "--tensors", "--json") == 0);
    CHECK_STATUS(OK, json_parse(a.out.data, a.out.len, "stdout", &root));
    CHECK(json_number(json_get(root, "parameters")) == (double)s.layout.parameters);
    CHECK(json_count(json_get(root, "tensors")) == (size_t)s.layout.num_tensors);
    CHECK(json_number(json_get(root, "step")) == 3 && json_true(json_get(root, "moments")));
    CHECK(json_count(json_get(root, "files")) == 2);
    json_free(root);
    answer_release(&a);
    saved_close(&s);
}

TEST(checkpoint_show_accepts_a_plain_hugging_face_folder)
{
    static const char *const extra[] = {"manifest.json", "state.json"};
    struct saved s;
    struct answer a = {0};
    saved_open(&s, true);
    const char *step = test_path(saved_folder(&s, STEPS(1)), "step-1");
    for (int i = 0; i < 2; i++) CHECK_STATUS(OK, file_remove_tree(test_path(step, extra[i])));
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "show", step) == 0);
    CHECK(strstr(a.out.data, "a Hugging Face folder") && strstr(a.out.data, "head tied"));
    CHECK(!strstr(a.out.data, "step "));
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "show", step, "--json") == 0);
    CHECK(strstr(a.out.data, "\"step\": null") && strstr(a.out.data, "\"kind\": \"hf\""));
    answer_release(&a);
    saved_close(&s);
}

TEST(checkpoint_diff_lists_differences_and_exits_with_0)
{
    struct saved s;
    struct answer a = {0};
    struct json *root;
    saved_open(&s, false);
    const char *dump = dump_folder(&s), *two = test_path(dump, "checkpoint/step-2");
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "diff", two, two) == 0);
    CHECK(!strncmp(a.out.data, "equal: ", 7));
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "diff", two, dump) == 0);
    CHECK(strstr(a.out.data, "model.norm.weight") && strstr(a.out.data, "max |a-b| "));
    CHECK(strstr(a.out.data, "state.json: step") && strstr(a.out.data, "2 | 3"));
    CHECK(strstr(a.out.data, "different: "));
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "diff", two, dump, "--json") == 0);
    CHECK_STATUS(OK, json_parse(a.out.data, a.out.len, "stdout", &root));
    CHECK(!json_true(json_get(root, "equal")) && json_is_bool(json_get(root, "equal")));
    CHECK(json_count(json_get(root, "differences")) == 3 * (size_t)s.layout.num_tensors + 1);
    json_free(root);
    answer_release(&a);
    saved_close(&s);
}

TEST(checkpoint_rejects_wrong_arguments)
{
    struct answer a = {0};
    const char *empty = test_folder();
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "list", empty) == 64);
    CHECK(strstr(a.err.data, "unknown subcommand \"list\"; did you mean \"ls\"?"));
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "diff", empty) == 64);
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "ls", empty, empty) == 64);
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "ls", empty) == 66);
    CHECK(strstr(a.err.data, "contains no checkpoint"));
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "verify", test_path(empty, "none")) == 66);
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "--help") == 0);
    answer_release(&a);
}

TEST(checkpoint_show_and_diff_accept_torch_files)
{
    struct answer a = {0};
    struct json *root;
    const char *torch = "tests/checkpoint/data/dcp-state";
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "show", torch) == 0);
    CHECK(strstr(a.out.data, "a directory of torch.distributed.checkpoint"));
    CHECK(strstr(a.out.data, "step        3\n") && strstr(a.out.data, "tokens seen 192\n"));
    CHECK(strstr(a.out.data, "with the optimizer's moments"));
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "show", torch, "--tensors", "--json") == 0);
    CHECK_STATUS(OK, json_parse(a.out.data, a.out.len, "stdout", &root));
    CHECK(!strcmp(json_string(json_get(root, "kind")), "dcp"));
    CHECK(json_count(json_get(root, "tensors")) == 12 && json_count(json_get(root, "files")) == 2);
    const struct json *file = json_first(json_get(root, "files"));
    CHECK(json_number(json_get(file, "tensors")) == 36);
    json_free(root);
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "show", "tests/checkpoint/data/meta-llama2") == 0);
    CHECK(strstr(a.out.data, "Meta's .pth files") && !strstr(a.out.data, "moments"));
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "show", "tests/checkpoint/data/nxdt/xser") == 0);
    CHECK(strstr(a.out.data, "kind        a checkpoint of NxD Training\n"));
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "diff", torch, torch) == 0);
    CHECK(strstr(a.out.data, "equal: 36 tensors of 1752 numbers compared"));
    answer_release(&a);
}
