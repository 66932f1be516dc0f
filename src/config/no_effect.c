// SPDX-License-Identifier: Apache-2.0
#include "config/no_effect.h"

#include "base/log.h"
#include "config/book.h"
#include "model/float8.h"
#include "model/model_shape.h"

#include <stdlib.h>
#include <string.h>

static bool validates(const struct config *c) { return c->validation.enable; }
static bool has_validation_path(const struct config *c)
{
    return c->validation.dataset_path[0] || c->validation.dataset[0];
}
static bool has_validation_tasks(const struct config *c) { return c->validation.tasks.count > 0; }
static bool saves(const struct config *c)
{
    return c->checkpoint.enable && !c->checkpoint.load_only;
}
static bool exports(const struct config *c) { return c->checkpoint.last_save_model_only; }
static bool copies(const struct config *c) { return c->checkpoint.copy_to[0]; }
static bool names_data(const struct config *c) { return c->training.dataset[0]; }
static bool reads_tuned_gemms(const struct config *c)
{
    return c->device.tune_gemm || c->device.kind != DEVICE_KIND_cpu;
}
static bool decays(const struct config *c) { return c->lr_scheduler.decay_ratio != 0; }
static bool skips_in_time(const struct config *c)
{
    const struct option_ranges *r = &c->guard.skip_steps;
    for (size_t i = 0; i < r->count; i++)
        if (r->items[i].first > c->training.steps) return false;
    return true;
}
static bool starts_from_others(const struct config *c)
{
    return c->checkpoint.initial_load_path[0];
}
static bool profiles(const struct config *c) { return c->profiling.enable_profiling; }
static bool has_tensorboard(const struct config *c) { return c->metrics.enable_tensorboard; }
static bool has_wandb(const struct config *c) { return c->metrics.enable_wandb; }
static bool has_mlflow(const struct config *c) { return c->metrics.enable_mlflow; }
static bool has_tags(const struct config *c)
{
    return has_tensorboard(c) || has_wandb(c) || has_mlflow(c);
}
static bool recomputes_some(const struct config *c)
{
    return c->activation_checkpoint.mode == ACTIVATION_CHECKPOINT_selective;
}
static bool is_masked(const struct config *c) { return c->objective.name == OBJECTIVE_masked; }
static bool has_masks(const struct config *c) { return c->objective.name != OBJECTIVE_causal; }
static bool is_causal(const struct config *c) { return c->objective.name == OBJECTIVE_causal; }
static bool is_pipelined(const struct config *c)
{
    return c->parallelism.pipeline_parallel_degree > 1;
}
static bool divides_blocks(const struct config *c)
{
    return !c->parallelism.pipeline_parallel_split_points.count;
}
static bool has_streams(const struct config *c) { return c->data.order == ORDER_streams; }
static bool has_samples(const struct config *c) { return c->data.order == ORDER_megatron; }
static bool has_sampler(const struct config *c) { return c->data.sampler != SAMPLER_single; }
static bool skips_bad_records(const struct config *c)
{
    return c->data.on_bad_record == ON_BAD_RECORD_skip;
}
static bool rolls_back(const struct config *c)
{
    return c->guard.nonfinite == NONFINITE_rollback || c->guard.on_spike == ON_SPIKE_rollback;
}
static bool skips_nonfinite(const struct config *c) { return c->guard.nonfinite == NONFINITE_skip; }
static bool has_torchtitan_init(const struct config *c) { return c->model.init == INIT_torchtitan; }
static bool scales_rope(const struct config *c, unsigned methods)
{
    struct model_shape s;
    if (model_shape_resolve(&s, &c->model, 0)) return true; /* config_check reports it */
    return s.scaling.factor > 0 && methods & 1u << s.scaling.method;
}
static bool has_rope_factor(const struct config *c) { return scales_rope(c, ~0u); }
static bool has_original_context(const struct config *c)
{
    return scales_rope(c, ~(1u << ROPE_linear));
}
static bool has_llama3_rope(const struct config *c) { return scales_rope(c, 1u << ROPE_llama3); }
static bool has_yarn(const struct config *c) { return scales_rope(c, 1u << ROPE_yarn); }
static bool has_longrope(const struct config *c) { return scales_rope(c, 1u << ROPE_longrope); }
static bool has_attention_factor(const struct config *c) { return has_yarn(c) || has_longrope(c); }
static bool has_float8(const struct config *c)
{
    bool enabled = false;
    if (float8_resolve(&c->model, &c->float8, &enabled)) return true; /* config_check reports it */
    return enabled;
}
static bool fits_warmup(const struct config *c)
{
    const struct lr_scheduler_config *s = &c->lr_scheduler;
    return s->warmup_steps <= (s->total_steps ? s->total_steps : c->training.steps);
}
static bool decays_to_the_end(const struct config *c)
{
    const struct lr_scheduler_config *s = &c->lr_scheduler;
    bool is_megatron = s->formula == LR_FORMULA_megatron, counts_samples = s->total_samples > 0;
    bool reads_ratio = is_megatron || s->formula == LR_FORMULA_torchtitan;
    if ((is_megatron && counts_samples) || (reads_ratio && s->decay_ratio == 0)) return true;
    return s->total_steps >= c->training.steps;
}

