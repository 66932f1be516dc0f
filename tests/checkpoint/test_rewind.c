// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/rewind.h"

#include "test.h"

#include "base/file.h"

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
