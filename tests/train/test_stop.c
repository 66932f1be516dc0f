// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "system/runs.h"
#include "train/training.h"

#include "base/clock.h"
#include "base/signals.h"
#include "train/stop.h"

#include <signal.h>
#include <time.h>

static void set_job_end(double seconds_ahead)
{
    char text[32];
    snprintf(text, sizeof text, "%.0f", ceil(clock_wall_s() + seconds_ahead));
    setenv("SLURM_JOB_END_TIME", text, 1);
}

/* --- agreement --- */

struct asking {
    int signal, saver; /* the rank that wants a save; -1: none */
};

static enum status agree_after_step(const struct comm *world, void *context)
{
    const struct asking *a = context;
    struct stop s;
    int64_t requests[STOP_REQUESTS] = {a->saver == world->rank};
    stop_init(&s, world, true, 0);
    TRY(stop_agree(&s, requests));
    RANK_CHECK(s.signal == a->signal && requests[0] == (a->saver >= 0));
    enum status st = stop_check(&s);
    RANK_CHECK(st == (a->signal ? STATUS_REQUEUE : STATUS_OK));
    return STATUS_OK;
}

TEST(ranks_agree_to_save_if_one_of_them_asks)
{
    for (int saver = -1; saver < 3; saver++)
        CHECK_STATUS(OK, ranks_run(3, agree_after_step, &(struct asking){0, saver}));
}

static enum status agree_on_a_signal(int unused)
{
    (void)unused;
    signals_catch();
    test_raise(SIGHUP);
    return ranks_run(2, agree_after_step, &(struct asking){SIGHUP, 1});
}

TEST(ranks_agree_on_a_signal) { CHECK(test_in_child(agree_on_a_signal, 0) == 0); }

/* --- the end of the job --- */

static enum status stop_in_time(int unused)
{
    (void)unused;
    struct stop s;
    int64_t requests[STOP_REQUESTS] = {false};
    signals_catch();
    set_job_end(1000);
    stop_init(&s, comm_self(), true, 20);
    stop_end_step(&s, 100);
    TRY(stop_agree(&s, requests));
    RANK_CHECK(!s.signal);
    stop_end_step(&s, 500); /* two of these take too long */
    TRY(stop_agree(&s, requests));
    RANK_CHECK(s.signal == SIGALRM && strstr(stop_describe(&s), "Slurm"));
    stop_end_step(&s, 1);
    TRY(stop_agree(&s, requests));
    RANK_CHECK(!s.signal);
    stop_note_save(&s, 0); /* unknown */
    TRY(stop_agree(&s, requests));
    RANK_CHECK(!s.signal);
    stop_note_save(&s, 500); /* as long as that takes */
    TRY(stop_agree(&s, requests));
    RANK_CHECK(s.signal == SIGALRM);
    return STATUS_OK;
}

TEST(a_run_stops_before_its_job_could_end_within_a_step_or_a_save)
{
    CHECK(test_in_child(stop_in_time, 0) == 0);
}

static enum status stop_within_a_step(int unused)
{
    (void)unused;
    const struct timespec ms = {.tv_nsec = 1000000};
    struct stop s;
    signals_catch();
    set_job_end(3);
    double end = clock_wall_s() + 3;
    stop_init(&s, comm_self(), true, 0.1);
    while (!stop_check(&s) && clock_wall_s() < end + 10) nanosleep(&ms, NULL);
    RANK_CHECK(s.signal == SIGALRM);
    RANK_CHECK(clock_wall_s() > end - 2 && clock_wall_s() < s.job_end_s);
    return STATUS_OK;
}

TEST(a_step_that_takes_too_long_is_abandoned_before_the_job_ends)
{
    CHECK(test_in_child(stop_within_a_step, 0) == 0);
}

static enum status step_despite_estimate(int unused)
{
    (void)unused;
    struct stop s;
    int64_t requests[STOP_REQUESTS] = {false};
    signals_catch();
    set_job_end(100);
    stop_init(&s, comm_self(), true, 1e6);
    stop_end_step(&s, 1);
    TRY(stop_agree(&s, requests));
    RANK_CHECK(!s.signal && s.lead_s < 30);
    return STATUS_OK;
}

TEST(a_long_estimate_of_a_save_does_not_keep_a_run_from_its_first_steps)
{
    CHECK(test_in_child(step_despite_estimate, 0) == 0);
}

TEST(a_save_that_takes_half_of_the_grace_of_mpirun_is_warned_about_once)
{
    struct stop s;
    setenv("OMPI_MCA_odls_base_sigkill_timeout", "10", 1);
    for (int by_mpirun = 0; by_mpirun < 2; by_mpirun++) {
        stop_init(&s, comm_self(), true, 1);
        if (by_mpirun) setenv("OMPI_MCA_orte_hnp_uri", "of a test", 1);
        stop_note_save(&s, 4.9);
        CHECK(!s.has_warned);
        stop_note_save(&s, 5.1);
        CHECK(s.has_warned == by_mpirun);
    }
    unsetenv("OMPI_MCA_orte_hnp_uri"), unsetenv("OMPI_MCA_odls_base_sigkill_timeout");
}

TEST(any_save_is_warned_about_with_mpirun_of_open_mpi_5)
{
    struct stop s;
    stop_init(&s, comm_self(), true, 1);
    setenv("OMPI_TOOL_NAME", "mpirun", 1);
    stop_note_save(&s, 0.1);
    CHECK(s.has_warned);
    unsetenv("OMPI_TOOL_NAME");
}

