// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

/* Whole runs in which a thread or a process stops in the middle of training. */

/* A run in a process of its own, which has a launcher as its child if there are several ranks. */
struct endless_run {
    const char *folder;
    pid_t process;
};
enum { NO_LAUNCHER = 255 }; /* its exit code then */

static void start(struct endless_run *r, int ranks)
{
    char settings[256];
    r->folder = test_folder();
    runs_write_corpus(test_path(r->folder, "corpus.txt"), 60000);
    runs_write_config(test_path(r->folder, "run.toml"), test_path(r->folder, "corpus.txt"));
    snprintf(settings, sizeof settings,
             "training.steps=100000000 device.threads=1 checkpoint.enable=false "
             "training.mixed_precision_param=float32 comm.train_timeout_seconds=4 "
             "comm.init_timeout_seconds=60"); /* it may stop while it writes metrics */
    r->process = fork();
    CHECK(r->process >= 0);
    if (r->process) return;
    struct text err = {0};
    /* LeakSanitizer would stop all threads, and so wait for the frozen one. */
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
    int code = runs_train_ranks(ranks, test_path(r->folder, "run.toml"),
                                test_path(r->folder, "out"), settings, &err);
    if (err.len) file_write(test_path(r->folder, "err"), err.data, err.len);
    _exit(code < 0 ? NO_LAUNCHER : code);
}

/* Waits until the run has trained some steps.  Skips the test without a launcher. */
static void wait_for_training(const struct endless_run *r, int ranks)
{
    int status;
    const char *path = test_path(r->folder, "out/metrics.jsonl");
    uint64_t size = 0;
    while (size < 2000) {
        if (waitpid(r->process, &status, WNOHANG)) {
            int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
            if (ranks > 1 && code == NO_LAUNCHER) skip();
            fail_msg("the run ended with exit code %d before it hung", code);
        }
        if (file_exists(path)) CHECK_STATUS(OK, file_size(path, &size));
        poll(NULL, 0, 20);
    }
}

static void read_small(const char *path, char *out, size_t size)
{
    FILE *f = fopen(path, "re");
    size_t len = f ? fread(out, 1, size - 1, f) : 0;
    out[len] = 0;
    if (f) fclose(f);
}

static pid_t parent_of(pid_t pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    read_small(path, text, sizeof text);
    const char *after_name = strrchr(text, ')');
    return after_name ? (pid_t)atoi(after_name + 4) : 0;
}

/* The last process below `root` that runs the program: the last rank that was started. */
static pid_t find_rank(pid_t root)
{
    DIR *all = opendir("/proc");
    pid_t found = 0;
    CHECK(all);
    for (struct dirent *e; (e = readdir(all));) {
        char path[300], name[64];
        pid_t pid = atoi(e->d_name), above = pid;
        snprintf(path, sizeof path, "/proc/%s/comm", e->d_name);
        if (!pid) continue;
        read_small(path, name, sizeof name);
        while (above > 1 && above != root) above = parent_of(above);
        if (above == root && !strcmp(name, "llamero\n") && pid > found) found = pid;
    }
    closedir(all);
    CHECK(found);
    return found;
}

/* The thread that prefetches rows: of the background threads the only one. */
static pid_t find_background_thread(pid_t pid)
{
    enum { NICE = 16, BACKGROUND = 10 };
    char path[300], text[512];
    pid_t found = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *all = opendir(path);
    CHECK(all);
    for (struct dirent *e; (e = readdir(all));) {
        snprintf(path, sizeof path, "/proc/%d/task/%s/stat", (int)pid, e->d_name);
        read_small(path, text, sizeof text);
        const char *at = strrchr(text, ')');
        for (int i = 0; at && i <= NICE; i++) at = strchr(at + 1, ' ');
        if (at && atoi(at) == BACKGROUND) found = atoi(e->d_name);
    }
    closedir(all);
    CHECK(found);
    return found;
}

/* Stops one thread, as a debugger does.  False: not permitted. */
static bool freeze(pid_t thread)
{
    if (ptrace(PTRACE_SEIZE, thread, NULL, NULL)) return false;
    CHECK(!ptrace(PTRACE_INTERRUPT, thread, NULL, NULL));
    return true;
}

/* Waits for the run, and for the traced thread before its parent can; returns the exit code. */
static int finish(struct endless_run *r, struct text *err)
{
    int status = 0;
    for (pid_t ended = 0; ended != r->process;) {
        ended = waitpid(-1, &status, __WALL);
        CHECK(ended > 0);
    }
    CHECK(WIFEXITED(status));
    const char *path = test_path(r->folder, "err");
    if (file_exists(path)) CHECK_STATUS(OK, file_read(path, UINT64_MAX, err));
    return WEXITSTATUS(status);
}

static void check_text(const struct text *err, const char *said)
{
    if (!err->len || !strstr(err->data, said)) print_error("%s: not in\n%s\n", said, err->data);
    CHECK(err->len && strstr(err->data, said));
}

/* A rank's process as messages name it. */
static const char *name_of(pid_t pid)
{
    static char name[64];
    snprintf(name, sizeof name, "(pid %d)", (int)pid);
    return name;
}

enum victim { WORKING_THREAD, DATA_THREAD };

static void check_frozen(int ranks, enum victim victim, const char *said)
{
    struct endless_run r;
    struct text err = {0};
    start(&r, ranks);
    wait_for_training(&r, ranks);
    pid_t pid = find_rank(r.process);
    if (!freeze(victim == WORKING_THREAD ? pid : find_background_thread(pid))) {
        kill(pid, SIGKILL);
        finish(&r, &err);
        skip();
    }
    int code = finish(&r, &err);
    if (code != 82) print_error("exit code %d: %s\n", code, err.data);
    CHECK(code == 82);
    check_text(&err, "the run hangs: no progress for ");
    check_text(&err, name_of(pid));
    check_text(&err, said);
    text_release(&err);
}

TEST(a_frozen_working_thread_ends_the_run)
{
    check_frozen(1, WORKING_THREAD, "): step ");
    check_frozen(2, WORKING_THREAD, " stands out: step ");
}

TEST(an_endless_data_read_ends_the_run)
{
    check_frozen(1, DATA_THREAD, ", reading data");
    check_frozen(2, DATA_THREAD, " stands out: step ");
}

TEST(a_killed_rank_is_named)
{
    struct endless_run r;
    struct text err = {0};
    const char *launcher = getenv("LLAMERO_MPIRUN");
    if (launcher && strstr(launcher, "mpich")) skip(); /* it kills the other ranks at once */
    start(&r, 2);
    wait_for_training(&r, 2);
    pid_t pid = find_rank(r.process);
    kill(pid, SIGKILL);
    CHECK(finish(&r, &err) != 0);
    check_text(&err, name_of(pid));
    check_text(&err, " was killed by SIGKILL at step ");
    text_release(&err);
}
