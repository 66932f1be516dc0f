// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/folder.h"

#include "base/log.h"
#include "checkpoint/rig.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *make_folder(const char *folder, const char *name)
{
    const char *path = test_path(folder, name);
    CHECK_STATUS(OK, file_make_dirs(path));
    CHECK_STATUS(OK, file_write(test_path(path, "x"), name, strlen(name)));
    return path;
}

TEST(folder_of_a_run_is_that_of_its_configuration)
{
    static const char *const cases[][2] = {
        {"[checkpoint]\nfolder = \"saved\"\n", "saved"},
        {"[checkpoint]\nfolder = \"/big/saved\"\n", "/big/saved"},
        {"[checkpoint]\nfolder = \"\"\n", "checkpoint"},
        {"[checkpoint]\nfolder = 3\n", "checkpoint"},
        {"checkpoint = \"saved\"\n", "checkpoint"},
        {"[job]\n", "checkpoint"},
        {"= not TOML", "checkpoint"},
    };
    const char *run = test_folder();
    for (size_t i = 0; i <= sizeof cases / sizeof *cases; i++) {
        const char *expected = i ? cases[i - 1][1] : "checkpoint"; /* first without a file */
        if (i)
            CHECK_STATUS(OK, file_write(test_path(run, "config.toml"), cases[i - 1][0],
                                        strlen(cases[i - 1][0])));
        char *folder = folder_of_run(run);
        CHECK(!strcmp(folder, *expected == '/' ? expected : test_path(run, expected)));
        free(folder);
    }
}

/* What folder_of_run logs. */
static struct text log_of(const char *run)
{
    struct text text = {0};
    const char *log = test_path(test_folder(), "log.txt");
    CHECK_STATUS(OK, log_open(log));
    free(folder_of_run(run));
    CHECK_STATUS(OK, log_open(NULL));
    CHECK_STATUS(OK, file_read(log, 1 << 20, &text));
    return text;
}

TEST(a_configuration_that_cannot_be_read_is_warned_of_but_not_one_that_is_missing)
{
    const char *run = test_folder(), *toml = test_path(run, "config.toml");
    struct text quiet = log_of(run), folder, wrong;
    CHECK(!quiet.len);
    CHECK_STATUS(OK, file_make_dirs(toml));
    folder = log_of(run);
    CHECK(strstr(folder.data, "config.toml: is a folder"));
    CHECK_STATUS(OK, file_remove_tree(toml));
    CHECK_STATUS(OK, file_write(toml, "= not TOML", 10));
    wrong = log_of(run);
    CHECK(strstr(wrong.data, "assuming checkpoint.folder = \"checkpoint\": "));
    CHECK(strstr(wrong.data, "config.toml:1:1"));
    text_release(&quiet);
    quiet = log_of(toml); /* a file, below which there is no configuration */
    CHECK(!quiet.len);
    text_release(&quiet), text_release(&folder), text_release(&wrong);
}

TEST(only_steps_are_listed_in_ascending_order)
{
    static const char *const names[] = {"step-10",
                                        "step-9",
                                        "step-100",
                                        "step-",
                                        "step-5.tmp",
                                        "step-5-ok",
                                        "xstep-5",
                                        "step-1x",
                                        "step--5",
                                        "Step-5",
                                        "step-99999999999999999999"};
    struct folder_steps l;
    const char *folder = test_folder();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) make_folder(folder, names[i]);
    CHECK_STATUS(OK, folder_steps_read(&l, folder));
    CHECK(l.count == 3 && l.steps[0] == 9 && l.steps[1] == 10 && l.steps[2] == 100);
    folder_steps_release(&l);
    CHECK_STATUS(OK, folder_steps_read(&l, test_path(folder, "none")));
    CHECK(l.count == 0);
    folder_steps_release(&l);
}

TEST(locking_deletes_leftovers_and_nothing_else)
{
    static const char *const ours[] = {"step-5.tmp", ".trash-4-123"};
    enum { NUM_OURS = sizeof ours / sizeof *ours };
    static const char *const others[] = {"step-6",    "step-best.tmp", ".trash-can", "step-.tmp",
                                         "notes.tmp", ".trash-4-1x",   ".trash-4",   "step-7.tmp2"};
    const char *folder = test_path(test_folder(), "a/b/checkpoint");
    int lock, second;
    CHECK_STATUS(OK, file_make_dirs(folder));
    for (size_t i = 0; i < NUM_OURS; i++) make_folder(folder, ours[i]);
    for (size_t i = 0; i < 8; i++) make_folder(folder, others[i]);
    CHECK_STATUS(OK, folder_lock(folder, &lock));
    for (size_t i = 0; i < NUM_OURS; i++) CHECK(!has_file(folder, ours[i]));
    for (size_t i = 0; i < 8; i++) CHECK(has_file(folder, others[i]));
    /* Without the lock nothing is deleted: leftovers may be the other run's current save. */
    make_folder(folder, ours[0]);
    CHECK_STATUS(CONFIG, folder_lock(folder, &second));
    CHECK(second == -1 && has_file(folder, ours[0]));
    folder_unlock(lock);
    CHECK_STATUS(OK, folder_lock(folder, &second));
    folder_unlock(second);
}

