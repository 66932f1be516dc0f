// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/rig.h"
#include "hub/s3_server.h"

#include "checkpoint/copy_store.h"
#include "checkpoint/manifest.h"

/* A store that is open, and checkpoints of a small model. */
struct store_test {
    struct s3_server server;
    struct hub_settings settings;
    struct hub_path destination;
    struct copy_store store;
    struct saved saved;
    double waited;
};

static struct store_test *begin(void)
{
    struct store_test *t = calloc(1, sizeof *t);
    saved_open(&t->saved, false);
    s3_server_start(&t->server);
    t->settings = s3_server_settings(&t->server, &t->waited);
    CHECK_STATUS(OK, hub_path_parse(&t->destination, "s3://bucket/runs/one"));
    CHECK_STATUS(OK, copy_store_open(&t->store, &t->settings, &t->destination));
    return t;
}

static void end(struct store_test *t)
{
    copy_store_close(&t->store);
    s3_server_stop(&t->server);
    s3_server_release(&t->server);
    hub_path_release(&t->destination);
    hub_settings_release(&t->settings);
    saved_close(&t->saved);
    free(t);
}

static bool upload(struct store_test *t, const char *folder, int step)
{
    char *path = folder_step_path(folder, step);
    bool uploaded;
    CHECK_STATUS(OK, copy_store_upload(&t->store, step, path, &uploaded));
    free(path);
    return uploaded;
}

TEST(copy_store_fetches_the_bytes_that_it_uploaded)
{
    if (!s3_available()) skip();
    struct store_test *t = begin();
    const char *folder = saved_folder(&t->saved, STEPS(3));
    const char *other = test_path(test_folder(), "other");
    char *from = folder_step_path(folder, 3), *to = folder_step_path(other, 3);
    struct text sent = {0}, got = {0};
    bool found;
    CHECK(upload(t, folder, 3));
    CHECK(!upload(t, folder, 3)); /* the store has it */
    CHECK_STATUS(OK, file_make_dirs(other));
    CHECK_STATUS(OK, copy_store_fetch(&t->store, 3, other, &found));
    CHECK(found);
    CHECK_STATUS(OK, manifest_verify(to, NULL));
    CHECK_STATUS(OK, file_read(test_path(from, MANIFEST_NAME), 1 << 20, &sent));
    CHECK_STATUS(OK, file_read(test_path(to, MANIFEST_NAME), 1 << 20, &got));
    CHECK(sent.len == got.len && !memcmp(sent.data, got.data, sent.len));
    CHECK_STATUS(OK, copy_store_fetch(&t->store, 4, other, &found));
    CHECK(!found);
    text_release(&sent), text_release(&got);
    free(from), free(to);
    end(t);
}

TEST(copy_store_lists_steps_and_sets_aside_complete_ones)
{
    if (!s3_available()) skip();
    struct store_test *t = begin();
    const char *folder = saved_folder(&t->saved, STEPS(3, 7, 9));
    struct folder_steps steps;
    struct copied_step copy;
    struct text deleted = {0};
    for (int step = 3; step <= 9; step += step == 3 ? 4 : 2) CHECK(upload(t, folder, step));
    CHECK_STATUS(OK, copy_store_list(&t->store, &steps));
    CHECK(steps.count == 3 && steps.steps[0] == 3 && steps.steps[2] == 9);
    folder_steps_release(&steps);
    CHECK_STATUS(OK, copy_store_set_aside(&t->store, 3, &deleted));
    CHECK(!strcmp(deleted.data, " step-7 step-9"));
    CHECK_STATUS(OK, copy_store_look(&t->store, 7, &copy));
    CHECK(!copy.is_complete && copy.bytes > 0);
    CHECK_STATUS(OK, copy_store_look(&t->store, 3, &copy));
    CHECK(copy.is_complete);
    CHECK_STATUS(OK, copy_store_look(&t->store, 5, &copy));
    CHECK(!copy.is_complete && !copy.bytes);
    text_release(&deleted);
    end(t);
}
