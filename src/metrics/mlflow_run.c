// SPDX-License-Identifier: Apache-2.0
#include "metrics/mlflow_run.h"

#include "base/append_file.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "metrics/run_description.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_METRICS = 512, /* each has an open file */
    MAX_META_BYTES = 1 << 20,
    MAX_METRIC_BYTES = INT32_MAX,
    MAX_PARAM_BYTES = 6000, /* MLflow's own limit */
    MAX_PATH_DEPTH = 8,
    RUN_ID_DIGITS = 32,
};

struct mlflow_run {
    char *experiment_id, *experiment_folder;
    char *id, *folder, *name;
    int64_t start_ms;
    struct metric {
        char *tag; /* as TensorBoard's */
        struct append_file file;
    } metrics[MAX_METRICS];
    int num_metrics;
    bool is_full;     /* a metric beyond MAX_METRICS was reported */
    struct text text; /* the line being formatted */
};

static int64_t now_ms(void) { return (int64_t)(clock_wall_s() * 1000); }

void mlflow_run_format_name(struct text *t, const char *tag)
{
    bool begins = true; /* a component of the path */
    for (const char *c = tag; *c; c++) {
        bool plain = isalnum((unsigned char)*c) || (*c && strchr("_-: ", *c));
        if (*c == '/') {
            if (!begins) text_adds(t, "/");
            begins = true;
            continue;
        }
        if (plain || (*c == '.' && !begins))
            text_add(t, c, 1);
        else if (*c == '%')
            text_adds(t, "percent");
        else if (*c != ')')
            text_adds(t, "_");
        begins = false;
    }
    if (begins) text_adds(t, "_");
}

static char *join3(const char *a, const char *b, const char *c)
{
    char *ab = file_join(a, b), *path = file_join(ab, c);
    free(ab);
    return path;
}

/* Writes a file, and the folders above it. */
static enum status write_text(const char *path, const char *value)
{
    char *folder = file_parent(path);
    enum status st = file_make_dirs(folder);
    free(folder);
    return st ? st : file_write(path, value, strlen(value));
}

static enum status write_entry(const struct mlflow_run *r, const char *kind, const char *key,
                               const char *value)
{
    char *path = join3(r->folder, kind, key);
    enum status st = write_text(path, value);
    free(path);
    return st;
}

static void add_uri(struct text *t, const char *folder)
{
    char *path = realpath(folder, NULL);
    struct text uri = {0};
    text_adds(&uri, "file://");
    for (const char *c = path ? path : ""; *c; c++)
        if (isalnum((unsigned char)*c) || strchr("/-._~", *c))
            text_add(&uri, c, 1);
        else
            text_addf(&uri, "%%%02X", (unsigned char)*c);
    json_quote(t, uri.data);
    text_release(&uri);
    free(path);
}

/* MLflow's own programs rename an experiment in this file: it is written once. */
static enum status write_experiment(const struct mlflow_run *r, const char *name)
{
    struct text t = {0};
    char *path = file_join(r->experiment_folder, "meta.yaml");
    long long now = now_ms();
    enum status st = STATUS_OK;
    if (!file_exists(path)) {
        text_adds(&t, "artifact_location: ");
        add_uri(&t, r->experiment_folder);
        text_addf(&t, "\ncreation_time: %lld\nexperiment_id: '%s'\nlast_update_time: %lld\n", now,
                  r->experiment_id, now);
        text_adds(&t, "lifecycle_stage: active\nname: ");
        json_quote(&t, name);
        text_adds(&t, "\n");
        st = file_write(path, t.data, t.len);
    }
    text_release(&t);
    free(path);
    return st;
}

static enum status write_meta(const struct mlflow_run *r, enum mlflow_status how)
{
    struct text t = {0};
    char *path = file_join(r->folder, "meta.yaml"), *artifacts = file_join(r->folder, "artifacts");
    enum status st = file_make_dirs(artifacts);
    text_adds(&t, "artifact_uri: ");
    add_uri(&t, artifacts);
    if (how == MLFLOW_RUNNING)
        text_adds(&t, "\nend_time: null\n");
    else
        text_addf(&t, "\nend_time: %lld\n", (long long)now_ms());
    text_addf(&t, "entry_point_name: ''\nexperiment_id: '%s'\n", r->experiment_id);
    text_addf(&t, "lifecycle_stage: active\nrun_id: %s\nrun_name: ", r->id);
    json_quote(&t, r->name);
    text_addf(&t, "\nrun_uuid: %s\nsource_name: ''\nsource_type: 4\nsource_version: ''\n", r->id);
    text_addf(&t, "start_time: %lld\nstatus: %d\ntags: []\nuser_id: ", (long long)r->start_ms, how);
    json_quote(&t, run_description_env("USER", "unknown"));
    text_adds(&t, "\n");
    if (!st) st = file_write(path, t.data, t.len);
    text_release(&t);
    free(path);
    free(artifacts);
    return st;
}

