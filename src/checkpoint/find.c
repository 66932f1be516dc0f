// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "checkpoint/interop/dcp.h"
#include "checkpoint/interop/model_files.h"
#include "checkpoint/interop/torch_files.h"
#include "checkpoint/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* On this rank alone. */
static enum status find_step(const char *folder, int64_t step, char **found)
{
    int64_t written;
    char *path = folder_step_path(folder, step), *manifest = file_join(path, MANIFEST_NAME);
    enum file_kind of_folder, of_manifest;
    enum status st = STATUS_OK;
    *found = NULL;
    TRY_OUT(file_find(path, &of_folder));
    TRY_OUT(file_find(manifest, &of_manifest));
    if (of_folder != FILE_FOLDER)
        FAIL_OUT(MISSING, "%s: no such checkpoint; `llamero checkpoint ls` lists those of a run",
                 path);
    if (of_manifest == FILE_ABSENT)
        FAIL_OUT(DATA, "%s: incomplete checkpoint: %s is missing", path, MANIFEST_NAME);
    TRY_OUT(manifest_check(path, &written));
    if (written != step)
        FAIL_OUT(DATA, "%s: its manifest belongs to step %lld", path, (long long)written);
    *found = path, path = NULL;
out:
    free(path), free(manifest);
    return st;
}

static enum status find_native_or_dcp(const char *folder, int64_t step, char **found)
{
    char *path = folder_step_path(folder, step);
    if (dcp_detect(path)) {
        *found = path;
        return STATUS_OK;
    }
    free(path);
    TRY(find_step(folder, step, found));
    return STATUS_OK;
}

/* Warns of those that it skips, if `log` or if it finds none.  IO: none is intact, and one that
 * could not be read may be. */
static enum status find_newest(const char *folder, int64_t limit, bool log, char **found)
{
    struct folder_steps l;
    struct failure unreadable = {0};
    *found = NULL;
    TRY(folder_steps_read(&l, folder));
    for (size_t i = l.count; i-- > 0 && !*found;) {
        if (l.steps[i] >= limit) continue;
        enum status st = find_native_or_dcp(folder, l.steps[i], found);
        if (st && log)
            log_line(LOG_WARN, "skipping step-%lld: %s", (long long)l.steps[i], status_message());
        if (st == STATUS_IO) status_save(&unreadable, st);
    }
    folder_steps_release(&l);
    if (!*found && !log) return find_newest(folder, limit, true, found);
    return *found ? STATUS_OK : status_restore(&unreadable);
}

/* Broadcasts rank 0's result; `st` is rank 0's status. */
static enum status broadcast_found(const char *folder, const struct comm *world, enum status st,
                                   char **found)
{
    int64_t step = *found ? folder_path_step(*found) : -1;
    st = comm_agree(world, st);
    if (!st) st = comm_broadcast_bytes(world, 0, &step, sizeof step);
    if (world->rank > 0 && !st && step >= 0) *found = folder_step_path(folder, step);
    if (!st) return STATUS_OK;
    free(*found);
    *found = NULL;
    return st;
}

enum status checkpoint_find_step(const char *folder, int64_t step, const struct comm *world,
                                 char **found)
{
    *found = NULL;
    enum status st = world->rank == 0 ? find_native_or_dcp(folder, step, found) : STATUS_OK;
    TRY(broadcast_found(folder, world, st, found));
    return STATUS_OK;
}

enum status checkpoint_find(const char *folder, int64_t limit, bool log, const struct comm *world,
                            char **found)
{
    *found = NULL;
    enum status st = world->rank == 0 ? find_newest(folder, limit, log, found) : STATUS_OK;
    TRY(broadcast_found(folder, world, st, found));
    return STATUS_OK;
}

/* Where checkpoint_locate finds the model. */
enum { AT_PATH, IN_STEPS, IN_RUN, IN_ITERATIONS /* of Megatron-LM */ };

/* `below`: the folder of a run's checkpoints.  DCP steps may have config.json in the folder above
 * them. */
static enum status find_model(const char *path, const char *below, int64_t step, int64_t *location)
{
    char *config = file_join(path, "config.json");
    bool is_model = model_files_detect(path);
    size_t num_steps;
    enum status st = STATUS_OK;
    if (!is_model && file_has_suffix(path, ".gguf"))
        FAIL_OUT(MISSING, "%s: GGUF is written, by `llamero convert --to gguf`, but not read",
                 path);
    if (!is_model && file_exists(path) && !file_is_dir(path))
        FAIL_OUT(MISSING,
                 "%s: not a model: expected a Hugging Face folder, torch files, a checkpoint, or a "
                 "run with checkpoints",
                 path);
    if (!is_model) TRY_OUT(file_require_folder(path));
    TRY_OUT(folder_steps_count(path, &num_steps));
    bool is_megatron = !is_model && !num_steps && torch_files_are_megatron(path);
    *location = is_model                            ? AT_PATH
                : file_is_dir(below)                ? IN_RUN
                : is_megatron                       ? IN_ITERATIONS
                : file_exists(config) && !num_steps ? AT_PATH
                                                    : IN_STEPS;
    if (*location == AT_PATH && step >= 0)
        FAIL_OUT(CONFIG, "%s is a single model: it has no step %lld", path, (long long)step);
out:
    free(config);
    return st;
}

