// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tasks/task_text.h"

TEST(white_space_is_that_of_python)
{
    static const char text[] = " \t\x1c\xc2\xa0\xe2\x80\x83\xe3\x80\x80x \xe3\x80\x80\n";
    size_t len = sizeof text - 1;
    CHECK(task_text_leading_space(text, len) == 11);
    CHECK(task_text_trailing_space(text, len) == 5);
    CHECK(task_text_leading_space("   ", 3) == 3 && task_text_trailing_space("   ", 3) == 3);
    CHECK(task_text_trailing_space("", 0) == 0);
    CHECK(task_text_trailing_space("\xe2\x80\x8b", 3) == 0); /* zero-width space */
    struct text t = {0};
    task_text_add_stripped(&t, text);
    CHECK(t.len == 1 && t.data[0] == 'x');
    text_release(&t);
}

TEST(length_counts_characters) { CHECK(task_text_length("a\xc3\xa9\xe9\x9b\xaa!") == 4); }

static void check_edited(void (*edit)(struct text *t), const char *from, const char *to)
{
    struct text t = {0};
    text_adds(&t, from);
    edit(&t);
    if (strcmp(t.data, to) || t.len != strlen(to)) fail_msg("%s: %s", from, t.data);
    text_release(&t);
}

static void join_spaces(struct text *t) { task_text_replace(t, "  ", " "); }

TEST(replacing_and_removing_work_as_in_python)
{
    check_edited(join_spaces, "a  b   c    d", "a b  c  d");
    check_edited(join_spaces, "", "");
    check_edited(task_text_remove_brackets, "[a]b[c[d]e]f", "be]f");
    check_edited(task_text_remove_brackets, "[x\ny] [] [", "[x\ny]  [");
}
