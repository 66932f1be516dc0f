// SPDX-License-Identifier: Apache-2.0
#include "data/megatron_args.h"

#include "base/file.h"
#include "base/log.h"
#include "data/loader.h"
#include "data/source.h"
#include "data/source_kind.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Adds to the list of differences. */
static void add_int(struct text *list, const struct json *args, const char *arg, const char *key,
                    int64_t value)
{
    int64_t was;
    if (!json_as_int(json_get(args, arg), 0, JSON_MAX_INT, &was) || was == value) return;
    text_addf(list, "%sargs.%s = %lld, but %s = %lld", list->len ? "; " : "", arg, (long long)was,
              key, (long long)value);
}

/* Only the training part decides the order. */
static void add_split(struct text *list, const char *was, const struct order_setup *setup)
{
    const uint64_t count = UINT64_C(1) << 40;
    const char *split = setup->options->data->split;
    uint64_t a[2], b[2];
    if (setup->num_sources && setup->sources[0].kind == &source_mock) return;
    if (blend_split_range(was, BLEND_TRAIN, count, &a[0], &a[1]) ||
        blend_split_range(split, BLEND_TRAIN, count, &b[0], &b[1]) ||
        (a[0] == b[0] && a[1] == b[1]))
        return;
    text_addf(list, "%sargs.split = \"%s\", but data.split = \"%s\"", list->len ? "; " : "", was,
              split);
}

static void add_sampler(struct text *list, const struct json *args,
                        const struct megatron_settings *s)
{
    const struct data_config *d = s->setup->options->data;
    const struct json *type = json_get(args, "dataloader_type");
    const struct json *sharding = json_get(args, "data_sharding");
    bool is_cyclic = json_string_is(type, "cyclic"), is_single = json_string_is(type, "single");
    enum data_sampler was = SAMPLER_single;
    if (!is_cyclic && !is_single) return;
    if (is_cyclic)
        was = !sharding || json_true(sharding) ? SAMPLER_cyclic : SAMPLER_cyclic_unsharded;
    if (was != d->sampler) {
        text_addf(list, "%sargs.dataloader_type = \"%s\"%s, but data.sampler = \"%s\"",
                  list->len ? "; " : "", is_cyclic ? "cyclic" : "single",
                  was == SAMPLER_cyclic_unsharded ? ", args.data_sharding = False" : "",
                  data_sampler_word(d->sampler));
        return;
    }
    if (!s->cyclic->samples) return;
    add_int(list, args, "micro_batch_size", "data.sampler_rows", (int64_t)s->cyclic->rows);
    add_int(list, args, "data_parallel_size", "data.sampler_ranks", (int64_t)s->cyclic->ranks);
}

/* The value of --data-path: paths, or pairs of a weight and a path. */
struct data_path {
    const struct json *items;
    size_t count;
    bool has_weights;
};

static bool as_weight(const struct json *item, double *weight)
{
    char *end;
    if (!json_is_string(item) || !*json_string(item)) return false;
    *weight = strtod(json_string(item), &end);
    return !*end && isfinite(*weight) && *weight >= 0;
}

static bool read_path(const struct json *args, struct data_path *p)
{
    *p = (struct data_path){.items = json_get(args, "data_path")};
    if (!json_is_array(p->items) || !json_count(p->items)) return false;
    size_t i = 0;
    p->count = json_count(p->items);
    p->has_weights = p->count % 2 == 0;
    for (const struct json *v = json_first(p->items); v; v = json_next(v), i++) {
        double weight;
        if (!json_is_string(v)) return false;
        if (i % 2 == 0 && !as_weight(v, &weight)) p->has_weights = false;
    }
    if (p->has_weights) p->count /= 2;
    return true;
}

static bool has_weights(const struct data_path *p, const struct order_setup *setup)
{
    double *a = heap(p->count * sizeof *a), *b = heap(p->count * sizeof *b);
    bool same = true;
    for (size_t i = 0; i < p->count; i++) {
        same &= as_weight(json_item(p->items, 2 * i), &a[i]);
        b[i] = setup->sources[i].config->weight;
    }
    blend_normalize(a, p->count), blend_normalize(b, p->count);
    for (size_t i = 0; i < p->count; i++) same &= fabs(a[i] - b[i]) <= 1e-9;
    free(a), free(b);
    return same;
}

/* The length of a name without the suffix of a pair's files, which --data-path does not have. */
static size_t stem_length(const char *name)
{
    bool has_suffix = file_has_suffix(name, ".idx") || file_has_suffix(name, ".bin");
    return strlen(name) - (has_suffix ? 4 : 0);
}

/* Whether `path` of --data-path has the name of the source's file, which its own path may match as
 * a pattern. */
static bool has_name(const struct source *s, const char *path)
{
    const char *here = file_name(s->num_files ? s->files->path : s->config->path);
    const char *name = file_name(path);
    size_t len = stem_length(here);
    return len == stem_length(name) && !strncmp(here, name, len);
}

/* The folder may be another one here, so another name is only a warning. */
static void warn_of_names(const struct data_path *p, const struct order_setup *setup)
{
    for (size_t i = 0; i < p->count; i++) {
        const struct json *item = json_item(p->items, p->has_weights ? 2 * i + 1 : i);
        if (!has_name(&setup->sources[i], json_string(item)))
            log_line(LOG_WARN,
                     "%s continues where the checkpoint's run read %s: with other data, start it "
                     "over with checkpoint.exclude_from_loading = [\"dataloader\"]",
                     setup->sources[i].config->path, json_string(item));
    }
}

static void add_sources(struct text *list, const struct json *args,
                        const struct megatron_settings *s)
{
    const struct order_setup *setup = s->setup;
    const struct loader_options *o = setup->options;
    struct data_path p;
    if (!read_path(args, &p)) return;
    if (p.count != setup->num_sources)
        text_addf(list, "%sargs.data_path has %zu sources, but the configuration has %zu",
                  list->len ? "; " : "", p.count, setup->num_sources);
    else if (p.has_weights != s->by_weights)
        text_addf(list,
                  "%sargs.data_path has %sweights, but sources are blended by %s (data.blend)",
                  list->len ? "; " : "", p.has_weights ? "" : "no ",
                  s->by_weights ? "weights" : "lengths");
    else if (p.has_weights && !has_weights(&p, setup))
        text_addf(list, "%sargs.data_path has other weights than data.source",
                  list->len ? "; " : "");
    else if (!o->reader && !o->is_quiet)
        warn_of_names(&p, setup);
}

enum status megatron_args_check(const struct json *args, const struct megatron_settings *s)
{
    const struct loader_options *o = s->setup->options;
    const struct json *split = json_get(args, "split");
    struct text list = {0};
    enum status st = STATUS_OK;
    add_int(&list, args, "seed", "data.seed", o->data->seed < 0 ? 0 : o->data->seed);
    add_int(&list, args, "seq_length", "training.seq_len", o->seq_len);
    if (json_is_string(split)) add_split(&list, json_string(split), s->setup);
    add_sampler(&list, args, s);
    add_sources(&list, args, s);
    if (list.len)
        st = FAILURE(CONFIG,
                     "the checkpoint's run read its data in another order: %s. Set these options "
                     "to that run's values, or start the data over with "
                     "checkpoint.exclude_from_loading = [\"dataloader\"]",
                     list.data);
    text_release(&list);
    return st;
}