/* Finds iteration `step`, or the last if negative; on rank 0. */
static enum status find_iteration(const char *path, int64_t step, int64_t *iteration)
{
    *iteration = step;
    if (file_exists_in(path, "model_optim_rng.pt"))
        FAIL(MISSING, "%s is one rank of a checkpoint of Megatron-LM: name the folder above it",
             path);
    if (step < 0) TRY(torch_files_last_iteration(path, iteration));
    char *folder = torch_files_iteration_path(path, *iteration);
    enum status st = STATUS_OK;
    struct file_list inside = {0};
    if (!file_is_dir(folder)) FAIL_OUT(MISSING, "%s: no such iteration of Megatron-LM", folder);
    if (model_files_detect(folder)) goto out;
    TRY_OUT(file_list_dir(&inside, folder)); /* reports a folder that cannot be read */
    FAIL_OUT(MISSING, "%s: no checkpoint of Megatron-LM: neither torch_dist nor torch (mp_rank_*)",
             folder);
out:
    file_list_release(&inside);
    free(folder);
    return st;
}

static enum status locate_iteration(const char *path, int64_t step, const struct comm *world,
                                    char **folder)
{
    int64_t iteration = -1;
    enum status st = world->rank ? STATUS_OK : find_iteration(path, step, &iteration);
    TRY(comm_agree(world, st));
    TRY(comm_broadcast_bytes(world, 0, &iteration, sizeof iteration));
    *folder = torch_files_iteration_path(path, iteration);
    return STATUS_OK;
}

static enum status fail_not_found(const char *path, const char *checkpoints)
{
    size_t count;
    TRY(folder_steps_count(checkpoints, &count));
    if (count)
        FAIL(DATA,
             "%s: no intact checkpoint found (%zu damaged or incomplete); `llamero checkpoint "
             "verify %s` finds all damage",
             path, count, path);
    FAIL(MISSING,
         "%s: no model found: expected a Hugging Face folder, torch files, a checkpoint, or a run "
         "with checkpoints",
         path);
}

enum status checkpoint_locate(const char *path, int64_t step, const struct comm *world,
                              char **folder)
{
    int64_t location = AT_PATH;
    char *below = world->rank == 0 ? folder_of_run(path) : NULL;
    enum status st = STATUS_OK;
    *folder = NULL;
    TRY_OUT(
        comm_agree(world, world->rank == 0 ? find_model(path, below, step, &location) : STATUS_OK));
    TRY_OUT(comm_broadcast_bytes(world, 0, &location, sizeof location));
    if (location == AT_PATH) {
        *folder = heap_strdup(path);
        goto out;
    }
    if (location == IN_ITERATIONS) {
        TRY_OUT(locate_iteration(path, step, world, folder));
        goto out;
    }
    if (location == IN_RUN && !below) below = folder_of_run(path);
    const char *steps = location == IN_RUN ? below : path;
    TRY_OUT(step < 0 ? checkpoint_find(steps, INT64_MAX, true, world, folder)
                     : checkpoint_find_step(steps, step, world, folder));
    TRY_OUT(
        comm_agree(world, *folder || world->rank > 0 ? STATUS_OK : fail_not_found(path, steps)));
out:
    free(below);
    return st;
}

/* Appends the advice about step `step` of `folder` to the message. */
static void add_advice(const char *folder, int64_t step, char message[STATUS_TEXT])
{
    char *before = NULL;
    size_t used = strlen(message);
    if (find_newest(folder, step, false, &before)) before = NULL; /* its failure matters less */
    snprintf(message + used, STATUS_TEXT - used,
             "; `llamero checkpoint verify %s` finds all damage%s%s", folder,
             before ? "; the checkpoint before it is " : "", before ? before : "");
    free(before);
}

enum status checkpoint_advise(const char *folder, enum status st)
{
    struct failure why = {0};
    size_t len = strlen(folder);
    if (st != STATUS_DATA || status_is_remote()) return st;
    while (len > 1 && folder[len - 1] == '/') len--;
    char *path = heap_string(folder, len), *parent = file_parent(path);
    int64_t step = folder_path_step(path);
    status_save(&why, st);
    if (step >= 0) add_advice(parent, step, why.message);
    free(path), free(parent);
    return status_restore(&why);
}
