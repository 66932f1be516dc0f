// SPDX-License-Identifier: Apache-2.0
#include "app/dump_folder.h"

#include "base/byte_size.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/folder.h"
#include "model/layout.h"
#include "optim/ema.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* The path, or the closest folder above it that exists, and what that is; heap. */
static char *find_existing(const char *path, enum file_kind *kind)
{
    char *at = heap_strdup(path), *slash;
    for (; file_find(at, kind) || *kind == FILE_ABSENT; *slash = 0) {
        slash = strrchr(at, '/');
        if (slash && slash != at) continue;
        free(at);
        *kind = FILE_FOLDER;
        return slash ? heap_string("/", 1) : heap_string(".", 1);
    }
    return at;
}

/* Creates a file in the folder as a run would, and leaves none. */
static int try_to_create(const char *folder)
{
    int fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    int error = fd < 0 ? errno : 0;
    if (error == EOPNOTSUPP || error == EISDIR || error == ENOENT || error == EINVAL) {
        struct text path = {0}; /* folder.h deletes a leftover of this name */
        text_addf(&path, "%s/writable.tmp-%ld", folder, (long)getpid());
        fd = open(path.data, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
        error = fd < 0 ? errno : 0;
        if (fd >= 0) unlink(path.data);
        text_release(&path);
    }
    if (fd >= 0) close(fd);
    return error;
}

/* A file that an earlier run may have left. */
static enum status check_file(const char *folder, const char *name)
{
    char *path = file_join(folder, name);
    enum file_kind kind;
    enum status st = STATUS_OK;
    TRY_OUT(file_find(path, &kind));
    if (kind == FILE_ABSENT) goto out;
    if (kind == FILE_FOLDER)
        FAIL_OUT(IO, "%s: expected a file; move it away, or set another job.dump_folder", path);
    if (access(path, W_OK)) FAIL_OUT(IO, "%s: cannot be written: %s", path, strerror(errno));
out:
    free(path);
    return st;
}

/* Whether a folder can be created, or written to, as the option `key` says. */
static enum status check_folder(const char *key, const char *path)
{
    enum file_kind kind;
    char *existing = find_existing(path, &kind);
    enum status st = STATUS_OK;
    if (kind != FILE_FOLDER)
        FAIL_OUT(IO, "%s = \"%s\": %s is not a folder; move it away, or set another folder", key,
                 path, existing);
    int error = try_to_create(existing);
    if (error)
        FAIL_OUT(IO,
                 "%s = \"%s\": cannot create files in %s: %s; set another folder, or change its "
                 "permissions",
                 key, path, existing, strerror(error));
out:
    free(existing);
    return st;
}

/* A folder inside job.dump_folder. */
static enum status check_part(const struct config *c, const char *key, const char *name)
{
    char *path = file_join(c->job.dump_folder, name);
    enum status st = check_folder(key, path);
    free(path);
    return st;
}

enum status dump_folder_check(const struct config *c)
{
    const char *path = c->job.dump_folder;
    TRY(check_folder("job.dump_folder", path));
    TRY(check_file(path, "config.toml"));
    TRY(check_file(path, "log.txt"));
    TRY(check_file(path, "metrics.jsonl"));
    if (c->checkpoint.enable && !c->checkpoint.load_only)
        TRY(check_part(c, "checkpoint.folder", c->checkpoint.folder));
    if (c->metrics.enable_tensorboard)
        TRY(check_part(c, "metrics.save_tb_folder", c->metrics.save_tb_folder));
    if (c->metrics.enable_wandb) TRY(check_part(c, "metrics.enable_wandb", "wandb"));
    if (c->metrics.enable_mlflow) TRY(check_part(c, "metrics.enable_mlflow", "mlruns"));
    return STATUS_OK;
}

/* Checkpoints that the run will still save. */
static int64_t saves_from(const struct config *c, int64_t step)
{
    const struct checkpoint_config *k = &c->checkpoint;
    int64_t steps = c->training.steps, interval = k->interval;
    if (!k->enable || k->load_only || step >= steps) return 0;
    if (k->interval_type == SAVE_INTERVAL_seconds) return k->keep_latest_k ? INT64_MAX : 1;
    int64_t saves = (steps - 1) / interval - step / interval + 1; /* the last step is saved, too */
    return saves + (k->enable_first_step_checkpoint && !step && interval > 1);
}

double dump_folder_checkpoint_bytes(const struct config *c, const struct model_shape *shape)
{
    struct layout layout;
    layout_init(&layout, shape, 1);
    double all = (double)layout.parameters * ema_num_buffers(&c->optimizer);
    double omitted = (double)layout_elements(&layout, optim_first_moment_only(&c->optimizer));
    layout_release(&layout);
    return (all - omitted) * sizeof(float);
}

/* Whether checkpoint.folder, rather than job.dump_folder, chooses the checkpoints' disk.
 * `existing`: the deepest existing folder of their path.  True if checkpoint.folder is absolute, or
 * leads to another file system than job.dump_folder (a link or a mount). */
static bool chooses_disk(const struct config *c, const char *existing)
{
    enum file_kind kind;
    struct stat own, of_dump;
    if (c->checkpoint.folder[0] == '/') return true;
    char *dump = find_existing(c->job.dump_folder, &kind);
    bool is_other = !stat(existing, &own) && !stat(dump, &of_dump) && own.st_dev != of_dump.st_dev;
    free(dump);
    return is_other;
}

/* Checkpoints that retention counts: from later ones than `step` the run has gone back, and sets
 * them aside. */
static int64_t count_kept(const struct folder_steps *saved, int64_t step)
{
    int64_t count = 0;
    if (step < 0) return (int64_t)saved->count;
    while (count < (int64_t)saved->count && saved->steps[count] <= step) count++;
    return count;
}

/* What the user can delete, after a semicolon; empty: nothing was set aside. */
static void describe_abandoned(const char *folder, struct text *out)
{
    double bytes = folder_abandoned_bytes(folder);
    text_adds(out, "");
    if (bytes > 0)
        text_addf(out, "; checkpoints that were set aside in %s/abandoned-* take %s", folder,
                  byte_size_format(bytes).text);
}

enum status dump_folder_check_space(const struct config *c, const struct model_shape *shape,
                                    int64_t step)
{
    const int64_t keep = c->checkpoint.keep_latest_k;
    struct folder_steps saved = {0};
    struct text abandoned = {0};
    struct statvfs fs;
    enum file_kind kind;
    int64_t saves = saves_from(c, step < 0 ? 0 : step), room = saves;
    if (!saves) return STATUS_OK;
    char *folder = file_join(c->job.dump_folder, c->checkpoint.folder);
    char *existing = find_existing(folder, &kind);
    bool is_own = chooses_disk(c, existing);
    const char *key = is_own ? "checkpoint.folder" : "job.dump_folder";
    const char *path = is_own ? c->checkpoint.folder : c->job.dump_folder;
    enum status st = STATUS_OK;
    if (statvfs(existing, &fs) || !fs.f_blocks) goto out; /* the file system does not tell */
    TRY_OUT(folder_steps_read(&saved, folder));
    describe_abandoned(folder, &abandoned);
    int64_t held = count_kept(&saved, step);
    if (keep && held > keep) held = keep;
    if (keep && room > keep + 1 - held) room = keep + 1 - held; /* one more while it is saved */
    double size = dump_folder_checkpoint_bytes(c, shape);
    double all = (double)room * size, is_free = (double)fs.f_bavail * (double)fs.f_frsize;
    if (is_free < size)
        FAIL_OUT(IO,
                 "%s = \"%s\": not enough space: a checkpoint requires %s, "
                 "%s are free; set another folder, or checkpoint.enable = false; "
                 "--allow-oversubscribe skips this check%s",
                 key, path, byte_size_format(size).text, byte_size_format(is_free).text,
                 abandoned.data);
    if (is_free < all)
        log_line(LOG_WARN,
                 "%s = \"%s\": the run will save %lld more checkpoints of %s each, "
                 "%s are free; lower checkpoint.keep_latest_k, or free space%s",
                 key, path, (long long)room, byte_size_format(size).text,
                 byte_size_format(is_free).text, abandoned.data);
out:
    folder_steps_release(&saved);
    text_release(&abandoned);
    free(existing), free(folder);
    return st;
}
