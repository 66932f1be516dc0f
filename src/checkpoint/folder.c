// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/folder.h"

#include "base/file.h"
#include "base/log.h"
#include "base/toml_parse.h"
#include "checkpoint/interop/dcp.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

char *folder_in_run(const char *run, const char *name)
{
    return file_join(run, name && *name ? name : "checkpoint");
}

char *folder_of_run(const char *run)
{
    enum { MAX_BYTES = 1 << 20 };
    char *path = file_join(run, "config.toml");
    struct text bytes = {0};
    struct toml *tree = NULL;
    enum file_kind kind = FILE_ABSENT;
    enum status st = file_find(path, &kind);
    if (!st && kind != FILE_ABSENT) st = file_read(path, MAX_BYTES, &bytes);
    if (!st && bytes.len) st = toml_parse(bytes.data, bytes.len, path, &tree);
    if (st) log_line(LOG_WARN, "assuming checkpoint.folder = \"checkpoint\": %s", status_message());
    const struct toml *name = tree ? toml_get(toml_get(tree, "checkpoint"), "folder") : NULL;
    char *folder = folder_in_run(run, name && name->kind == TOML_STRING ? name->text : NULL);
    toml_free(tree);
    text_release(&bytes);
    free(path);
    return folder;
}

int64_t folder_parse_step(const char *name)
{
    size_t digits = strncmp(name, "step-", 5) ? 0 : strspn(name + 5, "0123456789");
    if (digits < 1 || digits > 15 || name[5 + digits]) return -1;
    return strtoll(name + 5, NULL, 10);
}

int64_t folder_path_step(const char *path)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/') len--;
    char *folder = heap_string(path, len);
    int64_t step = folder_parse_step(file_name(folder));
    free(folder);
    return step;
}

