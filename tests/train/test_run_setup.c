// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "train/small_run.h"

#include "base/file.h"
#include "base/log.h"
#include "checkpoint/folder.h"
#include "system/layouts.h"
#include "system/runs.h"
#include "train/run.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
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

/* The other run is this process, which holds the lock. */
TEST(run_with_another_folder_of_checkpoints_is_kept_out_of_the_dump_folder)
{
    static const char *const shared[] = {"metrics.jsonl", "config.toml"};
    struct small_run r;
    struct text before[2] = {0}, after = {0};
    int lock;
    small_run_open(&r);
    CHECK_STATUS(OK, run_train(&r.config, &r.t.machine));
    for (int i = 0; i < 2; i++)
        CHECK_STATUS(OK, file_read(test_path(r.dump, shared[i]), 1 << 20, &before[i]));
    CHECK_STATUS(OK, folder_lock_run(r.dump, &lock));
    r.config.checkpoint.folder = "other";
    CHECK_STATUS(CONFIG, run_train(&r.config, &r.t.machine));
    CHECK_MESSAGE(": another run writes there; stop it, or set another job.dump_folder");
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(OK, file_read(test_path(r.dump, shared[i]), 1 << 20, &after));
        CHECK(before[i].len > 0 && !strcmp(before[i].data, after.data));
        text_release(&before[i]);
    }
    folder_unlock(lock);
    CHECK_STATUS(OK, run_train(&r.config, &r.t.machine));
    text_release(&after);
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

/* With the limit of a file's size, which the save of step 4 exceeds. */
static void check_newest_is_named(enum async_mode mode)
{
    struct small_run r;
    struct rlimit old;
    small_run_open(&r);
    r.config.training.steps = 3;
    CHECK_STATUS(OK, run_train(&r.config, &r.t.machine));
    r.config.training.steps = SMALL_RUN_STEPS;
    r.config.checkpoint.async_mode = mode, r.config.checkpoint.interval = 4;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    CHECK(!getrlimit(RLIMIT_FSIZE, &old));
    CHECK(!setrlimit(RLIMIT_FSIZE, &(struct rlimit){16 << 10, old.rlim_max}));
    enum status st = small_run_train(&r, FAULT_NAN, 5);
    CHECK(!setrlimit(RLIMIT_FSIZE, &old));
    signal(SIGXFSZ, handler);
    CHECK(st == STATUS_DIVERGED);
    CHECK(small_run_logged(&r, "the checkpoint of step 4 was not written: ") ==
          (mode != ASYNC_disabled)); /* in the background, before it tried again */
    CHECK(small_run_logged(&r, "cannot save the checkpoint of step 4: "));
    CHECK(small_run_logged(&r, "the run fails; its newest checkpoint is that of step 3"));
    small_run_close(&r);
}

TEST(failing_run_that_cannot_save_names_its_newest_checkpoint)
{
    check_newest_is_named(ASYNC_disabled);
    check_newest_is_named(ASYNC_async);
}

/* --- ranks --- */

/* The transport of the ranks, but rank 0 is late at the end of a run: it waits in the release of
 * the checkpoints' group, a copy of the world, until rank 1 has released it and does more. */
static struct {
    struct transport late;
    const struct transport *of_world;
    atomic_bool rank_0_came, rank_1_came, has_rank_1_moved, closed_alone;
    sem_t go;
} end;

/* Rank 1 closes another group, or starts a transfer. */
static void let_rank_0_go(bool closes)
{
    if (!end.rank_1_came || atomic_exchange(&end.has_rank_1_moved, true)) return;
    end.closed_alone = closes;
    sem_post(&end.go);
}

static void release_late(struct comm *c)
{
    bool is_copy = c->counts && c->counts->name == mesh_group_name(GROUP_world);
    if (c->size == 2 && c->rank == 1) let_rank_0_go(true);
    if (is_copy && c->rank == 1) end.rank_1_came = true;
    if (is_copy && c->rank == 0 && !atomic_exchange(&end.rank_0_came, true))
        while (sem_wait(&end.go)) continue; /* a signal interrupted it */
    end.of_world->release(c);
}

static enum status start_late(const struct comm *c, struct transfer *t)
{
    if (c->size == 2 && c->rank == 1) let_rank_0_go(false);
    return end.of_world->start(c, t);
}

static enum status gather_late(const struct comm *c, const void *mine, size_t bytes,
                               const void **all)
{
    if (c->size == 2 && c->rank == 1) let_rank_0_go(false);
    return end.of_world->gather(c, mine, bytes, all);
}

static enum status split_late(const struct comm *c, int color, int key, struct comm *out)
{
    TRY(end.of_world->split(c, color, key, out));
    out->transport = &end.late;
    return STATUS_OK;
}

static void make_late(const struct comm *world)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (!end.of_world) {
        end.of_world = world->transport, end.late = *world->transport;
        end.late.release = release_late, end.late.split = split_late;
        end.late.start = start_late, end.late.gather = gather_late;
    }
    pthread_mutex_unlock(&lock);
}

static enum status train_late(const struct comm *world, void *paths)
{
    const char *const *path = paths;
    const char *settings[] = {
        TRAINING_OF_RANKS,        TP(2),  "model.n_kv_heads=1", "training.steps=1", path[0],
        "checkpoint.enable=true", path[1]};
    struct config c = {0};
    struct comm late = *world;
    struct machine m = {.ops = &ops_cpu_reference};
    enum status st = STATUS_OK;
    make_late(world);
    late.transport = &end.late;
    TRY(config_load(&c, NULL, settings, sizeof settings / sizeof *settings));
    TRY_OUT(config_check(&c, world->size));
    TRY_OUT(mesh_resolve(&m.mesh, &c.parallelism, world->rank, world->size));
    TRY_OUT(groups_open(&m.groups, &m.mesh, &late));
    TRY_OUT(cpu_queue_open(&m.queue, 1, 0));
    TRY_OUT(run_train(&c, &m));
out:
    groups_close(&m.groups);
    cpu_queue_close(m.queue);
    config_release(&c);
    return st;
}

/* Over NCCL they would wait for each other for ten seconds, and then close no group any more. */
TEST(ranks_close_the_groups_of_a_run_together_however_late_rank_0_is)
{
    const char *corpus = test_path(test_folder(), "corpus.txt");
    char dump[512], data[512];
    runs_write_corpus(corpus, 60000);
    snprintf(dump, sizeof dump, "job.dump_folder=%s", test_folder());
    snprintf(data, sizeof data, "training.dataset_path=%s", corpus);
    sem_init(&end.go, 0, 0);
    CHECK_STATUS(OK, ranks_run(2, train_late, (const char *[]){dump, data}));
    CHECK(end.rank_0_came && end.has_rank_1_moved && !end.closed_alone);
    sem_destroy(&end.go);
    log_open(NULL), log_set_rank(-1), log_set_quiet(false);
}
