// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/rig.h"
#include "hub/s3_server.h"

#include "base/log.h"
#include "base/signals.h"
#include "checkpoint/copier.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* Checkpoints of a small model, and a store. */
struct copier_test {
    struct s3_server server;
    struct hub_settings settings;
    struct saved saved;
    double waited;
};

static struct copier_test *begin(void)
{
    struct copier_test *t = calloc(1, sizeof *t);
    saved_open(&t->saved, false);
    s3_server_start(&t->server);
    t->settings = s3_server_settings(&t->server, &t->waited);
    return t;
}

static void end(struct copier_test *t)
{
    s3_server_stop(&t->server);
    CHECK(t->server.num_bad_signatures == 0);
    s3_server_release(&t->server);
    hub_settings_release(&t->settings);
    saved_close(&t->saved);
    free(t);
}

static struct copier_options options(const struct copier_test *t, const char *folder)
{
    return (struct copier_options){.folder = folder,
                                   .destination = "s3://bucket/runs/one",
                                   .load_step = -1,
                                   .stop_timeout_s = 60,
                                   .settings = &t->settings};
}

static enum status open_and_close(const struct copier_options *o)
{
    struct copier *c;
    TRY(copier_open(&c, o));
    copier_close(c, false);
    return STATUS_OK;
}

/* Copies local checkpoints of these steps to the store, one after the other. */
static void copy_steps(struct copier_test *t, const int *steps)
{
    for (; *steps; steps++) {
        const char *folder = saved_folder(&t->saved, STEPS(*steps));
        struct copier_options o = options(t, folder);
        CHECK_STATUS(OK, open_and_close(&o));
        CHECK_STATUS(OK, file_remove_tree(folder));
    }
}

static const char *key_of(int step, const char *name)
{
    static char key[128];
    snprintf(key, sizeof key, "runs/one/step-%d/%s", step, name);
    return key;
}

/* Checks that the store has every file of the step, with the same bytes. */
static void check_copied(struct copier_test *t, const char *folder, int step)
{
    char *path = folder_step_path(folder, step);
    struct file_list names;
    CHECK_STATUS(OK, file_list_dir(&names, path));
    CHECK(names.count >= 5);
    for (size_t i = 0; i < names.count; i++) {
        struct text bytes = {0};
        const struct text *o = s3_server_object(&t->server, key_of(step, names.paths[i]));
        CHECK_STATUS(OK, file_read(test_path(path, names.paths[i]), 1 << 30, &bytes));
        CHECK(o && o->len == bytes.len && !memcmp(o->data, bytes.data, bytes.len));
        text_release(&bytes);
    }
    file_list_release(&names);
    free(path);
}

static bool has_step(const char *folder, int step)
{
    char *path = folder_step_path(folder, step);
    bool has = file_exists_in(path, MANIFEST_NAME);
    free(path);
    return has;
}

TEST(copier_copies_the_newest_step_with_its_manifest_last)
{
    if (!s3_available()) skip();
    struct copier_test *t = begin();
    const char *folder = saved_folder(&t->saved, STEPS(3, 7));
    struct copier_options o = options(t, folder);
    CHECK_STATUS(OK, open_and_close(&o));
    check_copied(t, folder, 7);
    CHECK(!s3_server_object(&t->server, key_of(3, MANIFEST_NAME)));
    int puts = t->server.counts[S3_PUT];
    CHECK_STATUS(OK, open_and_close(&o)); /* nothing is left to do */
    CHECK(t->server.counts[S3_PUT] == puts);
    o.read_only = true;
    CHECK_STATUS(OK, open_and_close(&o));
    s3_server_stop(&t->server);
    const char *last = NULL, *log = t->server.log.data;
    for (const char *at = log; (at = strstr(at, "PUT ")); at++) last = at;
    CHECK(last && !strncmp(last, "PUT /bucket/runs/one/step-7/manifest.json", 41));
    s3_server_start(&t->server);
    end(t);
}

