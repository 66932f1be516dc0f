/* death_test.h -- runs code that must kill the process, in a child. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* run(context) dies of the signal and prints `message`, unless that is NULL. */
static inline void check_dies(int signal_number, const char *message, void (*run)(void *),
                              void *context)
{
    int out[2], code;
    char text[1024];
    CHECK(pipe(out) == 0);
    pid_t child = fork();
    if (child == 0) {
        signal(signal_number, SIG_DFL);
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
    if (!WIFSIGNALED(code) || WTERMSIG(code) != signal_number ||
        (message && !strstr(text, message)))
        fail_msg("expected signal %d and \"%s\", got status %d and: %s", signal_number,
                 message ? message : "", code, text);
}
