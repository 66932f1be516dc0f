// SPDX-License-Identifier: Apache-2.0
#include "config/sections.h"

#include "base/toml.h"

#include <stdio.h>
#include <string.h>

#define ROWS(name) static const struct option name##_rows[] =

ROWS(job){
#define OPT(...) OPT_ROW(struct job_config, __VA_ARGS__)
#include "config/job.opts"
#undef OPT
};
ROWS(profiling){
#define OPT(...) OPT_ROW(struct profiling_config, __VA_ARGS__)
#include "config/profiling.opts"
#undef OPT
};
ROWS(metrics){
#define OPT(...) OPT_ROW(struct metrics_config, __VA_ARGS__)
#include "metrics/metrics.opts"
#undef OPT
};
ROWS(model){
#define OPT(...) OPT_ROW(struct model_config, __VA_ARGS__)
#include "model/model.opts"
#undef OPT
};
ROWS(optimizer){
#define OPT(...) OPT_ROW(struct optimizer_config, __VA_ARGS__)
#include "optim/optimizer.opts"
#undef OPT
};
ROWS(lr_scheduler){
#define OPT(...) OPT_ROW(struct lr_scheduler_config, __VA_ARGS__)
#include "optim/lr_scheduler.opts"
#undef OPT
};
ROWS(training){
#define OPT(...) OPT_ROW(struct training_config, __VA_ARGS__)
#include "config/training.opts"
#undef OPT
};
ROWS(parallelism){
#define OPT(...) OPT_ROW(struct parallelism_config, __VA_ARGS__)
#include "parallel/parallelism.opts"
#undef OPT
};
ROWS(comm){
#define OPT(...) OPT_ROW(struct comm_config, __VA_ARGS__)
#include "comm/comm.opts"
#undef OPT
};
ROWS(checkpoint){
#define OPT(...) OPT_ROW(struct checkpoint_config, __VA_ARGS__)
#include "checkpoint/checkpoint.opts"
#undef OPT
};
ROWS(activation_checkpoint){
#define OPT(...) OPT_ROW(struct activation_checkpoint_config, __VA_ARGS__)
#include "model/activation_checkpoint.opts"
#undef OPT
};
ROWS(float8){
#define OPT(...) OPT_ROW(struct float8_config, __VA_ARGS__)
#include "model/float8.opts"
#undef OPT
};
ROWS(validation){
#define OPT(...) OPT_ROW(struct validation_config, __VA_ARGS__)
#include "config/validation.opts"
#undef OPT
};
ROWS(debug){
#define OPT(...) OPT_ROW(struct debug_config, __VA_ARGS__)
#include "config/debug.opts"
#undef OPT
};
ROWS(data){
#define OPT(...) OPT_ROW(struct data_config, __VA_ARGS__)
#include "data/data.opts"
#undef OPT
};
ROWS(source){
#define OPT(...) OPT_ROW(struct source_config, __VA_ARGS__)
#include "data/source.opts"
#undef OPT
};
ROWS(stage){
#define OPT(...) OPT_ROW(struct stage_config, __VA_ARGS__)
#include "data/stage.opts"
#undef OPT
};
ROWS(tokenizer){
#define OPT(...) OPT_ROW(struct tokenizer_config, __VA_ARGS__)
#include "tokenizer/tokenizer.opts"
#undef OPT
};
ROWS(objective){
#define OPT(...) OPT_ROW(struct objective_config, __VA_ARGS__)
#include "data/objective.opts"
#undef OPT
};
ROWS(guard){
#define OPT(...) OPT_ROW(struct guard_config, __VA_ARGS__)
#include "config/guard.opts"
#undef OPT
};
ROWS(device){
#define OPT(...) OPT_ROW(struct device_config, __VA_ARGS__)
#include "tensor/device.opts"
#undef OPT
};

ROWS(config){
#define OPT(...) OPT_ROW(struct accept_config, __VA_ARGS__)
#include "config/config.opts"
#undef OPT
};

#define SECTION(name, title)                                                                       \
    {                                                                                              \
#name, offsetof(struct config, name), name##_rows,                                         \
            sizeof name##_rows / sizeof *name##_rows, title                                        \
    }

const struct config_section config_sections[NUM_SECTIONS] = {
    SECTION(job, "Name and output folder of the run."),
    SECTION(profiling, "Traces of the time spent in a step."),
    SECTION(metrics, "What a run reports."),
    SECTION(model, "The model: a flavor of Llama or of a relative, or individual dimensions."),
    SECTION(optimizer, "AdamW or Muon."),
    SECTION(lr_scheduler, "Learning rate schedule."),
    SECTION(training, "Batches, steps, precision."),
    SECTION(parallelism, "Parallel degrees and schedules."),
    SECTION(comm, "Limits of the time without progress."),
    SECTION(checkpoint, "Saving and resuming."),
    SECTION(activation_checkpoint, "Activations that backward recomputes to save memory."),
    SECTION(float8, "Matrix multiplications in FP8."),
    SECTION(validation, "Loss on held-out data."),
    SECTION(debug, "Seeds."),
    SECTION(data, "Training data and its order. Sources follow as [[data.source]], and stages as "
                  "[[data.stage]]."),
    SECTION(tokenizer, "Tokenizer details."),
    SECTION(objective, "Training objective."),
    SECTION(guard, "Reactions to non-finite losses and gradients, and to loss spikes."),
    SECTION(device, "Hardware, kernels and communication."),
    SECTION(config, "Differences from the original that are accepted."),
};