TEST(copier_follows_the_saves_of_a_checkpointer)
{
    if (!s3_available()) skip();
    struct copier_test *t = begin();
    struct checkpointer *c;
    const char *folder = test_path(test_folder(), "checkpoint");
    setenv("AWS_ENDPOINT_URL", t->settings.endpoint, 1);
    setenv("AWS_ACCESS_KEY_ID", S3_KEY_ID, 1);
    setenv("AWS_SECRET_ACCESS_KEY", S3_SECRET, 1);
    setenv("LLAMERO_S3_CACHE", t->settings.cache, 1);
    const struct checkpointer_options o = {.folder = folder,
                                           .copy_to = "s3://bucket/runs/one/",
                                           .load_step = -1,
                                           .copy_stop_timeout_s = 60,
                                           .keep_latest_k = 2,
                                           .world = comm_self()};
    CHECK_STATUS(OK, checkpointer_open(&c, &o));
    for (int step = 1; step <= 5; step++) {
        struct checkpoint_state state = saved_state(&t->saved, step);
        CHECK_STATUS(OK, checkpointer_save(c, &state));
    }
    CHECK_STATUS(OK, checkpointer_close(c, false));
    check_copied(t, folder, 5);

    CHECK_STATUS(OK, file_remove_tree(folder));
    CHECK_STATUS(OK, checkpointer_open(&c, &o)); /* another node, an empty disk */
    CHECK(has_step(folder, 5));
    CHECK_STATUS(OK, checkpointer_abandon(c, 4, NULL, NULL));
    CHECK_STATUS(OK, checkpointer_close(c, false));
    CHECK(!has_step(folder, 5) && file_exists_in(folder, "abandoned-4-1/step-5"));
    CHECK(!s3_server_object(&t->server, key_of(5, MANIFEST_NAME)));
    unsetenv("AWS_ACCESS_KEY_ID");
    CHECK_STATUS(OK, file_remove_tree(folder));
    CHECK_STATUS(CONFIG, checkpointer_open(&c, &o));
    CHECK_MESSAGE("incomplete");
    CHECK(!strstr(status_message(), S3_SECRET));
    unsetenv("AWS_SECRET_ACCESS_KEY"), unsetenv("AWS_ENDPOINT_URL");
    end(t);
}

TEST(copier_restores_the_newest_step_that_has_a_manifest)
{
    if (!s3_available()) skip();
    struct copier_test *t = begin();
    copy_steps(t, STEPS(2, 10));
    s3_server_put(&t->server, key_of(11, "config.json"), "{}", 2); /* never finished */
    s3_server_put(&t->server, "runs/one/step-x/manifest.json", "{}", 2);
    const char *folder = test_path(test_folder(), "checkpoint");
    struct copier_options o = options(t, folder);
    CHECK_STATUS(OK, file_make_dirs(folder));
    CHECK_STATUS(OK, open_and_close(&o));
    CHECK(has_step(folder, 10) && !has_step(folder, 2) && !has_step(folder, 11));
    check_holds(&t->saved, test_path(folder, "step-10"), 10);

    struct copied_step *steps;
    size_t count;
    CHECK_STATUS(OK, copier_list(&t->settings, o.destination, &steps, &count));
    CHECK(count == 3 && steps[0].step == 2 && steps[0].is_complete && steps[0].bytes > 1000);
    CHECK(steps[1].step == 10 && steps[1].is_complete);
    CHECK(steps[2].step == 11 && !steps[2].is_complete && steps[2].bytes == 2);
    free(steps);

    CHECK_STATUS(OK, file_remove_tree(folder));
    CHECK_STATUS(OK, file_make_dirs(folder));
    CHECK_STATUS(OK, file_make_dirs(test_path(folder, "abandoned-1-1/step-10")));
    CHECK_STATUS(OK, open_and_close(&o)); /* that copy may be what was set aside */
    CHECK(!has_step(folder, 2) && !has_step(folder, 10));
    o.load_step = 2;
    CHECK_STATUS(OK, open_and_close(&o));
    CHECK(has_step(folder, 2) && !has_step(folder, 10));
    end(t);
}

