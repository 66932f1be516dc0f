// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/toml_parse.h"

TEST(toml_get_finds_members_of_tables_only)
{
    static const char text[] = "a = 1\n\"b\\u0000c\" = 2\n[t]\nd = [3]\n";
    struct toml *root;
    CHECK_STATUS(OK, toml_parse(text, strlen(text), "test.toml", &root));
    CHECK(toml_get(root, "a")->integer == 1 && toml_get(toml_get(root, "t"), "d")->count == 1);
    CHECK(!toml_get(root, "d") && !toml_get(root, "b") && !toml_get(NULL, "a"));
    CHECK(!toml_get(toml_get(root, "a"), "a"));
    CHECK(toml_find(root, "b\0c", 3)->integer == 2 && !toml_find(root, "b\0d", 3));
    CHECK(!strcmp(toml_kind_name(toml_get(root, "t")->kind), "a table"));
    toml_free(root), toml_free(NULL);
}