static void *unlock_later(void *lock)
{
    nanosleep(&(struct timespec){0, 500000000}, NULL);
    folder_unlock(*(int *)lock);
    return NULL;
}

TEST(locking_waits_for_a_killed_run_to_end)
{
    const char *folder = test_path(test_folder(), "checkpoint");
    int lock, second;
    pthread_t other;
    CHECK_STATUS(OK, folder_lock(folder, &lock));
    CHECK(pthread_create(&other, NULL, unlock_later, &lock) == 0);
    CHECK_STATUS(OK, folder_lock(folder, &second));
    CHECK(pthread_join(other, NULL) == 0);
    folder_unlock(second);
}

TEST(folder_that_cannot_be_created_is_not_locked)
{
    int lock;
    const char *file = test_path(test_folder(), "file");
    CHECK_STATUS(OK, file_write(file, "x", 1));
    CHECK_STATUS(IO, folder_lock(test_path(file, "checkpoint"), &lock));
    CHECK(lock == -1);
}

TEST(leftover_symlink_is_deleted_but_not_its_target)
{
    int lock;
    const char *root = test_folder(), *folder = test_path(root, "checkpoint");
    const char *precious = make_folder(root, "precious");
    CHECK_STATUS(OK, file_make_dirs(folder));
    CHECK(symlink(precious, test_path(folder, "step-3.tmp")) == 0);
    CHECK_STATUS(OK, folder_lock(folder, &lock));
    CHECK(!has_file(folder, "step-3.tmp") && has_file(precious, "x"));
    folder_unlock(lock);
}

static void check_file(const char *path, const char *want)
{
    struct text t = {0};
    CHECK_STATUS(OK, file_read(path, 100, &t));
    CHECK(!strcmp(t.data, want));
    text_release(&t);
}

TEST(commit_renames_and_replaces)
{
    const char *folder = test_folder();
    const char *step = test_path(folder, "step-8");
    CHECK_STATUS(OK, folder_commit(folder, make_folder(folder, "step-8.tmp"), 8));
    check_file(test_path(step, "x"), "step-8.tmp");
    const char *again = make_folder(folder, "again");
    CHECK_STATUS(OK, folder_commit(folder, again, 8));
    check_file(test_path(step, "x"), "again");
    CHECK(!has_file(folder, "again") && !has_file(folder, "step-8.tmp"));
    CHECK_STATUS(IO, folder_commit(folder, test_path(folder, "none"), 9));
    CHECK(!has_file(folder, "step-9") && has_file(step, "x"));
}

TEST(failed_replacement_leaves_the_checkpoint_that_was_there)
{
    const char *folder = test_folder();
    const char *step = make_folder(folder, "step-8");
    /* A folder is not exchanged with one inside it, whose path ends when the outer one moves. */
    CHECK_STATUS(IO, folder_commit(folder, make_folder(step, "new"), 8));
    CHECK(has_file(step, "x") && has_file(step, "new/x"));
}

/* Makes renameat2 fail in this process, as on a file system that cannot exchange folders. */
static bool forbid_exchange(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof code / sizeof *code, code};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
           !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* Commits step 8 in a child that cannot open the folder, and so not fsync it; -1: it could not be
 * set up. */
