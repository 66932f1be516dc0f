/* ends.h -- tests of what ends the program, in a child. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* run(context) ends by that signal, and says `words`, which may be NULL. */
static inline void check_ends(int by, const char *words, void (*run)(void *), void *context)
{
    int out[2], code;
    char text[1024];
    CHECK(pipe(out) == 0);
    pid_t child = fork();
    if (child == 0) {
        signal(by, SIG_DFL);
        dup2(out[1], STDERR_FILENO);
        run(context);
        _exit(0);
    }
    close(out[1]);
    size_t used = 0;
    for (ssize_t n; (n = read(out[0], text + used, sizeof text - 1 - used)) > 0;) used += (size_t)n;
    text[used] = '\0';
    close(out[0]);
    CHECK(child > 0 && waitpid(child, &code, 0) == child);
    if (!WIFSIGNALED(code) || WTERMSIG(code) != by || (words && !strstr(text, words)))
        fail_msg("wanted signal %d and \"%s\", got code %d and: %s", by, words ? words : "", code,
                 text);
}
