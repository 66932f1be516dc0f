// SPDX-License-Identifier: Apache-2.0
#include "metrics/wandb_run.h"

#include "base/append_file.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/host.h"
#include "base/json.h"
#include "base/log.h"
#include "formats/protobuf.h"
#include "formats/wandb_log.h"
#include "metrics/run_description.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Field numbers of wandb_internal.proto. */
enum {
    RECORD_NUM = 1,
    RECORD_HISTORY = 2,
    RECORD_SUMMARY = 3,
    RECORD_RUN = 17,
    RECORD_EXIT = 18,
    RECORD_HEADER = 21,
    HEADER_VERSION = 1,
    VERSION_PRODUCER = 1,
    VERSION_MIN_CONSUMER = 2,
    RUN_ID = 1,
    RUN_ENTITY = 2,
    RUN_PROJECT = 3,
    RUN_CONFIG = 4,
    RUN_GROUP = 6,
    RUN_JOB_TYPE = 7,
    RUN_DISPLAY_NAME = 8,
    RUN_NOTES = 9,
    RUN_TAGS = 10,
    RUN_HOST = 13,
    RUN_START_TIME = 17,
    TIMESTAMP_SECONDS = 1,
    TIMESTAMP_NANOS = 2,
    UPDATE = 1, /* of a ConfigRecord or SummaryRecord */
    HISTORY_ITEM = 1,
    HISTORY_STEP = 2,
    STEP_NUM = 1,
    ITEM_KEY = 1,
    ITEM_VALUE_JSON = 16,
    EXIT_CODE = 1,
    EXIT_RUNTIME = 2,
};

enum {
    MAX_LOG_BYTES = INT32_MAX,
    FOLDER_PREFIX = sizeof "offline-run-YYYYMMDD_HHMMSS-" - 1,
    MAX_ID_BYTES = 64,
    ID_LETTERS = 8,
};

struct wandb_run {
    struct append_file file;
    char *folder, *id;
    double start_s;
    uint64_t offset; /* where the next record will be in the file */
    int64_t num;     /* records so far */
    /* The last row, which grows until a later step is logged. */
    int64_t step; /* -1: none */
    uint64_t row_offset;
    int64_t row_num;
    struct row_item {
        char *key;
        struct text json;
    } * items; /* owned */
    int num_items;
    struct text record, chunks; /* being formatted */
};

static bool is_id(const char *id)
{
    size_t len = strlen(id);
    for (const char *c = id; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '-' && *c != '_') return false;
    return len > 0 && len <= MAX_ID_BYTES;
}

/* Finds the folder of an earlier start, the newest if there are several. */
static enum status find_folder(struct wandb_run *w, const char *parent, const char *id)
{
    static const char prefix[] = "offline-run-";
    struct file_list names = {0};
    if (!file_exists(parent)) return STATUS_OK;
    TRY(file_list_dir(&names, parent));
    for (size_t i = names.count; i-- > 0 && !w->folder;) {
        const char *name = names.paths[i];
        if (strncmp(name, prefix, sizeof prefix - 1) || strlen(name) <= FOLDER_PREFIX) continue;
        const char *found = name + FOLDER_PREFIX;
        if (!is_id(found) || (id && strcmp(id, found) != 0)) continue;
        w->folder = file_join(parent, name);
        w->id = heap_strdup(found);
    }
    file_list_release(&names);
    return STATUS_OK;
}

static void make_folder_name(struct wandb_run *w, const char *parent, const char *given_id)
{
    struct text name = {0}, id = {0};
    time_t now = (time_t)clock_wall_s();
    struct tm at;
    localtime_r(&now, &at);
    if (given_id)
        text_adds(&id, given_id);
    else
        run_description_random(&id, "abcdefghijklmnopqrstuvwxyz0123456789", ID_LETTERS);
    text_addf(&name, "offline-run-%04d%02d%02d_%02d%02d%02d-%s", at.tm_year + 1900, at.tm_mon + 1,
              at.tm_mday, at.tm_hour, at.tm_min, at.tm_sec, id.data);
    w->folder = file_join(parent, name.data);
    w->id = id.data;
    text_release(&name);
}

