// SPDX-License-Identifier: Apache-2.0
#include "machine/node.h"

#include "base/file.h"
#include "test.h"

TEST(node_value_matches_whole_names_at_the_start_of_a_line)
{
    struct text v = {0};
    const char *info = "processor\t: 0\nmodel\t\t: 2\nmodel name\t: A B 9000 \t\nflags\t\t:\n";
    node_value(info, "model name", &v);
    CHECK(!strcmp(v.data, "A B 9000"));
    node_value(info, "model", &v);
    CHECK(!strcmp(v.data, "2"));
    node_value(info, "flags", &v);
    CHECK(v.len == 0);
    node_value(info, "name", &v);
    CHECK(v.len == 0);
    text_release(&v);
}

TEST(node_line_has_no_newline_and_is_empty_without_a_file)
{
    struct text v = {0};
    const char *path = test_path(test_folder(), "line");
    CHECK_STATUS(OK, file_write(path, "one two\nthree\n", 14));
    node_line(path, &v);
    CHECK(!strcmp(v.data, "one two") && v.len == 7);
    node_line("/nowhere", &v);
    CHECK(!strcmp(v.data, "") && v.len == 0);
    text_release(&v);
}

TEST(node_of_pci_device_is_read_in_lower_case)
{
    const char *folder = test_folder();
    CHECK_STATUS(OK, file_make_dirs(test_path(folder, "0000:3b:00.0")));
    CHECK_STATUS(OK, file_write(test_path(folder, "0000:3b:00.0/numa_node"), "3\n", 2));
    CHECK(node_of_pci_device(folder, "0000:3B:00.0") == 3);
    CHECK(node_of_pci_device(folder, "0000:3C:00.0") == -1);
    CHECK_STATUS(OK, file_write(test_path(folder, "numa_node"), "3\n", 2));
    CHECK(node_of_pci_device(folder, "") == -1);
}

TEST(node_processor_is_a_single_line)
{
    struct text name = {0};
    node_processor(&name);
    CHECK(name.len > 0 && !strchr(name.data, '\n'));
    text_release(&name);
}

TEST(node_choice_is_the_word_in_brackets)
{
    struct text v = {0};
    node_choice("always [madvise] never", &v);
    CHECK(!strcmp(v.data, "madvise"));
    node_choice("always madvise", &v);
    CHECK(!strcmp(v.data, ""));
    node_choice("[never", &v);
    CHECK(!strcmp(v.data, ""));
    text_release(&v);
}
