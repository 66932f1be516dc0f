// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/comparison.h"

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/interop/hf_family.h"
#include "checkpoint/interop/model_files.h"
#include "checkpoint/interop/torch_files.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 17 }; /* elements read at a time */

static struct difference *add_difference(struct comparison *c, enum difference_kind kind,
                                         const char *name)
{
    c->all = heap_grow(c->all, c->count + 1, sizeof *c->all);
    struct difference *d = &c->all[c->count++];
    *d = (struct difference){.kind = kind, .name = heap_strdup(name)};
    return d;
}

static char *format_shape(const struct safetensors_tensor *t)
{
    struct text out = {0};
    text_adds(&out, "[");
    for (int i = 0; i < t->num_dims; i++)
        text_addf(&out, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
    text_adds(&out, "]");
    return out.data;
}

static bool same_shape(const struct safetensors_tensor *a, const struct safetensors_tensor *b)
{
    return a->num_dims == b->num_dims &&
           !memcmp(a->shape, b->shape, (size_t)a->num_dims * sizeof *a->shape);
}

struct error_sums {
    double most, error, norm; /* max |a - b|, sum of (a - b)^2, sum of a^2 */
};

static void add_chunk(struct error_sums *s, const float *a, const float *b, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        double x = (double)a[i], y = (double)b[i], error = x == y ? 0 : fabs(x - y);
        if (isnan(error)) error = isnan(x) && isnan(y) ? 0 : INFINITY;
        s->most = fmax(s->most, error);
        s->error += error * error;
        if (isfinite(x)) s->norm += x * x;
    }
}

static enum status compare_elements(struct comparison *c, struct model_tensor *a,
                                    struct model_tensor *b, float *buffer)
{
    struct error_sums s = {0};
    uint64_t n;
    for (uint64_t at = 0; at < a->is.elements; at += n) {
        n = a->is.elements - at < CHUNK ? a->is.elements - at : CHUNK;
        TRY(tensor_reader_read(&a->reader, at, n, F32, buffer));
        TRY(tensor_reader_read(&b->reader, at, n, F32, buffer + CHUNK));
        add_chunk(&s, buffer, buffer + CHUNK, n);
    }
    tensor_reader_close(&a->reader), tensor_reader_close(&b->reader);
    c->num_tensors++;
    c->num_elements += (int64_t)a->is.elements;
    if (s.most > 0) {
        struct difference *d = add_difference(c, DIFFERENCE_NUMBERS, a->is.name);
        d->most = s.most;
        d->relative = sqrt(s.error / s.norm);
    }
    return STATUS_OK;
}

static enum status compare_files(struct comparison *c, const struct model_files *a,
                                 const struct model_files *b, float *buffer)
{
    struct model_tensor x, y;
    for (size_t i = 0; i < model_files_num_tensors(a); i++) {
        x = model_files_tensor(a, i);
        if (!model_files_named(b, x.is.name, &y)) {
            add_difference(c, DIFFERENCE_ONLY_FIRST, x.is.name);
        } else if (!same_shape(&x.is, &y.is)) {
            struct difference *d = add_difference(c, DIFFERENCE_SHAPE, x.is.name);
            d->first = format_shape(&x.is), d->second = format_shape(&y.is);
        } else {
            TRY(compare_elements(c, &x, &y, buffer));
        }
    }
    for (size_t i = 0; i < model_files_num_tensors(b); i++) {
        x = model_files_tensor(b, i);
        if (!model_files_named(a, x.is.name, &y))
            add_difference(c, DIFFERENCE_ONLY_SECOND, x.is.name);
    }
    return STATUS_OK;
}

/* Of files that a folder may lack.  `what`: all of them. */
static enum status compare_optional_files(struct comparison *c, const char *what,
                                          const struct model_files *a, const struct model_files *b,
                                          float *buffer)
{
    bool has_a = !model_files_are_empty(a), has_b = !model_files_are_empty(b);
    if (has_a && has_b) return compare_files(c, a, b, buffer);
    if (has_a || has_b)
        add_difference(c, has_a ? DIFFERENCE_ONLY_FIRST : DIFFERENCE_ONLY_SECOND, what);
    return STATUS_OK;
}

/* Its tensors have the names of the weights. */
static enum status compare_ema(struct comparison *c, const struct model_files *a,
                               const struct model_files *b, float *buffer)
{
    size_t first = c->count;
    TRY(compare_optional_files(c, "all tensors", a, b, buffer));
    for (size_t i = first; i < c->count; i++) {
        struct text name = {0};
        text_addf(&name, "ema: %s", c->all[i].name);
        free(c->all[i].name);
        c->all[i].name = name.data;
    }
    return STATUS_OK;
}

/* Formats a value for people: containers as their size. */
static char *format_value(const struct json *v)
{
    struct text t = {0};
    if (json_is_string(v))
        json_quote(&t, json_string(v));
    else if (json_is_number(v))
        json_real(&t, json_number(v));
    else if (json_is_bool(v) || json_is_null(v))
        text_adds(&t, json_is_null(v) ? "null" : json_true(v) ? "true" : "false");
    else
        text_addf(&t, json_is_array(v) ? "[%zu items]" : "{%zu members}", json_count(v));
    return t.data;
}

static void compare_json(struct comparison *c, const char *name, const struct json *a,
                         const struct json *b);

static void compare_members(struct comparison *c, const char *name, const struct json *a,
                            const struct json *b)
{
    struct text path = {0};
    for (const struct json *v = json_first(a); v; v = json_next(v)) {
        text_clear(&path);
        text_addf(&path, "%s%s", name, json_key(v));
        compare_json(c, path.data, v, json_get(b, json_key(v)));
    }
    for (const struct json *v = json_first(b); v; v = json_next(v)) {
        if (json_get(a, json_key(v))) continue;
        text_clear(&path);
        text_addf(&path, "%s%s", name, json_key(v));
        add_difference(c, DIFFERENCE_ONLY_SECOND, path.data);
    }
    text_release(&path);
}

