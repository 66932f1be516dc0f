/* nxdt.c -- imports NxD Training's YAML: the rules for keys that need more than a table row. */
// SPDX-License-Identifier: Apache-2.0
#include "config/import/import.h"
#include "config/import/interpolate.h"
#include "config/import/nxdt_model.h"
#include "config/import/rules.h"
#include "config/sections.h"
#include "formats/yaml_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct import_row rows[] = {
#define ROW(key, kind, target, text) {key, IMPORT_ROW_##kind, target, text},
#include "config/import/nxdt.def"
#undef ROW
};
enum { NUM_ROWS = sizeof rows / sizeof *rows };

#define THEIR_DEFAULT "The default of NxD Training."
#define NO_SCHEDULE   "Without a schedule the rate is constant."

/* Adds the values below `v` as items whose keys are dotted paths. */
static enum status add_items(struct import *im, const struct yaml_tree *v, const char *prefix)
{
    for (const struct yaml_tree *child = v->first; child; child = child->next) {
        struct text key = {0};
        const char **values = heap(child->count * sizeof *values + sizeof *values);
        size_t count = 0;
        enum status st = STATUS_OK;
        text_addf(&key, "%s%s%s", prefix, prefix[0] ? "." : "", child->key);
        if (child->kind == YAML_MAP) st = add_items(im, child, key.data);
        if (child->kind == YAML_SCALAR) values[count++] = child->text;
        for (const struct yaml_tree *e = child->first; e && child->kind == YAML_LIST && !st;
             e = e->next)
            if (e->kind == YAML_SCALAR)
                values[count++] = e->text;
            else
                st = FAILURE(CONFIG, "%s:%d: %s: expected a list of scalars, got %s", im->file,
                             e->line, key.data, yaml_tree_kind_name(e));
        if (!st && child->kind != YAML_MAP) {
            bool null = child->kind == YAML_SCALAR && yaml_tree_is_null(child);
            import_add_item(im, key.data, child->line, null ? NULL : values, count);
        }
        free(values);
        text_release(&key);
        TRY(st);
    }
    return STATUS_OK;
}

static enum status set_layout(struct import *im, struct import_layout *l)
{
    int64_t devices, nodes;
    bool zero1;
    TRY(import_get_int(im, "trainer.devices", 0, &devices));
    TRY(import_get_int(im, "trainer.num_nodes", 1, &nodes));
    TRY(import_get_int(im, "data.micro_batch_size", 1, &l->micro_batch));
    TRY(import_get_int(im, "data.global_batch_size", 0, &l->global_batch));
    TRY(import_get_int(im, "distributed_strategy.context_parallel_size", 1, &l->cp));
    TRY(import_get_int(im, "distributed_strategy.virtual_pipeline_model_parallel_size", 1, &l->vp));
    TRY(import_get_int(im, "model.num_layers", 0, &l->layers));
    TRY(import_get_int(im, "distributed_strategy.tensor_model_parallel_size", 1, &l->tp));
    TRY(import_get_int(im, "distributed_strategy.pipeline_model_parallel_size", 1, &l->pp));
    TRY(import_get_bool(im, "distributed_strategy.zero1", false, &zero1));
    l->sharding = zero1 ? SHARD_MOMENTS : SHARD_NOTHING;
    l->replicas = 1;
    if (__builtin_mul_overflow(devices, nodes, &l->ranks))
        FAIL(CONFIG, "%s: trainer.devices x trainer.num_nodes is too large", im->file);
    l->last_gets_more = true;
    return rules_set_layout(im, l,
                            &(struct import_layout_keys){
                                .tp = "distributed_strategy.tensor_model_parallel_size",
                                .pp = "distributed_strategy.pipeline_model_parallel_size",
                                .cp = "distributed_strategy.context_parallel_size",
                                .micro_batch = "data.micro_batch_size",
                                .global_batch = "data.global_batch_size",
                                .sharding = "distributed_strategy.zero1",
                                .vp = "distributed_strategy.virtual_pipeline_model_parallel_size"});
}

