// SPDX-License-Identifier: Apache-2.0
#include "train/small_run.h"

#include "system/runs.h"
#include "train/run.h"

TEST(finished_run_resumes_and_does_nothing)
{
    struct small_run r;
    small_run_open(&r);
    CHECK_STATUS(OK, run_train(&r.config, &r.t.machine));
    CHECK_STATUS(OK, run_train(&r.config, &r.t.machine));
    CHECK(runs_metric(r.dump, "step") == SMALL_RUN_STEPS);
    small_run_close(&r);
}
