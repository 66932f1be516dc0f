// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/clock.h"
#include "comm/progress.h"

#include <stdatomic.h>
#include <time.h>

enum { JOBS = 50, STEPS = 20 };

/* A job of STEPS steps, which notes when it took its first. */
struct counting_job {
    struct progress_job job;
    atomic_int *clock; /* counts first steps */
    int at, steps;
    enum status failure; /* of its last step */
};

static enum status count_step(struct progress_job *job, bool *is_over)
{
    struct counting_job *c = (struct counting_job *)job;
    if (!c->steps) c->at = atomic_fetch_add(c->clock, 1);
    *is_over = ++c->steps == STEPS;
    if (*is_over && c->failure) FAIL(COMM, "job %d failed", c->at);
    return STATUS_OK;
}

TEST(progress_takes_first_steps_in_start_order)
{
    struct progress_thread *p;
    struct counting_job c[JOBS];
    atomic_int clock = 0;
    CHECK_STATUS(OK, progress_open(NULL, &p));
    for (int i = 0; i < JOBS; i++) {
        c[i] = (struct counting_job){.job.step = count_step, .clock = &clock};
        progress_start(p, &c[i].job);
    }
    for (int i = JOBS; i-- > 0;) CHECK(progress_wait(p, &c[i].job) == NULL);
    for (int i = 0; i < JOBS; i++) CHECK(c[i].at == i && c[i].steps == STEPS);
    progress_close(p);
}

/* A job that is pending until it is released. */
struct held_job {
    struct progress_job job;
    atomic_bool is_released;
    atomic_int steps;
};

static enum status held_step(struct progress_job *job, bool *is_over)
{
    struct held_job *h = (struct held_job *)job;
    atomic_fetch_add(&h->steps, 1);
    *is_over = atomic_load(&h->is_released);
    return STATUS_OK;
}

TEST(progress_completes_a_job_while_another_is_pending)
{
    struct progress_thread *p;
    struct held_job held = {.job.step = held_step};
    atomic_int clock = 0;
    struct counting_job c = {.job.step = count_step, .clock = &clock};
    CHECK_STATUS(OK, progress_open(NULL, &p));
    progress_start(p, &held.job);
    progress_start(p, &c.job);
    CHECK(progress_wait(p, &c.job) == NULL);
    atomic_store(&held.is_released, true);
    CHECK(progress_wait(p, &held.job) == NULL);
    progress_close(p);
}

TEST(progress_advances_jobs_while_nobody_waits)
{
    struct progress_thread *p;
    struct held_job held = {.job.step = held_step};
    CHECK_STATUS(OK, progress_open(NULL, &p));
    progress_start(p, &held.job);
    while (atomic_load(&held.steps) < STEPS) nanosleep(&(struct timespec){0, 100000}, NULL);
    atomic_store(&held.is_released, true);
    CHECK(progress_wait(p, &held.job) == NULL);
    progress_close(p);
}

TEST(progress_fails_every_job_after_the_first_failure)
{
    struct progress_thread *p;
    struct held_job held = {.job.step = held_step};
    atomic_int clock = 0;
    struct counting_job c = {.job.step = count_step, .clock = &clock, .failure = STATUS_COMM}, late;
    CHECK_STATUS(OK, progress_open(NULL, &p));
    progress_start(p, &held.job);
    progress_start(p, &c.job);
    const struct failure *f = progress_wait(p, &held.job);
    CHECK(f && f->status == STATUS_COMM && !strcmp(f->message, "job 0 failed"));
    CHECK(progress_wait(p, &c.job) == f);
    late = (struct counting_job){.job.step = count_step, .clock = &clock};
    progress_start(p, &late.job);
    CHECK(progress_wait(p, &late.job) == f && !late.steps);
    progress_close(p);
}

TEST(progress_can_be_closed_with_a_job_pending)
{
    struct progress_thread *p;
    struct held_job held = {.job.step = held_step};
    CHECK_STATUS(OK, progress_open(NULL, &p));
    progress_start(p, &held.job);
    progress_close(p);
    progress_close(NULL);
}
