// SPDX-License-Identifier: Apache-2.0
#include "app/checkpoint_listing.h"

#include "base/file.h"
#include "base/json.h"
#include "base/progress.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/copier.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* One checkpoint of a listing. */
struct listed_checkpoint {
    char *path;          /* owned */
    int64_t named, step; /* by its folder's name and by its manifest; -1: unknown */
    uint64_t bytes;
    time_t written;
    struct text errors; /* one per line; empty: intact */
};

struct checkpoint_list {
    struct listed_checkpoint *all;
    size_t count;
};

static void checkpoint_list_release(struct checkpoint_list *r)
{
    for (size_t i = 0; i < r->count; i++) {
        free(r->all[i].path);
        text_release(&r->all[i].errors);
    }
    free(r->all);
}

static void add_error(struct listed_checkpoint *r)
{
    text_addf(&r->errors, "%s%s", r->errors.len ? "\n" : "", status_message());
}

/* Adds up the size of its files, and finds the time of the newest. */
static void stat_files(struct listed_checkpoint *r)
{
    struct stat s;
    struct file_list names;
    if (file_list_dir(&names, r->path)) {
        add_error(r);
        return;
    }
    for (size_t i = 0; i < names.count; i++) {
        char *file = file_join(r->path, names.paths[i]);
        if (stat(file, &s) == 0 && S_ISREG(s.st_mode)) {
            r->bytes += (uint64_t)s.st_size;
            if (s.st_mtime > r->written) r->written = s.st_mtime;
        }
        free(file);
    }
    file_list_release(&names);
}

/* Checks the manifest and the sizes of its files. */
static void check_sizes(struct listed_checkpoint *r)
{
    if (manifest_check(r->path, &r->step))
        add_error(r);
    else if (r->named >= 0 && r->named != r->step)
        text_addf(&r->errors, "%s: the manifest is of step %lld", r->path, (long long)r->step);
}

/* Checks every byte of every file, the tensors' offsets and their values.  If there is an error,
 * looks for all of them. */
static void check_bytes(struct listed_checkpoint *r)
{
    struct failure first = {0};
    struct file_list names;
    if (!status_save(&first, checkpoint_verify(r->path))) {
        check_sizes(r);
        return;
    }
    if (manifest_list(r->path, &names)) {
        add_error(r);
        return;
    }
    for (size_t i = 0; i < names.count; i++)
        if (manifest_verify(r->path, names.paths[i])) add_error(r);
    file_list_release(&names);
    if (r->errors.len) return;
    check_sizes(r);
    for (int moments = 0; moments < 2; moments++)
        if (checkpoint_check_values(r->path, moments)) add_error(r);
    if (!r->errors.len && status_restore(&first)) add_error(r); /* a read that failed only once */
}

/* Finds the checkpoints in `path`: a run's folder, the folder of its checkpoints, or a single
 * checkpoint. */
static enum status find_checkpoints(const char *path, struct checkpoint_list *rows)
{
    char *below = folder_of_run(path), *manifest = file_join(path, MANIFEST_NAME);
    char *state = file_join(path, "state.json");
    struct folder_steps steps = {0};
    enum status st = STATUS_OK;
    TRY_OUT(file_require_folder(path));
    if (file_exists(manifest) || file_exists(state)) {
        rows->all = heap(sizeof *rows->all);
        rows->all[rows->count++] =
            (struct listed_checkpoint){.path = heap_strdup(path), .named = -1, .step = -1};
        goto out;
    }
    const char *folder = file_is_dir(below) ? below : path;
    TRY_OUT(folder_steps_read(&steps, folder));
    if (!steps.count) FAIL_OUT(MISSING, "%s: contains no checkpoint", folder);
    rows->all = heap(steps.count * sizeof *rows->all);
    for (size_t i = 0; i < steps.count; i++)
        rows->all[rows->count++] = (struct listed_checkpoint){
            .path = folder_step_path(folder, steps.steps[i]), .named = steps.steps[i], .step = -1};
out:
    folder_steps_release(&steps);
    free(below), free(manifest), free(state);
    return st;
}

