// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "checkpoint/interop/nxdt_files.h"
#include "test.h"

/* Creates empty files with these names in a new folder. */
static const char *with_files(const char *const *names)
{
    const char *folder = test_folder();
    for (; *names; names++) {
        char *path = file_join(folder, *names), *slash = strrchr(path, '/');
        *slash = '\0';
        CHECK_STATUS(OK, file_make_dirs(path));
        *slash = '/';
        CHECK_STATUS(OK, file_write(path, "", 0));
        free(path);
    }
    return folder;
}
#define FILES(...) with_files((const char *const[]){__VA_ARGS__, NULL})

static void check_found(const char *path, int tp, int pp)
{
    struct nxdt_files f;
    CHECK(nxdt_files_detect(path));
    CHECK_STATUS(OK, nxdt_files_open(&f, path));
    CHECK(f.tp == tp && f.pp == pp && f.count == (size_t)(tp * pp));
    for (size_t i = 0; i < f.count; i++) {
        CHECK(f.all[i].tp == (int)i / pp && f.all[i].pp == (int)i % pp);
        CHECK(file_exists(f.all[i].path) && !file_is_dir(f.all[i].path));
    }
    nxdt_files_release(&f);
}

static enum status open_status(const char *path)
{
    struct nxdt_files f;
    enum status st = nxdt_files_open(&f, path);
    nxdt_files_release(&f);
    return st;
}

TEST(nxdt_rank_files_are_found_and_other_files_ignored)
{
    const char *folder = FILES(
        "model/dp_rank_00_tp_rank_00_pp_rank_00.pt", "model/dp_rank_00_tp_rank_00_pp_rank_01.pt",
        "model/dp_rank_00_tp_rank_01_pp_rank_00.pt", "model/dp_rank_00_tp_rank_01_pp_rank_01.pt",
        "model/dp_rank_01_tp_rank_00_pp_rank_00.pt", /* a replica */
        "model/dp_rank_00_tp_rank_02_pp_rank_00.pt.info.pt",
        "model/dp_rank_00_tp_rank_02_pp_rank_00.pt.tensors/tensor_0.pt", "model/notes.txt",
        "checkpoint", "done", "scheduler.pt");
    check_found(folder, 2, 2);
    check_found(test_path(folder, "model"), 2, 2);
    CHECK(!nxdt_files_have_optimizer(folder));
    CHECK(!nxdt_files_detect(test_path(folder, "model/notes.txt")));
    CHECK(!nxdt_files_detect(test_path(folder, "none")));
}

TEST(older_expert_parallel_and_whole_model_files_are_found)
{
    check_found(FILES("tp_rank_00_pp_rank_00", "tp_rank_01_pp_rank_00"), 2, 1);
    check_found(FILES("tp_rank_00_pp_rank_00/checkpoint.pt", "tp_rank_01_pp_rank_00/checkpoint.pt"),
                2, 1);
    const char *folder = FILES("tag/model/dp_rank_00_ep_rank_00_tp_rank_00_pp_rank_00.pt",
                               "tag/optim/dp_rank_00_tp_rank_00_pp_rank_00.pt", "checkpoint.pt");
    check_found(test_path(folder, "tag"), 1, 1);
    CHECK(nxdt_files_have_optimizer(test_path(folder, "tag")));
    CHECK(nxdt_files_have_optimizer(test_path(folder, "tag/model")));
    check_found(folder, 1, 1);
    check_found(test_path(folder, "checkpoint.pt"), 1, 1);
}

TEST(ranks_above_99_sort_numerically)
{
    const char *folder = test_folder();
    for (int r = 0; r < 101; r++) {
        char name[80];
        snprintf(name, sizeof name, "dp_rank_00_tp_rank_%02d_pp_rank_00.pt", r);
        FILE *f = fopen(test_path(folder, name), "w");
        CHECK(f && !fclose(f));
    }
    check_found(folder, 101, 1);
}

TEST(incomplete_nxdt_checkpoints_are_rejected)
{
    const char *folder =
        FILES("dp_rank_00_tp_rank_00_pp_rank_00.pt", "dp_rank_00_tp_rank_01_pp_rank_01.pt");
    CHECK_STATUS(DATA, open_status(folder));
    CHECK_MESSAGE("tp_rank 0, pp_rank 1 is missing");
    folder = FILES("dp_rank_00_tp_rank_9999_pp_rank_9999.pt");
    CHECK_STATUS(DATA, open_status(folder));
    CHECK_MESSAGE("tp_rank 0, pp_rank 0 is missing");
    folder = FILES("dp_rank_00_tp_rank_00_pp_rank_00.pt", "tp_rank_00_pp_rank_00.pt");
    CHECK_STATUS(DATA, open_status(folder));
    CHECK_MESSAGE("under another name");
    folder = FILES("model/dp_rank_00_tp_rank_00_pp_rank_00.pt", "checkpoint");
    CHECK_STATUS(DATA, open_status(folder));
    CHECK_MESSAGE("incomplete checkpoint");
    CHECK_STATUS(DATA, open_status(test_path(folder, "model")));
    folder = FILES("model/dp_rank_00_tp_rank_99999_pp_rank_00.pt",
                   "model/dp_rank_00_tp_rank__pp_rank_00.pt");
    CHECK_STATUS(MISSING, open_status(folder));
    CHECK(!nxdt_files_detect(folder));
}
