// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/megatron_groups.h"

#include <stdio.h>
#include <string.h>

#define COPIES "fp32_from_fp16_params"

static const struct pickle_value *find_optimizer(const struct torch_archive *a)
{
    return pickle_get(a->pickle.root, "optimizer");
}

bool megatron_groups_exist(const struct torch_archive *a) { return find_optimizer(a) != NULL; }

bool megatron_groups_have_copies(const struct torch_archive *a)
{
    return pickle_get(find_optimizer(a), COPIES) != NULL;
}

enum status megatron_groups_open(struct megatron_groups *g, const struct torch_archive *a,
                                 const struct file_map *map)
{
    const struct pickle_value *optimizer = find_optimizer(a);
    const struct pickle_value *inner = pickle_get(optimizer, "optimizer");
    *g = (struct megatron_groups){.path = a->name, .map = map, .nested = inner ? "optimizer." : ""};
    if (!optimizer) FAIL(UNSUPPORTED, "%s: found no optimizer, which another rank has", a->name);
    const struct pickle_value *list = pickle_get(inner ? inner : optimizer, "param_groups");
    if (list && list->kind == PICKLE_IS_LIST) g->list = list;
    TRY(torch_archive_tensors_in(a, optimizer, &g->tensors));
    return STATUS_OK;
}

void megatron_groups_release(struct megatron_groups *g)
{
    torch_tensors_release(&g->tensors);
    *g = (struct megatron_groups){0};
}

static const struct torch_tensor *find_tensor(const struct megatron_groups *g, const char *name)
{
    for (size_t i = 0; i < g->tensors.count; i++)
        if (!strcmp(g->tensors.all[i].name, name)) return &g->tensors.all[i];
    return NULL;
}

/* Finds entry `at` of a group, which must have the parameter's shape. */
static enum status find_entry(const struct megatron_groups *g, const struct megatron_shard *s,
                              size_t group, size_t at, const struct torch_tensor **found)
{
    const struct pickle_value *ids = pickle_get(pickle_item(g->list, group), "params");
    const struct pickle_value *id = pickle_item(ids, at);
    int dims = megatron_tensor_dims(&s->tensor);
    char name[96];
    if (!id || id->kind != PICKLE_IS_INT)
        FAIL(UNSUPPORTED, "%s: param_groups[%zu] has no entry %zu, for %s", g->path, group, at,
             s->name);
    if (s->tensor.source == MEGATRON_FP32)
        snprintf(name, sizeof name, COPIES ".%zu.%zu", group, at);
    else
        snprintf(name, sizeof name, "%sstate.%lld.%s", g->nested, (long long)id->integer,
                 megatron_tensor_key(s->tensor.source));
    const struct torch_tensor *t = *found = find_tensor(g, name);
    if (!t) FAIL(UNSUPPORTED, "%s: the optimizer has no tensor %s, for %s", g->path, name, s->name);
    if (t->num_dims != dims || t->shape[0] != s->rows || (dims > 1 && t->shape[1] != s->columns))
        FAIL(UNSUPPORTED, "%s: the optimizer's %s does not have the shape of %s", g->path, name,
             s->name);
    return STATUS_OK;
}

static bool has_decay(const struct pickle_value *group)
{
    const struct pickle_value *v = pickle_get(group, "wd_mult");
    if (v && v->kind == PICKLE_IS_FLOAT) return v->real < 0 || v->real > 0;
    return !v || v->kind != PICKLE_IS_INT || v->integer;
}

enum status megatron_groups_add(const struct megatron_groups *g,
                                const struct megatron_shards *model, enum megatron_source source,
                                struct tensor_slices *slices, const struct megatron_sizes *z)
{
    size_t count = 0;
    for (size_t group = 0; g->list && group < g->list->count; group++) {
        const struct pickle_value *fields = pickle_item(g->list, group);
        const struct pickle_value *ids = pickle_get(fields, "params");
        size_t at = 0, size = ids && ids->kind == PICKLE_IS_LIST ? ids->count : 0;
        for (size_t i = 0; size && i < model->count; i++) {
            struct megatron_shard s = model->all[i];
            const struct torch_tensor *t;
            if (has_decay(fields) != (megatron_tensor_dims(&s.tensor) > 1)) continue;
            s.tensor.source = source;
            TRY(find_entry(g, &s, group, at++, &t));
            const struct file_slice piece = {t, g->map, 0, 0};
            if (!s.is_copy) TRY(megatron_shard_add(slices, z, &s, &piece));
        }
        if (size != at)
            FAIL(UNSUPPORTED, "%s: param_groups[%zu] has %zu parameters, expected %zu", g->path,
                 group, size, at);
        count += at;
    }
    if (count != model->count)
        FAIL(UNSUPPORTED, "%s: param_groups have %zu parameters, expected %zu", g->path, count,
             model->count);
    return STATUS_OK;
}