static int compare_steps(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

enum status folder_steps_read(struct folder_steps *l, const char *folder)
{
    struct file_list names;
    *l = (struct folder_steps){0};
    enum file_kind kind;
    TRY(file_find(folder, &kind));
    if (kind != FILE_FOLDER) return STATUS_OK;
    TRY(file_list_dir(&names, folder));
    l->steps = heap((names.count + 1) * sizeof *l->steps);
    for (size_t i = 0; i < names.count; i++) {
        int64_t step = folder_parse_step(names.paths[i]);
        if (step >= 0) l->steps[l->count++] = step;
    }
    folder_steps_sort(l);
    file_list_release(&names);
    return STATUS_OK;
}

void folder_steps_sort(struct folder_steps *l)
{
    qsort(l->steps, l->count, sizeof *l->steps, compare_steps);
}

void folder_steps_release(struct folder_steps *l)
{
    free(l->steps);
    *l = (struct folder_steps){0};
}

enum status folder_steps_count(const char *folder, size_t *count)
{
    struct folder_steps l;
    *count = 0;
    TRY(folder_steps_read(&l, folder));
    *count = l.count;
    folder_steps_release(&l);
    return STATUS_OK;
}

char *folder_step_path(const char *folder, int64_t step)
{
    char name[32];
    snprintf(name, sizeof name, "step-%lld", (long long)step);
    return file_join(folder, name);
}

char *folder_temporary_path(const char *folder, int64_t step)
{
    char name[32];
    snprintf(name, sizeof name, "step-%lld.tmp", (long long)step);
    return file_join(folder, name);
}

static const char digits[] = "0123456789";
#define TRASH    ".trash-"    /* of a checkpoint that is deleted */
#define REPLACED ".replaced-" /* of one that is replaced, where folders cannot be exchanged */

/* PID of NAME.tmp-PID, which file_write leaves behind if it is killed; -1: another name. */
static long parse_temporary(const char *name)
{
    const char *end = strstr(name, ".tmp-");
    if (!end || end == name || !end[5] || end[5 + strspn(end + 5, digits)]) return -1;
    return strtol(end + 5, NULL, 10);
}

/* Whether another process of this host has that PID. */
static bool is_alive(long pid)
{
    if (pid < 1 || pid > INT_MAX || pid == (long)getpid()) return false;
    return kill((pid_t)pid, 0) == 0 || errno == EPERM;
}

/* A file that a dead process left; a folder of such a name is a user's. */
static bool is_temporary(const char *path)
{
    struct stat s;
    long pid = parse_temporary(file_name(path));
    return pid >= 0 && !lstat(path, &s) && S_ISREG(s.st_mode) && !is_alive(pid);
}

/* N of <prefix>N-PID, where a commit or a deletion moves a checkpoint; -1: another name. */
static int64_t parse_moved(const char *name, const char *prefix)
{
    size_t len = strlen(prefix);
    const char *number = name + len, *end = number;
    if (strncmp(name, prefix, len)) return -1;
    end += strspn(number, digits);
    bool is_moved = end > number && end[0] == '-' && end[1] && !end[1 + strspn(end + 1, digits)];
    return is_moved ? strtoll(number, NULL, 10) : -1;
}

/* step-N.tmp or .trash-N-PID: only this program makes them. */
static bool is_leftover(const char *path)
{
    const char *name = file_name(path);
    if (strncmp(name, "step-", 5)) return parse_moved(name, TRASH) >= 0;
    const char *number = name + 5, *end = number + strspn(number, digits);
    return end > number && !strcmp(end, ".tmp");
}

static enum status clear(const char *folder, bool (*is_garbage)(const char *path))
{
    struct file_list names;
    enum status st = STATUS_OK;
    TRY(file_list_dir(&names, folder));
    for (size_t i = 0; i < names.count && !st; i++) {
        char *path = file_join(folder, names.paths[i]);
        if (is_garbage(path)) st = file_remove_tree(path);
        free(path);
    }
    file_list_release(&names);
    return st;
}

/* A kill may have left a replaced checkpoint without its successor: puts it back. */
static enum status put_back_replaced(const char *folder)
{
    struct file_list names;
    enum status st = STATUS_OK;
    TRY(file_list_dir(&names, folder));
    for (size_t i = 0; i < names.count && !st; i++) {
        int64_t step = parse_moved(names.paths[i], REPLACED);
        if (step < 0) continue;
        char *path = file_join(folder, names.paths[i]), *to = folder_step_path(folder, step);
        st = file_exists(to) ? file_remove_tree(path) : file_rename(path, to);
        free(path), free(to);
    }
    file_list_release(&names);
    return st;
}

/* Takes the lock, or waits for it: folder_lock_look may be looking, or the ranks of a run that was
 * killed may still be releasing their memory. */
static bool take_lock(const char *folder, int fd)
{
    enum { WAIT_MS = 5000, PAUSE_MS = 20, LOG_MS = 200 };
    const struct timespec pause = {0, PAUSE_MS * 1000000L};
    for (int waited = 0; waited < WAIT_MS; waited += PAUSE_MS) {
        /* Where the file system does not support locks, the user must not start a run twice. */
        if (!flock(fd, LOCK_EX | LOCK_NB) || errno != EWOULDBLOCK) return true;
        if (waited == LOG_MS)
            log_line(LOG_INFO, "%s: waiting up to %d s for another run to end", folder,
                     WAIT_MS / 1000);
        nanosleep(&pause, NULL);
    }
    return false;
}

static enum status open_lock(const char *folder, const char *name, int *lock)
{
    char *path = file_join(folder, name);
    enum status st = STATUS_OK;
    *lock = -1;
    TRY_OUT(file_make_dirs(folder));
    *lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*lock < 0) FAIL_OUT(IO, "%s: %s", path, strerror(errno));
    if (!take_lock(folder, *lock))
        FAIL_OUT(CONFIG, "%s: another run writes there; stop it, or set another job.dump_folder",
                 folder);
out:
    if (st) folder_unlock(*lock);
    if (st) *lock = -1;
    free(path);
    return st;
}

/* Another name, as the folder of checkpoints may be the run's. */
enum status folder_lock_run(const char *run, int *lock)
{
    return open_lock(run, ".run.lock", lock);
}

enum status folder_lock(const char *folder, int *lock)
{
    char *parent = file_join(folder, "..");
    enum status st = STATUS_OK;
    TRY_OUT(open_lock(folder, ".lock", lock));
    TRY_OUT(file_sync_dir(parent)); /* so that the folder itself survives a power loss */
    TRY_OUT(put_back_replaced(folder));
    TRY_OUT(clear(folder, is_leftover));
    TRY_OUT(clear(folder, is_temporary));
    TRY_OUT(clear(parent, is_temporary)); /* the run's own folder */
out:
    if (st) folder_unlock(*lock);
    if (st) *lock = -1;
    free(parent);
    return st;
}

void folder_unlock(int lock)
{
    if (lock >= 0) close(lock);
}

/* By the magic numbers of statfs(2): NFS, Lustre, GPFS, BeeGFS, Ceph, SMB and FUSE. */
static bool is_shared(int fd)
{
    static const unsigned long shared[] = {0x6969,     0x0bd00bd0, 0x47504653, 0x19830326,
                                           0x00c36400, 0xfe534d42, 0xff534d42, 0x65735546};
    struct statfs s;
    if (fstatfs(fd, &s)) return true;
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        if (((unsigned long)s.f_type & 0xffffffffUL) == shared[i]) return true;
    return false;
}