/* Arrays are compared as a whole: a difference is reported without its index. */
static bool same_items(const struct json *a, const struct json *b)
{
    struct comparison c = {0};
    const struct json *x = json_first(a), *y = json_first(b);
    bool same = json_count(a) == json_count(b);
    for (; same && x; x = json_next(x), y = json_next(y)) {
        compare_json(&c, "", x, y);
        same = c.count == 0;
    }
    comparison_release(&c);
    return same;
}

/* cJSON's nesting limit bounds the recursion. */
static void compare_json(struct comparison *c, const char *name, const struct json *a,
                         const struct json *b)
{
    if (!b) {
        add_difference(c, DIFFERENCE_ONLY_FIRST, name);
        return;
    }
    if (json_is_object(a) && json_is_object(b)) {
        struct text prefix = {0};
        text_addf(&prefix, "%s.", name);
        compare_members(c, prefix.data, a, b);
        text_release(&prefix);
        return;
    }
    if (json_is_array(a) && json_is_array(b) && same_items(a, b)) return;
    char *first = format_value(a), *second = format_value(b);
    if (strcmp(first, second) || json_is_array(a)) {
        struct difference *d = add_difference(c, DIFFERENCE_VALUE, name);
        d->first = first, d->second = second;
        return;
    }
    free(first), free(second);
}

/* One of the two models. */
struct compared_model {
    const char *folder;
    struct model_shape shape;
    struct model_files files, moments, ema;
    struct json *config, *state; /* NULL: none */
};

/* Torch files need not have a config.json. */
static enum status read_model_config(struct compared_model *s)
{
    char *config_folder = torch_files_folder(s->folder),
         *path = file_join(config_folder, "config.json");
    enum status st = file_exists(path) ? json_read(path, 1 << 30, &s->config) : STATUS_OK;
    free(config_folder), free(path);
    return st;
}

/* The number of heads determines the row order of torch files, and sizes where Phi-3's fused
 * matrices are split. */
static bool needs_shape(const struct compared_model *s)
{
    const struct hf_family *family;
    const struct json *type = s->config ? json_get(s->config, "model_type") : NULL;
    if (!model_files_have_safetensors(s->folder) && torch_files_detect(s->folder)) return true;
    return json_is_string(type) && !hf_family_find(json_string(type), &family) &&
           family->extra == HF_EXTRA_PHI3;
}

static enum status open_model(struct compared_model *s, const char *folder)
{
    struct torch_state torch;
    enum status st = STATUS_OK;
    torch_state_init(&torch);
    s->folder = folder;
    TRY_OUT(read_model_config(s));
    if (needs_shape(s)) TRY_OUT(checkpoint_read_shape(folder, &s->shape));
    TRY_OUT(model_files_open_any(&s->files, folder, &s->shape));
    TRY_OUT(model_files_open_known_moments(&s->moments, folder, &s->shape, &torch));
    TRY_OUT(model_files_open_ema(&s->ema, folder));
    TRY_OUT(torch_state_or_file(&torch, folder, &s->state));
out:
    torch_state_release(&torch);
    return st;
}

static void close_model(struct compared_model *s)
{
    model_files_close(&s->files), model_files_close(&s->moments), model_files_close(&s->ema);
    json_free(s->config), json_free(s->state);
}

struct json_file {
    const char *folder;
    const struct json *root; /* NULL: the folder does not have it */
};

/* Compares one JSON file of both folders.  If neither has it, they are equal. */
static enum status compare_json_files(struct comparison *c, const char *name, struct json_file a,
                                      struct json_file b)
{
    struct text prefix = {0};
    if (!a.root || !b.root) {
        if (a.root || b.root)
            add_difference(c, a.root ? DIFFERENCE_ONLY_FIRST : DIFFERENCE_ONLY_SECOND, name);
        return STATUS_OK;
    }
    if (!json_is_object(a.root)) FAIL(DATA, "%s/%s: expected a JSON object", a.folder, name);
    if (!json_is_object(b.root)) FAIL(DATA, "%s/%s: expected a JSON object", b.folder, name);
    text_addf(&prefix, "%s: ", name);
    compare_members(c, prefix.data, a.root, b.root);
    text_release(&prefix);
    return STATUS_OK;
}

enum status comparison_make(struct comparison *c, const char *first, const char *second)
{
    struct compared_model a = {0}, b = {0};
    float *buffer = heap(2 * CHUNK * sizeof *buffer);
    enum status st = STATUS_OK;
    *c = (struct comparison){0};
    TRY_OUT(open_model(&a, first));
    TRY_OUT(open_model(&b, second));
    TRY_OUT(compare_files(c, &a.files, &b.files, buffer));
    TRY_OUT(compare_optional_files(c, "optimizer's moments", &a.moments, &b.moments, buffer));
    TRY_OUT(compare_ema(c, &a.ema, &b.ema, buffer));
    if ((a.config || !a.files.slices) && (b.config || !b.files.slices))
        TRY_OUT(compare_json_files(c, "config.json", (struct json_file){first, a.config},
                                   (struct json_file){second, b.config}));
    TRY_OUT(compare_json_files(c, "state.json", (struct json_file){first, a.state},
                               (struct json_file){second, b.state}));
out:
    close_model(&a), close_model(&b);
    free(buffer);
    return st;
}

void comparison_release(struct comparison *c)
{
    for (size_t i = 0; i < c->count; i++) {
        free(c->all[i].name);
        free(c->all[i].first), free(c->all[i].second);
    }
    free(c->all);
    *c = (struct comparison){0};
}
