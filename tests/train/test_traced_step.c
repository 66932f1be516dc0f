// SPDX-License-Identifier: Apache-2.0
#include "train/training.h"

#include "base/file.h"
#include "train/traced_step.h"

#define TRACED "profiling.enable_profiling=true", "profiling.profile_freq=2"

static void train(struct training *t, const char *folder, int steps)
{
    char dump[300];
    struct step_result r;
    snprintf(dump, sizeof dump, "job.dump_folder=%s", folder);
    TRAINING_OPEN(t, TRACED, dump);
    for (int i = 0; i < steps; i++) CHECK_STATUS(OK, traced_step_run(&t->trainer, t->loader, &r));
    CHECK(t->trainer.steps_done == steps && !t->machine.queue->trace);
    training_close(t);
}

TEST(traces_of_every_nth_step_are_written)
{
    struct training t;
    struct text trace = {0};
    const char *folder = test_folder();
    train(&t, folder, 5);
    for (int step = 1; step <= 5; step++) {
        char name[80];
        snprintf(name, sizeof name, "profile_traces/iteration_%d/rank0_trace.json", step);
        CHECK(file_exists(test_path(folder, name)) == (step % 2 == 0));
    }
    CHECK_STATUS(OK, file_read(test_path(folder, "profile_traces/iteration_4/rank0_trace.json"),
                               1 << 24, &trace));
    CHECK(strstr(trace.data, "forward and backward"));
    text_release(&trace);
}

TEST(a_trace_that_cannot_be_written_does_not_end_the_run)
{
    struct training t;
    const char *file = test_path(test_folder(), "taken");
    CHECK_STATUS(OK, file_write(file, "x", 1));
    train(&t, file, 3);
}
