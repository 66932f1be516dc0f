/* terminal.h -- the terminal of this process: its size, raw mode and the alternate screen.
 *
 * Raw mode and the alternate screen end with the process: on return from main, at exit, and when a
 * signal ends it (INT, TERM, HUP, QUIT, PIPE and those of crashes); SIGKILL excepted.  Ctrl-Z or
 * SIGTSTP restores the terminal, and SIGCONT enters both again.  The handlers are those of the
 * system outside raw mode; a signal that is ignored, or that the program handles, is left alone.
 * Threads  One thread calls these functions. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>

struct terminal_size {
    int rows, columns; /* 0: unknown */
};

bool terminal_is(int fd);    /* whether that is a terminal */
bool terminal_is_dumb(void); /* TERM is unset, empty or "dumb": it knows no escape sequences */
struct terminal_size terminal_size(int fd);

/* Raw mode of the terminal on stdin: keys arrive at once, without echo, Ctrl-C and Ctrl-Z as the
 * bytes 3 and 26.  Output is processed as before.  USAGE: stdin is not a terminal; IO: the
 * system rejects it.  Call terminal_leave_raw after success only, or not at all. */
enum status terminal_enter_raw(void);
void terminal_leave_raw(void);
bool terminal_is_raw(void);

/* The alternate screen on stdout, with a hidden cursor, within raw mode.  Leaving raw mode leaves
 * it, too. */
void terminal_enter_screen(void);
void terminal_leave_screen(void);

/* Stops the process as Ctrl-Z does in other programs; returns once it continues. */
void terminal_suspend(void);
/* True once after the size has changed, or the process has continued: redraw. */
bool terminal_has_changed(void);

/* Waits for a byte of stdin.  Returns it, or TERMINAL_NONE if none arrives in `seconds` (< 0: no
 * limit), a signal interrupts, or terminal_has_changed would be true, or TERMINAL_END at the end of
 * the input. */
enum { TERMINAL_NONE = -1, TERMINAL_END = -2 };
int terminal_read_byte(double seconds);
