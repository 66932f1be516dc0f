// SPDX-License-Identifier: Apache-2.0
#include "train/small_run.h"

#include "base/file.h"
#include "system/runs.h"
#include "train/run.h"

#include <signal.h>
#include <sys/resource.h>

TEST(run_that_only_loads_sets_no_checkpoint_aside)
{
    struct small_run r;
    small_run_open(&r);
    r.config.checkpoint.interval = r.config.guard.hash_every = 1;
    CHECK_STATUS(OK, run_train(&r.config, &r.t.machine));
    r.config.checkpoint.load_only = true, r.config.checkpoint.load_step = 2;
    CHECK_STATUS(DEVICE, small_run_train(&r, FAULT_FLIP, 4));
    CHECK_MESSAGE("step 2 or earlier");
    CHECK(file_exists(test_path(r.dump, "checkpoint/step-3")));
    CHECK(file_exists(test_path(r.dump, "checkpoint/step-5")));
    small_run_close(&r);
}

TEST(run_whose_checkpoints_are_all_set_aside_never_starts_over)
{
    struct small_run r;
    struct text before = {0}, after = {0};
    small_run_open(&r);
    r.config.checkpoint.interval = r.config.guard.hash_every = 4;
    CHECK_STATUS(DEVICE, small_run_train(&r, FAULT_FLIP, 5));
    CHECK_MESSAGE("step 3 or earlier");
    CHECK(!file_exists(test_path(r.dump, "checkpoint/step-4")));
    CHECK(file_exists(test_path(r.dump, "checkpoint/abandoned-3-1/step-4")));
    const char *metrics = test_path(r.dump, "metrics.jsonl");
    CHECK_STATUS(OK, file_read(metrics, 1 << 20, &before));
    CHECK_STATUS(DATA, run_train(&r.config, &r.t.machine));
    CHECK_MESSAGE("/checkpoint: all checkpoints were set aside in abandoned-*; move one back");
    CHECK_STATUS(OK, file_read(metrics, 1 << 20, &after));
    CHECK(before.len > 0 && !strcmp(before.data, after.data));
    CHECK_STATUS(OK, file_rename(test_path(r.dump, "checkpoint/abandoned-3-1/step-4"),
                                 test_path(r.dump, "checkpoint/step-4")));
    CHECK_STATUS(OK, run_train(&r.config, &r.t.machine));
    CHECK(runs_metric(r.dump, "step") == SMALL_RUN_STEPS);
    text_release(&before), text_release(&after);
    small_run_close(&r);
}

/* The save of step 2, in the background, exceeds the limit of a file's size. */
TEST(failing_run_reports_a_lost_save)
{
    static const enum small_run_fault faults[] = {FAULT_NAN, FAULT_DEVICE};
    for (int i = 0; i < 2; i++) {
        struct small_run r;
        struct rlimit old;
        small_run_open(&r);
        r.config.checkpoint.async_mode = ASYNC_async, r.config.checkpoint.interval = 2;
        void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
        CHECK(!getrlimit(RLIMIT_FSIZE, &old));
        CHECK(!setrlimit(RLIMIT_FSIZE, &(struct rlimit){16 << 10, old.rlim_max}));
        enum status st = small_run_train(&r, faults[i], 3);
        CHECK(!setrlimit(RLIMIT_FSIZE, &old));
        signal(SIGXFSZ, handler);
        CHECK(st == (i ? STATUS_DEVICE : STATUS_DIVERGED));
        CHECK(small_run_logged(&r, "the checkpoint of step 2 was not written: "));
        CHECK(small_run_logged(&r, "cannot save the checkpoint of step 2: ") ==
              !i); /* it tried again */
        CHECK(small_run_logged(&r, "File too large") &&
              !small_run_logged(&r, "that state is saved"));
        small_run_close(&r);
    }
}