/* The original names the last layer of a stage; split points name the first block of the next. */
static enum status set_split_points(struct import *im)
{
    const struct import_item *item = import_get(im, "model.pipeline_cuts");
    struct text points = {0};
    enum status st = STATUS_OK;
    if (!item) return STATUS_OK;
    for (size_t i = 0; i < item->count && !st; i++) {
        int layer, end = 0;
        if (sscanf(item->values[i], "model.layers.%6d%n", &layer, &end) < 1 ||
            item->values[i][end] || layer < 0)
            st = import_bad_value(im, item, "a list of names such as model.layers.18");
        else
            text_addf(&points, "%slayers.%d", i ? "," : "", layer + 1);
    }
    if (!st && item->count)
        st = import_set(
            im, item, "parallelism.pipeline_parallel_split_points", points.data,
            "The original names the last layer of a stage, Llamero the first of the next.");
    text_release(&points);
    return st;
}

static enum status get_max_steps(struct import *im, int64_t *steps)
{
    const struct import_item *item = import_get(im, "trainer.max_steps");
    *steps = 0;
    return item ? import_parse_int(im, item, 0, 1LL << 40, steps) : STATUS_OK;
}

static enum status set_schedule(struct import *im)
{
    const struct import_item *name = import_get(im, "model.optim.sched.name");
    const struct import_item *least = import_get(im, "model.optim.sched.min_lr");
    const struct import_item *steps = import_get(im, "model.optim.sched.max_steps");
    int64_t constant, length, run;
    const char *word = name && name->count == 1 ? name->values[0] : "";
    TRY(import_get_int(im, "model.optim.sched.constant_steps", 0, &constant));
    TRY(get_max_steps(im, &run));
    length = run;
    if (steps) TRY(import_parse_int(im, steps, 0, 1LL << 40, &length));
    if (!name) {
        TRY(import_set(im, NULL, "lr_scheduler.warmup_steps", "0", NO_SCHEDULE));
        return import_set(im, NULL, "lr_scheduler.min_lr_factor", "1", NO_SCHEDULE);
    }
    if (!import_get(im, "model.optim.sched.warmup_steps"))
        TRY(import_set(im, NULL, "lr_scheduler.warmup_steps", "0", THEIR_DEFAULT));
    if (run && length != run)
        import_add_note(im, IMPORT_ORIGINAL_BUG, steps,
                        "NxD Training replaces it by trainer.max_steps; here it applies.");
    if (!strcmp(word, "CosineAnnealing")) {
        TRY(import_set(
            im, name, "lr_scheduler.formula", constant ? "megatron" : "nxdt",
            constant ? "constant_steps selects Megatron-LM's warmup: step / warmup_steps."
                     : "Warmup is (step + 1) / (warmup_steps + 1), followed by cosine decay."));
        TRY(import_set(im, name, "lr_scheduler.decay_type", "cosine", ""));
        if (constant > length) {
            char expected[64];
            snprintf(expected, sizeof expected, "at most the %lld steps of the schedule",
                     (long long)length);
            return import_bad_value(im, import_get(im, "model.optim.sched.constant_steps"),
                                    expected);
        }
        length -= constant;
    } else if (!strcmp(word, "LinearAnnealingWithWarmUp")) {
        TRY(import_set(im, name, "lr_scheduler.formula", "megatron",
                       "Hugging Face's linear schedule; the first step's rate is 0."));
        TRY(import_set(im, name, "lr_scheduler.decay_type", "linear", ""));
    } else {
        return import_bad_value(im, name, "CosineAnnealing or LinearAnnealingWithWarmUp");
    }
    if (length != run || constant)
        TRY(import_set_int(im, steps, "lr_scheduler.total_steps", length, ""));
    return rules_set_min_lr(im, least, "lr_scheduler.min_lr_factor",
                            import_get(im, "model.optim.lr"));
}