static bool is_run_id(const char *name)
{
    return strlen(name) == RUN_ID_DIGITS && strspn(name, "0123456789abcdef") == RUN_ID_DIGITS;
}

/* The run's ID and start, if an earlier start wrote them. */
static enum status find_run(struct mlflow_run *r)
{
    struct file_list names = {0};
    struct text meta = {0};
    TRY(file_list_dir(&names, r->experiment_folder));
    for (size_t i = 0; i < names.count && !r->id; i++)
        if (is_run_id(names.paths[i])) r->id = heap_strdup(names.paths[i]);
    file_list_release(&names);
    if (!r->id) return STATUS_OK;
    char *path = join3(r->experiment_folder, r->id, "meta.yaml");
    bool is_read = file_exists(path) && !file_read(path, MAX_META_BYTES, &meta);
    const char *line = is_read ? strstr(meta.data, "\nstart_time: ") : NULL;
    if (line) r->start_ms = strtoll(line + sizeof "\nstart_time: " - 1, NULL, 10);
    free(path);
    text_release(&meta);
    return STATUS_OK;
}

static enum status write_param(const struct mlflow_run *r, const char *key, const struct toml *v)
{
    struct text name = {0}, value = {0};
    bool is_line = v->kind == TOML_STRING && v->len && strlen(v->text) == v->len &&
                   !strpbrk(v->text, "\n\r") && text_is_utf8(v->text, v->len);
    mlflow_run_format_name(&name, key);
    if (is_line)
        text_adds(&value, v->text);
    else
        run_description_json(&value, v);
    if (value.len > MAX_PARAM_BYTES) {
        value.len = MAX_PARAM_BYTES;
        while (value.len && !text_is_utf8(value.data, value.len)) value.len--;
        value.data[value.len] = 0;
    }
    enum status st = write_entry(r, "params", name.data, value.data);
    text_release(&name);
    text_release(&value);
    return st;
}

/* Writes section.key, and section.0.key of an array of tables. */
static enum status write_params(const struct mlflow_run *r, const char *prefix,
                                const struct toml *v, int depth)
{
    enum status st = STATUS_OK;
    bool is_array = v->kind == TOML_ARRAY && v->first && v->first->kind == TOML_TABLE;
    if (depth == MAX_PATH_DEPTH || (v->kind != TOML_TABLE && !is_array))
        return write_param(r, prefix, v);
    int index = 0;
    for (const struct toml *m = v->first; m && !st; m = m->next, index++) {
        struct text key = {0};
        if (*prefix) text_addf(&key, "%s.", prefix);
        if (is_array)
            text_addf(&key, "%d", index);
        else
            text_adds(&key, m->key);
        st = write_params(r, key.data, m, depth + 1);
        text_release(&key);
    }
    return st;
}

static enum status write_description(const struct mlflow_run *r, const char *config_toml)
{
    const char *const tags[][2] = {
        {"mlflow.runName", r->name},
        {"mlflow.source.name", "llamero"},
        {"mlflow.source.type", "LOCAL"},
        {"mlflow.user", run_description_env("USER", "unknown")},
        {"llamero.version", LLAMERO_VERSION},
    };
    enum status st = STATUS_OK;
    struct toml *config = run_description_config(config_toml);
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        TRY_OUT(write_entry(r, "tags", tags[i][0], tags[i][1]));
    if (config) TRY_OUT(write_params(r, "", config, 0));
out:
    toml_free(config);
    return st;
}

struct truncation {
    int64_t last_step;
    bool validates;
};

static bool is_validation(const char *name)
{
    return !strncmp(name, "validation_metrics", 18) || !strncmp(name, "tasks", 5) ||
           !strcmp(name, "val_loss");
}

/* Removes the lines of later steps and those that are not whole. */
static enum status truncate_metric(const char *path, int64_t last_step)
{
    struct text all = {0}, kept = {0};
    enum status st = STATUS_OK;
    TRY_OUT(file_read(path, MAX_METRIC_BYTES, &all));
    for (char *at = all.data, *newline; at && (newline = strchr(at, '\n')); at = newline + 1) {
        long long step;
        int read = 0;
        *newline = 0;
        if (sscanf(at, "%*d %*s %lld%n", &step, &read) == 1 && !at[read] && step <= last_step)
            text_addf(&kept, "%s\n", at);
    }
    if (kept.len != all.len) TRY_OUT(file_write(path, kept.data ? kept.data : "", kept.len));
out:
    text_release(&all);
    text_release(&kept);
    return st;
}

static enum status truncate_metrics(const char *folder, const struct truncation *t, int depth)
{
    struct file_list names = {0};
    enum status st = STATUS_OK;
    if (!file_exists(folder) || depth == MAX_PATH_DEPTH) return STATUS_OK;
    TRY(file_list_dir(&names, folder));
    for (size_t i = 0; i < names.count && !st; i++) {
        char *path = file_join(folder, names.paths[i]);
        struct truncation inner = *t;
        if (depth == 0 && t->validates && is_validation(names.paths[i])) inner.last_step--;
        inner.validates = t->validates && depth == 0;
        if (file_is_dir(path))
            st = truncate_metrics(path, &inner, depth + 1);
        else
            st = truncate_metric(path, inner.last_step);
        free(path);
    }
    file_list_release(&names);
    return st;
}

