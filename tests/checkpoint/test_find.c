// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/sharding.h"

#include "base/log.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static int64_t found_step(const char *folder, int64_t limit)
{
    char *path;
    CHECK_STATUS(OK, checkpoint_find(folder, limit, true, comm_self(), &path));
    int64_t step = path ? strtoll(strrchr(path, '-') + 1, NULL, 10) : -1;
    free(path);
    return step;
}

TEST(newest_complete_checkpoint_below_the_limit_is_found)
{
    struct saved s;
    saved_open(&s, false);
    const char *folder = saved_folder(&s, STEPS(8, 9, 10));
    CHECK(found_step(folder, INT64_MAX) == 10 && found_step(folder, 10) == 9);
    CHECK(found_step(folder, 9) == 8 && found_step(folder, 8) == -1);
    CHECK(found_step(test_path(folder, "none"), INT64_MAX) == -1);
    CHECK(found_step(test_folder(), INT64_MAX) == -1);
    saved_close(&s);
}

TEST(damaged_checkpoints_are_skipped_with_a_warning)
{
    struct saved s;
    saved_open(&s, false);
    const char *folder = saved_folder(&s, STEPS(1, 2, 3, 4, 5));
    const char *log = test_path(test_folder(), "log.txt");
    struct text warnings = {0};
    flip(test_path(folder, "step-5/manifest.json"), 20, 1);
    CHECK_STATUS(OK, file_remove_tree(test_path(folder, "step-4/manifest.json")));
    CHECK_STATUS(OK, file_write(test_path(folder, "step-3/state.json"), "{}", 2));
    CHECK_STATUS(OK,
                 file_remove_tree(test_path(folder, "step-2/model-00001-of-00001.safetensors")));
    CHECK_STATUS(OK, log_open(log));
    int64_t step = found_step(folder, INT64_MAX);
    CHECK_STATUS(OK, log_open(NULL));
    CHECK(step == 1);
    CHECK_STATUS(OK, file_read(log, 1 << 20, &warnings));
    CHECK(strstr(warnings.data, "skipping step-5: "));
    CHECK(strstr(warnings.data, "skipping step-4: "));
    CHECK(strstr(warnings.data, "incomplete checkpoint"));
    CHECK(strstr(warnings.data, "state.json has 2 bytes, expected"));
    CHECK(strstr(warnings.data, "model-00001-of-00001.safetensors is missing"));
    text_release(&warnings);
    saved_close(&s);
}

/* Writes "{}", and makes the folders above it. */
static void put_file(const char *root, const char *name)
{
    const char *path = test_path(root, name);
    char *parent = file_parent(path);
    CHECK_STATUS(OK, file_make_dirs(parent));
    CHECK_STATUS(OK, file_write(path, "{}", 2));
    free(parent);
}

TEST(megatrons_ranks_are_located_by_the_folder_above_them)
{
    const char *root = test_folder(), *tracker;
    char *path;
    put_file(root, "a/iter_0000009/mp_rank_00/model_optim_rng.pt");
    const char *a = test_path(root, "a"), *iteration = test_path(a, "iter_0000009");
    tracker = test_path(a, "latest_checkpointed_iteration.txt");
    CHECK_STATUS(OK, file_write(tracker, "9", 1));
    CHECK_STATUS(OK, checkpoint_locate(a, -1, comm_self(), &path));
    CHECK(!strcmp(path, iteration));
    free(path);
    CHECK_STATUS(MISSING,
                 checkpoint_locate(test_path(iteration, "mp_rank_00"), -1, comm_self(), &path));
    CHECK_MESSAGE("name the folder above it");
}

TEST(find_step_reports_missing_and_damaged_steps)
{
    struct saved s;
    char *path;
    saved_open(&s, false);
    const char *folder = saved_folder(&s, STEPS(1, 2));
    CHECK_STATUS(OK, checkpoint_find_step(folder, 2, comm_self(), &path));
    CHECK(!strcmp(path, test_path(folder, "step-2")));
    free(path);
    CHECK_STATUS(MISSING, checkpoint_find_step(folder, 3, comm_self(), &path));
    CHECK(path == NULL);
    CHECK(rename(test_path(folder, "step-2"), test_path(folder, "step-3")) == 0);
    CHECK_STATUS(DATA, checkpoint_find_step(folder, 3, comm_self(), &path));
    CHECK_MESSAGE("its manifest belongs to step 2");
    CHECK(found_step(folder, INT64_MAX) == 1);
    CHECK_STATUS(OK, file_remove_tree(test_path(folder, "step-1/manifest.json")));
    CHECK_STATUS(DATA, checkpoint_find_step(folder, 1, comm_self(), &path));
    CHECK_MESSAGE("incomplete checkpoint");
    saved_close(&s);
}