/* NeMo's callback.  Without it the keys below are not read. */
static enum status set_ema(struct import *im)
{
    static const struct {
        const char *key, *ours, *text;
    } fixed[] = {
        {"exp_manager.ema.apply_ema_every_n_steps", "1", "the average is updated after every step"},
        {"exp_manager.ema.start_step", "0", "the average starts with the run"},
        {"exp_manager.ema.evaluate_ema_weights_instead", "false",
         "validation uses the weights; `llamero eval --ema` uses the average"}};
    const struct import_item *enable = import_get(im, "exp_manager.ema.enable");
    const struct import_item *decay = import_get(im, "exp_manager.ema.decay");
    bool is_on;
    TRY(import_get_bool(im, "exp_manager.ema.enable", false, &is_on));
    if (!is_on) return STATUS_OK;
    import_add_note(im, IMPORT_IGNORED, enable, "see optimizer.ema_decay");
    if (decay) TRY(import_parse_string(im, decay, NULL));
    TRY(import_set(im, decay, "optimizer.ema_decay", decay ? decay->values[0] : "0.999",
                   decay ? "" : "The default of exp_manager.ema.decay."));
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        const struct import_item *item = import_get(im, fixed[i].key);
        bool same = item && item->count == 1 && !strcasecmp(item->values[0], fixed[i].ours);
        if (item)
            import_add_note(im, same ? IMPORT_IGNORED : IMPORT_UNSUPPORTED, item,
                            same ? "same here" : fixed[i].text);
    }
    return STATUS_OK;
}

static enum status set_optimizer(struct import *im, bool hf)
{
    static const char *const bug =
        "NxD Training applies 0.01 regardless: its parameter groups hard-code it.";
    const struct import_item *name = import_get(im, "model.optim.name");
    const struct import_item *betas = import_get(im, "model.optim.betas");
    const struct import_item *decay = import_get(im, "model.optim.weight_decay");
    const struct import_item *norms = import_get(im, "model.do_layer_norm_weight_decay");
    if (name && strncmp(name->count ? name->values[0] : "", "adamw", 5))
        return import_bad_value(im, name, "adamw");
    if (name) import_add_note(im, IMPORT_IGNORED, name, "optimizer states are always float32");
    if (betas) {
        if (betas->count != 2) return import_bad_value(im, betas, "a list of two");
        TRY(import_set(im, betas, "optimizer.beta1", betas->values[0], ""));
        TRY(import_set(im, betas, "optimizer.beta2", betas->values[1], ""));
    } else {
        TRY(import_set(im, NULL, "optimizer.beta2", "0.999", THEIR_DEFAULT));
    }
    if (!import_get(im, "trainer.gradient_clip_val"))
        TRY(import_set(im, NULL, "training.max_norm", "0",
                       "Without gradient_clip_val, gradients are not clipped."));
    if (!decay) TRY(import_set(im, NULL, "optimizer.weight_decay", "0.01", THEIR_DEFAULT));
    if (!norms && !hf) TRY(import_set(im, NULL, "optimizer.decay_norms", "false", THEIR_DEFAULT));
    if (decay) {
        TRY(import_copy(im, decay, "optimizer.weight_decay", ""));
        if (hf && im->config.optimizer.weight_decay != 0.01)
            import_add_note(im, IMPORT_ORIGINAL_BUG, decay, bug);
    }
    if (norms) {
        bool value;
        TRY(import_parse_bool(im, norms, &value));
        TRY(import_set(im, norms, "optimizer.decay_norms", value ? "true" : "false", ""));
        if (hf)
            import_add_note(
                im, IMPORT_ORIGINAL_BUG, norms,
                value ? "In NxD Training, true exempts norms from weight decay; here they decay."
                      : "In NxD Training, false decays norms; here they do not decay.");
    }
    return STATUS_OK;
}