TEST(copier_skips_damaged_copies_but_never_silently_starts_over)
{
    if (!s3_available()) skip();
    struct copier_test *t = begin();
    copy_steps(t, STEPS(2, 10));
    struct text bytes = {0};
    for (int i = 0; i < 2; i++) {
        const char *key = key_of(i ? 2 : 10, "config.json");
        const struct text *o = s3_server_object(&t->server, key);
        text_clear(&bytes);
        text_add(&bytes, o->data, o->len);
        bytes.data[bytes.len / 2] ^= 1;
        s3_server_put(&t->server, key, bytes.data, bytes.len);
        const char *folder = test_path(test_folder(), "checkpoint");
        struct copier_options o2 = options(t, folder);
        CHECK_STATUS(OK, file_make_dirs(folder));
        if (i) {
            CHECK_STATUS(DATA, open_and_close(&o2));
            CHECK_MESSAGE("no intact checkpoint found (2 damaged)");
        } else {
            CHECK_STATUS(OK, open_and_close(&o2));
            CHECK(has_step(folder, 2));
        }
        CHECK(!has_step(folder, 10) && !file_exists_in(folder, "step-10.tmp"));
    }
    text_release(&bytes);
    end(t);
}

TEST(copier_tries_again_after_the_next_save)
{
    if (!s3_available()) skip();
    struct copier_test *t = begin();
    struct copier *c;
    const char *folder = saved_folder(&t->saved, STEPS(3, 7));
    t->server.faults[S3_PUT][2] = S3_FAULT_DENIED;
    struct copier_options o = options(t, folder);
    CHECK_STATUS(OK, open_and_close(&o)); /* only a warning */
    CHECK(!s3_server_object(&t->server, key_of(7, MANIFEST_NAME)));
    CHECK_STATUS(OK, copier_open(&c, &o));
    copier_add(c, 7);
    copier_close(c, false);
    check_copied(t, folder, 7);
    end(t);
}

TEST(copier_makes_a_copy_incomplete_before_it_replaces_it)
{
    if (!s3_available()) skip();
    struct copier_test *t = begin();
    copy_steps(t, STEPS(7));
    saved_fill(&t->saved, 99);
    const char *folder = test_path(test_folder(), "checkpoint");
    struct checkpointer *k = checkpointer_of(folder, 0);
    struct checkpoint_state state = saved_state(&t->saved, 7);
    CHECK_STATUS(OK, checkpointer_save(k, &state));
    CHECK_STATUS(OK, checkpointer_close(k, false));
    t->server.faults[S3_PUT][t->server.counts[S3_PUT] + 1] = S3_FAULT_DENIED;
    struct copier_options o = options(t, folder);
    CHECK_STATUS(OK, open_and_close(&o));
    CHECK(!s3_server_object(&t->server, key_of(7, MANIFEST_NAME)));
    CHECK_STATUS(OK, open_and_close(&o));
    check_copied(t, folder, 7);
    end(t);
}

TEST(copier_needs_access_but_not_a_network_to_start)
{
    if (!s3_available()) skip();
    struct copier_test *t = begin();
    const char *folder = saved_folder(&t->saved, STEPS(7));
    struct copier_options o = options(t, folder);
    for (int i = 0; i < 16; i++) t->server.faults[S3_LIST][i] = i ? S3_FAULT_SLOW_DOWN : 0;
    t->server.faults[S3_LIST][0] = S3_FAULT_DENIED;
    CHECK_STATUS(CONFIG, open_and_close(&o));
    CHECK_MESSAGE("AccessDenied");
    CHECK_STATUS(OK, open_and_close(&o)); /* with local checkpoints, a warning */
    const char *empty = test_path(test_folder(), "checkpoint");
    CHECK_STATUS(OK, file_make_dirs(empty));
    o.folder = empty;
    CHECK_STATUS(IO, open_and_close(&o)); /* without, the run must not start over */
    o.destination = "s3://bucket/*";
    CHECK_STATUS(CONFIG, open_and_close(&o));
    o.destination = "runs/copies";
    CHECK_STATUS(CONFIG, open_and_close(&o));
    CHECK_MESSAGE("expected s3://BUCKET/PREFIX");
    end(t);
}