/* A decimal number of 18 digits, like those of MLflow's own experiments. */
static char *format_experiment_id(const char *name)
{
    struct text id = {0};
    const uint64_t least = 100000000000000000u;
    text_addf(&id, "%llu",
              (unsigned long long)(least + checksum_hash64(0, name, strlen(name)) % (9 * least)));
    return id.data;
}

static enum status open_folders(struct mlflow_run *r, const struct metrics_options *o)
{
    const char *name = o->config->mlflow_experiment;
    struct text run = {0}, run_name = {0};
    char *parent = file_join(o->dump_folder, "mlruns");
    enum status st = STATUS_OK;
    if (!*name) name = run_description_env("MLFLOW_EXPERIMENT_NAME", "llamero");
    r->experiment_id = format_experiment_id(name);
    r->experiment_folder = file_join(parent, r->experiment_id);
    run_description_name(&run_name, o->dump_folder);
    const char *given = run_description_env("MLFLOW_RUN_NAME", run_name.data);
    r->name = heap_strdup(given);
    TRY_OUT(file_make_dirs(r->experiment_folder));
    TRY_OUT(write_experiment(r, name));
    TRY_OUT(find_run(r));
    if (!r->id) {
        run_description_random(&run, "0123456789abcdef", RUN_ID_DIGITS);
        r->id = heap_string(run.data, run.len);
    }
    r->folder = file_join(r->experiment_folder, r->id);
    TRY_OUT(write_meta(r, MLFLOW_RUNNING));
out:
    text_release(&run);
    text_release(&run_name);
    free(parent);
    return st;
}

enum status mlflow_run_open(struct mlflow_run **out, const struct metrics_options *o,
                            int64_t last_step)
{
    struct mlflow_run *r = heap(sizeof *r);
    const struct truncation t = {last_step, o->validation_due};
    char *metrics = NULL;
    enum status st = STATUS_OK;
    *out = NULL;
    r->start_ms = now_ms();
    TRY_OUT(open_folders(r, o));
    metrics = file_join(r->folder, "metrics");
    TRY_OUT(file_make_dirs(metrics));
    TRY_OUT(truncate_metrics(metrics, &t, 0));
    TRY_OUT(write_description(r, o->config_toml));
    *out = r, r = NULL;
out:
    mlflow_run_close(r);
    free(metrics);
    return st;
}

static struct metric *find_metric(struct mlflow_run *r, const char *tag)
{
    int i = 0;
    while (i < r->num_metrics && strcmp(r->metrics[i].tag, tag) != 0) i++;
    if (i < r->num_metrics) return &r->metrics[i];
    if (i == MAX_METRICS) {
        if (!r->is_full)
            log_line(LOG_WARN, "%s: more than %d metrics: \"%s\" and later ones are not written",
                     r->folder, MAX_METRICS, tag);
        r->is_full = true;
        return NULL;
    }
    struct text name = {0};
    mlflow_run_format_name(&name, tag);
    char *path = join3(r->folder, "metrics", name.data);
    char *folder = file_parent(path);
    /* A folder that cannot be made is reported by the write that needs it. */
    (void)file_make_dirs(folder);
    r->metrics[i].tag = heap_strdup(tag);
    append_file_init(&r->metrics[i].file, path);
    r->num_metrics++;
    free(folder);
    free(path);
    text_release(&name);
    return &r->metrics[i];
}

/* MLflow's client parses values as Python's float() does. */
void mlflow_run_log(struct mlflow_run *r, int64_t step, const struct event_scalar *s, int count)
{
    long long now = now_ms();
    for (int i = 0; i < count; i++) {
        struct metric *m = find_metric(r, s[i].tag);
        if (!m) continue;
        text_clear(&r->text);
        text_addf(&r->text, "%lld ", now);
        if (isnan(s[i].value))
            text_adds(&r->text, "nan");
        else
            text_addf(&r->text, "%.9g", s[i].value);
        text_addf(&r->text, " %lld\n", (long long)step);
        log_catch_up(&m->file);
        log_append(&m->file, r->text.data, r->text.len);
    }
}

void mlflow_run_end(struct mlflow_run *r, enum mlflow_status how)
{
    if (write_meta(r, how)) log_line(LOG_WARN, "%s", status_message());
}

void mlflow_run_close(struct mlflow_run *r)
{
    if (!r) return;
    for (int i = 0; i < r->num_metrics; i++) {
        log_close_file(&r->metrics[i].file);
        free(r->metrics[i].tag);
    }
    text_release(&r->text);
    free(r->experiment_id);
    free(r->experiment_folder);
    free(r->id);
    free(r->folder);
    free(r->name);
    free(r);
}