static enum status set_recompute(struct import *im)
{
    const struct import_item *how = import_get(im, "model.activations_checkpoint_granularity");
    const struct import_item *what = import_get(im, "model.activations_checkpoint_recompute");
    const char *mode = how && how->count == 1 ? how->values[0] : "none";
    if (strcmp(mode, "none") && strcmp(mode, "selective") && strcmp(mode, "full"))
        return import_bad_value(im, how, "selective, full or null");
    if (what)
        import_add_note(
            im, IMPORT_IGNORED, what,
            "selective always recomputes norms and activations; attention scores are never "
            "stored");
    return import_set(im, how, "activation_checkpoint.mode", mode, "");
}

static enum status set_precision(struct import *im)
{
    static const char *const known[] = {"mixed_precision", "autocast", "manual", "fp32"};
    static const char *const stochastic[] = {"bf16SR", "mixed_precisionSR"};
    const struct import_item *item = import_get(im, "precision.type");
    const char *type = item && item->count == 1 ? item->values[0] : "manual";
    bool found = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) found |= !strcmp(type, known[i]);
    for (size_t i = 0; i < sizeof stochastic / sizeof *stochastic; i++)
        if (!strcmp(type, stochastic[i])) {
            found = true;
            import_add_note(im, IMPORT_UNSUPPORTED, item,
                            "stochastic rounding is not supported; master weights are float32");
            if (i)
                import_add_note(im, IMPORT_ORIGINAL_BUG, item,
                                "NxD Training rejects this value: its code checks for "
                                "mixed_precision_SR.");
        }
    if (!found)
        return import_bad_value(
            im, item, "bf16SR, fp32, autocast, mixed_precision, mixed_precisionSR or manual");
    return import_set(im, item, "training.mixed_precision_param",
                      strcmp(type, "fp32") ? "bfloat16" : "float32", "");
}

static enum status set_checkpoint(struct import *im)
{
    const struct import_item *kept =
        import_get(im, "exp_manager.checkpoint_callback_params.save_top_k");
    const struct import_item *from = import_get(im, "exp_manager.resume_from_checkpoint");
    const struct import_item *only = import_get(im, "model.weight_init_only");
    const char *dir = import_get_string(im, "exp_manager.explicit_log_dir", NULL);
    const char *base = import_get_string(im, "exp_manager.exp_dir", "nemo_experiments");
    const char *name = import_get_string(im, "exp_manager.name", "default");
    bool async, weights;
    TRY(import_get_bool(im, "exp_manager.async_checkpointing", false, &async));
    TRY(import_get_bool(im, "model.weight_init_only", false, &weights));
    struct text folder = {0};
    text_addf(&folder, "%s/%s", base, name);
    enum status st =
        import_set(im, import_get(im, "exp_manager.name"), "job.dump_folder",
                   dir ? dir : folder.data, dir ? "" : "Llamero creates no subfolder per version.");
    text_release(&folder);
    TRY(st);
    TRY(import_set(im, import_get(im, "exp_manager.async_checkpointing"), "checkpoint.async_mode",
                   async ? "async" : "disabled", ""));
    if (kept) {
        int64_t k;
        TRY(import_parse_int(im, kept, -1, 1 << 30, &k));
        TRY(import_set_int(im, kept, "checkpoint.keep_latest_k",
                           k < 0    ? 0
                           : k == 1 ? 2
                                    : k,
                           k == 1 ? "At least 2, so that one is intact while the next is written."
                                  : ""));
        if (!k)
            TRY(import_set(im, kept, "checkpoint.enable", "false",
                           "save_top_k = 0 keeps no checkpoint."));
    }
    if (!from) return STATUS_OK;
    TRY(import_set(
        im, from, "checkpoint.initial_load_path", from->count ? from->values[0] : "",
        "Only weights are loaded from NxD Training's checkpoints: name a tag's folder, with the "
        "model's config.json in it or in its parent."));
    return import_set(im, only, "checkpoint.initial_load_model_only", weights ? "true" : "false",
                      weights
                          ? ""
                          : "Optimizer state (ZeRO-1 shards) is not supported; set this to true "
                            "to start from the weights alone.");
}

