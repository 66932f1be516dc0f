// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The log of the process; only base may have global state. */
static FILE *file;
static _Atomic bool is_quiet; /* atomic, as other threads may be logging */
static _Atomic int own_rank = -1;

void log_set_rank(int rank) { own_rank = rank; }
int log_rank(void) { return own_rank; }

void log_set_quiet(bool quiet) { is_quiet = quiet; }

bool log_color(void)
{
    const char *no = getenv("NO_COLOR");
    return isatty(STDERR_FILENO) && !(no && *no);
}

enum status log_open(const char *path)
{
    if (file) fclose(file);
    file = NULL;
    if (!path) return STATUS_OK;
    file = fopen(path, "ae");
    if (!file) FAIL(IO, "%s: %s", path, strerror(errno));
    return STATUS_OK;
}

/* Removes ANSI escape sequences, "ESC [ ... letter", in place. */
static void strip_colors(char *line)
{
    char *to = line;
    for (const char *at = line; *at;) {
        if (at[0] == '\033' && at[1] == '[') {
            at += 2;
            while (*at && !(*at >= '@' && *at <= '~')) at++;
            at += *at != 0;
        } else {
            *to++ = *at++;
        }
    }
    *to = 0;
}

void log_line(enum log_level level, const char *fmt, ...)
{
    static const char *const prefix[] = {"", "warning: ", "error: "};
    static const char *const color[] = {"", "\033[33m", "\033[31m"};
    char line[4096];
    int rank = own_rank;
    bool named = rank >= 0 && level != LOG_INFO;
    char host[64] = "";
    if (named) gethostname(host, sizeof host - 1);
    int len = named ? snprintf(line, sizeof line, "rank %d on %s: ", rank, host) : 0;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line + len, sizeof line - (size_t)len, fmt, ap);
    va_end(ap);
    if (level != LOG_INFO || !is_quiet) {
        bool paint = level != LOG_INFO && log_color();
        fprintf(stderr, "%s%s%s%s\n", paint ? color[level] : "", prefix[level],
                paint ? "\033[0m" : "", line);
    }
    if (file) {
        char when[32];
        strip_colors(line);
        time_t now = time(NULL);
        struct tm local;
        localtime_r(&now, &local);
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &local);
        fprintf(file, "%s %s%s\n", when, prefix[level], line);
        fflush(file);
    }
}

void log_failure(enum status s)
{
    if (status_is_reported()) return;
    log_line(s == STATUS_REQUEUE ? LOG_INFO : LOG_ERROR, "%s", status_message());
    status_mark_reported();
}
