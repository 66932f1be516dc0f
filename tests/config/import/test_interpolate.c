// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "config/import/interpolate.h"

static enum status parse_and_interpolate(const char *text, struct yaml_tree **root)
{
    CHECK_STATUS(OK, yaml_tree_parse(text, strlen(text), "f.yaml", root));
    enum status st = interpolate(*root, "f.yaml");
    if (st) yaml_tree_free(*root);
    return st;
}

TEST(paths_are_absolute_or_relative)
{
    struct yaml_tree *root;
    CHECK_STATUS(
        OK, parse_and_interpolate("a: {b: 3, c: '${.b}', d: {e: '${..c}x', f: '${a.b}-${a.d.e}'}}\n"
                                  "n: b\nm: ${a.${n}}\np: ${multiply:${a.b}, 4,-2}\nq: ${.n}\n",
                                  &root));
    const struct yaml_tree *d = yaml_tree_get(yaml_tree_get(root, "a"), "d");
    CHECK(!strcmp(yaml_tree_get(d, "e")->text, "3x"));
    CHECK(!strcmp(yaml_tree_get(d, "f")->text, "3-3x"));
    CHECK(!strcmp(yaml_tree_get(root, "m")->text, "3"));
    CHECK(!strcmp(yaml_tree_get(root, "p")->text, "-24"));
    CHECK(!strcmp(yaml_tree_get(root, "q")->text, "b"));
    yaml_tree_free(root);
}

TEST(missing_and_circular_references_are_rejected)
{
    struct text many = {0};
    text_adds(&many, "a0: xxxxxxxxxxxxxxxx\n");
    for (int i = 1; i < 12; i++)
        text_addf(&many, "a%d: ${a%d}${a%d}${a%d}\n", i, i - 1, i - 1, i - 1);
    const char *const cases[][2] = {
        {"a: ${b}", "f.yaml:1:4: ${b}: no such key"},
        {"a: ${a}", "refers to itself"},
        {"a: ${b}\nb: ${a}", "refers to itself"},
        {"a: ${b}\nb: [1]", "expected a scalar value"},
        {"a: ${..b}", "no such parent mapping"},
        {"a: ${...b}", "no such parent mapping"},
        {"a: ${}", "no such key"},
        {"a: ${b", "the closing brace is missing"},
        {"a: ${multiply:1,x}", "whole numbers"},
        {"a: ${multiply:9223372036854775807,2}", "the product is too large"},
        {"a: ${oc.env:HOME}", "environment variables are not read"},
        {"a: ${add:1,2}", "only multiply is supported"},
        {many.data, "too"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct yaml_tree *root;
        CHECK_STATUS(CONFIG, parse_and_interpolate(cases[i][0], &root));
        CHECK_MESSAGE(cases[i][1]);
    }
    text_release(&many);
}
