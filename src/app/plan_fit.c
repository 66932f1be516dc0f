// SPDX-License-Identifier: Apache-2.0
#include "app/plan_fit.h"

#include "base/byte_size.h"
#include "base/json.h"
#include "perf/memory_fit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double percent_slower(const struct memory_fit *f, double added_s)
{
    return 100 * added_s / f->configured.estimate.step_s;
}

static void print_options(const struct memory_fit *f)
{
    const struct byte_unit unit = byte_size_unit(f->configured.memory_bytes);
    printf("option, on its own                                           saves %-3s     step\n",
           unit.name);
    for (int i = 0; i < f->num_options; i++) {
        const struct memory_option *o = &f->options[i];
        if (!o->applies) continue;
        const char *space = strchr(o->settings, ' ');
        int length = space ? (int)(space - o->settings) : (int)strlen(o->settings);
        printf("%-60.*s %9.2f %+7.1f%%\n", length, o->settings, o->saved_bytes / unit.bytes,
               percent_slower(f, o->added_s));
        if (space) printf("%s\n", space + 1);
        printf("    %s: %s\n", memory_fit_numerics_text(o->numerics), o->text);
    }
}

static void print_set(const struct memory_fit *f, int i)
{
    const struct memory_set *s = &f->sets[i];
    struct text t = {0};
    double added = s->cost.estimate.step_s - f->configured.estimate.step_s;
    memory_fit_settings(f, s, &t);
    printf("%2d  %s, %.4g s per step (%+.1f%%), %s:\n", i + 1,
           byte_size_format(s->cost.memory_bytes).text, s->cost.estimate.step_s,
           percent_slower(f, added), memory_fit_numerics_text(s->numerics));
    for (const char *word = t.data; *word;) {
        size_t length = strcspn(word, " ");
        printf("      %.*s\n", (int)length, word);
        word += length + (word[length] == ' ');
    }
    text_release(&t);
}

static void print_table(const struct memory_fit *f)
{
    const struct layout_cost *c = &f->configured;
    printf("as configured: %s per rank of %s available on %s, %.4g s per step\n",
           byte_size_format(c->memory_bytes).text,
           byte_size_format(f->model->hardware.memory_bytes).text, f->model->hardware.name,
           c->estimate.step_s);
    if (f->model->host_bytes > 0)
        printf("host memory: %s per rank of %s available\n", byte_size_format(c->host_bytes).text,
               byte_size_format(f->model->host_bytes).text);
    print_options(f);
    if (f->fits) printf("The run fits as configured.\n");
    if (f->num_sets) printf("fits with each of these, the fastest first:\n");
    for (int i = 0; i < f->num_sets; i++) print_set(f, i);
}

static void write_cost(const struct layout_cost *c, struct json_writer *w)
{
    json_write_format(w, "memory_bytes", "%.0f", c->memory_bytes);
    json_write_format(w, "host_memory_bytes", "%.0f", c->host_bytes);
    json_write_format(w, "step_seconds", "%.6g", c->estimate.step_s);
}

static void write_options(const struct memory_fit *f, struct json_writer *w)
{
    json_begin_array(w, "options", JSON_INLINE);
    for (int i = 0; i < f->num_options; i++) {
        const struct memory_option *o = &f->options[i];
        if (!o->applies) continue;
        json_begin_object(w, NULL, JSON_INLINE);
        json_write_string(w, "settings", o->settings);
        json_write_format(w, "saved_bytes", "%.0f", o->saved_bytes);
        json_write_format(w, "added_seconds", "%.6g", o->added_s);
        json_write_string(w, "numerics", memory_fit_numerics_name(o->numerics));
        json_write_string(w, "cost", o->text);
        json_end_object(w);
    }
    json_end_array(w);
}

static void write_sets(const struct memory_fit *f, struct json_writer *w)
{
    json_begin_array(w, "sets", JSON_INLINE);
    for (int i = 0; i < f->num_sets; i++) {
        struct text t = {0};
        memory_fit_settings(f, &f->sets[i], &t);
        json_begin_object(w, NULL, JSON_INLINE);
        json_write_string(w, "settings", t.data);
        write_cost(&f->sets[i].cost, w);
        json_write_string(w, "numerics", memory_fit_numerics_name(f->sets[i].numerics));
        json_end_object(w);
        text_release(&t);
    }
    json_end_array(w);
}

static void print_json(const struct memory_fit *f)
{
    struct text t = {0};
    struct json_writer w = {.text = &t};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_string(&w, "hardware", f->model->hardware.name);
    json_write_format(&w, "available_bytes", "%.0f", f->model->hardware.memory_bytes);
    json_write_format(&w, "available_host_bytes", "%.0f", f->model->host_bytes);
    json_write_bool(&w, "fits", f->fits);
    json_begin_object(&w, "configured", JSON_INLINE);
    write_cost(&f->configured, &w);
    json_end_object(&w);
    write_options(f, &w);
    write_sets(f, &w);
    json_end_object(&w);
    json_finish(&w);
    puts(t.data);
    text_release(&t);
}

enum status plan_fit_print(const struct planned_run *r, bool json)
{
    struct run_memory memory;
    struct cost_model model;
    struct memory_fit f = {.config = r->config, .model = &model, .ranks = r->ranks};
    enum status st = STATUS_OK;
    TRY_OUT(run_memory_open_model(&memory, r, &model));
    TRY_OUT(mesh_resolve(&f.mesh, &r->config->parallelism, 0, r->ranks));
    f.step_rows = config_step_rows(r->config, &f.mesh);
    TRY_OUT(memory_fit_run(&f));
    if (json)
        print_json(&f);
    else
        print_table(&f);
    if (!f.fits && !f.num_sets)
        st = FAILURE(CONFIG,
                     "--fit: with all of these options a rank still needs more than %s: "
                     "use more ranks, or other degrees of parallelism (--search finds them)",
                     byte_size_format(model.hardware.memory_bytes).text);
out:
    run_memory_release(&memory);
    return st;
}
