// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/rewind.h"

#include "checkpoint/rig.h"

static bool is_done(const char *folder, int64_t step)
{
    bool is;
    CHECK_STATUS(OK, rewind_is_done(folder, step, &is));
    return is;
}

TEST(a_rewind_is_done_once_until_it_is_forgotten)
{
    const char *folder = test_folder();
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

TEST(abandoned_checkpoints_are_set_aside)
{
    struct saved s;
    saved_open(&s, false);
    const char *folder = saved_folder(&s, STEPS(1, 2, 3));
    struct checkpointer *c = checkpointer_of(folder, 0);
    struct text branch = {0};
    CHECK_STATUS(OK, checkpointer_abandon(c, 2, NULL, NULL));
    CHECK(has_file(folder, "step-2") && !has_file(folder, "step-3"));
    check_holds(&s, test_path(folder, "abandoned-2-1/step-3"), 3);
    CHECK_STATUS(OK, checkpointer_abandon(c, 2, NULL, &branch));
    CHECK(!branch.len); /* nothing is left to move */
    CHECK_STATUS(OK, checkpointer_abandon(c, 1, NULL, &branch));
    CHECK(file_has_suffix(branch.data, "/abandoned-1-1") && has_file(branch.data, "step-2"));
    text_release(&branch);
    CHECK_STATUS(OK, checkpointer_close(c, false));
    saved_close(&s);
}