enum folder_lock_state folder_lock_look(const char *folder)
{
    char *path = file_join(folder, ".lock");
    struct stat s;
    enum folder_lock_state found = FOLDER_LOCK_unknown;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC); /* it may be a FIFO */
    free(path);
    if (fd < 0) return found;
    if (!fstat(fd, &s) && S_ISREG(s.st_mode)) {
        if (!flock(fd, LOCK_SH | LOCK_NB))
            found = is_shared(fd) ? FOLDER_LOCK_unknown : FOLDER_LOCK_free;
        else if (errno == EWOULDBLOCK)
            found = FOLDER_LOCK_held;
    }
    close(fd); /* and unlocks */
    return found;
}

/* Renaming is atomic: a kill leaves a whole checkpoint under either name. */
static enum status move_away(const char *folder, const char *prefix, int64_t step,
                             struct text *moved)
{
    char *path = folder_step_path(folder, step);
    enum status st = STATUS_OK;
    text_addf(moved, "%s/%s%lld-%ld", folder, prefix, (long long)step, (long)getpid());
    TRY_OUT(file_remove_tree(moved->data));
    if (rename(path, moved->data) && errno != ENOENT)
        FAIL_OUT(IO, "%s: rename: %s", path, strerror(errno));
out:
    free(path);
    return st;
}

/* Failing to delete an old checkpoint does not affect the new one. */
static void remove_or_warn(const char *path)
{
    if (file_remove_tree(path)) log_line(LOG_WARN, "cannot delete: %s", status_message());
}

static bool exchange(const char *a, const char *b)
{
    return !renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
}

/* Returns the new checkpoint to its temporary name, and the one that it replaced to `path`. */
static void put_back(const char *path, const char *temporary, const char *replaced)
{
    bool is_exchanged = !strcmp(replaced, temporary);
    bool is_back = is_exchanged ? exchange(temporary, path)
                                : !rename(path, temporary) && !rename(replaced, path);
    if (!is_back) log_line(LOG_WARN, "%s: cannot put it back: %s", replaced, strerror(errno));
}

enum status folder_commit(const char *folder, const char *temporary, int64_t step)
{
    char *path = folder_step_path(folder, step);
    struct text replaced = {0};
    bool is_renamed = false;
    enum status st = STATUS_OK;
    TRY_OUT(file_sync_dir(temporary));
    bool exists = file_exists(path);
    bool is_exchanged = exists && exchange(temporary, path);
    if (is_exchanged)
        text_adds(&replaced, temporary);
    else if (exists)
        TRY_OUT(move_away(folder, REPLACED, step, &replaced));
    if (!is_exchanged && rename(temporary, path)) {
        int why = errno;
        if (exists) (void)rename(replaced.data, path);
        FAIL_OUT(IO, "%s: rename: %s", path, strerror(why));
    }
    is_renamed = true;
    /* Delete the old one only once the new one is durable. */
    TRY_OUT(file_sync_dir(folder));
    if (replaced.len) remove_or_warn(replaced.data);
out:
    if (st && is_renamed && replaced.len) put_back(path, temporary, replaced.data);
    text_release(&replaced);
    free(path);
    return st;
}

void folder_retain(const char *folder, int64_t keep, int64_t step, int64_t busy, int64_t before)
{
    struct folder_steps l;
    int64_t good = -1;
    if (!keep) return;
    if (folder_steps_read(&l, folder)) {
        log_line(LOG_WARN, "cannot delete older checkpoints: %s", status_message());
        return;
    }
    size_t surplus = l.count > (size_t)keep ? l.count - (size_t)keep : 0;
    for (size_t i = 0; i < l.count && l.steps[i] < before; i++) good = l.steps[i];
    for (size_t i = 0; i < surplus; i++) {
        char *path = folder_step_path(folder, l.steps[i]);
        bool keeps = l.steps[i] == step || l.steps[i] == busy || l.steps[i] == good ||
                     dcp_detect(path); /* a run never writes DCP */
        if (keeps) {
            free(path);
            continue;
        }
        struct text trash = {0};
        if (move_away(folder, TRASH, l.steps[i], &trash))
            log_line(LOG_WARN, "cannot delete: %s", status_message());
        else
            remove_or_warn(trash.data);
        text_release(&trash);
        free(path);
    }
    folder_steps_release(&l);
}

/* abandoned-<step>-<number> */
static bool is_branch(const char *name)
{
    static const char prefix[] = "abandoned-";
    if (strncmp(name, prefix, sizeof prefix - 1)) return false;
    const char *step = name + sizeof prefix - 1, *dash = step + strspn(step, digits);
    return dash > step && *dash == '-' && dash[1] && !dash[1 + strspn(dash + 1, digits)];
}

