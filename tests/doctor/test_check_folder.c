// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "doctor/check.h"
#include "test.h"

static const struct finding *find(const struct findings *f, const char *name)
{
    for (size_t i = 0; i < f->count; i++)
        if (!strcmp(f->items[i].name, name)) return &f->items[i];
    return NULL;
}

TEST(check_folder_leaves_no_files_behind)
{
    struct findings f = {0};
    struct file_list names = {0};
    const char *folder = test_folder();
    check_folder(&f, folder);
    CHECK(!f.first.status);
    CHECK(find(&f, "file system") && find(&f, "free space"));
    CHECK(strstr(find(&f, "writing")->text, "synced"));
    CHECK_STATUS(OK, file_list_dir(&names, folder));
    CHECK(names.count == 0);
    file_list_release(&names);
    findings_release(&f);
}

TEST(unusable_folders_fail_with_the_reason)
{
    struct findings none = {0}, file = {0}, locked = {0};
    const char *path = test_path(test_folder(), "file");
    CHECK_STATUS(OK, file_write(path, "x", 1));
    check_folder(&none, "/nowhere/at/all");
    CHECK(none.first.status == STATUS_MISSING && none.count == 1);
    CHECK(strstr(none.items[0].text, "/nowhere/at/all") && none.items[0].advice);
    check_folder(&file, path);
    CHECK(file.first.status == STATUS_MISSING && strstr(file.items[0].text, "not a folder"));
    check_folder(&locked, "/proc"); /* not even root can create files here */
    CHECK(locked.first.status && find(&locked, "writing")->level == LEVEL_FAIL);
    CHECK(find(&locked, "file system")->level == LEVEL_WARN);
    findings_release(&none);
    findings_release(&file);
    findings_release(&locked);
}

TEST(file_systems_are_known_by_their_magic)
{
    CHECK(!strcmp(check_find_filesystem(0xEF53)->name, "ext4") &&
          !check_find_filesystem(0xEF53)->advice);
    CHECK(strstr(check_find_filesystem(0x01021994)->advice, "memory"));
    CHECK(strstr(check_find_filesystem(0x6969)->advice, "network"));
    CHECK(!check_find_filesystem(0x12345));
}
