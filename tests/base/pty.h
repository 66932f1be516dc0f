/* pty.h -- runs a function or a program on a terminal of its own, as its session's foreground job,
 * so that Ctrl-C, Ctrl-Z and the terminal's mode are those of a real one. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

#include <stdbool.h>
#include <sys/types.h>

struct pty {
    int fd;       /* the terminal's other end */
    pid_t leader; /* parent of the job, as a shell would be */
    pid_t job;
    struct text seen; /* what was printed so far */
};

/* Starts body(argument), whose result is the job's exit code, or a program; 24 x 80. */
void pty_start(struct pty *p, int (*body)(void *), void *argument);
void pty_start_program(struct pty *p, const char *const *argv);
void pty_type(const struct pty *p, const char *keys);
/* Reads until the job has printed `text` after the first `from` bytes; false: it ended, or a minute
 * passed. */
bool pty_shows(struct pty *p, size_t from, const char *text);
/* Waits until the terminal is in raw mode, or is not; false: a minute passed. */
bool pty_becomes_raw(struct pty *p, bool raw);
bool pty_is_stopped(struct pty *p); /* waits for it, likewise */
/* Waits for the end; the exit code, or 128 + the signal.  Keeps `seen`, which the caller releases,
 * and sets *raw to whether the terminal was left in raw mode. */
int pty_finish(struct pty *p, bool *raw);