/* A key, or all keys of a section ("validation."), and when the run uses it.  The first row of a
 * key whose condition does not hold counts. */
static const struct effect_rule {
    const char *keys;
    bool (*is_used)(const struct config *c);
    const char *reason;
} rules[] = {
    {"validation.", validates, "requires validation.enable = true"},
    {"validation.column", has_validation_path, "requires validation.dataset_path"},
    {"validation.task_items", has_validation_tasks, "requires validation.tasks"},
    {"checkpoint.interval", saves, "no checkpoint is saved: set checkpoint.enable = true"},
    {"checkpoint.interval_type", saves, "no checkpoint is saved: set checkpoint.enable = true"},
    {"checkpoint.async_mode", saves, "no checkpoint is saved: set checkpoint.enable = true"},
    {"checkpoint.keep_latest_k", saves, "no checkpoint is saved: set checkpoint.enable = true"},
    {"checkpoint.last_save_model_only", saves,
     "no checkpoint is saved: set checkpoint.enable = true"},
    {"checkpoint.enable_first_step_checkpoint", saves,
     "no checkpoint is saved: set checkpoint.enable = true"},
    {"checkpoint.export_dtype", exports, "requires checkpoint.last_save_model_only = true"},
    {"checkpoint.copy_stop_timeout", copies, "requires checkpoint.copy_to"},
    {"checkpoint.initial_load_model_only", starts_from_others,
     "requires checkpoint.initial_load_path"},
    {"profiling.", profiles, "requires profiling.enable_profiling = true"},
    {"metrics.save_tb_folder", has_tensorboard, "requires metrics.enable_tensorboard = true"},
    {"metrics.tensorboard_tags", has_tags,
     "requires metrics.enable_tensorboard, enable_wandb or enable_mlflow = true"},
    {"metrics.wandb_project", has_wandb, "requires metrics.enable_wandb = true"},
    {"metrics.mlflow_experiment", has_mlflow, "requires metrics.enable_mlflow = true"},
    {"activation_checkpoint.selective_ac_option", recomputes_some,
     "requires activation_checkpoint.mode = \"selective\""},
    {"float8.", has_float8,
     "requires model.converters = [\"float8\"] or float8.enable_float8_linear = true"},
    {"objective.mask_probability", is_masked, "requires objective.name = \"masked\""},
    {"objective.mask_token", has_masks, "requires objective.name = \"masked\" or \"diffusion\""},
    {"data.row_overlap", is_causal, "requires objective.name = \"causal\""},
    {"data.streams", has_streams, "requires data.order = \"streams\""},
    {"data.shuffle_window", has_streams, "requires data.order = \"streams\""},
    {"data.validation_share", has_streams, "requires data.order = \"streams\""},
    {"data.split", has_samples, "requires data.order = \"megatron\""},
    {"data.blend", has_samples, "requires data.order = \"megatron\""},
    {"data.samples", has_samples, "requires data.order = \"megatron\""},
    {"data.sampler_ranks", has_sampler, "requires data.sampler other than \"single\""},
    {"data.sampler_rows", has_sampler, "requires data.sampler other than \"single\""},
    {"data.sampler_batch", has_sampler, "requires data.sampler other than \"single\""},
    {"data.bad_record_limit", skips_bad_records, "requires data.on_bad_record = \"skip\""},
    {"guard.max_rollbacks", rolls_back,
     "requires guard.on_spike or guard.nonfinite = \"rollback\""},
    {"guard.max_skips", skips_nonfinite, "requires guard.nonfinite = \"skip\""},
    {"model.rope_factor", has_rope_factor, "requires model.rope_scaling"},
    {"model.rope_original_context", has_original_context,
     "requires model.rope_scaling = \"llama3\", \"dynamic\", \"yarn\" or \"longrope\""},
    {"model.rope_low_freq_factor", has_llama3_rope, "requires model.rope_scaling = \"llama3\""},
    {"model.rope_high_freq_factor", has_llama3_rope, "requires model.rope_scaling = \"llama3\""},
    {"model.rope_beta_fast", has_yarn, "requires model.rope_scaling = \"yarn\""},
    {"model.rope_beta_slow", has_yarn, "requires model.rope_scaling = \"yarn\""},
    {"model.rope_attention_factor", has_attention_factor,
     "requires model.rope_scaling = \"yarn\" or \"longrope\""},
    {"model.rope_short_factor", has_longrope, "requires model.rope_scaling = \"longrope\""},
    {"model.rope_long_factor", has_longrope, "requires model.rope_scaling = \"longrope\""},
    {"model.depth_init", has_torchtitan_init, "requires model.init = \"torchtitan\""},
    {"parallelism.pipeline_parallel_", is_pipelined,
     "requires parallelism.pipeline_parallel_degree of at least 2"},
    {"parallelism.pipeline_parallel_layers_per_stage", divides_blocks,
     "parallelism.pipeline_parallel_split_points sets the stages"},
    {"training.n_fixed", names_data, "requires training.dataset"},
    {"training.source_dataset", names_data, "requires training.dataset"},
    {"device.tune_file", reads_tuned_gemms, "on a CPU requires device.tune_gemm = true"},
    {"lr_scheduler.decay_type", decays, "with lr_scheduler.decay_ratio = 0 the rate never decays"},
    {"lr_scheduler.min_lr_factor", decays,
     "with lr_scheduler.decay_ratio = 0 the rate never decays"},
};
/* Settings that do only a part of what they say. */
static const struct effect_rule partial_rules[] = {
    {"guard.skip_steps", skips_in_time, "contains steps after training.steps"},
    {"lr_scheduler.warmup_steps", fits_warmup,
     "is longer than the schedule: the learning rate rises until the last step"},
    {"lr_scheduler.total_steps", decays_to_the_end,
     "is less than training.steps: the steps after it keep the schedule's last learning rate"},
};
#define COUNT(table) (sizeof(table) / sizeof *(table))