/* Copies a logger's item to `key` if the logger is on. */
static enum status copy_of_logger(struct import *im, const char *logger, const char *item,
                                  const char *key)
{
    bool is_on;
    const struct import_item *i = import_get(im, item);
    TRY(import_get_bool(im, logger, false, &is_on));
    return i && is_on ? import_copy(im, i, key, "") : STATUS_OK;
}

/* The original's progress line, TensorBoard tags, and names for its loggers. */
static enum status set_metrics(struct import *im)
{
    const struct import_item *board = import_get(im, "exp_manager.create_tensorboard_logger");
    TRY(import_set(im, NULL, "metrics.console", "nxdt", "NxD Training's progress line."));
    if (board) TRY(import_set(im, NULL, "metrics.tensorboard_tags", "nxdt", ""));
    TRY(copy_of_logger(im, "exp_manager.create_wandb_logger",
                       "exp_manager.wandb_logger_kwargs.project", "metrics.wandb_project"));
    TRY(copy_of_logger(im, "exp_manager.create_mlflow_logger",
                       "exp_manager.mlflow_logger_kwargs.experiment_name",
                       "metrics.mlflow_experiment"));
    return STATUS_OK;
}

static enum status set_data(struct import *im, bool hf)
{
    const struct import_item *train = import_get(im, "data.train_dir");
    const struct import_item *prefix = import_get(im, "data.data_prefix");
    const struct import_item *split = import_get(im, "data.splits_string");
    const struct import_item *tokenizer = import_get(im, "data.tokenizer.model");
    const struct import_item *length = import_get(im, "data.seq_length");
    bool mask;
    if (!length) length = import_get(im, "model.encoder_seq_length");
    if (length) TRY(import_copy(im, length, "training.seq_len", ""));
    TRY(nxdt_model_set_window(im, hf));
    if (!tokenizer) tokenizer = import_get(im, "data.tokenizer.type");
    if (tokenizer) TRY(import_copy(im, tokenizer, "data.tokenizer", ""));
    TRY(import_get_bool(im, "data.reset_attention_mask", false, &mask));
    if (mask)
        TRY(import_set(im, import_get(im, "data.reset_attention_mask"), "model.attn_mask_type",
                       "block_causal", ""));
    TRY(rules_set_eod_mask(im, import_get(im, "data.eod_mask_loss"), false));
    if (!prefix) prefix = import_get(im, "data.data_prefix.train");
    if (prefix) {
        TRY(rules_add_blend(im, prefix, prefix->values, prefix->count));
        if (split) TRY(import_copy(im, split, "data.split", ""));
    } else if (train) {
        const char *path = train->count == 1 ? train->values[0] : "";
        bool lines = strlen(path) > 6 && !strcmp(path + strlen(path) - 6, ".jsonl");
        import_add_source(im, path, lines ? "output" : "input_ids", 1);
        import_add_note(im, lines ? IMPORT_UNSUPPORTED : IMPORT_IGNORED, train,
                        lines
                            ? "only `output` of each line is used, without the prompt in `input`; "
                              "set `column` in [[data.source]] to use another key"
                            : "see [[data.source]]");
        if (!lines)
            TRY(import_set(im, NULL, "data.shuffle_window", "1", "NxD Training does not shuffle."));
    } else {
        FAIL(CONFIG, "%s: data.train_dir or data.data_prefix is required", im->file);
    }
    const struct import_item *packing = import_get(im, "model_alignment_strategy.sft.packing");
    bool packed = false;
    if (packing) TRY(import_parse_bool(im, packing, &packed));
    if (packed)
        import_add_note(
            im, IMPORT_ORIGINAL_BUG, packing,
            "With packing, NxD Training drops the prompt mask, so the loss includes prompts.");
    return STATUS_OK;
}

/* NeMo's sampler differs from Megatron-LM's in where an epoch ends.  Data that is not in Megatron's
 * format has other loaders. */
