// SPDX-License-Identifier: Apache-2.0
#include "app/checkpoint_answer.h"

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

TEST(checkpoint_diff_accepts_torch_files)
{
    struct answer a = {0};
    const char *torch = "tests/checkpoint/data/dcp-state";
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "diff", torch, torch) == 0);
    CHECK(strstr(a.out.data, "equal: 36 tensors of 1752 numbers compared"));
    answer_release(&a);
}
