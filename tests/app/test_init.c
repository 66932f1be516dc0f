// SPDX-License-Identifier: Apache-2.0
#include "test.h"

TEST(init_lists_recipes_and_suggests_the_closest)
{
    struct text out = {0}, err = {0};
    CHECK(LLAMERO(&out, NULL, "init") == 0);
    CHECK(strstr(out.data, "tiny") && strstr(out.data, "llama3.1-8b"));
    CHECK(LLAMERO(&out, NULL, "init", "tiny") == 0);
    CHECK(strstr(out.data, "dataset_path"));
    CHECK(LLAMERO(NULL, &err, "init", "tinny") == 64);
    CHECK(strstr(err.data, "did you mean tiny?"));
    text_release(&out), text_release(&err);
}
