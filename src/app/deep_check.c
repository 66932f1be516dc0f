// SPDX-License-Identifier: Apache-2.0
#include "app/deep_check.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "data/source_scan.h"
#include "train/inputs.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LISTED = 20, REPORT_SECONDS = 10 };

struct scan_report deep_check_begin_report(void)
{
    double now = clock_monotonic_s();
    return (struct scan_report){.begin_s = now, .reported_s = now};
}

void deep_check_report(void *context, const struct source_scan *s)
{
    struct scan_report *r = context;
    double now = clock_monotonic_s();
    if (now - r->reported_s < REPORT_SECONDS) return;
    r->reported_s = now;
    log_line(LOG_INFO, "%s: read %.1fM records, %.1f GB at %.1f MB/s, %llu bad",
             s->source->config->path, (double)s->bad.num_read / 1e6, (double)s->bytes / 1e9,
             (double)s->bytes / 1e6 / (now - r->begin_s), (unsigned long long)s->bad.num_bad);
}

/* Counts lines from one bad record of a file to the next. */
struct line_counter {
    const char *path;
    int fd;
    uint64_t at, line;
};

static void line_counter_advance(struct line_counter *c, uint64_t to)
{
    char bytes[1 << 16];
    while (c->at < to) {
        size_t n = to - c->at < sizeof bytes ? (size_t)(to - c->at) : sizeof bytes;
        if (file_read_at(c->fd, c->path, bytes, n, c->at)) return;
        for (size_t i = 0; i < n; i++) c->line += bytes[i] == '\n';
        c->at += n;
    }
}

/* The offset of the first byte after `at` that is not UTF-8, in a chunk of a .txt file. */
static uint64_t find_bad_byte(const struct line_counter *c, uint64_t at)
{
    unsigned char bytes[1 << 14];
    ssize_t n = pread(c->fd, bytes, sizeof bytes, (off_t)at);
    const unsigned char *from = bytes, *end = bytes + (n > 0 ? n : 0);
    for (size_t len; from < end && (len = text_utf8_length(from, end));) from += len;
    return at + (uint64_t)(from - bytes);
}

static void line_counter_open(struct line_counter *c, const char *path)
{
    if (c->path && !strcmp(c->path, path)) return;
    if (c->path && c->fd >= 0) close(c->fd);
    *c = (struct line_counter){.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC), .line = 1};
}

static void list_record(struct line_counter *c, const struct bad_record *r)
{
    bool is_offset = !strcmp(r->unit, "offset");
    if (is_offset) {
        line_counter_open(c, r->file);
        bool is_text = file_has_suffix(r->file, ".txt");
        line_counter_advance(c, is_text ? find_bad_byte(c, r->at) : r->at);
    }
    struct text line = {0};
    text_add_escaped(&line, r->file);
    text_addf(&line, ", %s %llu: ", is_offset ? "line" : r->unit,
              (unsigned long long)(is_offset ? c->line : r->at));
    text_add_escaped(&line, r->reason);
    log_line(LOG_WARN, "%s", line.data);
    text_release(&line);
}

static enum status scan_source(struct deep_check *d, const struct preflight *p,
                               const struct source *source)
{
    struct scan_report report = deep_check_begin_report();
    struct source_scan s = {.source = source,
                            .tokenizer = p->tokenizer,
                            .vocab_size = p->shape.V,
                            .progress = deep_check_report,
                            .context = &report};
    struct line_counter lines = {.fd = -1};
    enum status st = STATUS_OK;
    TRY_OUT(source_scan_run(&s));
    for (size_t i = 0; i < s.bad.count && d->num_bad + i < MAX_LISTED; i++)
        list_record(&lines, &s.bad.list[i]);
    d->num_sums += s.num_sums;
    d->num_read += s.bad.num_read, d->num_bad += s.bad.num_bad;
    if (s.damage.len) FAIL_OUT(DATA, "%s", s.damage.data);
out:
    if (lines.fd >= 0) close(lines.fd);
    source_scan_release(&s);
    return st;
}

/* Scans all sources, even after one is damaged. */
static enum status scan_data(struct deep_check *d, const struct preflight *p,
                             const struct data_config *data)
{
    struct failure first = {0};
    for (size_t i = 0; i < data->num_sources; i++) {
        struct source source;
        enum status st = source_open(&source, &data->sources[i]);
        if (!st) {
            st = scan_source(d, p, &source);
            source_close(&source);
        }
        if (first.status && st) log_line(LOG_ERROR, "%s", status_message());
        status_save(&first, st);
        d->num_sources++;
    }
    return status_restore(&first);
}

enum status deep_check(struct deep_check *d, const struct config *c, const struct preflight *p)
{
    struct source_config one, validation;
    struct data_config data = inputs_data_config(c, &one);
    const char *path = c->validation.dataset_path;
    *d = (struct deep_check){0};
    if (!p->data_checked)
        FAIL(MISSING, "--deep: not all data is on this machine; `llamero fetch PATH` downloads it");
    d->has_run = true;
    TRY(scan_data(d, p, &data));
    if (c->validation.enable && path[0]) {
        data = inputs_data_of_path(c, path, c->validation.column, &validation);
        TRY(scan_data(d, p, &data));
    }
    const struct bad_records all = {.num_read = d->num_read, .num_bad = d->num_bad};
    if (c->data.on_bad_record == ON_BAD_RECORD_skip)
        return bad_records_check(&all, c->data.bad_record_limit, "the first are listed above");
    if (d->num_bad)
        FAIL(DATA,
             "%llu of %llu records are bad, and training stops at the first; data.on_bad_record = "
             "\"skip\" skips them",
             (unsigned long long)d->num_bad, (unsigned long long)d->num_read);
    return STATUS_OK;
}
