// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/clock.h"
#include "comm/mpi/progress.h"

#include <stdatomic.h>
#include <time.h>

enum { JOBS = 50, STEPS = 20 };

/* Takes a number of steps, and remembers when its first was. */
struct count {
    struct job job;
    atomic_int *clock; /* ticks at every first step */
    int at, steps;
    enum status fails;
};

static enum status count_step(struct job *job, bool *is_over)
{
    struct count *c = (struct count *)job;
    if (!c->steps) c->at = atomic_fetch_add(c->clock, 1);
    *is_over = ++c->steps == STEPS;
    if (*is_over && c->fails) FAIL(COMM, "job %d has failed", c->at);
    return STATUS_OK;
}

TEST(progress_takes_first_steps_in_the_order_of_starts)
{
    struct progress *p;
    struct count c[JOBS];
    atomic_int clock = 0;
    CHECK_STATUS(OK, progress_open(&p));
    for (int i = 0; i < JOBS; i++) {
        c[i] = (struct count){.job.step = count_step, .clock = &clock};
        progress_start(p, &c[i].job);
    }
    for (int i = JOBS; i-- > 0;) CHECK(progress_wait(p, &c[i].job) == NULL);
    for (int i = 0; i < JOBS; i++) CHECK(c[i].at == i && c[i].steps == STEPS);
    progress_close(p);
}

/* Goes on until it is let go. */
struct held {
    struct job job;
    atomic_bool let_go;
    atomic_int steps;
};

static enum status held_step(struct job *job, bool *is_over)
{
    struct held *h = (struct held *)job;
    atomic_fetch_add(&h->steps, 1);
    *is_over = atomic_load(&h->let_go);
    return STATUS_OK;
}

TEST(progress_ends_a_job_while_another_is_held_up)
{
    struct progress *p;
    struct held held = {.job.step = held_step};
    atomic_int clock = 0;
    struct count c = {.job.step = count_step, .clock = &clock};
    CHECK_STATUS(OK, progress_open(&p));
    progress_start(p, &held.job);
    progress_start(p, &c.job);
    CHECK(progress_wait(p, &c.job) == NULL);
    atomic_store(&held.let_go, true);
    CHECK(progress_wait(p, &held.job) == NULL);
    progress_close(p);
}

TEST(progress_goes_on_while_nobody_waits)
{
    struct progress *p;
    struct held held = {.job.step = held_step};
    CHECK_STATUS(OK, progress_open(&p));
    progress_start(p, &held.job);
    while (atomic_load(&held.steps) < STEPS) nanosleep(&(struct timespec){0, 100000}, NULL);
    atomic_store(&held.let_go, true);
    CHECK(progress_wait(p, &held.job) == NULL);
    progress_close(p);
}

TEST(progress_tells_every_job_of_the_first_failure)
{
    struct progress *p;
    struct held held = {.job.step = held_step};
    atomic_int clock = 0;
    struct count c = {.job.step = count_step, .clock = &clock, .fails = STATUS_COMM}, late;
    CHECK_STATUS(OK, progress_open(&p));
    progress_start(p, &held.job);
    progress_start(p, &c.job);
    const struct failure *f = progress_wait(p, &held.job);
    CHECK(f && f->status == STATUS_COMM && !strcmp(f->message, "job 0 has failed"));
    CHECK(progress_wait(p, &c.job) == f);
    late = (struct count){.job.step = count_step, .clock = &clock};
    progress_start(p, &late.job);
    CHECK(progress_wait(p, &late.job) == f && !late.steps);
    progress_close(p);
}

TEST(progress_can_be_closed_with_a_job_under_way)
{
    struct progress *p;
    struct held held = {.job.step = held_step};
    CHECK_STATUS(OK, progress_open(&p));
    progress_start(p, &held.job);
    progress_close(p);
    progress_close(NULL);
}