static void time_text(time_t at, char *out, size_t size)
{
    struct tm utc;
    if (!at || !gmtime_r(&at, &utc) || !strftime(out, size, "%Y-%m-%dT%H:%M:%SZ", &utc))
        snprintf(out, size, "-");
}

static void print_list(const struct checkpoint_list *rows)
{
    for (size_t i = 0; i < rows->count; i++) {
        const struct listed_checkpoint *r = &rows->all[i];
        char when[32];
        time_text(r->written, when, sizeof when);
        const char *name = file_name(r->path);
        printf("%-12s %10.1f MB  %s  %s\n", name[0] ? name : r->path, (double)r->bytes / 1e6, when,
               r->errors.len ? "DAMAGED" : "good");
        if (r->errors.len) printf("%s\n", r->errors.data);
    }
}

static void print_list_json(const struct checkpoint_list *rows)
{
    struct text t = {0};
    struct json_writer w = {.text = &t};
    json_begin_array(&w, NULL, JSON_INLINE);
    for (size_t i = 0; i < rows->count; i++) {
        const struct listed_checkpoint *r = &rows->all[i];
        char when[32];
        time_text(r->written, when, sizeof when);
        if (i) json_newline(&w, 1);
        json_begin_object(&w, NULL, JSON_INLINE);
        json_write_int_or_null(&w, "step", r->step < 0 ? r->named : r->step);
        json_write_string(&w, "path", r->path);
        json_write_int(&w, "bytes", (int64_t)r->bytes);
        json_write_string(&w, "time", when);
        json_write_bool(&w, "valid", !r->errors.len);
        if (r->errors.len) json_write_string(&w, "reason", r->errors.data);
        json_end_object(&w);
    }
    json_end_array(&w);
    json_finish(&w);
    puts(t.data);
    text_release(&t);
}

/* Lists copies in an object store: their sizes, and whether they were finished. */
static enum status find_copies(const char *path, struct checkpoint_list *rows)
{
    struct copied_step *steps;
    size_t count;
    TRY(copier_list(NULL, path, &steps, &count));
    rows->all = heap((count + 1) * sizeof *rows->all);
    for (size_t i = 0; i < count; i++) {
        struct listed_checkpoint *r = &rows->all[rows->count++];
        *r = (struct listed_checkpoint){.path = folder_step_path(path, steps[i].step),
                                        .named = steps[i].step,
                                        .step = -1,
                                        .bytes = steps[i].bytes};
        if (!steps[i].is_complete)
            text_addf(&r->errors, "%s: the copy was not finished: %s is missing", r->path,
                      MANIFEST_NAME);
    }
    free(steps);
    if (!count) FAIL(MISSING, "%s: contains no checkpoint", path);
    return STATUS_OK;
}

enum status checkpoint_listing_print(const char *path, bool json, bool verify)
{
    struct checkpoint_list rows = {0};
    size_t damaged = 0;
    enum status st = STATUS_OK;
    bool is_copy = !strncmp(path, "s3://", 5);
    if (is_copy && verify) FAIL_OUT(USAGE, "checkpoint verify: %s: expected a local folder", path);
    TRY_OUT(is_copy ? find_copies(path, &rows) : find_checkpoints(path, &rows));
    double bytes = 0;
    for (size_t i = 0; i < rows.count && !is_copy; bytes += (double)rows.all[i++].bytes)
        stat_files(&rows.all[i]);
    if (verify) progress_begin("checkpoint verify", PROGRESS_BYTES, bytes);
    for (size_t i = 0; i < rows.count && !is_copy; i++) {
        (verify ? check_bytes : check_sizes)(&rows.all[i]);
        damaged += rows.all[i].errors.len > 0;
    }
    if (verify) progress_end();
    (json ? print_list_json : print_list)(&rows);
    if (verify && damaged)
        FAIL_OUT(DATA, "%s: %zu of %zu checkpoints %s damaged", path, damaged, rows.count,
                 damaged == 1 ? "is" : "are");
out:
    checkpoint_list_release(&rows);
    return st;
}
