// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include "base/color.h"
#include "base/host.h"
#include "base/terminal.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The log of the process; only base may have global state. */
static struct append_file file = {.fd = -1};
static bool stderr_fails;
static char status[512]; /* drawn on the terminal; file, stderr_fails, status: under the lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool is_quiet; /* atomic, as other threads may be logging */
static _Atomic int own_rank = -1;

void log_set_rank(int rank) { own_rank = rank; }
int log_rank(void) { return own_rank; }

void log_set_quiet(bool quiet) { is_quiet = quiet; }

bool log_color(void) { return color_is_on(STDERR_FILENO); }

enum status log_open(const char *path)
{
    pthread_mutex_lock(&lock);
    append_file_close(&file);
    enum status st = path ? append_file_open(&file, path, 0) : STATUS_OK;
    pthread_mutex_unlock(&lock);
    return st;
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

static const char *const prefix[] = {"", "warning: ", "error: "};

/* Draws the status line, or clears it; under the lock. */
static void draw_status(bool shown)
{
    if (status[0]) fprintf(stderr, "\r\033[K%s", shown ? status : "");
}

static bool print_line(enum log_level level, const char *line)
{
    static const char *const color[] = {"", "\033[33m", "\033[31m"};
    bool paint = level != LOG_INFO && log_color();
    draw_status(false);
    bool printed = fprintf(stderr, "%s%s%s%s\n", paint ? color[level] : "", prefix[level],
                           paint ? "\033[0m" : "", line) >= 0;
    draw_status(true);
    return printed;
}

enum { LINE_BYTES = 4096 };

/* Appends a line with date and time to log.txt. */
static bool append_line(enum log_level level, const char *line)
{
    char when[32], dated[LINE_BYTES + 64];
    time_t now = time(NULL);
    struct tm local;
    localtime_r(&now, &local);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &local);
    int len = snprintf(dated, sizeof dated, "%s %s%s\n", when, prefix[level], line);
    return append_file_write(&file, dated, (size_t)len);
}

/* The same; notes a gap in the file, and tells stderr when writing begins to fail. */
static void append_or_warn(enum log_level level, const char *line)
{
    char note[512];
    bool was_late = append_file_is_late(&file);
    if (file.num_lost && append_file_flush(&file)) {
        snprintf(note, sizeof note, "%zu lines could not be written here", file.num_lost);
        file.num_lost = 0;
        append_line(LOG_WARN, note);
    }
    if (append_line(level, line) || was_late) return;
    snprintf(note, sizeof note, "%s: write: %s; each line tries again", file.path,
             strerror(file.error));
    print_line(LOG_WARN, note);
}

/* In log.txt, and on stderr in that form.  When one begins to fail, the other gets a warning. */
static void write_line(enum log_level level, char *line, const char *on_stderr)
{
    char note[128];
    bool prints = level != LOG_INFO || !is_quiet, printed = prints && print_line(level, on_stderr);
    if (prints && !printed && !stderr_fails) {
        snprintf(note, sizeof note, "stderr: write: %s; messages are in this file only",
                 strerror(errno));
        if (file.fd >= 0) append_or_warn(LOG_WARN, note);
    }
    if (prints) stderr_fails = !printed;
    strip_colors(line);
    if (file.fd >= 0) append_or_warn(level, line);
}

/* Adds the message to a line that has `len` bytes of prefix, and writes it. */
static void write_message(enum log_level level, char *line, int len, const char *fmt, va_list ap)
{
    vsnprintf(line + len, LINE_BYTES - (size_t)len, fmt, ap);
    pthread_mutex_lock(&lock);
    write_line(level, line, line);
    pthread_mutex_unlock(&lock);
}

void log_line(enum log_level level, const char *fmt, ...)
{
    char line[LINE_BYTES], host[64];
    int rank = own_rank, len = 0;
    if (rank >= 0 && level != LOG_INFO) {
        host_name(host, sizeof host);
        len = snprintf(line, sizeof line, "rank %d on %s: ", rank, host);
    }
    va_list ap;
    va_start(ap, fmt);
    write_message(level, line, len, fmt, ap);
    va_end(ap);
}

void log_rank_warning(int rank, const char *host, const char *fmt, ...)
{
    char line[LINE_BYTES];
    int len = snprintf(line, sizeof line, "rank %d on %.63s ", rank, host);
    va_list ap;
    va_start(ap, fmt);
    write_message(LOG_WARN, line, len, fmt, ap);
    va_end(ap);
}

void log_line_fitting(const char *line, const char *brief)
{
    char whole[LINE_BYTES], plain[LINE_BYTES];
    snprintf(whole, sizeof whole, "%s", line);
    memcpy(plain, whole, sizeof plain);
    strip_colors(plain);
    int columns = terminal_is(STDERR_FILENO) ? terminal_size(STDERR_FILENO).columns : 0;
    bool is_narrow = columns && strlen(plain) >= (size_t)columns;
    pthread_mutex_lock(&lock);
    write_line(LOG_INFO, whole, is_narrow ? brief : whole);
    pthread_mutex_unlock(&lock);
}

bool log_shows_status(void)
{
    return terminal_is(STDERR_FILENO) && !terminal_is_dumb() && !is_quiet;
}

void log_status(const char *line)
{
    if (!log_shows_status()) return;
    int columns = terminal_size(STDERR_FILENO).columns;
    size_t room = columns > 1 && (size_t)columns < sizeof status ? (size_t)columns : sizeof status;
    pthread_mutex_lock(&lock);
    draw_status(false);
    snprintf(status, room, "%s", line ? line : "");
    draw_status(true);
    fflush(stderr);
    pthread_mutex_unlock(&lock);
}

void log_failure(enum status s)
{
    if (status_is_reported()) return;
    log_line(s == STATUS_REQUEUE ? LOG_INFO : LOG_ERROR, "%s", status_message());
    status_mark_reported();
}

void log_append(struct append_file *f, const void *record, size_t len)
{
    bool was_late = append_file_is_late(f);
    if (!append_file_write(f, record, len) && !was_late)
        log_line(LOG_WARN, "%s: write: %s; each record tries again", f->path, strerror(f->error));
}

size_t log_catch_up(struct append_file *f)
{
    if (!append_file_is_late(f) || !append_file_flush(f)) return 0;
    size_t lost = f->num_lost;
    log_line(lost ? LOG_WARN : LOG_INFO, "%s: written again; %zu records were late, %zu are lost",
             f->path, f->num_late, lost);
    f->num_lost = 0;
    return lost;
}

void log_close_file(struct append_file *f)
{
    log_catch_up(f);
    if (append_file_is_late(f))
        log_line(LOG_WARN, "%s: write: %s; the last %zu records are lost", f->path,
                 strerror(f->error), f->num_late + f->num_lost);
    append_file_close(f);
}
