// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/dcp_items.h"

#include "checkpoint/interop/tensor_slices.h"
#include "formats/pickle_write.h"

#include <stdlib.h>
#include <string.h>

/* Takes ownership of `name`. */
static struct dcp_item *add_item(struct dcp_items *items, char *name)
{
    if (items->count == items->capacity) {
        items->capacity = items->capacity ? 2 * items->capacity : 64;
        items->all = heap_grow(items->all, items->capacity, sizeof *items->all);
    }
    struct dcp_item *item = &items->all[items->count++];
    *item = (struct dcp_item){.name = name, .index = -1};
    return item;
}

static char *concat(const char *prefix, const char *name, const char *suffix)
{
    struct text t = {0};
    text_addf(&t, "%s%s%s", prefix, name, suffix);
    return t.data;
}

static void add_model(struct dcp_items *items, const struct torch_model *m)
{
    for (int i = 0; i < m->layout->num_tensors; i++) {
        struct torch_tensor t = torch_model_tensor(m, i);
        struct dcp_item *item = add_item(items, tensor_name_torchtitan(t.name));
        free(t.name);
        t.name = NULL;
        item->is_tensor = true, item->tensor = t;
        item->index = i, item->source = &m->weights;
    }
}

static void add_number(struct dcp_items *items, char *name, enum safetensors_dtype dtype,
                       const void *bytes)
{
    struct dcp_item *item = add_item(items, name);
    item->split = 1, item->is_tensor = true, item->tensor.dtype = dtype;
    memcpy(item->number, bytes, safetensors_dtype_bytes(dtype));
}

/* Begins an object; the caller writes its pickle and ends it with pickle_write_stop. */
static struct text *begin_object(struct dcp_items *items, char *name)
{
    struct dcp_item *item = add_item(items, name);
    item->split = 1;
    pickle_write_proto(&item->pickle);
    return &item->pickle;
}

static void add_float(struct dcp_items *items, char *name, double value)
{
    struct text *t = begin_object(items, name);
    pickle_write_float(t, value), pickle_write_stop(t);
}

static void add_bool(struct dcp_items *items, char *name, bool value)
{
    struct text *t = begin_object(items, name);
    pickle_write_bool(t, value), pickle_write_stop(t);
}

static void add_int(struct dcp_items *items, char *name, int64_t value)
{
    struct text *t = begin_object(items, name);
    pickle_write_int(t, value), pickle_write_stop(t);
}

static void add_float_list(struct dcp_items *items, char *name, double value)
{
    struct text *t = begin_object(items, name);
    pickle_write_empty_list(t), pickle_write_mark(t);
    pickle_write_float(t, value), pickle_write_appends(t), pickle_write_stop(t);
}

static void add_moments(struct dcp_items *items, size_t weight, const struct dcp_run *run)
{
    const struct tensor_source *sources[] = {&run->exp_avg, &run->exp_avg_sq};
    const enum tensor_kind parts[] = {TENSOR_EXP_AVG, TENSOR_EXP_AVG_SQ};
    float step = (float)run->step;
    for (int i = 0; i < 2; i++) {
        struct dcp_item *item = add_item(items, concat("optimizer.state.", items->all[weight].name,
                                                       tensor_name_suffix(parts[i])));
        const struct dcp_item *of = &items->all[weight];
        item->split = 1, item->is_tensor = true, item->tensor = of->tensor;
        item->tensor.dtype = SAFETENSORS_F32;
        item->index = of->index, item->source = sources[i];
    }
    add_number(items, concat("optimizer.state.", items->all[weight].name, ".step"), SAFETENSORS_F32,
               &step);
}

/* What AdamW of any version since 2.0 keeps per param_group. */
static void add_param_group(struct dcp_items *items, const char *weight, const struct dcp_adamw *a)
{
    const struct {
        const char *key;
        double value;
    } floats[] = {{".lr", a->lr},
                  {".initial_lr", a->peak_lr},
                  {".eps", a->eps},
                  {".weight_decay", a->weight_decay}};
    const struct {
        const char *key;
        bool value;
    } bools[] = {{".amsgrad", false},
                 {".maximize", false},
                 {".capturable", false},
                 {".differentiable", false},
                 {".fused", a->fused},
                 {".foreach", a->foreach},
                 {".decoupled_weight_decay", true}};
    char *group = concat("optimizer.param_groups.", weight, "");
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        add_float(items, concat(group, floats[i].key, ""), floats[i].value);
    for (size_t i = 0; i < sizeof bools / sizeof *bools; i++)
        add_bool(items, concat(group, bools[i].key, ""), bools[i].value);
    struct text *t = begin_object(items, concat(group, ".betas", ""));
    pickle_write_mark(t), pickle_write_float(t, a->beta1), pickle_write_float(t, a->beta2);
    pickle_write_tuple(t), pickle_write_stop(t);
    free(group);
}

static char *copy_name(const char *name) { return concat("", name, ""); }

/* What LambdaLR of any version since 2.0 keeps. */
static void add_lr_scheduler(struct dcp_items *items, const struct dcp_run *run)
{
    add_int(items, copy_name("lr_scheduler.last_epoch"), run->step);
    add_int(items, copy_name("lr_scheduler._step_count"), run->step + 1);
    add_bool(items, copy_name("lr_scheduler._get_lr_called_within_step"), false);
    add_bool(items, copy_name("lr_scheduler._is_initial"), false);
    add_bool(items, copy_name("lr_scheduler.verbose"), false);
    add_float_list(items, copy_name("lr_scheduler.base_lrs"), run->adamw.peak_lr);
    add_float_list(items, copy_name("lr_scheduler._last_lr"), run->adamw.lr);
    struct text *t = begin_object(items, copy_name("lr_scheduler.lr_lambdas"));
    pickle_write_empty_list(t), pickle_write_mark(t), pickle_write_empty_dict(t);
    pickle_write_appends(t), pickle_write_stop(t);
}

static void add_train_state(struct dcp_items *items, const struct dcp_run *run)
{
    int32_t step = (int32_t)run->step;
    add_number(items, copy_name("train_state.step"), SAFETENSORS_I32, &step);
    add_number(items, copy_name("train_state.ntokens_seen"), SAFETENSORS_I64, &run->tokens_seen);
    struct text *t = begin_object(items, copy_name("llamero.train"));
    pickle_write_string(t, run->train), pickle_write_stop(t);
}

void dcp_items_make(struct dcp_items *items, const struct torch_model *m, const struct dcp_run *run)
{
    *items = (struct dcp_items){0};
    add_model(items, m);
    size_t weights = items->count;
    for (size_t i = 0; run && i < weights; i++) add_moments(items, i, run);
    for (size_t i = 0; run && i < weights; i++)
        add_param_group(items, items->all[i].name, &run->adamw);
    if (!run) return;
    add_lr_scheduler(items, run);
    add_train_state(items, run);
}

void dcp_items_release(struct dcp_items *items)
{
    for (size_t i = 0; i < items->count; i++) {
        free(items->all[i].name);
        text_release(&items->all[i].pickle);
    }
    free(items->all);
    *items = (struct dcp_items){0};
}