TEST(advice_about_a_damaged_step_names_the_command_and_the_checkpoint_before_it)
{
    struct saved s;
    bool ours;
    struct text want = {0};
    saved_open(&s, false);
    const char *folder = saved_folder(&s, STEPS(1, 2, 3));
    const char *damaged = test_path(folder, "step-3/");
    flip(test_path(folder, "step-3/model-00001-of-00001.safetensors"), 4000, 1);
    CHECK_STATUS(OK, file_remove_tree(test_path(folder, "step-2/manifest.json")));
    enum status st = checkpoint_check_native(damaged, &ours);
    CHECK_STATUS(DATA, checkpoint_advise(damaged, st));
    text_addf(&want,
              "; `llamero checkpoint verify %s` finds all damage; the checkpoint before it is "
              "%s/step-1",
              folder, folder);
    CHECK_MESSAGE("checksum mismatch in bytes 0 to ");
    CHECK(strstr(status_message(), want.data));
    /* Step 1 is the first one, and a folder of another name is not a step of a run. */
    st = status_fail(STATUS_DATA, "x.c", 1, "damaged");
    CHECK_STATUS(DATA, checkpoint_advise(test_path(folder, "step-1"), st));
    CHECK_MESSAGE("damaged; `llamero checkpoint verify ");
    CHECK(!strstr(status_message(), "before it"));
    st = status_fail(STATUS_DATA, "x.c", 1, "damaged");
    CHECK_STATUS(DATA, checkpoint_advise("outputs/model", st));
    CHECK(!strcmp(status_message(), "damaged"));
    st = status_fail(STATUS_IO, "x.c", 1, "the disk is full");
    CHECK_STATUS(IO, checkpoint_advise(test_path(folder, "step-3"), st));
    CHECK(!strcmp(status_message(), "the disk is full"));
    CHECK_STATUS(OK, checkpoint_advise(damaged, STATUS_OK));
    text_release(&want);
    saved_close(&s);
}

TEST(manifest_of_another_step_is_rejected)
{
    struct saved s;
    struct text other = {0};
    saved_open(&s, false);
    const char *folder = saved_folder(&s, STEPS(1, 2));
    CHECK_STATUS(OK, file_read(test_path(folder, "step-1/manifest.json"), 1 << 20, &other));
    CHECK_STATUS(OK, file_write(test_path(folder, "step-2/manifest.json"), other.data, other.len));
    CHECK_STATUS(DATA, try_load(&s, test_path(folder, "step-2")));
    CHECK(found_step(folder, INT64_MAX) == 1);
    text_release(&other);
    saved_close(&s);
}

static enum status find_on_rank(const struct comm *world, void *context)
{
    const char *folder = context;
    char *newest = NULL, *before = NULL, *none = NULL;
    enum status st = STATUS_OK;
    TRY_OUT(checkpoint_find(folder, INT64_MAX, true, world, &newest));
    TRY_OUT(checkpoint_find(folder, 2, true, world, &before));
    TRY_OUT(checkpoint_find(folder, 1, true, world, &none));
    bool right = newest && before && !none;
    if (!right || strcmp(strrchr(newest, '/'), "/step-2") ||
        strcmp(strrchr(before, '/'), "/step-1"))
        FAIL_OUT(DATA, "rank %d found other checkpoints", world->rank);
    enum status missing = checkpoint_find_step(folder, 4, world, &none);
    if (missing != STATUS_MISSING || none) FAIL_OUT(DATA, "rank %d found step 4", world->rank);
out:
    free(newest), free(before), free(none);
    return st;
}

TEST(ranks_find_the_same_checkpoint)
{
    struct saved s;
    saved_open(&s, false);
    const char *folder = saved_folder(&s, STEPS(1, 2, 3));
    CHECK_STATUS(OK, file_remove_tree(test_path(folder, "step-3/manifest.json")));
    CHECK_STATUS(OK, ranks_run(3, find_on_rank, (void *)(uintptr_t)folder));
    saved_close(&s);
}

