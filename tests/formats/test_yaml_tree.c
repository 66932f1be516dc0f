// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "formats/yaml_tree.h"

static enum status parse(const char *text, struct yaml_tree **out)
{
    return yaml_tree_parse(text, strlen(text), "f.yaml", out);
}

static const char *text_of(const struct yaml_tree *root, const char *a, const char *b)
{
    const struct yaml_tree *v = yaml_tree_get(root, a);
    if (b) v = yaml_tree_get(v, b);
    return v ? v->text : NULL;
}

TEST(mappings_lists_and_scalars_keep_their_text_and_position)
{
    struct yaml_tree *root;
    CHECK_STATUS(
        OK, parse("a: 1e-06\nb:\n  c: [x, 'null', null]\n  d: |\n    two\n    lines\n", &root));
    CHECK(root->kind == YAML_MAP && root->count == 2);
    CHECK(!strcmp(text_of(root, "a", NULL), "1e-06"));
    CHECK(!strcmp(text_of(root, "b", "d"), "two\nlines\n"));
    const struct yaml_tree *list = yaml_tree_get(yaml_tree_get(root, "b"), "c");
    CHECK(list->kind == YAML_LIST && list->count == 3 && list->line == 3 && list->column == 6);
    CHECK(!yaml_tree_is_null(list->first->next) && yaml_tree_is_null(list->last));
    CHECK(yaml_tree_is_null(NULL) && !yaml_tree_get(list, "c"));
    CHECK(!strcmp(yaml_tree_kind_name(list), "a list"));
    yaml_tree_free(root);
}

TEST(aliases_are_copied_and_merge_keys_resolved)
{
    struct yaml_tree *root;
    CHECK_STATUS(OK, parse("a: &x {p: 1, q: 2}\nb: *x\nc: {<<: *x, q: 3}\nd: {<<: [*x, {r: 4}]}\n"
                           "s: &n 7\nt: *n\n",
                           &root));
    CHECK(!strcmp(text_of(root, "b", "q"), "2") && !strcmp(text_of(root, "c", "q"), "3"));
    CHECK(!strcmp(text_of(root, "c", "p"), "1") && !strcmp(text_of(root, "d", "r"), "4"));
    CHECK(yaml_tree_get(root, "c")->count == 2 && !strcmp(text_of(root, "t", NULL), "7"));
    yaml_tree_free(root);
}

TEST(truncated_yaml_is_rejected_or_yields_a_smaller_tree)
{
    static const char text[] = "a: &x {p: [1, \"2\"]}\nb: {<<: *x, q: !!str 3}\nc:\n - d\n - *x\n";
    for (size_t len = 0; len < sizeof text; len++) {
        struct yaml_tree *root = NULL;
        enum status st = yaml_tree_parse(text, len, "f.yaml", &root);
        CHECK(st ? st == STATUS_DATA && !root : root != NULL);
        if (st) CHECK_MESSAGE("f.yaml");
        yaml_tree_free(root);
    }
}

TEST(invalid_or_excessive_yaml_is_rejected)
{
    struct text deep = {0}, laughs = {0};
    for (int i = 0; i < 200; i++) text_adds(&deep, "[");
    text_adds(&laughs, "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for (int i = 1; i < 12; i++)
        text_addf(&laughs, "a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i, i, i - 1, i - 1,
                  i - 1, i - 1, i - 1, i - 1);
    const char *const cases[][2] = {
        {"", "no YAML document"},
        {"a: [", "f.yaml:"},
        {"a: 1\na: 2", "f.yaml:2:1: duplicate key a"},
        {"[a]: 1", "a key must be a scalar"},
        {"a: *b", "unknown anchor"},
        {"a: &b [*b]", "an anchor must not contain its own alias"},
        {"a: &b 1\n*b : 2", "a key must not be an alias"},
        {"a: !python/name:os 1", "objects are never constructed"},
        {"a: 1\n--- \nb: 2", "found a second one"},
        {"a: {<<: [1]}", "<< expects mappings"},
        {"a: \"\\0\"", "must not contain NUL"},
        {"\xff\xfe\xfd", "not YAML"},
        {deep.data, "nested more than 64 levels deep"},
        {laughs.data, "more than 20000 values"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct yaml_tree *root = NULL;
        CHECK_STATUS(DATA, parse(cases[i][0], &root));
        CHECK_MESSAGE(cases[i][1]);
        CHECK(!root);
    }
    text_release(&deep), text_release(&laughs);
}
