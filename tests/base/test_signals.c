// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/signals.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* In a child process, as a pending signal cannot be reset. */
TEST(first_signal_is_pending_and_second_ends_the_process)
{
    int code;
    pid_t child = fork();
    if (child == 0) {
        signals_catch();
        if (signals_pending()) _exit(1);
        raise(SIGTERM);
        if (signals_pending() != SIGTERM || strcmp(signals_name(SIGTERM), "TERM")) _exit(2);
        raise(SIGTERM);
        _exit(3);
    }
    CHECK(waitpid(child, &code, 0) == child);
    CHECK(WIFSIGNALED(code) && WTERMSIG(code) == SIGTERM);
}
