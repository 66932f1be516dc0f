// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/signals.h"
#include "comm/launched.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static struct CMUnitTest *tests;
static const char **files;
static char scratch[200], **paths;
static size_t num_tests, num_paths, num_failed_files;
struct failed_file {
    const char *file;
    int num;
};
static struct failed_file *failed_files;
static struct text failures; /* the last lines of each failed test, which end the output, too */

void test_register(const char *file, const char *name, void (*run)(void **))
{
    tests = heap_grow(tests, num_tests + 1, sizeof *tests);
    files = heap_grow(files, num_tests + 1, sizeof *files);
    files[num_tests] = file;
    tests[num_tests++] = (struct CMUnitTest){.name = name, .test_func = run};
}

const char *test_folder(void)
{
    char *path = heap(sizeof scratch + 32);
    snprintf(path, sizeof scratch + 32, "%s/%zu", scratch, num_paths);
    paths = heap_grow(paths, num_paths + 1, sizeof *paths);
    paths[num_paths++] = path;
    CHECK_STATUS(OK, file_make_dirs(path));
    return path;
}

const char *test_path(const char *folder, const char *name)
{
    paths = heap_grow(paths, num_paths + 1, sizeof *paths);
    return paths[num_paths++] = file_join(folder, name);
}

void test_require_pty(void)
{
    int fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    const char *name = fd < 0 ? NULL : ptsname(fd);
    bool exists = name && !access(name, R_OK | W_OK);
    if (fd >= 0) close(fd);
    if (exists) return;
    print_message("there are no pseudo-terminals\n");
    skip();
}

void test_flip_bit(void *x, size_t bit)
{
    ((unsigned char *)x)[bit / 8] ^= (unsigned char)(1u << bit % 8);
}

int test_in_child(enum status (*body)(int argument), int argument)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        enum status st = body(argument);
        if (st) fprintf(stderr, "%s\n%s", status_message(), status_stack());
        _exit(st != STATUS_OK);
    }
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

void test_raise(int signal)
{
    const struct timespec ms = {.tv_nsec = 1000000};
    kill(getpid(), signal);
    for (int n = 0; n < 10000 && !signals_pending(); n++) nanosleep(&ms, NULL);
}

/* Reads both pipes to their ends, so that neither can fill up and stop the child. */
static void drain(int from[2], struct text *to[2])
{
    for (int open_ends = 2; open_ends;) {
        struct pollfd p[2] = {{from[0], POLLIN, 0}, {from[1], POLLIN, 0}};
        if (poll(p, 2, -1) < 0) continue;
        for (int i = 0; i < 2; i++) {
            char bytes[4096];
            if (from[i] < 0 || !p[i].revents) continue;
            ssize_t n = read(from[i], bytes, sizeof bytes);
            if (n > 0 && to[i]) text_add(to[i], bytes, (size_t)n);
            if (n > 0) continue;
            close(from[i]);
            from[i] = -1;
            open_ends--;
        }
    }
}

int test_run(const char *const *argv, struct text *out, struct text *err)
{
    int pipes[2][2], code;
    pid_t child;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    for (int i = 0; i < 2; i++) {
        CHECK(pipe2(pipes[i], O_CLOEXEC) == 0);
        posix_spawn_file_actions_adddup2(&actions, pipes[i][1], i + 1);
    }
    int bad =
        posix_spawnp(&child, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    for (int i = 0; i < 2; i++) close(pipes[i][1]);
    struct text *to[2] = {out, err};
    if (out) text_clear(out), text_adds(out, "");
    if (err) text_clear(err), text_adds(err, "");
    drain((int[2]){pipes[0][0], pipes[1][0]}, to);
    CHECK(bad == 0);
    CHECK(waitpid(child, &code, 0) == child);
    return WIFEXITED(code) ? WEXITSTATUS(code) : 128 + WTERMSIG(code);
}

int test_llamero(struct text *out, struct text *err, const char *const *arguments)
{
    const char *argv[64] = {getenv("LLAMERO")};
    if (!argv[0]) argv[0] = "build/llamero";
    for (int i = 0; arguments[i]; i++) {
        CHECK(i < 62);
        argv[i + 1] = arguments[i];
    }
    return test_run(argv, out, err);
}

/* What a process counts; shared with the process that started it. */
struct counts {
    int failed, skipped;
};
static struct counts of_this_process, *counts = &of_this_process;

void test_skip(const char *file, int line)
{
    counts->skipped++;
    _skip(file, line);
    abort(); /* it does not return */
}

/* The folder in which this process makes those of its tests. */
static void set_scratch(pid_t process)
{
    const char *parent = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%s/llamero-test-%ld", parent && *parent ? parent : "/tmp",
             (long)process);
}

