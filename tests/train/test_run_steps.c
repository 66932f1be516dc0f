// SPDX-License-Identifier: Apache-2.0
#include "train/small_run.h"

#include "base/file.h"
#include "system/runs.h"
#include "train/run.h"

TEST(diverged_run_saves_the_state_before)
{
    struct small_run whole, diverged;
    small_run_open(&whole);
    CHECK_STATUS(OK, run_train(&whole.config, &whole.t.machine));
    whole.config.training.steps = 3;
    const char *three = test_folder();
    whole.config.job.dump_folder = three;
    CHECK_STATUS(OK, run_train(&whole.config, &whole.t.machine));

    small_run_open(&diverged);
    CHECK_STATUS(DIVERGED, small_run_train(&diverged, FAULT_NAN, 4));
    CHECK_MESSAGE("step 4 ");
    CHECK(runs_metric(diverged.dump, "step") == 3);
    runs_check_same_files(test_path(three, "checkpoint/step-3"),
                          test_path(diverged.dump, "checkpoint/step-3"), ".safetensors");
    CHECK(!file_exists(test_path(diverged.dump, "checkpoint/step-4")));
    /* It resumes as if nothing had been wrong. */
    CHECK_STATUS(OK, run_train(&diverged.config, &diverged.t.machine));
    runs_check_same_files(test_path(whole.dump, "checkpoint/step-5"),
                          test_path(diverged.dump, "checkpoint/step-5"), ".safetensors");
    small_run_close(&diverged), small_run_close(&whole);
}

TEST(run_whose_device_fails_saves_nothing)
{
    struct small_run r;
    small_run_open(&r);
    CHECK_STATUS(DEVICE, small_run_train(&r, FAULT_DEVICE, 4));
    CHECK_MESSAGE("the device is lost");
    CHECK(!file_exists(test_path(r.dump, "checkpoint/step-3")));
    CHECK(!small_run_logged(&r, "that state is saved"));
    small_run_close(&r);
}

TEST(run_that_fails_in_its_first_step_does_not_report_a_checkpoint)
{
    struct small_run r;
    small_run_open(&r);
    CHECK_STATUS(DIVERGED, small_run_train(&r, FAULT_NAN, 1));
    CHECK(!small_run_logged(&r, "that state is saved"));
    small_run_close(&r);
}

TEST(run_with_a_bad_state_and_no_good_checkpoint_ends)
{
    struct small_run r;
    small_run_open(&r);
    r.config.checkpoint.interval = 2, r.config.guard.nonfinite = NONFINITE_rollback;
    CHECK_STATUS(DIVERGED, small_run_train(&r, FAULT_HUGE, 2));
    CHECK_MESSAGE("step 2: loss ");
    CHECK_MESSAGE("there is no checkpoint to go back to");
    CHECK(runs_metric(r.dump, "step") == 2);
    CHECK(small_run_logged(
        &r, "cannot save the checkpoint of step 2: rank 0: tensor model.embed_tokens.weight"));
    CHECK(!small_run_logged(&r, "the run continues") &&
          !small_run_logged(&r, "that state is saved"));
    small_run_close(&r);
}
