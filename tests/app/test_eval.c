// SPDX-License-Identifier: Apache-2.0
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