static enum status set_sampler(struct import *im, const struct import_layout *l)
{
    const struct import_item *kind = import_get(im, "data.dataloader_type");
    const char *word = import_get_string(im, "data.dataloader_type", "single");
    const struct import_item *last = import_get(im, "data.drop_last");
    bool drops;
    TRY(import_get_bool(im, "data.drop_last", true, &drops));
    if (im->config.data.order != ORDER_megatron || !kind) return STATUS_OK;
    if (!strcmp(word, "single")) {
        import_add_note(im, IMPORT_IGNORED, kind, "same here");
        return STATUS_OK;
    }
    if (strcmp(word, "cyclic")) return import_bad_value(im, kind, "single or cyclic");
    if (last)
        import_add_note(im, drops ? IMPORT_IGNORED : IMPORT_UNSUPPORTED, last,
                        "the last partial batch of an epoch is always dropped");
    TRY(rules_set_cyclic(im, kind, l, true));
    return import_set_int(im, kind, "data.sampler_batch", l->global_batch,
                          "NeMo's epochs end with a whole step.");
}

static enum status set_validation(struct import *im)
{
    const struct import_item *every = import_get(im, "trainer.val_check_interval");
    const struct import_item *limit = import_get(im, "trainer.limit_val_batches");
    const struct import_item *dir = import_get(im, "data.val_dir");
    int64_t steps, freq = 0;
    double fraction = 1;
    TRY(get_max_steps(im, &steps));
    if (every) TRY(import_parse_int(im, every, 1, 1LL << 40, &freq));
    if (limit) TRY(import_parse_real(im, limit, &fraction));
    bool megatron = im->config.data.order == ORDER_megatron;
    if (!freq || fraction <= 0 || freq > steps || (!megatron && !dir)) {
        import_add_note(
            im, IMPORT_IGNORED, every,
            "validation is off: the interval exceeds the run, or there are no batches or data");
        return STATUS_OK;
    }
    TRY(import_set(im, every, "validation.enable", "true", ""));
    TRY(import_copy(im, every, "validation.freq", ""));
    TRY(import_set_int(im, import_get(im, "data.micro_batch_size"), "validation.local_batch_size",
                       im->config.training.local_batch_size, ""));
    if (dir) TRY(import_copy(im, dir, "validation.dataset_path", ""));
    if (limit && !strchr(limit->values[0], '.'))
        return import_copy(im, limit, "validation.steps", "");
    if (fraction < 1)
        import_add_note(im, IMPORT_IGNORED, limit, "validation uses all batches, not a fraction");
    return STATUS_OK;
}

/* An override of a key of the original, in Hydra's syntax: key=value, +key=value, ++key=value. */
struct override {
    char *key;
    struct yaml_tree *value; /* a map whose one key is "value"; NULL: a key of ours */
};

static void release_overrides(struct override *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(list[i].key);
        if (list[i].value) yaml_tree_free(list[i].value);
    }
}

static struct yaml_tree *find_path(struct yaml_tree *at, const char *path)
{
    char *copy = heap_strdup(path), *next;
    for (char *name = strtok_r(copy, ".", &next); name && at; name = strtok_r(NULL, ".", &next))
        at = yaml_tree_get(at, name);
    free(copy);
    return at;
}

/* Whether the key is in a section that only the YAML has, so that an unknown key is theirs. */
static bool is_in_their_section(struct yaml_tree *root, const char *key)
{
    const char *dot = strrchr(key, '.');
    char *name = dot ? heap_string(key, (size_t)(dot - key)) : heap_strdup("");
    const struct yaml_tree *section = dot ? find_path(root, name) : NULL;
    bool theirs = section && section->kind == YAML_MAP;
    for (size_t i = 0; i < NUM_SECTIONS; i++) theirs &= strcmp(name, config_sections[i].name) != 0;
    free(name);
    return theirs;
}