/* Begins a Record; the caller adds its one message. */
static void begin_record(struct wandb_run *w)
{
    text_clear(&w->record);
    protobuf_add_int(&w->record, RECORD_NUM, (uint64_t)++w->num);
}

/* Appends the record's chunks to w->chunks, which will be written at w->offset. */
static void end_record(struct wandb_run *w)
{
    wandb_log_add(&w->chunks, w->offset + w->chunks.len, w->record.data, w->record.len);
}

static void add_item(struct text *t, int field, const char *key, const char *json)
{
    size_t item = protobuf_begin(t, field);
    protobuf_add_string(t, ITEM_KEY, key);
    protobuf_add_string(t, ITEM_VALUE_JSON, json);
    protobuf_end(t, item);
}

static void add_header_record(struct wandb_run *w)
{
    begin_record(w);
    size_t header = protobuf_begin(&w->record, RECORD_HEADER);
    size_t version = protobuf_begin(&w->record, HEADER_VERSION);
    protobuf_add_string(&w->record, VERSION_PRODUCER, "llamero " LLAMERO_VERSION);
    protobuf_add_string(&w->record, VERSION_MIN_CONSUMER, "0.13.0");
    protobuf_end(&w->record, version);
    protobuf_end(&w->record, header);
    end_record(w);
}

static void add_optional(struct text *t, int field, const char *variable)
{
    const char *value = run_description_env(variable, NULL);
    if (value) protobuf_add_string(t, field, value);
}

/* WANDB_RUN_TAGS is a list with commas. */
static void add_tags(struct text *t)
{
    const char *at = run_description_env("WANDB_RUN_TAGS", "");
    for (size_t len; *at; at += len + (at[len] == ',')) {
        len = strcspn(at, ",");
        if (len) protobuf_add_bytes(t, RUN_TAGS, at, len);
    }
}

static void add_run_record(struct wandb_run *w, const struct metrics_options *o)
{
    char host[256];
    struct text name = {0}, json = {0};
    struct toml *config = run_description_config(o->config_toml);
    const char *project = o->config->wandb_project;
    host_name(host, sizeof host);
    run_description_name(&name, o->dump_folder);
    begin_record(w);
    struct text *t = &w->record;
    size_t run = protobuf_begin(t, RECORD_RUN);
    protobuf_add_string(t, RUN_ID, w->id);
    add_optional(t, RUN_ENTITY, "WANDB_TEAM");
    protobuf_add_string(t, RUN_PROJECT,
                        *project ? project : run_description_env("WANDB_PROJECT", "llamero"));
    if (config) {
        size_t message = protobuf_begin(t, RUN_CONFIG);
        for (const struct toml *section = config->first; section; section = section->next) {
            text_clear(&json);
            run_description_json(&json, section);
            add_item(t, UPDATE, section->key, json.data);
        }
        protobuf_end(t, message);
    }
    add_optional(t, RUN_GROUP, "WANDB_RUN_GROUP");
    add_optional(t, RUN_JOB_TYPE, "WANDB_RUN_JOB_TYPE");
    protobuf_add_string(t, RUN_DISPLAY_NAME, run_description_env("WANDB_RUN_NAME", name.data));
    add_optional(t, RUN_NOTES, "WANDB_RUN_NOTES");
    add_tags(t);
    protobuf_add_string(t, RUN_HOST, host);
    size_t start = protobuf_begin(t, RUN_START_TIME);
    protobuf_add_int(t, TIMESTAMP_SECONDS, (uint64_t)w->start_s);
    protobuf_add_int(t, TIMESTAMP_NANOS, (uint64_t)(1e9 * fmod(w->start_s, 1)));
    protobuf_end(t, start);
    protobuf_end(t, run);
    end_record(w);
    toml_free(config);
    text_release(&name);
    text_release(&json);
}