/* The first abandoned-<step>-<number> that does not exist yet. */
static void name_branch(const char *folder, int64_t step, struct text *path)
{
    for (int number = 1;; number++) {
        text_clear(path);
        text_addf(path, "%s/abandoned-%lld-%d", folder, (long long)step, number);
        if (!file_exists(path->data)) return;
    }
}

/* The target of a relative symbolic link, seen from a folder next to it; else empty. */
static void find_link_target(const char *path, struct text *target)
{
    char link[PATH_MAX];
    ssize_t len = readlink(path, link, sizeof link);
    if (len > 0 && len < (ssize_t)sizeof link && link[0] != '/')
        text_addf(target, "../%.*s", (int)len, link);
}

static enum status move_step(const char *folder, int64_t step, const char *branch)
{
    char *from = folder_step_path(folder, step), *to = folder_step_path(branch, step);
    struct text target = {0};
    enum status st = STATUS_OK;
    find_link_target(from, &target);
    if (!target.len) {
        TRY_OUT(file_rename(from, to));
        goto out;
    }
    if (symlink(target.data, to)) FAIL_OUT(IO, "%s: symlink: %s", to, strerror(errno));
    TRY_OUT(file_sync_dir(branch)); /* a power loss must not lose both */
    if (unlink(from)) FAIL_OUT(IO, "%s: unlink: %s", from, strerror(errno));
out:
    text_release(&target);
    free(from), free(to);
    return st;
}

static void copy_into(const char *branch, const char *file)
{
    char *to = file_join(branch, file_name(file));
    struct text bytes = {0};
    if (file_exists(file) &&
        (file_read(file, UINT64_MAX, &bytes) || file_write(to, bytes.data, bytes.len)))
        log_line(LOG_WARN, "cannot copy %s to %s: %s", file, branch, status_message());
    text_release(&bytes);
    free(to);
}

enum status folder_abandon(const char *folder, int64_t step, const char *keep, struct text *branch)
{
    struct folder_steps l;
    enum status st = STATUS_OK;
    text_clear(branch);
    TRY(folder_steps_read(&l, folder));
    if (!l.count || l.steps[l.count - 1] <= step) goto out;
    name_branch(folder, step, branch);
    TRY_OUT(file_make_dirs(branch->data));
    if (keep) copy_into(branch->data, keep);
    for (size_t i = 0; i < l.count; i++)
        if (l.steps[i] > step) TRY_OUT(move_step(folder, l.steps[i], branch->data));
    TRY_OUT(file_sync_dir(branch->data));
    TRY_OUT(file_sync_dir(folder));
out:
    folder_steps_release(&l);
    return st;
}

/* The paths of all such folders; none if `folder` is missing. */
static enum status list_branches(struct file_list *l, const char *folder)
{
    enum file_kind kind;
    size_t count = 0;
    *l = (struct file_list){0};
    TRY(file_find(folder, &kind));
    if (kind != FILE_FOLDER) return STATUS_OK;
    TRY(file_list_dir(l, folder));
    for (size_t i = 0; i < l->count; i++) {
        char *name = l->paths[i];
        if (is_branch(name)) l->paths[count++] = file_join(folder, name);
        free(name);
    }
    l->count = count;
    return STATUS_OK;
}

enum status folder_has_abandoned(const char *folder, bool *has)
{
    struct file_list branches;
    size_t count = 0;
    enum status st = STATUS_OK;
    *has = false;
    TRY(list_branches(&branches, folder));
    for (size_t i = 0; i < branches.count && !st && !count; i++)
        st = folder_steps_count(branches.paths[i], &count);
    *has = count > 0;
    file_list_release(&branches);
    return st;
}

uint64_t folder_step_bytes(const char *folder, int64_t step)
{
    struct file_list names;
    uint64_t bytes = 0;
    char *path = folder_step_path(folder, step);
    if (!file_list_dir(&names, path)) {
        for (size_t i = 0; i < names.count; i++) {
            struct stat s;
            char *file = file_join(path, names.paths[i]);
            if (!lstat(file, &s) && S_ISREG(s.st_mode)) bytes += (uint64_t)s.st_size;
            free(file);
        }
        file_list_release(&names);
    }
    free(path);
    return bytes;
}

double folder_abandoned_bytes(const char *folder)
{
    struct file_list branches;
    struct folder_steps l;
    double bytes = 0;
    if (list_branches(&branches, folder)) return 0;
    for (size_t i = 0; i < branches.count; i++) {
        if (folder_steps_read(&l, branches.paths[i])) continue;
        for (size_t k = 0; k < l.count; k++)
            bytes += (double)folder_step_bytes(branches.paths[i], l.steps[k]);
        folder_steps_release(&l);
    }
    file_list_release(&branches);
    return bytes;
}