/* One file's tests, [from, to), one after the other. */
static int run_file(size_t from, size_t to)
{
    set_scratch(getpid());
    int failed = _cmocka_run_group_tests(files[from], tests + from, to - from, NULL, NULL);
    file_remove_tree(scratch);
    for (size_t i = 0; i < num_paths; i++) free(paths[i]);
    free(paths);
    return failed;
}

static const int stops[] = {SIGHUP, SIGINT, SIGTERM};
enum { NUM_STOPS = sizeof stops / sizeof *stops };
static volatile sig_atomic_t stop_signal;

static void note_stop(int signal) { stop_signal = signal; }

/* A file in a process of its own, which writes into its own file and counts. */
struct worker {
    pid_t child;
    size_t from, to;
    double begin_s;
    FILE *says;
    struct counts *counts; /* shared with the child */
};

static void worker_start(struct worker *w, size_t from, size_t to)
{
    *w = (struct worker){.from = from, .to = to, .begin_s = clock_monotonic_s(), .says = tmpfile()};
    w->counts =
        mmap(NULL, sizeof *w->counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!w->says || w->counts == MAP_FAILED) abort();
    w->counts->failed = (int)(to - from);
    fflush(NULL);
    w->child = fork();
    if (w->child < 0) abort();
    setpgid(w->child, w->child); /* by both, as either may be first */
    if (w->child) return;
    for (size_t i = 0; i < NUM_STOPS; i++) signal(stops[i], SIG_DFL);
    dup2(fileno(w->says), 1);
    dup2(fileno(w->says), 2);
    counts = w->counts;
    w->counts->failed = run_file(from, to);
    exit(w->counts->failed != 0); /* a leak found here makes it another code */
}

static double seconds(struct timeval t) { return (double)t.tv_sec + 1e-6 * (double)t.tv_usec; }

/* Removes what a process that has ended left, if it crashed or was killed. */
static void remove_scratch_of(pid_t process)
{
    set_scratch(process);
    file_remove_tree(scratch);
}

/* Ends by `stop_signal`, after the workers and without their folders. */
static void stop(const struct worker *workers, size_t num)
{
    for (size_t i = 0; i < num; i++) {
        if (!workers[i].child) continue;
        kill(-workers[i].child, SIGKILL); /* with the programs that its tests have started */
        waitpid(workers[i].child, NULL, 0);
        remove_scratch_of(workers[i].child);
    }
    signal(stop_signal, SIG_DFL);
    raise(stop_signal);
}

static void add_failure(const struct text *test)
{
    enum { MAX_LINES = 12 };
    size_t from = test->len;
    for (int lines = 0; from; from--)
        if (test->data[from - 1] == '\n' && ++lines > MAX_LINES) break;
    text_add(&failures, test->data + from, test->len - from);
}

/* Prints what a file's tests said, without the runner's own frame. */
static void print_output(FILE *says, bool has_crashed)
{
    char line[4096];
    struct text test = {0};
    bool is_running = false;
    rewind(says);
    while (fgets(line, sizeof line, says)) {
        if (!strncmp(line, "[==========]", 12) || !strncmp(line, "[  PASSED  ]", 12)) continue;
        fputs(line, stdout);
        if (!strncmp(line, "[ RUN ", 6)) text_clear(&test), is_running = true;
        if (is_running) text_adds(&test, line);
        if (is_running && !strncmp(line, "[  FAILED ", 10)) add_failure(&test), is_running = false;
        if (!strncmp(line, "[       OK ]", 12) || !strncmp(line, "[  SKIPPED", 10))
            is_running = false;
    }
    if (has_crashed && is_running) add_failure(&test);
    text_release(&test);
}