static void set_item(struct wandb_run *w, const char *key, const char *json, size_t len)
{
    int i = 0;
    while (i < w->num_items && strcmp(w->items[i].key, key) != 0) i++;
    if (i == w->num_items) {
        w->items = heap_grow(w->items, (size_t)i + 1, sizeof *w->items);
        w->items[w->num_items++] = (struct row_item){.key = heap_strdup(key)};
    }
    text_clear(&w->items[i].json);
    text_add(&w->items[i].json, json, len);
}

static void begin_row(struct wandb_run *w, int64_t step)
{
    for (int i = 0; i < w->num_items; i++) {
        free(w->items[i].key);
        text_release(&w->items[i].json);
    }
    w->num_items = 0;
    w->step = step;
}

/* Appends the row, and the same values as the summary of the run. */
static void add_row(struct wandb_run *w)
{
    struct text *t = &w->record;
    w->row_offset = w->offset + w->chunks.len, w->row_num = w->num;
    begin_record(w);
    size_t history = protobuf_begin(t, RECORD_HISTORY);
    for (int i = 0; i < w->num_items; i++)
        add_item(t, HISTORY_ITEM, w->items[i].key, w->items[i].json.data);
    size_t step = protobuf_begin(t, HISTORY_STEP);
    protobuf_add_int(t, STEP_NUM, (uint64_t)w->step);
    protobuf_end(t, step);
    protobuf_end(t, history);
    end_record(w);
    begin_record(w);
    size_t summary = protobuf_begin(t, RECORD_SUMMARY);
    for (int i = 0; i < w->num_items; i++)
        add_item(t, UPDATE, w->items[i].key, w->items[i].json.data);
    protobuf_end(t, summary);
    end_record(w);
}

/* Reads a HistoryRecord into the row.  False: it is of a later step or has none. */
static bool read_row(struct wandb_run *w, struct protobuf_reader history, int64_t last_step)
{
    struct protobuf_reader step, key, value;
    struct protobuf_field f;
    if (!protobuf_find(history, HISTORY_STEP, &step)) return false;
    if (!protobuf_next(&step, &f) || f.number != STEP_NUM || f.bytes) return false;
    if (f.value > INT64_MAX || (int64_t)f.value > last_step) return false;
    if (w->step != (int64_t)f.value) begin_row(w, (int64_t)f.value);
    while (protobuf_next(&history, &f)) {
        struct protobuf_reader item = {f.bytes, f.bytes + f.len};
        if (f.number != HISTORY_ITEM || !f.bytes) continue;
        if (!protobuf_find(item, ITEM_KEY, &key)) continue;
        if (!protobuf_find(item, ITEM_VALUE_JSON, &value)) continue;
        char *name = heap_string(key.at, (size_t)(key.end - key.at));
        set_item(w, name, value.at, (size_t)(value.end - value.at));
        free(name);
    }
    return true;
}

static void read_start_time(struct wandb_run *w, struct protobuf_reader run)
{
    struct protobuf_reader start;
    struct protobuf_field f;
    if (!protobuf_find(run, RUN_START_TIME, &start)) return;
    double s = 0;
    while (protobuf_next(&start, &f))
        s += (double)f.value * (f.number == TIMESTAMP_NANOS ? 1e-9 : 1);
    if (s > 0 && s < w->start_s) w->start_s = s;
}

/* Formats the rows of an earlier start up to last_step, merging those of the same step. */
static void copy_rows(struct wandb_run *w, struct wandb_log_reader *log, int64_t last_step)
{
    struct protobuf_reader message;
    bool has_row = false;
    while (wandb_log_next(log)) {
        struct protobuf_reader record = {log->record.data, log->record.data + log->record.len};
        int64_t before = w->step;
        if (!protobuf_find(record, RECORD_HISTORY, &message)) continue;
        if (!read_row(w, message, last_step)) continue;
        if (has_row && w->step == before) {
            w->chunks.len = (size_t)w->row_offset;
            w->num = w->row_num;
        }
        has_row = true;
        add_row(w);
    }
}

