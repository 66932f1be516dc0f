// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/rewind.h"

#include "test.h"

#include "base/file.h"
#include "checkpoint/folder.h"

static const char *folder_with(const int *steps, size_t count)
{
    const char *folder = test_folder();
    for (size_t i = 0; i < count; i++) {
        char *path = folder_step_path(folder, steps[i]);
        CHECK_STATUS(OK, file_make_dirs(path));
        free(path);
    }
    return folder;
}

static bool is_done(const char *folder, int64_t step)
{
    bool is;
    CHECK_STATUS(OK, rewind_is_done(folder, step, &is));
    return is;
}

TEST(later_checkpoints_are_moved_to_a_branch_of_their_own)
{
    const char *folder = folder_with((const int[]){2, 4, 6, 10}, 4);
    struct text branch = {0};
    CHECK_STATUS(OK, rewind_abandon(folder, 4, &branch));
    CHECK(file_has_suffix(branch.data, "/abandoned-4-1"));
    CHECK(file_exists_in(branch.data, "step-6") && file_exists_in(branch.data, "step-10"));
    CHECK(file_exists_in(folder, "step-2") && file_exists_in(folder, "step-4"));
    CHECK(!file_exists_in(folder, "step-6") && !file_exists_in(folder, "step-10"));
    CHECK_STATUS(OK, rewind_abandon(folder, 4, &branch));
    CHECK(!branch.len); /* nothing is left to move */
    CHECK_STATUS(OK, rewind_abandon(folder, 2, &branch));
    CHECK(file_has_suffix(branch.data, "/abandoned-2-1"));
    CHECK_STATUS(OK, file_make_dirs(test_path(folder, "step-8")));
    CHECK_STATUS(OK, rewind_abandon(folder, 2, &branch));
    CHECK(file_has_suffix(branch.data, "/abandoned-2-2"));
    text_release(&branch);
}

TEST(a_rewind_is_done_once_until_it_is_forgotten)
{
    const char *folder = folder_with((const int[]){2}, 1);
    CHECK(!is_done(folder, 2));
    CHECK_STATUS(OK, rewind_record(folder, 2, ""));
    CHECK(is_done(folder, 2) && !is_done(folder, 1));
    CHECK_STATUS(OK, rewind_record(folder, 1, "x/abandoned-1-1"));
    CHECK(!is_done(folder, 2) && is_done(folder, 1));
    CHECK_STATUS(OK, rewind_forget(folder));
    CHECK_STATUS(OK, rewind_forget(folder));
    CHECK(!is_done(folder, 1));
}

TEST(a_damaged_record_is_an_error)
{
    bool is;
    const char *folder = test_folder(), *path = test_path(folder, "rewind.json");
    CHECK_STATUS(OK, file_write(path, "{\"load_step\"", 12));
    CHECK_STATUS(DATA, rewind_is_done(folder, 2, &is));
    CHECK_STATUS(OK, file_write(path, "{\"load_step\":-1}", 16));
    CHECK_STATUS(DATA, rewind_is_done(folder, 2, &is));
}