static bool covers(const char *keys, const char *key)
{
    size_t len = strlen(keys);
    bool is_prefix = keys[len - 1] == '.' || keys[len - 1] == '_';
    return is_prefix ? !strncmp(keys, key, len) : !strcmp(keys, key);
}

/* NULL: no rule applies. */
static const char *find_reason(const struct effect_rule *table, size_t count,
                               const struct config *c, const char *key)
{
    for (size_t i = 0; i < count; i++)
        if (covers(table[i].keys, key) && !table[i].is_used(c)) return table[i].reason;
    return NULL;
}

/* Options whose values turn the others on. */
static bool is_switch(const char *key)
{
    return !strcmp(key, "validation.enable") || !strcmp(key, "profiling.enable_profiling") ||
           !strcmp(key, "parallelism.pipeline_parallel_degree");
}

static void check_section(const struct config *c, const struct config_section *s, struct text *out)
{
    void *defaults = heap(sizeof *c);
    struct text key = {0}, value = {0}, preset = {0};
    bool has_defaults = !config_set_defaults(s, defaults);
    for (size_t i = 0; i < s->count && has_defaults; i++) {
        text_clear(&key), text_clear(&value), text_clear(&preset);
        text_addf(&key, "%s.%s", s->name, s->rows[i].name);
        if (is_switch(key.data)) continue;
        const char *reason = find_reason(rules, COUNT(rules), c, key.data);
        const char *part = find_reason(partial_rules, COUNT(partial_rules), c, key.data);
        if ((!reason && !part) || book_is_default(c->book, key.data)) continue;
        option_write(&s->rows[i], (const char *)c + s->offset, &value);
        option_write(&s->rows[i], defaults, &preset);
        if (strcmp(value.data, preset.data))
            text_addf(out, "%s%s = %s %s%s", out->len ? "\n" : "", key.data, value.data,
                      reason ? "has no effect: " : "", reason ? reason : part);
    }
    text_release(&key), text_release(&value), text_release(&preset);
    for (size_t i = 0; i < s->count; i++) option_release(&s->rows[i], defaults);
    free(defaults);
}

/* Where a stage by at_tokens begins depends on the ranks; `check` lists the stages. */
static void check_stages(const struct config *c, struct text *out)
{
    for (size_t i = 0; i < c->data.num_stages; i++)
        if (c->data.stages[i].at_step && c->data.stages[i].at_step >= c->training.steps)
            text_addf(out, "%sdata.stage.%zu.at_step = %lld has no effect: training.steps = %lld",
                      out->len ? "\n" : "", i, (long long)c->data.stages[i].at_step,
                      (long long)c->training.steps);
}

void no_effect_find(const struct config *c, struct text *lines)
{
    for (size_t s = 0; s < NUM_SECTIONS; s++) check_section(c, &config_sections[s], lines);
    check_stages(c, lines);
}

void no_effect_log(const struct config *c)
{
    struct text lines = {0};
    no_effect_find(c, &lines);
    for (char *line = lines.data, *end; line && *line; line = end) {
        size_t len = strcspn(line, "\n");
        end = line + len + (line[len] == '\n');
        log_line(LOG_WARN, "%.*s", (int)len, line);
    }
    text_release(&lines);
}
