// SPDX-License-Identifier: Apache-2.0
#include "runs/run_log.h"

#include "runs/printable.h"

#include <stdlib.h>
#include <string.h>

size_t run_log_count(const struct run_log *l)
{
    return l->num_lines < RUN_LOG_LINES ? (size_t)l->num_lines : RUN_LOG_LINES;
}

const char *run_log_line(const struct run_log *l, size_t i)
{
    return l->ring[(l->num_lines - run_log_count(l) + i) % RUN_LOG_LINES];
}

int64_t run_log_num_dropped(const struct run_log *l, size_t shown)
{
    if (l->tail.num_skipped) return -1;
    return l->num_lines > shown ? (int64_t)(l->num_lines - shown) : 0;
}

static void release_start(struct run_start *s)
{
    for (size_t i = 0; i < s->num_lines; i++) free(s->lines[i]);
    *s = (struct run_start){0};
}

/* A start begins with "llamero VERSION: a Llama ..." and ends before the first step. */
static void add_to_starts(struct run_log *l, const char *line)
{
    const char *text = run_log_undated(line, false);
    if (!strncmp(text, "llamero ", 8) && strstr(text, ": a Llama")) {
        if (l->num_starts == RUN_LOG_STARTS) {
            release_start(&l->starts[0]);
            memmove(l->starts, l->starts + 1, (RUN_LOG_STARTS - 1) * sizeof *l->starts);
            l->starts[--l->num_starts] = (struct run_start){0};
        }
        l->num_starts++;
        l->is_starting = true;
    } else if (strstr(text, "step: ")) {
        l->is_starting = false;
    }
    if (!l->is_starting) return;
    struct run_start *s = &l->starts[l->num_starts - 1];
    s->lines[s->num_lines++] = heap_strdup(line);
    l->is_starting = s->num_lines < RUN_LOG_START_LINES;
}

static void add_line(void *context, const char *bytes, size_t len)
{
    struct run_log *l = context;
    char **slot = &l->ring[l->num_lines++ % RUN_LOG_LINES];
    free(*slot);
    *slot = printable_string(bytes, len, RUN_LOG_COLUMNS);
    add_to_starts(l, *slot);
}

static void forget(void *context)
{
    struct run_log *l = context;
    for (size_t i = 0; i < RUN_LOG_LINES; i++) {
        free(l->ring[i]);
        l->ring[i] = NULL;
    }
    for (size_t i = 0; i < l->num_starts; i++) release_start(&l->starts[i]);
    l->num_lines = 0, l->num_starts = 0, l->is_starting = false;
}

enum status run_log_update(struct run_log *l, const char *path, uint64_t most)
{
    const struct file_tail_visitor v = {l, add_line, forget};
    return file_tail_read(&l->tail, path, most, &v);
}

void run_log_release(struct run_log *l)
{
    forget(l);
    file_tail_release(&l->tail);
}

/* The date and time are "2026-11-24 02:43:13 "; a continuation line has none. */
const char *run_log_undated(const char *line, bool keeps_time)
{
    static const char pattern[] = "0000-00-00 00:00:00 ";
    for (size_t i = 0; i < sizeof pattern - 1; i++) {
        bool is_digit = line[i] >= '0' && line[i] <= '9';
        if (pattern[i] == '0' ? !is_digit : line[i] != pattern[i]) return line;
    }
    return line + (keeps_time ? strlen("0000-00-00 ") : sizeof pattern - 1);
}

/* Whether a run was at work when it wrote this: what stands before it is of an earlier attempt, or
 * did not end the run. */
static bool is_of_work(const char *text)
{
    static const char *const begins[] = {"step: ", "validate step: ", "llamero ", " [", "Epoch "};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (!strncmp(text, begins[i], strlen(begins[i]))) return true;
    return false;
}

/* The texts of stop_early in train/run_steps.c. */
static bool is_of_stop(const char *text)
{
    return strstr(text, "; the checkpoint is saved") ||
           strstr(text, "; nothing is saved, as checkpoint.load_only") ||
           strstr(text, " before the first step; there is nothing to save");
}

enum run_log_end run_log_find_end(const struct run_log *l, const char **message)
{
    enum { LOOK_BACK = 32 };
    size_t count = run_log_count(l);
    *message = NULL;
    for (size_t i = count; i-- > 0 && count - i <= LOOK_BACK;) {
        const char *text = run_log_undated(run_log_line(l, i), false);
        if (!strncmp(text, "error: ", 7)) {
            *message = text + 7;
            return LOG_ENDS_error;
        }
        if (is_of_stop(text)) return LOG_ENDS_stopped;
        if (is_of_work(text)) return LOG_ENDS_open;
    }
    return LOG_ENDS_open;
}