/* Reads a setting.  A scalar of the YAML is changed in the tree, so that interpolations see it. */
static enum status read_override(struct yaml_tree *root, const char *setting, struct override *o)
{
    const char *begin = setting + strspn(setting, "+"), *equals = strchr(begin, '=');
    const struct config_section *section;
    struct text yaml = {0};
    if (!equals) return STATUS_OK;
    o->key = heap_string(begin, (size_t)(equals - begin));
    struct yaml_tree *at = find_path(root, o->key);
    bool ours =
        config_find(o->key, &section) || config_find_alias(o->key) || config_find_foreign(o->key);
    if (ours ||
        (!at && !import_has_row(rows, NUM_ROWS, o->key) && !is_in_their_section(root, o->key)))
        return STATUS_OK;
    text_addf(&yaml, "value: %s\n", equals + 1);
    enum status st = yaml_tree_parse(yaml.data, yaml.len, "command line", &o->value);
    text_release(&yaml);
    if (st) return status_prefix(st, "%s", setting);
    struct yaml_tree *value = yaml_tree_get(o->value, "value");
    if (!value || !at || at->kind != YAML_SCALAR || value->kind != YAML_SCALAR) return STATUS_OK;
    free(at->text);
    at->text = heap_strdup(equals + 1);
    at->plain = true, at->line = 0;
    yaml_tree_free(o->value);
    o->value = NULL, o->key[0] = 0; /* done */
    return STATUS_OK;
}

/* Adds the value as an item, which takes precedence over the YAML's. */
static enum status add_override(struct import *im, const struct override *o)
{
    struct yaml_tree *value = yaml_tree_get(o->value, "value");
    struct text path = {0};
    size_t first = im->num_items;
    if (!value) return STATUS_OK;
    text_adds(&path, o->key);
    free(value->key);
    value->key = path.data;
    TRY(add_items(im, o->value, ""));
    for (size_t i = first; i < im->num_items; i++) im->items[i].line = 0;
    return STATUS_OK;
}

static enum status apply_rules(struct import *im)
{
    const char *source = import_get_string(im, "model_source", "hf");
    bool hf = strcmp(source, "megatron") != 0;
    struct import_layout l = {0};
    if (hf && strcmp(source, "hf"))
        FAIL(CONFIG, "%s: model_source = %.80s: expected hf or megatron", im->file, source);
    TRY(import_check_known(im, rows, NUM_ROWS));
    TRY(set_layout(im, &l));
    TRY(set_split_points(im));
    TRY(nxdt_model_set(im, hf));
    TRY(set_schedule(im));
    TRY(set_optimizer(im, hf));
    TRY(set_ema(im));
    TRY(set_recompute(im));
    TRY(set_precision(im));
    TRY(set_checkpoint(im));
    TRY(set_metrics(im));
    TRY(set_data(im, hf));
    TRY(set_sampler(im, &l));
    TRY(set_validation(im));
    return import_apply_rows(im, rows, NUM_ROWS);
}

enum status import_nxdt(struct import *im, const char *bytes, size_t len, const char *file,
                        const char *const *settings, int num_settings)
{
    struct yaml_tree *root = NULL;
    enum { MAX_SETTINGS = 64 };
    struct override overrides[MAX_SETTINGS] = {{0}};
    TRY(import_init(im, file, "NxD Training"));
    if (num_settings > MAX_SETTINGS)
        FAIL(USAGE, "%s: expected at most %d settings", file, MAX_SETTINGS);
    enum status st = yaml_tree_parse(bytes, len, file, &root);
    if (st) return st;
    if (root->kind != YAML_MAP) FAIL_OUT(CONFIG, "%s: expected a mapping of keys", file);
    for (int i = 0; i < num_settings; i++) TRY_OUT(read_override(root, settings[i], &overrides[i]));
    TRY_OUT(interpolate(root, file));
    TRY_OUT(add_items(im, root, ""));
    for (int i = 0; i < num_settings; i++)
        if (overrides[i].value) TRY_OUT(add_override(im, &overrides[i]));
    TRY_OUT(apply_rules(im));
    for (int i = 0; i < num_settings; i++) {
        const struct override *o = &overrides[i];
        bool is_theirs = o->value || (o->key && !o->key[0]);
        if (!is_theirs) TRY_OUT(rules_apply_setting(im, settings[i]));
    }
out:
    release_overrides(overrides, MAX_SETTINGS);
    yaml_tree_free(root);
    return st;
}