TEST(an_impossible_end_of_the_job_is_ignored)
{
    static const char *const bad[] = {"",    "tomorrow", "1700000000", "-5",
                                      "nan", "inf",      "1e300",      "12:00:00"};
    struct stop s;
    int64_t requests[STOP_REQUESTS] = {false};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv("SLURM_JOB_END_TIME", bad[i], 1);
        stop_init(&s, comm_self(), true, 1);
        stop_end_step(&s, 1e6);
        CHECK_STATUS(OK, stop_agree(&s, requests));
        CHECK(!s.signal && !(s.job_end_s > 0));
    }
    unsetenv("SLURM_JOB_END_TIME");
}

/* --- within a step --- */

struct counted_units {
    struct unit_provider units;
    int opened, closed;
};

static enum status count_open(struct unit_provider *p, int unit, unsigned use,
                              struct unit_buffers *buffers)
{
    (void)unit, (void)use;
    *buffers = (struct unit_buffers){0};
    ((struct counted_units *)p)->opened++;
    return STATUS_OK;
}

static enum status count_close(struct unit_provider *p, int unit, unsigned use)
{
    (void)unit, (void)use;
    ((struct counted_units *)p)->closed++;
    return STATUS_OK;
}

TEST(only_long_steps_of_ranks_without_a_pipeline_are_interrupted)
{
    static const struct comm pair = {.size = 2}; /* simulated */
    struct counted_units counted = {{count_open, count_close}, 0, 0};
    struct unit_buffers buffers;
    struct stop s;
    stop_init(&s, &pair, true, 1);
    struct unit_provider *units = stop_wrap_units(&s, &counted.units);
    stop_begin(&s);
    for (int i = 0; i < 100; i++) {
        CHECK_STATUS(OK, units->open(units, i, USE_WEIGHTS, &buffers));
        CHECK_STATUS(OK, units->close(units, i, USE_WEIGHTS));
    }
    CHECK(counted.opened == 100 && counted.closed == 100 && !s.every);
    CHECK(s.opened == 100);
}

static enum status find_interval(const struct comm *world, void *context)
{
    static const struct {
        double seconds;
        bool in_steps;
        int64_t every;
        double poll_s;
    } cases[] = {{STOP_POLL_S / 2, true, 0, 0},
                 {STOP_POLL_GPU_S / 2.0, true, 0, STOP_POLL_GPU_S},
                 {10 * STOP_POLL_GPU_S, true, 10, STOP_POLL_GPU_S},
                 {10 * STOP_POLL_S, true, 10, 0},
                 {1000 * STOP_POLL_S, true, 1, 0},
                 {10 * STOP_POLL_S, false, 0, 0}};
    (void)context;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stop s;
        int64_t requests[STOP_REQUESTS] = {false};
        stop_init(&s, world, cases[i].in_steps, 1);
        if (cases[i].poll_s > 0) s.poll_s = cases[i].poll_s;
        stop_begin(&s);
        s.opened = 100;
        /* the slowest rank's step counts */
        stop_end_step(&s, world->rank ? cases[i].seconds : cases[i].seconds / 3);
        TRY(stop_agree(&s, requests));
        RANK_CHECK(s.every == (world->size == 1 ? 1 : cases[i].every));
    }
    return STATUS_OK;
}

TEST(ranks_agree_once_per_poll_interval_within_a_long_step)
{
    for (int size = 1; size <= 2; size++) CHECK_STATUS(OK, ranks_run(size, find_interval, NULL));
}

/* Two steps; the signal comes after the first, and the second is abandoned with the state as it
 * was. */
static enum status abandon_a_step(const struct comm *world, void *context)
{
    const char *settings[] = {TRAINING_OF_RANKS, context, "training.steps=10"};
    struct training t;
    struct step_result r;
    struct stop s;
    TRY(training_open_rank(&t, world, settings, sizeof settings / sizeof *settings));
    struct trainer *trainer = &t.trainer;
    stop_init(&s, world, true, 1);
    trainer->model.units = stop_wrap_units(&s, trainer->model.units);
    TRY(trainer_step(trainer, t.loader, &r));
    size_t bytes = trainer->shard.elements * sizeof(float);
    float *before = heap(3 * bytes);
    void *state[] = {trainer->optim.weights, trainer->optim.exp_avg, trainer->optim.exp_avg_sq};
    for (int i = 0; i < 3; i++) memcpy((char *)before + (size_t)i * bytes, state[i], bytes);
    s.every = 7; /* within a microbatch */
    if (world->rank == 0) test_raise(SIGUSR2);
    enum status st = trainer_step(trainer, t.loader, &r);
    RANK_CHECK(st == STATUS_REQUEUE && s.signal == SIGUSR2);
    RANK_CHECK(trainer->steps_done == 1 && !trainer->is_updating);
    for (int i = 0; i < 3; i++)
        RANK_CHECK(!memcmp((char *)before + (size_t)i * bytes, state[i], bytes));
    free(before);
    training_close(&t);
    return STATUS_OK;
}

static char corpus[300];

static enum status abandon_on_ranks(int unused)
{
    (void)unused;
    signals_catch();
    TRY(ranks_run(2, abandon_a_step, corpus));
    return STATUS_OK;
}

TEST(ranks_abandon_the_same_step_and_keep_the_state_before_it)
{
    const char *path = test_path(test_folder(), "corpus.txt");
    runs_write_corpus(path, 60000);
    snprintf(corpus, sizeof corpus, "training.dataset_path=%s", path);
    CHECK(test_in_child(abandon_on_ranks, 0) == 0);
}