static bool find_start_time(struct wandb_run *w, struct wandb_log_reader *log)
{
    struct protobuf_reader message;
    while (wandb_log_next(log)) {
        struct protobuf_reader record = {log->record.data, log->record.data + log->record.len};
        if (!protobuf_find(record, RECORD_RUN, &message)) continue;
        read_start_time(w, message);
        return true;
    }
    return false;
}

/* Replaces the file by header, run, and the rows that are kept, and opens it for appending. */
static enum status rewrite_file(struct wandb_run *w, const struct metrics_options *o,
                                int64_t last_step)
{
    struct text name = {0}, old = {0};
    struct wandb_log_reader log;
    text_addf(&name, "run-%s.wandb", w->id);
    char *path = file_join(w->folder, name.data);
    text_adds(&name, ".synced");
    char *marker = file_join(w->folder, name.data);
    enum status st = STATUS_OK;
    if (file_exists(path)) TRY_OUT(file_read(path, MAX_LOG_BYTES, &old));
    bool is_old = wandb_log_open(&log, old.data, old.len);
    if (is_old) is_old = find_start_time(w, &log);
    if (old.len && !is_old)
        log_line(LOG_WARN, "%s: not a W&B log; it is written again, without earlier steps", path);
    wandb_log_begin(&w->chunks);
    add_header_record(w);
    add_run_record(w, o);
    if (is_old) copy_rows(w, &log, last_step);
    wandb_log_close(&log);
    TRY_OUT(file_write(path, w->chunks.data, w->chunks.len));
    w->offset = w->chunks.len;
    text_clear(&w->chunks);
    unlink(marker);
    TRY_OUT(append_file_open(&w->file, path, 0));
out:
    text_release(&name);
    text_release(&old);
    free(path);
    free(marker);
    return st;
}

static enum status write_in_files(const struct wandb_run *w, const char *name, const struct text *t)
{
    char *folder = file_join(w->folder, "files"), *path = file_join(folder, name);
    enum status st = file_write(path, t->data, t->len);
    free(path);
    free(folder);
    return st;
}

/* JSON is YAML. */
static enum status write_config(const struct wandb_run *w, const char *config_toml)
{
    struct text t = {0};
    struct toml *config = run_description_config(config_toml);
    text_adds(&t, "wandb_version: 1\n");
    for (const struct toml *s = config ? config->first : NULL; s; s = s->next) {
        json_quote(&t, s->key);
        text_adds(&t, ":\n    value: ");
        run_description_json(&t, s);
        text_adds(&t, "\n");
    }
    enum status st = write_in_files(w, "config.yaml", &t);
    toml_free(config);
    text_release(&t);
    return st;
}

static enum status write_metadata(const struct wandb_run *w)
{
    struct text t = {0};
    struct json_writer j = {.text = &t};
    char host[256], start[64];
    time_t at = (time_t)w->start_s;
    struct tm utc;
    host_name(host, sizeof host);
    gmtime_r(&at, &utc);
    strftime(start, sizeof start, "%Y-%m-%dT%H:%M:%SZ", &utc);
    json_begin_object(&j, NULL, JSON_LINES);
    json_write_string(&j, "program", "llamero");
    json_write_string(&j, "llamero_version", LLAMERO_VERSION);
    json_write_string(&j, "host", host);
    json_write_string(&j, "startedAt", start);
    json_write_int(&j, "cpu_count", sysconf(_SC_NPROCESSORS_ONLN));
    json_end_object(&j);
    json_finish(&j);
    text_adds(&t, "\n");
    enum status st = write_in_files(w, "wandb-metadata.json", &t);
    text_release(&t);
    return st;
}

