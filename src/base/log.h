/* log.h -- messages for people, on stderr and in a run's log.txt.
 *
 * The process has one log.  Results that scripts read go to stdout instead.  Each line is written
 * at once, so any thread may log at any time.  A log that cannot be written, on a full disk or to a
 * closed pipe, is no failure: stderr and log.txt each get a warning about the other, and log.txt
 * gets the late lines once it can be written (append_file.h). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/append_file.h"
#include "base/status.h"

#include <stdbool.h>

enum log_level { LOG_INFO, LOG_WARN, LOG_ERROR };

/* Prefixes warnings and errors with "rank R on HOST: "; -1: no prefix. */
void log_set_rank(int rank);
int log_rank(void);             /* as set; -1: none */
void log_set_quiet(bool quiet); /* keeps INFO lines off stderr; log.txt still gets them */
/* Also appends every line to `path`, with date and time and without colors; NULL closes the file.
 * IO: it cannot be opened. */
enum status log_open(const char *path);
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Warns about a rank, maybe another one: "rank R on HOST " and the message, without prefix. */
void log_rank_warning(int rank, const char *host, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Logs an INFO line; a terminal too narrow for it gets the short form. */
void log_line_fitting(const char *line, const char *brief);
/* Draws a line on the terminal that stays below the lines that are logged; NULL: clears it.  A
 * no-op unless log_shows_status: stderr is a terminal that knows escapes, and not quiet. */
void log_status(const char *line);
bool log_shows_status(void);
/* Logs this thread's last failure, unless it has been reported already. */
void log_failure(enum status s);

/* append_file_write with a warning when writing begins to fail. */
void log_append(struct append_file *f, const void *record, size_t len);
/* If what is late can be written now, does so, logs it, and returns how many records are lost
 * before the next one. */
size_t log_catch_up(struct append_file *f);
/* The same at the end, with a warning if records are lost; closes the file. */
void log_close_file(struct append_file *f);

/* Whether lines on stderr are colored (color.h). */
bool log_color(void);