static char *located(const char *path, int64_t step)
{
    char *folder;
    CHECK_STATUS(OK, checkpoint_locate(path, step, comm_self(), &folder));
    return folder;
}

static bool is_at(const char *path, int64_t step, const char *want)
{
    char *folder = located(path, step);
    bool same = !strcmp(folder, want);
    free(folder);
    return same;
}

TEST(path_locates_a_model_or_the_newest_native_or_dcp_checkpoint)
{
    struct saved s;
    char *none;
    saved_open(&s, false);
    const char *folder = saved_folder(&s, STEPS(3, 9)), *run = test_path(folder, "..");
    const char *step = test_path(folder, "step-3");
    CHECK(is_at(step, -1, step)); /* a model refers to itself */
    CHECK_STATUS(CONFIG, checkpoint_locate(step, 3, comm_self(), &none));
    CHECK_MESSAGE("is a single model");
    CHECK(!none);
    CHECK(is_at(folder, -1, test_path(folder, "step-9")));
    CHECK_STATUS(OK, file_make_dirs(test_path(folder, "step-20"))); /* a DCP that is not finished */
    CHECK_STATUS(OK, file_make_dirs(test_path(folder, "step-12")));
    CHECK_STATUS(OK, file_write(test_path(folder, "step-12/.metadata"), "", 0));
    CHECK(is_at(folder, -1, test_path(folder, "step-12")));
    /* DCP steps have their config.json in the run's folder, which is not a model because of it. */
    CHECK_STATUS(OK, file_write(test_path(run, "config.json"), "{}", 2));
    CHECK(is_at(run, -1, test_path(run, "checkpoint/step-12")));
    CHECK(is_at(run, 3, test_path(run, "checkpoint/step-3")));
    CHECK_STATUS(MISSING, checkpoint_locate(run, 4, comm_self(), &none));
    CHECK(!none);
    CHECK_STATUS(DATA, checkpoint_locate(folder, 20, comm_self(), &none));
    CHECK_MESSAGE("incomplete checkpoint");
    saved_close(&s);
}

TEST(the_last_iteration_of_megatron_is_located)
{
    static const char *const bad[] = {"", "last\n", "12345678901", "-3"};
    const char *root = test_folder(), *tracker;
    char *path;
    put_file(root, "a/iter_0000009/.metadata"), put_file(root, "a/iter_0000009/metadata.json");
    put_file(root, "a/iter_0000007/.metadata"), put_file(root, "a/iter_0000007/metadata.json");
    put_file(root, "a/release/.metadata"), put_file(root, "a/release/metadata.json");
    const char *a = test_path(root, "a");
    tracker = test_path(a, "latest_checkpointed_iteration.txt");
    CHECK_STATUS(OK, file_write(tracker, "7\n", 2));
    CHECK(is_at(a, -1, test_path(a, "iter_0000007")));
    CHECK(is_at(a, 9, test_path(a, "iter_0000009")));
    CHECK(is_at(test_path(a, "iter_0000009"), -1, test_path(a, "iter_0000009")));
    CHECK_STATUS(OK, file_write(tracker, "release", 7));
    CHECK(is_at(a, -1, test_path(a, "release")));
    CHECK_STATUS(MISSING, checkpoint_locate(a, 8, comm_self(), &path));
    CHECK_MESSAGE("iter_0000008: no such iteration");
    put_file(root, "a/iter_0000008/notes");
    CHECK_STATUS(MISSING, checkpoint_locate(a, 8, comm_self(), &path));
    CHECK_MESSAGE("iter_0000008: no checkpoint of Megatron-LM");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_STATUS(OK, file_write(tracker, bad[i], strlen(bad[i])));
        CHECK_STATUS(DATA, checkpoint_locate(a, -1, comm_self(), &path));
        CHECK_MESSAGE("expected an iteration or \"release\"");
    }
}

