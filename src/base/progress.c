// SPDX-License-Identifier: Apache-2.0
#include "base/progress.h"

#include "base/clock.h"
#include "base/log.h"

#include <math.h>

static const double FIRST_S = 1, REDRAW_S = 0.1, LINE_S = 10;

/* Of each thread: those in the background have none. */
static _Thread_local struct progress {
    bool is_active;
    const char *what;
    enum progress_unit unit;
    double done, total, begin_s, shown_s;
    struct text line;
} current;

/* 310, 31, 3.1: enough digits to see it change. */
static void append_number(struct text *t, double x)
{
    text_addf(t, x < 9.95 && x > 0 ? "%.1f" : "%.0f", x);
}

static const char *scale(double largest, enum progress_unit unit, double *by)
{
    static const char *const bytes[] = {"KB", "MB", "GB", "TB"};
    static const char *const counts[] = {"", "K ", "M ", "G "};
    int i = 0;
    bool is_bytes = unit == PROGRESS_BYTES;
    *by = is_bytes ? 1e3 : 1;
    for (; i < 3 && largest / *by >= 9995; i++) *by *= 1e3;
    return (is_bytes ? bytes : counts)[i];
}

void progress_describe(struct text *t, const char *what, const struct progress_amount *a)
{
    static const char *const units[] = {[PROGRESS_BYTES] = "",
                                        [PROGRESS_TOKENS] = "tokens",
                                        [PROGRESS_ROWS] = "rows",
                                        [PROGRESS_ITEMS] = "items"};
    double done = a->done, total = a->total;
    double by, rate_by, rate = a->seconds > 0 ? done / a->seconds : 0;
    bool is_known = total > 0 && done <= total;
    const char *prefix = scale(is_known ? total : done, a->unit, &by);
    const char *rate_prefix = scale(rate, a->unit, &rate_by), *name = units[a->unit];
    text_addf(t, "%s: ", what);
    if (is_known) text_addf(t, "%.0f %%, ", floor(100 * done / total));
    append_number(t, done / by);
    if (is_known) text_adds(t, " of ");
    if (is_known) append_number(t, total / by);
    text_addf(t, " %s%s, ", prefix, name);
    append_number(t, rate / rate_by);
    text_addf(t, " %s%s/s", rate_prefix, name);
    if (is_known && rate > 0) {
        double left = (total - done) / rate;
        if (left < 90)
            text_addf(t, ", %.0f s left", ceil(left));
        else if (left < 5400)
            text_addf(t, ", %.0f min left", ceil(left / 60));
        else
            text_addf(t, ", %.1f h left", left / 3600);
    }
}

static void show(double now)
{
    bool is_drawn = log_shows_status();
    double since = now - current.shown_s;
    if (now - current.begin_s < FIRST_S || since < (is_drawn ? REDRAW_S : LINE_S)) return;
    current.shown_s = now;
    text_clear(&current.line);
    const struct progress_amount a = {current.unit, current.done, current.total,
                                      now - current.begin_s};
    progress_describe(&current.line, current.what, &a);
    if (is_drawn)
        log_status(current.line.data);
    else
        log_line(LOG_INFO, "%s", current.line.data);
}

void progress_begin(const char *what, enum progress_unit unit, double total)
{
    double now = clock_monotonic_s();
    progress_end();
    if (log_rank() > 0) return;
    current = (struct progress){true, what, unit, 0, total, now, now, {0}};
}

void progress_add(double amount)
{
    if (current.is_active) progress_set(current.done + amount, current.total);
}

void progress_set(double done, double total)
{
    if (!current.is_active) return;
    current.done = done, current.total = total;
    show(clock_monotonic_s());
}

void progress_end(void)
{
    if (!current.is_active) return;
    log_status(NULL);
    text_release(&current.line);
    current.is_active = false;
}
