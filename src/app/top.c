/* top.c -- a live view of a run: curves, speed, memory, checkpoints and the end of its log. */
// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/arguments.h"
#include "base/clock.h"
#include "base/color.h"
#include "base/terminal.h"
#include "runs/run_folder.h"
#include "runs/top_frame.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct usage usage = {
    "top",
    {{NULL, {USAGE_ONE(FILE, "RUN"), USAGE_FLAGS("[flags]")}}},
    "Shows a run live: curves, progress, speed, memory, checkpoints and the end of its log, read\n"
    "from its dump folder while it runs, or later.  Tab and the arrow keys choose the curve, q\n"
    "quits.  Where output is not a terminal, or TERM=dumb, prints one frame as text, as --once.",
};

struct top_flags {
    const char *curve;
    int64_t width, height;
    double interval;
    bool once;
};

/* Finds the curve of a key. */
static enum status find_curve(const struct run_folder *r, const char *key, int *curve)
{
    const char *name;
    struct text names = {0};
    enum status st = STATUS_OK;
    for (*curve = 0; (name = top_frame_curve(r, *curve)); (*curve)++) {
        if (!*key || !strcmp(key, name)) goto out;
        text_addf(&names, "%s%s", names.len ? ", " : "", name);
    }
    *curve = 0;
    if (!*key) goto out;
    if (!names.len) FAIL_OUT(DATA, "--curve %s: %s: no step has been logged", key, r->title);
    FAIL_OUT(USAGE, "--curve %s: %s: no such curve; expected one of %s", key, r->title, names.data);
out:
    text_release(&names);
    return st;
}

/* The screen's size: from the flags, else the terminal's, else 80 by 24. */
static struct terminal_size size_of(const struct top_flags *f)
{
    struct terminal_size size = terminal_size(STDOUT_FILENO);
    if (f->height)
        size.rows = (int)f->height;
    else if (size.rows < 1)
        size.rows = 24;
    if (f->width)
        size.columns = (int)f->width;
    else if (size.columns < 1)
        size.columns = 80;
    return size;
}

static void print_once(struct top_view *v, const struct top_flags *f)
{
    struct terminal_size size = size_of(f);
    struct screen s;
    struct text out = {0};
    screen_init(&s, size.rows, size.columns);
    top_frame(v, &s);
    screen_text(&s, color_is_on(STDOUT_FILENO), &out);
    fwrite(out.data, 1, out.len, stdout);
    text_release(&out);
    screen_release(&s);
}

/* Draws what differs from `shown`, which becomes the new frame; false: the terminal is gone. */
static bool draw(const struct top_view *v, const struct top_flags *f, struct screen *shown)
{
    struct terminal_size size = size_of(f);
    struct screen s;
    struct text out = {0};
    if (terminal_has_changed()) screen_release(shown);
    screen_init(&s, size.rows, size.columns);
    top_frame(v, &s);
    screen_update(&s, shown->cells ? shown : NULL, color_is_on(STDOUT_FILENO), &out);
    bool is_drawn = fwrite(out.data ? out.data : "", 1, out.len, stdout) == out.len;
    is_drawn = !fflush(stdout) && is_drawn;
    text_release(&out);
    screen_release(shown);
    *shown = s;
    return is_drawn;
}

/* The rest of an escape sequence: 1 for the next curve, -1 for the one before, 0 for another. */
static int read_arrow(void)
{
    const double patience_s = 0.05;
    int byte = terminal_read_byte(patience_s);
    if (byte != '[' && byte != 'O') return 0;
    do {
        byte = terminal_read_byte(patience_s);
    } while ((byte >= '0' && byte <= '9') || byte == ';');
    if (byte == 'B' || byte == 'C') return 1;
    return byte == 'A' || byte == 'D' || byte == 'Z' ? -1 : 0;
}

enum { CTRL_C = 3, TAB = 9, CTRL_L = 12, CTRL_Z = 26, ESCAPE = 27 };

/* Acts on a key; false: quit. */
static bool handle_key(int key, struct top_view *v, struct screen *shown)
{
    int count = top_frame_num_curves(v->run);
    int move = key == TAB ? 1 : key == ESCAPE ? read_arrow() : 0;
    if (key == CTRL_L) screen_release(shown);
    if (key == CTRL_Z) terminal_suspend();
    if (count) v->curve = (v->curve + move + count) % count;
    return key != 'q' && key != 'Q' && key != CTRL_C && key != TERMINAL_END;
}

static enum status show_live(struct run_folder *r, struct top_view *v, const struct top_flags *f)
{
    struct screen shown = {0};
    TRY(terminal_enter_raw());
    terminal_enter_screen();
    double read_s = clock_monotonic_s();
    for (bool is_running = true; is_running;) {
        if (!draw(v, f, &shown)) break;
        double left_s = read_s + f->interval - clock_monotonic_s();
        int key = left_s > 0 ? terminal_read_byte(left_s) : TERMINAL_NONE;
        is_running = key == TERMINAL_NONE || handle_key(key, v, &shown);
        if (clock_monotonic_s() - read_s < f->interval) continue;
        v->now_s = clock_wall_s();
        run_folder_update(r, v->now_s);
        read_s = clock_monotonic_s();
    }
    terminal_leave_screen();
    terminal_leave_raw();
    screen_release(&shown);
    return STATUS_OK;
}

enum status command_top(int argc, char **argv)
{
    struct top_flags f = {.curve = "", .interval = 1};
    const struct flag flags[] = {
        {"once", FLAG_SWITCH, &f.once, "print one frame as text and exit"},
        {"curve", FLAG_TEXT, &f.curve, "key of metrics.jsonl to plot first (default: loss)"},
        {"interval", FLAG_REAL(0.1, 3600), &f.interval, "seconds between two readings"},
        {"width", FLAG_INT(20, 1000), &f.width, "characters (default: the terminal's, or 80)"},
        {"height", FLAG_INT(4, 1000), &f.height, "lines (default: the terminal's, or 24)"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(&a, &(struct arguments_spec){&usage, flags}, argc, argv));
    if (a.help) return STATUS_OK;
    if (a.num_settings) FAIL(USAGE, "%s: a run's settings cannot be changed here", a.settings[0]);
    struct run_folder r;
    enum status st = STATUS_OK;
    TRY_OUT(run_folder_open(&r, a.words[0], false));
    struct top_view v = {.run = &r, .now_s = clock_wall_s(), .ascii = !color_is_utf8()};
    TRY_OUT(find_curve(&r, f.curve, &v.curve));
    bool is_live =
        !f.once && terminal_is(STDIN_FILENO) && terminal_is(STDOUT_FILENO) && !terminal_is_dumb();
    v.has_keys = is_live;
    if (is_live)
        TRY_OUT(show_live(&r, &v, &f));
    else
        print_once(&v, &f);
out:
    run_folder_close(&r);
    return st;
}