TEST(an_iteration_of_megatron_that_cannot_be_read_is_reported)
{
    const char *root = test_folder();
    char *path;
    put_file(root, "a/iter_0000007/mp_rank_00/model_optim_rng.pt");
    put_file(root, "a/iter_0000009/.metadata");
    const char *a = test_path(root, "a"), *folder = test_path(a, "iter_0000007");
    CHECK_STATUS(OK, file_write(test_path(a, "latest_checkpointed_iteration.txt"), "7\n", 2));
    CHECK(!chmod(folder, 0311));
    if (access(folder, R_OK)) {
        CHECK_STATUS(IO, checkpoint_locate(a, -1, comm_self(), &path));
        CHECK_MESSAGE(strerror(EACCES));
    }
    CHECK(!chmod(folder, 0700));
    put_file(root, "a/iter_0000009/metadata.json");
    CHECK(!chmod(test_path(a, "iter_0000009"), 0311)); /* torch_dist needs no list of files */
    CHECK(is_at(a, 9, test_path(a, "iter_0000009")));
    CHECK(!chmod(test_path(a, "iter_0000009"), 0700));
}

TEST(a_model_beside_checkpoints_of_megatron_is_located)
{
    static const char *const models[] = {"a/model.safetensors", "b/pytorch_model.bin"};
    const char *root = test_folder();
    for (size_t i = 0; i < 2; i++) {
        char *folder = file_parent(test_path(root, models[i]));
        put_file(folder, "latest_checkpointed_iteration.txt");
        put_file(folder, "iter_0000009/mp_rank_00/model_optim_rng.pt");
        put_file(root, models[i]);
        CHECK(is_at(folder, -1, folder));
        free(folder);
    }
}

/* As verl does. */
TEST(a_folder_with_only_the_tracker_of_megatron_is_not_its_checkpoint)
{
    const char *root = test_folder();
    char *path;
    put_file(root, "latest_checkpointed_iteration.txt");
    put_file(root, "global_step_9/actor/config.json");
    CHECK_STATUS(MISSING, checkpoint_locate(root, -1, comm_self(), &path));
    CHECK_MESSAGE("no model found");
}

TEST(checkpoints_are_located_in_the_folder_that_the_run_configures)
{
    static const char toml[] = "[checkpoint]\nfolder = \"saved\"\n";
    struct saved s;
    saved_open(&s, false);
    const char *folder = saved_folder(&s, STEPS(3, 9)), *run = test_folder();
    CHECK_STATUS(OK, file_rename(folder, test_path(run, "saved")));
    CHECK_STATUS(OK, file_write(test_path(run, "config.toml"), toml, strlen(toml)));
    CHECK(is_at(run, -1, test_path(run, "saved/step-9")));
    CHECK(is_at(run, 3, test_path(run, "saved/step-3")));
    saved_close(&s);
}

TEST(path_without_a_model_is_named)
{
    const char *empty = test_folder(), *away = test_path(empty, "away");
    char *none;
    CHECK_STATUS(MISSING, checkpoint_locate(empty, -1, comm_self(), &none));
    CHECK_MESSAGE("no model found");
    CHECK_STATUS(MISSING, checkpoint_locate(away, -1, comm_self(), &none));
    CHECK_MESSAGE("away: no such folder");
    CHECK_STATUS(OK, file_make_dirs(test_path(empty, "checkpoint/step-3")));
    CHECK_STATUS(DATA, checkpoint_locate(empty, -1, comm_self(), &none));
    CHECK_MESSAGE("no intact checkpoint found (1 damaged or incomplete)");
    CHECK(!none);
}

static enum status locate_on_rank(const struct comm *world, void *context)
{
    const char *run = context;
    char *newest = NULL, *none = NULL;
    enum status st = STATUS_OK;
    TRY_OUT(checkpoint_locate(run, -1, world, &newest));
    if (strcmp(strrchr(newest, '/'), "/step-2"))
        FAIL_OUT(DATA, "rank %d located %s", world->rank, newest);
    enum status missing = checkpoint_locate(run, 4, world, &none);
    if (missing != STATUS_MISSING || none) FAIL_OUT(DATA, "rank %d located step 4", world->rank);
out:
    free(newest), free(none);
    return st;
}

TEST(ranks_locate_the_same_model)
{
    struct saved s;
    saved_open(&s, false);
    const char *run = test_path(saved_folder(&s, STEPS(1, 2)), "..");
    CHECK_STATUS(OK, ranks_run(3, locate_on_rank, (void *)(uintptr_t)run));
    saved_close(&s);
}