static int commit_without_sync(const char *folder, const char *temporary, bool exchanges)
{
    struct __user_cap_header_struct version = {.version = _LINUX_CAPABILITY_VERSION_3};
    const struct __user_cap_data_struct none[2] = {{0}};
    enum { NOT_SET_UP = 255 };
    int status;
    CHECK(!chmod(folder, 0300));
    pid_t child = fork();
    if (!child) {
        bool is_set_up = !syscall(SYS_capset, &version, none) && (exchanges || forbid_exchange());
        _exit(is_set_up ? (int)folder_commit(folder, temporary, 8) : NOT_SET_UP);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    CHECK(!chmod(folder, 0700));
    return WEXITSTATUS(status) == NOT_SET_UP ? -1 : WEXITSTATUS(status);
}

TEST(a_commit_that_is_not_durable_puts_the_replaced_checkpoint_back)
{
    for (int exchanges = 0; exchanges < 2; exchanges++) {
        const char *folder = test_folder();
        const char *step = make_folder(folder, "step-8"), *new = make_folder(folder, "step-8.tmp");
        int st = commit_without_sync(folder, new, exchanges);
        if (st < 0) continue; /* a sandbox without seccomp */
        CHECK(st == STATUS_IO);
        check_file(test_path(step, "x"), "step-8");
        check_file(test_path(new, "x"), "step-8.tmp");
        struct file_list l;
        CHECK_STATUS(OK, file_list_dir(&l, folder));
        CHECK(l.count == 2);
        file_list_release(&l);
    }
}

TEST(locking_puts_back_a_checkpoint_whose_replacement_was_cut_short)
{
    const char *folder = test_folder();
    int lock;
    make_folder(folder, ".replaced-5-123"), make_folder(folder, "step-5.tmp");
    make_folder(folder, ".replaced-6-123"), make_folder(folder, "step-6");
    CHECK_STATUS(OK, folder_lock(folder, &lock));
    check_file(test_path(folder, "step-5/x"), ".replaced-5-123");
    check_file(test_path(folder, "step-6/x"), "step-6");
    CHECK(!has_file(folder, ".replaced-6-123") && !has_file(folder, "step-5.tmp"));
    folder_unlock(lock);
}

TEST(retention_deletes_the_oldest_and_never_the_last_written)
{
    const char *folder = test_folder();
    static const char *const names[] = {"step-1", "step-2", "step-3", "step-10", "step-20"};
    for (size_t i = 0; i < 5; i++) make_folder(folder, names[i]);
    folder_retain(folder, 0, 20, -1, 0);
    CHECK(has_file(folder, "step-1"));
    folder_retain(folder, 9, 20, -1, 0);
    CHECK(has_file(folder, "step-1"));
    folder_retain(folder, 3, 20, -1, 0);
    CHECK(!has_file(folder, "step-1") && !has_file(folder, "step-2") && has_file(folder, "step-3"));
    folder_retain(folder, 1, 3, -1, 0); /* written after resuming from an older one */
    CHECK(has_file(folder, "step-3") && !has_file(folder, "step-10") &&
          has_file(folder, "step-20"));
    /* DCP is someone else's. */
    CHECK_STATUS(OK, file_write(test_path(folder, "step-3/.metadata"), "x", 1));
    folder_retain(folder, 1, 20, -1, 0);
    CHECK(has_file(folder, "step-3"));
    struct file_list l;
    CHECK_STATUS(OK, file_list_dir(&l, folder));
    CHECK(l.count == 2); /* no trash is left */
    file_list_release(&l);
}

TEST(retention_spares_the_checkpoint_that_is_being_copied)
{
    const char *folder = test_folder();
    static const char *const names[] = {"step-1", "step-2", "step-3", "step-4"};
    for (size_t i = 0; i < 4; i++) make_folder(folder, names[i]);
    folder_retain(folder, 2, 4, 1, 0);
    CHECK(has_file(folder, "step-1") && !has_file(folder, "step-2"));
    CHECK(has_file(folder, "step-3") && has_file(folder, "step-4"));
}

TEST(retention_spares_the_newest_checkpoint_before_a_step)
{
    const char *folder = test_folder();
    static const char *const names[] = {"step-1", "step-2", "step-3", "step-4", "step-5"};
    for (size_t i = 0; i < 5; i++) make_folder(folder, names[i]);
    folder_retain(folder, 2, 5, -1, 3);
    CHECK(!has_file(folder, "step-1") && has_file(folder, "step-2"));
    CHECK(!has_file(folder, "step-3") && has_file(folder, "step-4") && has_file(folder, "step-5"));
}

static const char *folder_with(const int *steps, size_t count)
{
    const char *folder = test_folder();
    for (size_t i = 0; i < count; i++) {
        char *path = folder_step_path(folder, steps[i]);
        CHECK_STATUS(OK, file_make_dirs(path));
        free(path);
    }
    return folder;
}

TEST(later_checkpoints_are_moved_to_a_branch_of_their_own)
{
    const char *folder = folder_with((const int[]){2, 4, 6, 10}, 4);
    struct text branch = {0};
    CHECK_STATUS(OK, folder_abandon(folder, 4, NULL, &branch));
    CHECK(file_has_suffix(branch.data, "/abandoned-4-1"));
    CHECK(has_file(branch.data, "step-6") && has_file(branch.data, "step-10"));
    CHECK(has_file(folder, "step-2") && has_file(folder, "step-4"));
    CHECK(!has_file(folder, "step-6") && !has_file(folder, "step-10"));
    CHECK_STATUS(OK, folder_abandon(folder, 4, NULL, &branch));
    CHECK(!branch.len); /* nothing is left to move */
    CHECK_STATUS(OK, folder_abandon(folder, 2, NULL, &branch));
    CHECK(file_has_suffix(branch.data, "/abandoned-2-1"));
    CHECK_STATUS(OK, file_make_dirs(test_path(folder, "step-8")));
    CHECK_STATUS(OK, folder_abandon(folder, 2, NULL, &branch));
    CHECK(file_has_suffix(branch.data, "/abandoned-2-2"));
    text_release(&branch);
}

/* The step of step-0004, a user's folder, has no path: as a kill would, that ends the move. */
TEST(oldest_checkpoints_are_moved_first)
{
    const char *folder = test_folder();
    struct text branch = {0};
    make_folder(folder, "step-2"), make_folder(folder, "step-0004"), make_folder(folder, "step-6");
    const char *metrics = test_path(folder, "metrics.jsonl");
    CHECK_STATUS(OK, file_write(metrics, "x", 1));
    CHECK_STATUS(IO, folder_abandon(folder, 0, metrics, &branch));
    CHECK_MESSAGE("step-4: rename to ");
    CHECK(has_file(branch.data, "step-2") && has_file(folder, "step-6"));
    CHECK(has_file(branch.data, "metrics.jsonl")); /* before any is moved */
    text_release(&branch);
}

TEST(links_to_checkpoints_lead_to_them_after_a_move)
{
    const char *root = test_folder(), *folder = test_path(root, "checkpoint");
    const char *absolute = make_folder(root, "a");
    struct text branch = {0};
    CHECK_STATUS(OK, file_make_dirs(folder));
    make_folder(root, "r");
    CHECK(!symlink(absolute, test_path(folder, "step-4")));
    CHECK(!symlink("../r", test_path(folder, "step-5")));
    CHECK_STATUS(OK, folder_abandon(folder, 0, NULL, &branch));
    CHECK(has_file(branch.data, "step-4/x") && has_file(branch.data, "step-5/x"));
    CHECK(!has_file(folder, "step-4") && !has_file(folder, "step-5"));
    text_release(&branch);
}

TEST(folder_knows_of_steps_that_were_set_aside)
{
    static const char *const others[] = {"abandoned-4-1", "abandoned-4", "abandoned-x-1",
                                         "my-abandoned-4-1"};
    const char *folder = test_folder();
    bool has = true;
    CHECK_STATUS(OK, folder_has_abandoned(test_path(folder, "none"), &has));
    CHECK(!has);
    CHECK_STATUS(OK, file_make_dirs(test_path(folder, others[0]))); /* empty */
    for (size_t i = 1; i < sizeof others / sizeof *others; i++)
        CHECK_STATUS(OK, file_make_dirs(test_path(test_path(folder, others[i]), "step-6")));
    CHECK_STATUS(OK, folder_has_abandoned(folder, &has));
    CHECK(!has);
    CHECK_STATUS(OK, file_make_dirs(test_path(folder, "abandoned-4-1/step-6")));
    CHECK_STATUS(OK, folder_has_abandoned(folder, &has));
    CHECK(has);
}

static const char *make_temporary(const char *folder, const char *name, pid_t pid)
{
    char full[64];
    snprintf(full, sizeof full, "%s.tmp-%ld", name, (long)pid);
    const char *path = test_path(folder, full);
    CHECK_STATUS(OK, file_write(path, "x", 1));
    return path;
}

TEST(locking_deletes_temporary_files_of_dead_processes_but_no_folder)
{
    const char *dump = test_folder(), *folder = test_path(dump, "checkpoint");
    int lock, status;
    CHECK_STATUS(OK, file_make_dirs(folder));
    const char *of_user = make_folder(dump, "x.tmp-12"), *here = make_folder(folder, "y.tmp-12");
    pid_t dead = fork();
    if (!dead) _exit(0);
    CHECK(dead > 0 && waitpid(dead, &status, 0) == dead);
    const char *stale = make_temporary(dump, "config.toml", dead);
    const char *record = make_temporary(folder, "rewind.json", dead);
    const char *own = make_temporary(dump, "config.toml", getpid()); /* the PID was reused */
    const char *live = make_temporary(dump, "notes", getppid());
    CHECK(symlink(folder, test_path(dump, "link.tmp-12")) == 0);
    CHECK_STATUS(OK, folder_lock(folder, &lock));
    folder_unlock(lock);
    CHECK(!file_exists(stale) && !file_exists(record) && !file_exists(own));
    CHECK(file_exists(live) && has_file(dump, "link.tmp-12"));
    CHECK(has_file(of_user, "x") && has_file(here, "x"));
}