enum status wandb_run_open(struct wandb_run **out, const struct metrics_options *o,
                           int64_t last_step)
{
    struct wandb_run *w = heap(sizeof *w);
    const char *id = run_description_env("WANDB_RUN_ID", NULL);
    char *parent = file_join(o->dump_folder, "wandb"), *files = NULL;
    enum status st = STATUS_OK;
    *w = (struct wandb_run){.file.fd = -1, .start_s = clock_wall_s(), .step = -1};
    *out = NULL;
    if (id && !is_id(id))
        FAIL_OUT(CONFIG,
                 "WANDB_RUN_ID = \"%s\": must be at most %d letters, digits, \"-\" and \"_\"", id,
                 MAX_ID_BYTES);
    TRY_OUT(find_folder(w, parent, id));
    if (!w->folder) make_folder_name(w, parent, id);
    files = file_join(w->folder, "files");
    TRY_OUT(file_make_dirs(files));
    TRY_OUT(rewrite_file(w, o, last_step));
    TRY_OUT(write_config(w, o->config_toml));
    TRY_OUT(write_metadata(w));
    *out = w, w = NULL;
out:
    wandb_run_close(w);
    free(files);
    free(parent);
    return st;
}

/* Writes w->chunks.  A lost record leaves no gap in the offsets. */
static void write_chunks(struct wandb_run *w)
{
    log_catch_up(&w->file);
    size_t lost = w->file.num_lost;
    log_append(&w->file, w->chunks.data, w->chunks.len);
    if (w->file.num_lost == lost) w->offset += w->chunks.len;
    text_clear(&w->chunks);
}

/* NaN and infinities as Python's json module writes them, which W&B reads. */
static void set_number(struct wandb_run *w, const char *key, double value)
{
    char json[32];
    if (isfinite(value))
        snprintf(json, sizeof json, "%.9g", value);
    else
        snprintf(json, sizeof json, "%s",
                 isnan(value) ? "NaN"
                 : value > 0  ? "Infinity"
                              : "-Infinity");
    set_item(w, key, json, strlen(json));
}

void wandb_run_log(struct wandb_run *w, int64_t step, const struct event_scalar *s, int count)
{
    double now = clock_wall_s();
    char json[32];
    if (step != w->step) {
        begin_row(w, step);
    } else if (!append_file_is_late(&w->file) && w->file.fd >= 0 &&
               !ftruncate(w->file.fd, (off_t)w->row_offset)) {
        w->offset = w->row_offset, w->num = w->row_num;
    }
    for (int i = 0; i < count; i++) set_number(w, s[i].tag, s[i].value);
    snprintf(json, sizeof json, "%.3f", now);
    set_item(w, "_timestamp", json, strlen(json));
    snprintf(json, sizeof json, "%.3f", now - w->start_s);
    set_item(w, "_runtime", json, strlen(json));
    snprintf(json, sizeof json, "%lld", (long long)step);
    set_item(w, "_step", json, strlen(json));
    add_row(w);
    write_chunks(w);
}

static void write_summary(const struct wandb_run *w)
{
    struct text t = {0};
    struct json_writer j = {.text = &t};
    json_begin_object(&j, NULL, JSON_COMPACT);
    for (int i = 0; i < w->num_items; i++)
        json_write_raw(&j, w->items[i].key, w->items[i].json.data);
    json_end_object(&j);
    json_finish(&j);
    if (write_in_files(w, "wandb-summary.json", &t)) log_line(LOG_WARN, "%s", status_message());
    text_release(&t);
}

void wandb_run_end(struct wandb_run *w, int exit_code)
{
    begin_record(w);
    size_t message = protobuf_begin(&w->record, RECORD_EXIT);
    protobuf_add_int(&w->record, EXIT_CODE, (uint64_t)exit_code);
    protobuf_add_int(&w->record, EXIT_RUNTIME, (uint64_t)fmax(0, clock_wall_s() - w->start_s));
    protobuf_end(&w->record, message);
    end_record(w);
    write_chunks(w);
    write_summary(w);
}

void wandb_run_close(struct wandb_run *w)
{
    if (!w) return;
    begin_row(w, -1);
    log_close_file(&w->file);
    text_release(&w->record);
    text_release(&w->chunks);
    free(w->items);
    free(w->folder);
    free(w->id);
    free(w);
}
