// SPDX-License-Identifier: Apache-2.0
#include "train/skipped_records.h"

#include "base/file.h"
#include "base/log.h"
#include "metrics/history.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool skips(const struct config *c) { return c->data.on_bad_record == ON_BAD_RECORD_skip; }

enum status skipped_records_open(struct skipped_records *s, const struct config *c, int64_t step,
                                 bool removes)
{
    size_t num_removed = 0;
    *s = (struct skipped_records){.config = c};
    char *path = file_join(c->job.dump_folder, "bad_records.jsonl");
    append_file_init(&s->file, path);
    free(path);
    if (removes)
        TRY(history_truncate(s->file.path, &(struct history_end){.last_step = step}, &num_removed));
    return STATUS_OK;
}

void skipped_records_close(struct skipped_records *s)
{
    if (s->file.path) log_close_file(&s->file);
    *s = (struct skipped_records){0};
}

enum status skipped_records_roll_back(struct skipped_records *s, int64_t step)
{
    static const char begin[] = "{\"step\": ";
    const size_t len = sizeof begin - 1;
    struct text all = {0}, out = {0};
    enum status st = STATUS_OK;
    if (!skips(s->config) || !file_exists(s->file.path)) return STATUS_OK;
    TRY_OUT(file_read(s->file.path, UINT64_MAX, &all));
    for (char *at = all.data, *stop = at + all.len, *rest; at < stop;) {
        char *newline = memchr(at, '\n', (size_t)(stop - at)), *next = newline ? newline + 1 : stop;
        if (!strncmp(at, begin, len) && strtoll(at + len, &rest, 10) > step) {
            text_addf(&out, "%s%lld", begin, (long long)step + 1);
            at = rest;
        }
        text_add(&out, at, (size_t)(next - at));
        at = next;
    }
    TRY_OUT(file_write(s->file.path, out.data, out.len));
out:
    text_release(&all);
    text_release(&out);
    return st;
}

void skipped_records_list(struct skipped_records *s, struct loader *l, int64_t step)
{
    struct text lines = {0};
    if (!skips(s->config)) return;
    if (l) {
        struct bad_records *b = loader_bad_records(l);
        bad_records_write(b, step, &lines);
        bad_records_clear(b);
    }
    log_catch_up(&s->file);
    if (lines.len) log_append(&s->file, lines.data, lines.len);
    append_file_suspend(&s->file);
    text_release(&lines);
}

/* Appends the last lines of the file: those of all ranks. */
static void add_last_lines(const char *path, struct text *out)
{
    enum { LINES = 3, MAX_BYTES = 2000 };
    char tail[MAX_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC), lines = 0;
    if (fd < 0) return;
    off_t size = lseek(fd, 0, SEEK_END), from = size > MAX_BYTES ? size - MAX_BYTES : 0;
    ssize_t n = pread(fd, tail, sizeof tail, from);
    close(fd);
    size_t end = n > 0 && tail[n - 1] == '\n' ? (size_t)n - 1 : 0, begin = end;
    while (begin && !(tail[begin - 1] == '\n' && ++lines == LINES)) begin--;
    if (end) text_addf(out, ", the last as\n%.*s", (int)(end - begin), tail + begin);
}

/* On rank 0, about the records of all ranks. */
static enum status report(const struct skipped_records *s, const struct bad_records *all,
                          const char *what, bool has_changed)
{
    struct text where = {0}, found = {0};
    text_add_escaped(&where, s->file.path);
    text_adds(&where, " lists them");
    bad_records_describe(all, where.data, &found);
    if (has_changed) log_line(LOG_WARN, "%s%s", what, found.data);
    add_last_lines(s->file.path, &where);
    enum status st = bad_records_check(all, s->config->data.bad_record_limit, where.data);
    text_release(&where), text_release(&found);
    return st;
}

/* `num_reported`: the bad records reported so far. */
static enum status check(const struct skipped_records *s, struct loader *l,
                         const struct comm *world, const char *what, int64_t *num_reported)
{
    int64_t sums[2] = {0};
    if (l) {
        const struct bad_records *b = loader_bad_records(l);
        sums[0] = (int64_t)b->num_read, sums[1] = (int64_t)b->num_bad;
    }
    TRY(comm_all_reduce_int64(world, REDUCE_SUM, sums, 2));
    const struct bad_records all = {.num_read = (uint64_t)sums[0], .num_bad = (uint64_t)sums[1]};
    bool has_changed = sums[1] != *num_reported;
    *num_reported = sums[1];
    if (!sums[1]) return STATUS_OK;
    return comm_agree(world, world->rank ? STATUS_OK : report(s, &all, what, has_changed));
}

enum status skipped_records_check(struct skipped_records *s, struct loader *l,
                                  const struct comm *world)
{
    if (!skips(s->config)) return STATUS_OK;
    return check(s, l, world, "", &s->num_reported);
}

enum status skipped_records_validated(struct skipped_records *s, struct loader *l, int64_t step,
                                      const struct comm *world)
{
    const struct config *c = s->config;
    int64_t freq = c->validation.freq, steps = c->training.steps;
    if (!skips(c)) return STATUS_OK;
    bool is_first = step == (freq < steps ? freq : steps);
    if (is_first && !s->has_listed_validation) skipped_records_list(s, l, step);
    s->has_listed_validation |= is_first;
    return check(s, l, world, "validation: ", &s->num_reported_validation);
}
