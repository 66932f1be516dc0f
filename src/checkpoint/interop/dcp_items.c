// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/dcp_items.h"

#include "checkpoint/interop/tensor_slices.h"
#include "formats/pickle_write.h"
#include "formats/torch_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL "model."

/* Takes ownership of `name`. */
static struct dcp_item *add_item(struct dcp_items *items, char *name)
{
    if (items->count == items->capacity) {
        items->capacity = items->capacity ? 2 * items->capacity : 64;
        items->all = heap_grow(items->all, items->capacity, sizeof *items->all);
    }
    struct dcp_item *item = &items->all[items->count++];
    *item = (struct dcp_item){.name = name};
    return item;
}

static char *concat(const char *prefix, const char *name, const char *suffix)
{
    struct text t = {0};
    text_addf(&t, "%s%s%s", prefix, name, suffix);
    return t.data;
}

static char *copy_name(const char *name) { return concat("", name, ""); }

/* The model, as one generation names it. */
struct named_model {
    const struct torch_model *model;
    const struct dcp_generation_spec *spec;
    bool is_nested;
};

/* A weight's name in the optimizer's state, which is never nested in "model". */
static const char *weight_name(const struct dcp_item *weight)
{
    return weight->name + (weight->is_nested ? sizeof MODEL - 1 : 0);
}

/* Adds tensor `index` of the layout under a name of llama.params. */
static void add_weight(struct dcp_items *items, const struct named_model *n, int index,
                       const char *name)
{
    char *fqn = n->spec->has_newest_names ? tensor_name_torchtitan(name) : copy_name(name);
    struct dcp_item *item = add_item(items, concat(n->is_nested ? MODEL : "", fqn, ""));
    free(fqn);
    item->is_nested = n->is_nested;
    item->tensor = torch_model_tensor(n->model, index);
    free(item->tensor.name);
    item->tensor.name = NULL;
    item->index = index, item->source = &n->model->weights;
}

static void add_model(struct dcp_items *items, const struct named_model *n)
{
    const struct layout *l = n->model->layout;
    for (int i = 0; i < l->num_tensors; i++) {
        char name[96];
        layout_tensor_name(&l->tensors[i], false, name);
        add_weight(items, n, i, name);
    }
}

/* torch stores a tied head, too. */
static void add_tied_head(struct dcp_items *items, const struct named_model *n)
{
    const struct layout *l = n->model->layout;
    for (int i = 0; i < l->num_tensors && n->model->shape->tied; i++)
        if (l->tensors[i].id == PARAM_embed) add_weight(items, n, i, params[PARAM_head].name);
}

/* Begins an object; the caller writes its pickle and ends it with pickle_write_stop. */
static struct text *begin_object(struct dcp_items *items, char *name, const char *type)
{
    struct dcp_item *item = add_item(items, name);
    item->is_nested = true, item->kind = DCP_OBJECT, item->type = type;
    pickle_write_proto(&item->pickle);
    return &item->pickle;
}

static void add_float(struct dcp_items *items, char *name, double value)
{
    struct text *t = begin_object(items, name, "float");
    pickle_write_float(t, value), pickle_write_stop(t);
}

static void add_bool(struct dcp_items *items, char *name, bool value)
{
    struct text *t = begin_object(items, name, "bool");
    pickle_write_bool(t, value), pickle_write_stop(t);
}

static void add_int(struct dcp_items *items, char *name, int64_t value)
{
    struct text *t = begin_object(items, name, "int");
    pickle_write_int(t, value), pickle_write_stop(t);
}

static void add_float_list(struct dcp_items *items, char *name, double value)
{
    struct text *t = begin_object(items, name, "list");
    pickle_write_empty_list(t), pickle_write_mark(t);
    pickle_write_float(t, value), pickle_write_appends(t), pickle_write_stop(t);
}

/* An io.BytesIO, whose state is its bytes, its position and its attributes. */
static void add_empty_list_file(struct dcp_items *items, char *name)
{
    struct text list = {0}, archive = {0};
    pickle_write_proto(&list), pickle_write_empty_list(&list), pickle_write_stop(&list);
    torch_writer_pickle(&list, &archive);
    struct text *t = begin_object(items, name, "BytesIO");
    pickle_write_global(t, "_io", "BytesIO");
    pickle_write_empty_tuple(t), pickle_write_newobj(t), pickle_write_mark(t);
    pickle_write_bytes(t, archive.data, archive.len);
    pickle_write_int(t, 0), pickle_write_none(t);
    pickle_write_tuple(t), pickle_write_build(t), pickle_write_stop(t);
    text_release(&list), text_release(&archive);
}

static void add_scalar(struct dcp_items *items, char *name, enum safetensors_dtype dtype,
                       const void *bytes)
{
    struct dcp_item *item = add_item(items, name);
    item->is_nested = true, item->kind = DCP_SCALAR, item->tensor.dtype = dtype;
    memcpy(item->number, bytes, sizeof item->number);
}

