// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/heap.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(heap_memory_is_zeroed_and_heap_string_copies_a_prefix)
{
    unsigned char *p = heap(300);
    for (int i = 0; i < 300; i++) CHECK(p[i] == 0);
    free(p);
    char *word = heap_string("train CONFIG", 5);
    CHECK(!strcmp(word, "train"));
    word = heap_grow(word, 100, 1);
    CHECK(!strcmp(word, "train"));
    char *copy = heap_strdup(word);
    CHECK(copy != word && !strcmp(copy, "train"));
    free(word), free(copy);
}

TEST(without_memory_the_process_ends_with_a_message_and_exit_code_78)
{
    if (TEST_SLOWED) skip(); /* sanitizers end the process themselves */
    char line[256] = "";
    int ends[2], code;
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (!child) {
        struct rlimit few = {64 << 20, 64 << 20};
        dup2(ends[1], STDERR_FILENO);
        setrlimit(RLIMIT_AS, &few);
        for (size_t bytes = 1;; bytes *= 2) free(heap_grow(NULL, bytes, 1 << 10));
    }
    close(ends[1]);
    CHECK(read(ends[0], line, sizeof line - 1) > 0);
    CHECK(waitpid(child, &code, 0) == child && WIFEXITED(code) && WEXITSTATUS(code) == 78);
    CHECK(strstr(line, "out of memory: ") && strstr(line, "bytes requested"));
    close(ends[0]);
}
