// SPDX-License-Identifier: Apache-2.0
#include "runs/run_folder.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/median.h"
#include "runs/printable.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool run_folder_is_run(const char *path)
{
    return file_exists_in(path, "metrics.jsonl") ||
           (file_exists_in(path, "config.toml") && file_exists_in(path, "log.txt"));
}

static void add_problem(struct run_folder *r)
{
    if (r->problems.len > 4096) return;
    if (r->problems.len) text_adds(&r->problems, "\n");
    printable_adds(&r->problems, status_message());
}

static double modified_s(const char *path)
{
    struct stat s;
    return stat(path, &s) ? 0 : (double)s.st_mtim.tv_sec + 1e-9 * (double)s.st_mtim.tv_nsec;
}

static void read_settings(struct run_folder *r)
{
    char *path = file_join(r->path, "config.toml");
    double modified = modified_s(path);
    if (modified != r->settings_mtime || modified <= 0) {
        run_settings_release(&r->settings);
        enum status st = run_settings_read(&r->settings, path);
        if (st && st != STATUS_MISSING) add_problem(r);
        if (st) modified = 0; /* the next update tries again */
    }
    r->settings_mtime = modified;
    double steps = run_settings_number(&r->settings, "training.steps", 0);
    r->last_step = steps >= 1 && steps <= 1e15 ? (int64_t)steps : 0;
    free(path);
}

/* A run that has just begun has no metrics.jsonl, and a copied one no log.txt. */
static void read_metrics_and_log(struct run_folder *r)
{
    const uint64_t log_bytes = r->is_summary ? 1 << 16 : 1 << 26;
    char *metrics = file_join(r->path, "metrics.jsonl"), *log = file_join(r->path, "log.txt");
    enum status st = run_metrics_update(&r->metrics, metrics);
    if (st && st != STATUS_MISSING) add_problem(r);
    st = run_log_update(&r->log, log, log_bytes);
    if (st && st != STATUS_MISSING) add_problem(r);
    r->written_s = fmax(r->metrics.tail.written_s, r->log.tail.written_s);
    free(metrics), free(log);
}

static char *checkpoint_folder(const struct run_folder *r)
{
    return folder_in_run(r->path, run_settings_find(&r->settings, "checkpoint.folder"));
}

/* When a checkpoint of ours or of torch DCP, which is complete, was written; 0: neither. */
static double manifest_s(const char *checkpoint)
{
    static const char *const names[] = {"manifest.json", ".metadata"};
    double written_s = 0;
    for (size_t i = 0; i < 2 && written_s <= 0; i++) {
        char *path = file_join(checkpoint, names[i]);
        written_s = modified_s(path);
        free(path);
    }
    return written_s;
}

static void read_checkpoints(struct run_folder *r, const char *folder)
{
    enum { MOST = 10000 };
    struct folder_steps l = {0};
    if (folder_steps_read(&l, folder)) add_problem(r);
    size_t first = l.count > MOST ? l.count - MOST : 0;
    free(r->checkpoints);
    r->checkpoints = heap((l.count + 1) * sizeof *r->checkpoints);
    r->num_checkpoints = 0;
    for (size_t i = first; i < l.count; i++) {
        struct folder_checkpoint *k = &r->checkpoints[r->num_checkpoints++];
        k->step = l.steps[i];
        /* A summary needs only that of the newest. */
        char *path = folder_step_path(folder, l.steps[i]);
        if (!r->is_summary || i + 1 == l.count) k->written_s = manifest_s(path);
        free(path);
    }
    folder_steps_release(&l);
}

static bool is_set(const struct run_folder *r, const char *key)
{
    const char *value = run_settings_find(&r->settings, key);
    return value && !strcmp(value, "true");
}

/* Whether the last step's checkpoint exists, or none is due, or all were removed. */
static bool is_saved(const struct run_folder *r)
{
    size_t n = r->num_checkpoints;
    if (!is_set(r, "checkpoint.enable") || is_set(r, "checkpoint.load_only") || !n) return true;
    const struct folder_checkpoint *newest = &r->checkpoints[n - 1];
    return newest->step >= r->last_step && newest->written_s > 0;
}