static void add_moments(struct dcp_items *items, size_t weight, const struct dcp_run *run)
{
    const struct tensor_source *sources[] = {&run->exp_avg, &run->exp_avg_sq};
    const enum tensor_kind parts[] = {TENSOR_EXP_AVG, TENSOR_EXP_AVG_SQ};
    float step = (float)run->moment_steps;
    for (int i = 0; i < 2; i++) {
        char *name = concat("optimizer.state.", weight_name(&items->all[weight]),
                            tensor_name_suffix(parts[i]));
        struct dcp_item *item = add_item(items, name);
        const struct dcp_item *of = &items->all[weight];
        item->is_nested = true, item->tensor = of->tensor;
        item->tensor.dtype = SAFETENSORS_F32;
        item->index = of->index, item->source = sources[i];
    }
    add_scalar(items, concat("optimizer.state.", weight_name(&items->all[weight]), ".step"),
               SAFETENSORS_F32, &step);
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
    struct text *t = begin_object(items, concat(group, ".betas", ""), "tuple");
    pickle_write_mark(t), pickle_write_float(t, a->beta1), pickle_write_float(t, a->beta2);
    pickle_write_tuple(t), pickle_write_stop(t);
    free(group);
}

/* What LambdaLR of any version since 2.4 keeps; its lr_lambdas have no state. */
static void add_lr_scheduler(struct dcp_items *items, const struct dcp_run *run)
{
    add_int(items, copy_name("lr_scheduler.last_epoch"), run->step);
    add_int(items, copy_name("lr_scheduler._step_count"), run->step + 1);
    add_bool(items, copy_name("lr_scheduler._get_lr_called_within_step"), false);
    add_bool(items, copy_name("lr_scheduler._is_initial"), false);
    add_bool(items, copy_name("lr_scheduler.verbose"), false);
    add_float_list(items, copy_name("lr_scheduler.base_lrs"), run->adamw.peak_lr);
    add_float_list(items, copy_name("lr_scheduler._last_lr"), run->adamw.lr);
}

static void add_train_value(struct dcp_items *items, char *name, enum dcp_train_value value,
                            const struct dcp_run *run)
{
    int32_t step = (int32_t)run->step;
    switch (value) {
    case DCP_STEP_INT32: add_scalar(items, name, SAFETENSORS_I32, &step); break;
    case DCP_STEP: add_int(items, name, run->step); break;
    case DCP_TOKENS: add_int(items, name, run->tokens_seen); break;
    case DCP_EMPTY_LIST: add_empty_list_file(items, name); break;
    case DCP_TRAIN_VALUES: BUG("no value");
    }
}

static void add_train_state(struct dcp_items *items, const struct dcp_generation_spec *spec,
                            const struct dcp_run *run)
{
    for (int i = 0; spec->train_state[i].name; i++)
        add_train_value(items, concat("train_state.", spec->train_state[i].name, ""),
                        spec->train_state[i].value, run);
    struct text *t = begin_object(items, copy_name("llamero.train"), "str");
    pickle_write_string(t, run->train), pickle_write_stop(t);
}

/* A position is the pickle of a dict; torchdata's StatefulDataLoader starts from the beginning if
 * the dict is empty. */
static void add_empty_loader(struct dcp_items *items, const struct dcp_generation_spec *spec,
                             int dp_size)
{
    for (int r = 0; r < dp_size; r++) {
        char name[48];
        snprintf(name, sizeof name, "dataloader.dp_rank_%d", r);
        struct text *t = begin_object(items, copy_name(name), "bytes");
        pickle_write_bytes(t, "}.", 2), pickle_write_stop(t);
    }
    if (dp_size && spec->loader_size)
        add_int(items, concat("dataloader.", spec->loader_size, ""), dp_size);
}

static void add_rope_table(struct dcp_items *items, const struct named_model *n, int64_t positions)
{
    struct dcp_item *item = add_item(items, concat(n->is_nested ? MODEL : "", "freqs_cis", ""));
    item->is_nested = n->is_nested, item->kind = DCP_ROPE_TABLE;
    item->tensor = (struct torch_tensor){
        .dtype = SAFETENSORS_C64, .num_dims = 2, .shape = {positions, n->model->shape->K / 2}};
}

void dcp_items_make(struct dcp_items *items, const struct torch_model *m,
                    const struct dcp_target *target, const struct dcp_run *run)
{
    const struct dcp_generation_spec *spec = &dcp_generations[target->generation];
    const struct named_model n = {m, spec, run ? spec->nests_run_model : spec->nests_model};
    *items = (struct dcp_items){0};
    add_model(items, &n);
    size_t trained = items->count;
    add_tied_head(items, &n);
    if (!spec->ties) trained = items->count;
    if (!run) return;
    if (spec->has_rope_table) add_rope_table(items, &n, target->seq_len);
    for (size_t i = 0; i < trained; i++) add_moments(items, i, run);
    for (size_t i = 0; i < trained; i++)
        add_param_group(items, weight_name(&items->all[i]), &run->adamw);
    add_lr_scheduler(items, run);
    add_train_state(items, spec, run);
    add_empty_loader(items, spec, spec->has_empty_loader ? target->dp_size : 0);
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
