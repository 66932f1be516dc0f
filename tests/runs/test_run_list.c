// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "runs/run_list.h"
#include "runs/runs_fixture.h"

#include <unistd.h>

TEST(run_list_has_each_run_once)
{
    struct run_list l;
    const char *folder = test_folder();
    fixture_run(folder, "a/x", 10, 3, 1);
    fixture_run(folder, "a/y", 10, 3, 1);
    fixture_run(folder, "b/1/2/3", 10, 3, 1);
    fixture_run(folder, "b/.hidden", 10, 3, 1);
    CHECK(!symlink("../a", test_path(folder, "b/link")));
    const char *folders[] = {folder, test_path(folder, "a"), test_path(folder, "a/x/"),
                             test_path(folder, "b/link")};
    CHECK_STATUS(OK, run_list_open(&l, folders, 4));
    CHECK(l.count == 3 && !strcmp(l.runs[0].path, test_path(folder, "a/x")));
    CHECK(!strcmp(l.runs[2].name, "3") && l.runs[0].state == RUN_killed);
    run_list_close(&l);
    CHECK_STATUS(OK, run_list_open(&l, folders + 3, 1)); /* a link that was named is followed */
    CHECK(l.count == 2);
    run_list_close(&l);
}

TEST(run_list_names_a_folder_without_runs)
{
    struct run_list l;
    const char *folder = test_folder(), *none = test_path(folder, "none");
    fixture_write(folder, "file", "");
    const char *file = test_path(folder, "file");
    CHECK_STATUS(MISSING, run_list_open(&l, &folder, 1));
    CHECK_MESSAGE(": contains no run: expected dump folders with metrics.jsonl");
    CHECK_STATUS(MISSING, run_list_open(&l, &none, 1));
    CHECK_MESSAGE("none: no such folder");
    CHECK_STATUS(MISSING, run_list_open(&l, &file, 1));
    CHECK_MESSAGE("file: not a folder");
}
