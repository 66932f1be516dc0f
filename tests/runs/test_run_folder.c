// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/clock.h"
#include "base/file.h"
#include "checkpoint/folder.h"
#include "runs/run_folder.h"

#include <sys/stat.h>
#include <unistd.h>

static void write_at(const char *folder, const char *name, const char *content)
{
    char *path = file_join(folder, name);
    CHECK_STATUS(OK, file_write(path, content, strlen(content)));
    free(path);
}

/* A run of 20 steps that made `step` of them. */
static const char *make_run(int step)
{
    const char *folder = test_folder();
    struct text lines = {0};
    write_at(folder, "config.toml",
             "[training]\nsteps = 20\n[checkpoint]\nenable = true\nfolder = \"checkpoint\"\n");
    for (int i = 5; i <= step; i += 5)
        text_addf(&lines,
                  "{\"step\":%d,\"loss\":%d,\"tokens_per_second\":30,"
                  "\"tokens_per_second_per_rank\":15,\"step_seconds\":%d}\n",
                  i, 100 - i, i == 5 ? 900 : 2);
    write_at(folder, "metrics.jsonl", lines.data ? lines.data : "");
    write_at(folder, "log.txt", "2026-11-24 02:43:13 step:  5  loss: 3\n");
    text_release(&lines);
    return folder;
}

static void add_checkpoint(const char *folder, const char *name, bool is_complete)
{
    char *path = file_join(folder, name);
    CHECK_STATUS(OK, file_make_dirs(path));
    write_at(path, is_complete ? "manifest.json" : "state.json", "{}");
    free(path);
}

TEST(run_folder_reads_what_a_run_left)
{
    struct run_folder r;
    const char *folder = make_run(15);
    add_checkpoint(folder, "checkpoint/step-5", false);
    add_checkpoint(folder, "checkpoint/step-10", true);
    CHECK_STATUS(OK, run_folder_open(&r, folder, false));
    CHECK(!r.problems.len && !strcmp(r.name, strrchr(folder, '/') + 1));
    CHECK(r.last_step == 20 && r.metrics.last_step == 15 && run_folder_ranks(&r) == 2);
    CHECK(run_folder_eta_s(&r) == 10); /* the median of 900, 2 and 2 s, times 5 steps */
    CHECK(r.num_checkpoints == 2 && r.checkpoints[0].step == 5 && r.checkpoints[1].step == 10);
    CHECK(r.checkpoints[0].written_s == 0 && r.checkpoints[1].written_s > 0);
    CHECK(run_folder_checkpoint_bytes(&r, 10) == 2 && run_folder_checkpoint_bytes(&r, 7) == 0);
    CHECK(fabs(clock_wall_s() - r.written_s) < 600 && run_log_count(&r.log) == 1);
    run_folder_close(&r);
}

TEST(run_folder_state_follows_the_run)
{
    struct run_folder r;
    const char *folder = make_run(15);
    char *checkpoints = file_join(folder, "checkpoint");
    int lock;
    CHECK_STATUS(OK, folder_lock(checkpoints, &lock));
    CHECK_STATUS(OK, run_folder_open(&r, folder, true));
    CHECK(r.state == RUN_running);
    run_folder_update(&r, clock_wall_s() + 1e5);
    CHECK(r.state == RUN_stalled);
    folder_unlock(lock);
    write_at(folder, "log.txt", "2026-11-24 02:43:13 error: loss is nan\n");
    run_folder_update(&r, clock_wall_s() + 1e5);
    CHECK(r.state == RUN_failed && !strcmp(r.error, "loss is nan"));
    write_at(folder, "log.txt", "2026-11-24 02:43:13 step:  5  loss: 3\n");
    run_folder_update(&r, clock_wall_s() + 1e5);
    CHECK(r.state == RUN_killed && !r.error);
    write_at(folder, "metrics.jsonl", "{\"step\":20,\"loss\":1}\n");
    add_checkpoint(folder, "checkpoint/step-20", false);
    run_folder_update(&r, clock_wall_s() + 1e5);
    CHECK(r.state == RUN_killed);
    add_checkpoint(folder, "checkpoint/step-20", true);
    run_folder_update(&r, clock_wall_s() + 1e5);
    CHECK(r.state == RUN_finished);
    run_folder_close(&r);
    free(checkpoints);
}

TEST(run_folder_looking_does_not_keep_a_run_from_its_lock)
{
    const char *folder = test_folder();
    int lock;
    CHECK_STATUS(OK, folder_lock(folder, &lock));
    CHECK(folder_lock_look(folder) == FOLDER_LOCK_held);
    folder_unlock(lock);
    CHECK(folder_lock_look(folder) != FOLDER_LOCK_held);
    CHECK_STATUS(OK, folder_lock(folder, &lock));
    folder_unlock(lock);
}

TEST(run_folder_names_what_it_cannot_read)
{
    struct run_folder r;
    const char *folder = test_folder();
    CHECK_STATUS(MISSING, run_folder_open(&r, folder, false));
    CHECK_MESSAGE("not a run: expected a dump folder");
    CHECK_STATUS(MISSING, run_folder_open(&r, test_path(folder, "none"), false));
    CHECK_MESSAGE("none: no such folder");
    write_at(folder, "config.toml", "[training\n");
    CHECK(!mkfifo(test_path(folder, "metrics.jsonl"), 0600));
    CHECK_STATUS(OK, file_make_dirs(test_path(folder, "log.txt")));
    CHECK_STATUS(OK, file_make_dirs(test_path(folder, "checkpoint")));
    CHECK(!mkfifo(test_path(folder, "checkpoint/.lock"), 0600));
    CHECK_STATUS(OK, run_folder_open(&r, folder, false));
    CHECK(strstr(r.problems.data, "config.toml:1:") && strstr(r.problems.data, "metrics.jsonl: ") &&
          strstr(r.problems.data, "log.txt: "));
    CHECK(r.state == RUN_killed && !r.num_checkpoints && r.metrics.last_step == -1);
    CHECK(isnan(run_folder_eta_s(&r)) && !run_folder_ranks(&r));
    run_folder_close(&r);
}