/* How long a run may be quiet: it writes a line every log_freq steps, and pauses to save, to
 * validate and to start. */
static double quiet_limit_s(const struct run_folder *r)
{
    double step_s = run_metrics_last(&r->metrics, "step_seconds");
    double freq = run_settings_number(&r->settings, "metrics.log_freq", 10);
    double start_s = run_settings_number(&r->settings, "comm.init_timeout_seconds", 300);
    double lines_s = 10 * step_s * freq;
    return fmin(fmax(fmax(start_s, lines_s), 60), 7 * 86400.0); /* fmax: not NaN */
}

static void judge(struct run_folder *r, const char *folder, double now_s)
{
    const char *message;
    struct run_evidence e = {
        .lock = folder_lock_look(folder),
        .quiet_s = now_s - r->written_s,
        .quiet_limit_s = quiet_limit_s(r),
        .step = r->metrics.last_step,
        .last_step = r->last_step,
        .is_saved = is_saved(r),
        .log_end = run_log_find_end(&r->log, &message),
    };
    r->state = run_state_judge(&e);
    r->error = r->state == RUN_failed ? message : NULL;
}

void run_folder_update(struct run_folder *r, double now_s)
{
    text_clear(&r->problems);
    read_settings(r);
    read_metrics_and_log(r);
    char *folder = checkpoint_folder(r);
    read_checkpoints(r, folder);
    judge(r, folder, now_s);
    free(folder);
}

/* The last part of the path, after links and "." are resolved. */
static char *name_of(const char *path)
{
    char *full = realpath(path, NULL);
    const char *from = full ? full : path;
    if (*file_name(from)) from = file_name(from);
    char *name = printable_string(from, strlen(from), 255);
    free(full);
    return name;
}

enum status run_folder_check(const char *path)
{
    TRY(file_require_folder(path));
    if (!run_folder_is_run(path))
        FAIL(MISSING,
             "%s: not a run: expected a dump folder (job.dump_folder) with metrics.jsonl, or with "
             "config.toml and log.txt; `llamero runs` lists the runs in a folder",
             path);
    return STATUS_OK;
}

enum status run_folder_open(struct run_folder *r, const char *path, bool is_summary)
{
    *r = (struct run_folder){.is_summary = is_summary, .metrics.is_summary = is_summary};
    TRY(run_folder_check(path));
    r->path = heap_strdup(path);
    r->title = printable_string(path, strlen(path), 4096);
    r->name = name_of(path);
    run_folder_update(r, clock_wall_s());
    return STATUS_OK;
}

void run_folder_close(struct run_folder *r)
{
    run_settings_release(&r->settings);
    run_metrics_release(&r->metrics);
    run_log_release(&r->log);
    text_release(&r->problems);
    free(r->checkpoints);
    free(r->path), free(r->title), free(r->name);
    *r = (struct run_folder){0};
}

uint64_t run_folder_checkpoint_bytes(const struct run_folder *r, int64_t step)
{
    char *folder = checkpoint_folder(r);
    uint64_t bytes = folder_step_bytes(folder, step);
    free(folder);
    return bytes;
}

int64_t run_folder_ranks(const struct run_folder *r)
{
    double all = run_metrics_last(&r->metrics, "tokens_per_second");
    double one = run_metrics_last(&r->metrics, "tokens_per_second_per_rank");
    double ranks = round(all / one);
    return ranks >= 1 && ranks <= 1e9 ? (int64_t)ranks : 0;
}

double run_folder_eta_s(const struct run_folder *r)
{
    enum { LAST = 9 };
    const struct run_series *s = run_metrics_find(&r->metrics, "step_seconds");
    double last[LAST];
    int n = 0;
    for (size_t i = s ? s->count : 0; i-- > 0 && n < LAST;)
        if (isfinite(s->values[i])) last[n++] = s->values[i];
    if (!n || !r->last_step || r->metrics.last_step < 0) return NAN;
    int64_t left = r->last_step > r->metrics.last_step ? r->last_step - r->metrics.last_step : 0;
    return median(last, n) * (double)left;
}