/* Waits for one worker, prints its output, and counts its tests. */
static int worker_end(struct worker *workers, size_t num)
{
    int code, failed;
    size_t at = 0;
    struct rusage used;
    pid_t child = stop_signal ? -1 : wait4(-1, &code, 0, &used);
    if (stop_signal) stop(workers, num);
    while (at < num && workers[at].child != child) at++;
    if (at == num) return 0;
    struct worker *w = &workers[at];
    failed = w->counts->failed;
    bool has_crashed = !WIFEXITED(code) || WEXITSTATUS(code) != (failed != 0);
    print_output(w->says, has_crashed);
    if (failed < (int)(w->to - w->from)) of_this_process.skipped += w->counts->skipped;
    if (has_crashed) {
        printf("%s: ended by %s %d\n", files[w->from], WIFEXITED(code) ? "exit code" : "signal",
               WIFEXITED(code) ? WEXITSTATUS(code) : WTERMSIG(code));
        if (!failed) failed = 1;
    }
    printf("%s: %zu tests in %.1f s, %.1f s of CPU time\n", files[w->from], w->to - w->from,
           clock_monotonic_s() - w->begin_s, seconds(used.ru_utime) + seconds(used.ru_stime));
    if (failed) failed_files = heap_grow(failed_files, num_failed_files + 1, sizeof *failed_files);
    if (failed) failed_files[num_failed_files++] = (struct failed_file){files[w->from], failed};
    fflush(stdout);
    fclose(w->says);
    munmap(w->counts, sizeof *w->counts);
    remove_scratch_of(child);
    w->child = 0;
    return failed;
}

static size_t find_idle(const struct worker *workers, size_t num)
{
    size_t at = 0;
    while (at < num && workers[at].child) at++;
    return at;
}

/* Two files more at once than there are cores, as some tests wait, for up to minutes; the last
 * first: the tests of whole runs take longest. */
static int run_files(size_t num)
{
    const struct sigaction stop_action = {.sa_handler = note_stop}; /* interrupts wait4 */
    struct worker workers[8] = {0};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t max_at_once = sizeof workers / sizeof *workers,
           at_once = cores < 1 ? 2 : (size_t)cores + 2;
    if (at_once > max_at_once) at_once = max_at_once;
    int failed = 0;
    for (size_t to = num, from; to; to = from) {
        for (from = to - 1; from && !strcmp(files[from - 1], files[to - 1]);) from--;
        if (from == 0 && to == num) return run_file(from, to);
        for (size_t i = 0; i < NUM_STOPS; i++) sigaction(stops[i], &stop_action, NULL);
        size_t at;
        while ((at = find_idle(workers, at_once)) == at_once)
            failed += worker_end(workers, at_once);
        worker_start(&workers[at], from, to);
    }
    for (size_t i = 0; i < at_once; i++) failed += worker_end(workers, at_once);
    return failed;
}

/* By words of which the test's name or file contains one, if there are any, and by words after "-",
 * none of which it contains. */
static bool is_chosen(size_t i, char *const *words)
{
    bool any_wanted = false, is_wanted = false;
    for (int w = 0; words[w]; w++) {
        bool leaves_out = words[w][0] == '-';
        const char *word = words[w] + leaves_out;
        bool contains = strstr(tests[i].name, word) || strstr(files[i], word);
        if (contains && leaves_out) return false;
        if (!leaves_out) any_wanted = true, is_wanted |= contains;
    }
    return is_wanted || !any_wanted;
}

int main(int argc, char **argv)
{
    signal(SIGHUP, SIG_DFL); /* tests send it; nohup lets programs ignore it */
    size_t chosen = 0;
    if (argc == 3 && !strcmp(argv[1], "--ranks")) return launched_main(argv[2]);
    if (argc == 4 && !strcmp(argv[1], "--launch")) return launched_start(argv[2], argv[3]);
    for (size_t i = 0; i < num_tests; i++)
        if (is_chosen(i, argv + 1)) {
            tests[chosen] = tests[i];
            files[chosen++] = files[i];
        }
    int failed = run_files(chosen);
    if (failures.len) printf("failed tests, with their last lines:\n%s", failures.data);
    text_release(&failures);
    for (size_t i = 0; i < num_failed_files; i++)
        printf("%s: %d failed\n", failed_files[i].file, failed_files[i].num);
    free(failed_files);
    free(files);
    free(tests);
    int skipped = of_this_process.skipped;
    printf("%zu passed, %d failed", chosen - (size_t)failed - (size_t)skipped, failed);
    if (skipped) printf(", %d skipped", skipped);
    puts("");
    return failed || !chosen;
}