#define ELEMENT(name, items, count, title)                                                         \
    {                                                                                              \
        {"data." #name, 0, name##_rows, sizeof name##_rows / sizeof *name##_rows, title},          \
            offsetof(struct config, data.items), offsetof(struct config, data.count),              \
            sizeof(struct name##_config)                                                           \
    }

const struct config_array config_arrays[NUM_ARRAYS] = {
    [ARRAY_source] = ELEMENT(source, sources, num_sources,
                             "One [[data.source]] table for each source of the mixture."),
    [ARRAY_stage] =
        ELEMENT(stage, stages, num_stages,
                "One [[data.stage]] table for each change of the data in the run, such as an "
                "annealing mix or longer rows. Sources continue where they were; a stage "
                "begins from a checkpoint that ends the one before."),
};

const struct config_array *config_find_array(const char *key)
{
    for (size_t i = 0; i < NUM_ARRAYS; i++) {
        const char *name = config_arrays[i].element.name;
        size_t len = strlen(name);
        if (!strncmp(key, name, len) && (!key[len] || key[len] == '.')) return &config_arrays[i];
    }
    return NULL;
}

size_t config_array_count(const struct config *c, const struct config_array *a)
{
    return *(const size_t *)(const void *)((const char *)c + a->count);
}

void *config_array_item(const struct config *c, const struct config_array *a, size_t i)
{
    char *items;
    memcpy(&items, (const char *)c + a->items, sizeof items);
    return items + i * a->bytes;
}

enum status config_array_append(struct config *c, const struct config_array *a)
{
    size_t *count = (size_t *)(void *)((char *)c + a->count);
    void *items;
    memcpy(&items, (char *)c + a->items, sizeof items);
    items = heap_grow(items, *count + 1, a->bytes);
    memcpy((char *)c + a->items, &items, sizeof items);
    void *added = config_array_item(c, a, (*count)++);
    memset(added, 0, a->bytes);
    return config_set_defaults(&a->element, added);
}

const struct config_alias config_aliases[] = {
#define ALIAS(old_key, key, is_fork) {old_key, key, is_fork},
#include "config/aliases.def"
#undef ALIAS
};
const size_t config_num_aliases = sizeof config_aliases / sizeof *config_aliases;

const struct config_foreign config_foreign[] = {
#define IGNORE(name, harmless, reason) {name, false, harmless, reason},
#define ERROR(name, harmless, reason)  {name, true, harmless, reason},
#include "config/foreign.def"
#undef IGNORE
#undef ERROR
};
const size_t config_num_foreign = sizeof config_foreign / sizeof *config_foreign;

const struct option *config_find(const char *key, const struct config_section **section)
{
    const char *dot = strchr(key, '.');
    for (size_t s = 0; dot && s < NUM_SECTIONS; s++) {
        const struct config_section *here = &config_sections[s];
        size_t len = (size_t)(dot - key);
        if (strlen(here->name) != len || strncmp(here->name, key, len)) continue;
        for (size_t r = 0; r < here->count; r++)
            if (!strcmp(here->rows[r].name, dot + 1)) {
                *section = here;
                return &here->rows[r];
            }
    }
    return NULL;
}

const struct option *config_find_element(const struct config_array *a, const char *key)
{
    const struct config_section *section = &a->element;
    const struct config_alias *alias = config_find_alias(key);
    const char *name = strrchr(alias ? alias->key : key, '.');
    for (size_t r = 0; name && r < section->count; r++)
        if (!strcmp(section->rows[r].name, name + 1)) return &section->rows[r];
    return NULL;
}

const struct config_alias *config_find_alias(const char *key)
{
    for (size_t i = 0; i < config_num_aliases; i++)
        if (!strcmp(config_aliases[i].old_key, key)) return &config_aliases[i];
    return NULL;
}

const struct config_foreign *config_find_foreign(const char *key)
{
    for (size_t i = 0; i < config_num_foreign; i++) {
        const char *name = config_foreign[i].name;
        size_t len = strlen(name);
        bool is_prefix = len > 2 && !strcmp(name + len - 2, ".*");
        if (is_prefix ? !strncmp(name, key, len - 1) : !strcmp(name, key))
            return &config_foreign[i];
    }
    return NULL;
}

enum status config_set_defaults(const struct config_section *section, void *into)
{
    for (size_t r = 0; r < section->count; r++) {
        struct toml *unused = NULL;
        const struct option *row = &section->rows[r];
        /* default strings are literals of the tables */
        if (row->kind == OPTION_TEXT) {
            *(const char **)(void *)((char *)into + row->offset) = row->preset;
            continue;
        }
        TRY(option_set_text(row, into, row->kind == OPTION_LIST ? "[]" : row->preset, &unused));
        toml_free(unused);
    }
    return STATUS_OK;
}