TEST(copier_waits_only_so_long_after_a_stop_signal)
{
    if (!s3_available()) skip();
    struct copier_test *t = begin();
    const char *folder = saved_folder(&t->saved, STEPS(7));
    struct copier_options o = options(t, folder);
    for (int i = 0; i < 16; i++) t->server.faults[S3_PUT][i] = S3_FAULT_SLOW_DOWN;
    t->settings.wait = NULL; /* sleeps between the attempts: 1, 2, 4, 8 s */
    o.stop_timeout_s = 0;
    pid_t child = fork(); /* the signal stays pending in its process */
    if (child == 0) {
        struct copier *c;
        signals_catch();
        bool ok = !copier_open(&c, &o);
        kill(getpid(), SIGUSR1);
        while (!signals_pending()) usleep(1000);
        if (ok) copier_close(c, false);
        _exit(!ok);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
    CHECK(t->server.counts[S3_PUT] <= 1);
    CHECK(!s3_server_object(&t->server, key_of(7, MANIFEST_NAME)));
    end(t);
}

/* The log of this process until end_log. */
static const char *begin_log(void)
{
    const char *path = test_path(test_folder(), "log.txt");
    CHECK_STATUS(OK, log_open(path));
    return path;
}

static void end_log(const char *path, struct text *log)
{
    CHECK_STATUS(OK, log_open(NULL));
    CHECK_STATUS(OK, file_read(path, 1 << 20, log));
}

TEST(copier_sets_aside_the_copies_of_later_steps)
{
    if (!s3_available()) skip();
    struct copier_test *t = begin();
    struct copier *c;
    struct text log = {0};
    copy_steps(t, STEPS(3, 5, 17));
    const char *folder = saved_folder(&t->saved, STEPS(3));
    struct copier_options o = options(t, folder);
    const char *path = begin_log();
    CHECK_STATUS(OK, copier_open(&c, &o));
    copier_abandon(c, 4);
    copier_close(c, false);
    end_log(path, &log);
    CHECK(strstr(log.data, "set aside the copies in s3://bucket/runs/one of step-5 step-17: "));
    check_copied(t, folder, 3);
    for (int i = 0; i < 2; i++) {
        CHECK(!s3_server_object(&t->server, key_of(i ? 5 : 17, MANIFEST_NAME)));
        CHECK(s3_server_object(&t->server, key_of(i ? 5 : 17, "config.json")));
    }
    CHECK_STATUS(OK, file_remove_tree(folder));
    CHECK_STATUS(OK, file_make_dirs(folder));
    CHECK_STATUS(OK, open_and_close(&o)); /* another node */
    CHECK(has_step(folder, 3) && !has_step(folder, 5) && !has_step(folder, 17));
    text_release(&log);
    end(t);
}

TEST(copier_warns_if_it_cannot_set_copies_aside)
{
    if (!s3_available()) skip();
    struct copier_test *t = begin();
    struct copier *c;
    struct text log = {0};
    copy_steps(t, STEPS(3, 5));
    const char *folder = saved_folder(&t->saved, STEPS(3)), *path = begin_log();
    struct copier_options o = options(t, folder);
    for (int i = t->server.counts[S3_LIST] + 1; i < S3_FAULTS; i++) /* not that of copier_open */
        t->server.faults[S3_LIST][i] = S3_FAULT_DENIED;
    CHECK_STATUS(OK, copier_open(&c, &o));
    copier_abandon(c, 4);
    copier_close(c, false);
    end_log(path, &log);
    CHECK(strstr(log.data, "cannot set aside the copies in s3://bucket/runs/one after step 4: "));
    CHECK(strstr(log.data, "delete their manifest.json, or a run without local checkpoints"));
    text_release(&log);
    end(t);
}

TEST(copier_drops_the_copy_of_a_step_that_is_set_aside)
{
    if (!s3_available()) skip();
    struct copier_test *t = begin();
    struct copier *c;
    struct text log = {0};
    const char *folder = saved_folder(&t->saved, STEPS(3, 7)), *path = begin_log();
    struct copier_options o = options(t, folder);
    for (int i = 0; i < S3_FAULTS; i++) t->server.faults[S3_PUT][i] = S3_FAULT_SLOW_DOWN;
    t->settings.wait = NULL; /* sleeps between the attempts: 1, 2, 4, 8 s */
    CHECK_STATUS(OK, copier_open(&c, &o));
    while (!t->server.counts[S3_PUT]) usleep(1000);
    copier_add(c, 8); /* pending */
    copier_abandon(c, 3);
    CHECK_STATUS(OK, file_rename(test_path(folder, "step-7"), test_path(folder, "away")));
    copier_close(c, false);
    end_log(path, &log);
    CHECK(t->server.counts[S3_PUT] <= 2);
    CHECK(strstr(log.data, "is dropped") && !strstr(log.data, "cannot copy"));
    CHECK(!strstr(log.data, "was interrupted") && !strstr(log.data, "not copied"));
    text_release(&log);
    end(t);
}
