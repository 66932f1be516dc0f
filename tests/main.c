// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "comm/launched.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static struct CMUnitTest *tests;
static const char **files;
static char scratch[64], **paths;
static size_t num_tests, num_paths;

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

int main(int argc, char **argv)
{
    size_t chosen = 0;
    if (argc == 3 && !strcmp(argv[1], "--ranks")) return launched_main(argv[2]);
    for (size_t i = 0; i < num_tests; i++)
        if (argc < 2 || strstr(tests[i].name, argv[1]) || strstr(files[i], argv[1]))
            tests[chosen++] = tests[i];
    snprintf(scratch, sizeof scratch, "/tmp/llamero-test-%ld", (long)getpid());
    int failed = _cmocka_run_group_tests("llamero", tests, chosen, NULL, NULL);
    file_remove_tree(scratch);
    for (size_t i = 0; i < num_paths; i++) free(paths[i]);
    free(paths);
    free(files);
    free(tests);
    printf("%zu passed, %d failed\n", chosen - (size_t)failed, failed);
    return failed || !chosen;
}
