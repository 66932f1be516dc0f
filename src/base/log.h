/* log.h -- lines for people, on stderr and in a run's log.txt.
 *
 * The one log of the process; results that scripts read go to stdout and never through here.
 * Lines are written whole, so threads may log at any time. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>

enum log_level { LOG_INFO, LOG_WARN, LOG_ERROR };

void log_rank(int rank); /* of a run of several: warnings and errors say so, and on which host; -1:
                            they do not */
void log_quiet(bool quiet); /* keeps INFO lines off stderr; log.txt still gets them */
/* Appends every further line, with date and time and without colours, to `path` too.  NULL closes
 * it. */
enum status log_open(const char *path);
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Tells the user of this thread's last failure, once. */
void log_failure(enum status s);

/* Is stderr a terminal that wants colour (and NO_COLOR unset)? */
bool log_colour(void);
