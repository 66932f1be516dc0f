// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/compare.h"

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/manifest.h"
#include "checkpoint/model_files.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 17 }; /* numbers at a time */

static struct difference *append(struct comparison *c, enum difference_kind kind, const char *name)
{
    c->all = heap_grow(c->all, c->count + 1, sizeof *c->all);
    struct difference *d = &c->all[c->count++];
    *d = (struct difference){.kind = kind, .name = heap_string(name, strlen(name))};
    return d;
}

static char *shape_text(const struct safetensors_tensor *t)
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

struct sums {
    double most, off, norm; /* max |a - b|, sum of (a - b)^2, sum of a^2 */
};

static void add_piece(struct sums *s, const float *a, const float *b, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        double x = (double)a[i], y = (double)b[i], off = x == y ? 0 : fabs(x - y);
        if (isnan(off)) off = isnan(x) && isnan(y) ? 0 : INFINITY;
        s->most = fmax(s->most, off);
        s->off += off * off;
        if (isfinite(x)) s->norm += x * x;
    }
}

/* A tensor at its place: the file, and which of it. */
struct placed {
    const struct safetensors *file;
    const struct safetensors_tensor *tensor;
};

static enum status compare_numbers(struct comparison *c, const struct placed *a,
                                   const struct placed *b, float *room)
{
    struct sums s = {0};
    uint64_t n;
    for (uint64_t at = 0; at < a->tensor->elements; at += n) {
        n = a->tensor->elements - at < PIECE ? a->tensor->elements - at : PIECE;
        TRY(safetensors_read_part(a->file, a->tensor, at, n, room));
        TRY(safetensors_read_part(b->file, b->tensor, at, n, room + PIECE));
        add_piece(&s, room, room + PIECE, n);
    }
    c->num_tensors++;
    c->num_elements += (int64_t)a->tensor->elements;
    if (s.most > 0) {
        struct difference *d = append(c, DIFFERENCE_NUMBERS, a->tensor->name);
        d->most = s.most;
        d->relative = sqrt(s.off / s.norm);
    }
    return STATUS_OK;
}

static enum status compare_files(struct comparison *c, const struct model_files *a,
                                 const struct model_files *b, float *room)
{
    for (size_t f = 0; f < a->count; f++)
        for (size_t i = 0; i < a->files[f].count; i++) {
            struct placed x = {&a->files[f], &a->files[f].tensors[i]}, y;
            y.tensor = model_files_find(b, x.tensor->name, &y.file);
            if (!y.tensor) {
                append(c, DIFFERENCE_ONLY_FIRST, x.tensor->name);
            } else if (!same_shape(x.tensor, y.tensor)) {
                struct difference *d = append(c, DIFFERENCE_SHAPE, x.tensor->name);
                d->first = shape_text(x.tensor), d->second = shape_text(y.tensor);
            } else {
                TRY(compare_numbers(c, &x, &y, room));
            }
        }
    for (size_t f = 0; f < b->count; f++)
        for (size_t i = 0; i < b->files[f].count; i++) {
            const struct safetensors *file;
            const char *name = b->files[f].tensors[i].name;
            if (!model_files_find(a, name, &file)) append(c, DIFFERENCE_ONLY_SECOND, name);
        }
    return STATUS_OK;
}

/* A value as people read it. */
static char *scalar_text(const struct json *v)
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
        append(c, DIFFERENCE_ONLY_SECOND, path.data);
    }
    text_release(&path);
}

/* Of a list it is told that it differs, not in which of its items. */
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
        append(c, DIFFERENCE_ONLY_FIRST, name);
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
    char *first = scalar_text(a), *second = scalar_text(b);
    if (strcmp(first, second) || json_is_array(a)) {
        struct difference *d = append(c, DIFFERENCE_VALUE, name);
        d->first = first, d->second = second;
        return;
    }
    free(first), free(second);
}

/* One JSON file of both folders; one that neither has is the same. */
static enum status compare_texts(struct comparison *c, const char *first, const char *second,
                                 const char *name)
{
    char *a = file_join(first, name), *b = file_join(second, name);
    struct json *x = NULL, *y = NULL;
    struct text prefix = {0};
    enum status st = STATUS_OK;
    if (!file_exists(a) && !file_exists(b)) goto out;
    if (!file_exists(a) || !file_exists(b)) {
        append(c, file_exists(a) ? DIFFERENCE_ONLY_FIRST : DIFFERENCE_ONLY_SECOND, name);
        goto out;
    }
    TRY_OUT(json_read(a, 1 << 30, &x));
    TRY_OUT(json_read(b, 1 << 30, &y));
    if (!json_is_object(x)) FAIL_OUT(DATA, "%s: not an object", a);
    if (!json_is_object(y)) FAIL_OUT(DATA, "%s: not an object", b);
    text_addf(&prefix, "%s: ", name);
    compare_members(c, prefix.data, x, y);
out:
    text_release(&prefix);
    json_free(x), json_free(y);
    free(a), free(b);
    return st;
}

static enum status open_moments(struct model_files *m, const char *folder)
{
    char *manifest = file_join(folder, MANIFEST_NAME);
    bool ours = file_exists(manifest);
    free(manifest);
    *m = (struct model_files){0};
    if (ours) TRY(model_files_open_moments(m, folder));
    return STATUS_OK;
}

enum status comparison_make(struct comparison *c, const char *first, const char *second)
{
    struct model_files a = {0}, b = {0}, more_a = {0}, more_b = {0};
    float *room = heap(2 * PIECE * sizeof *room);
    enum status st = STATUS_OK;
    *c = (struct comparison){0};
    TRY_OUT(model_files_open(&a, first));
    TRY_OUT(model_files_open(&b, second));
    TRY_OUT(compare_files(c, &a, &b, room));
    TRY_OUT(open_moments(&more_a, first));
    TRY_OUT(open_moments(&more_b, second));
    if (more_a.count && more_b.count)
        TRY_OUT(compare_files(c, &more_a, &more_b, room));
    else if (more_a.count || more_b.count)
        append(c, more_a.count ? DIFFERENCE_ONLY_FIRST : DIFFERENCE_ONLY_SECOND,
               "optimizer's moments");
    TRY_OUT(compare_texts(c, first, second, "config.json"));
    TRY_OUT(compare_texts(c, first, second, "state.json"));
out:
    model_files_close(&a), model_files_close(&b);
    model_files_close(&more_a), model_files_close(&more_b);
    free(room);
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
