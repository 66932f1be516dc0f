/* import_nxdt.c -- NxD Training's YAML: the keys that are more than another name. */
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "checkpoint/interop/hf_config.h"
#include "config/import/import.h"
#include "config/import/interpolate.h"
#include "config/import/rules.h"
#include "config/sections.h"
#include "formats/yaml_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct import_row rows[] = {
#define ROW(key, how, ours, text) {key, IMPORT_##how, ours, text},
#include "config/import/nxdt.def"
#undef ROW
};
enum { NUM_ROWS = sizeof rows / sizeof *rows };

static enum status flatten(struct import *im, const struct yaml_tree *v, const char *prefix)
{
    for (const struct yaml_tree *child = v->first; child; child = child->next) {
        struct text key = {0};
        const char **values = heap(child->count * sizeof *values + sizeof *values);
        size_t count = 0;
        enum status st = STATUS_OK;
        text_addf(&key, "%s%s%s", prefix, prefix[0] ? "." : "", child->key);
        if (child->kind == YAML_MAP) st = flatten(im, child, key.data);
        if (child->kind == YAML_SCALAR) values[count++] = child->text;
        for (const struct yaml_tree *e = child->first; e && child->kind == YAML_LIST && !st;
             e = e->next)
            if (e->kind == YAML_SCALAR)
                values[count++] = e->text;
            else
                st = status_fail(STATUS_CONFIG, __FILE__, __LINE__,
                                 "%s:%d: %s: %s where a list of plain values is wanted", im->file,
                                 e->line, key.data, yaml_tree_kind_name(e));
        if (!st && child->kind != YAML_MAP) {
            bool null = child->kind == YAML_SCALAR && yaml_tree_is_null(child);
            import_add_item(im, key.data, child->line, null, values, null ? 0 : count);
        }
        free(values);
        text_release(&key);
        TRY(st);
    }
    return STATUS_OK;
}

/* Sizes of the run; what does not divide is told by its own key. */
static enum status layout(struct import *im, struct import_layout *l)
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
    TRY(import_get_truth(im, "distributed_strategy.zero1", false, &zero1));
    l->sharding = zero1 ? SHARD_MOMENTS : SHARD_NOTHING;
    l->replicas = 1;
    if (__builtin_mul_overflow(devices, nodes, &l->ranks))
        FAIL(CONFIG, "%s: trainer.devices x trainer.num_nodes is too large", im->file);
    l->last_gets_more = true;
    return import_set_layout(
        im, l,
        &(struct import_layout_keys){
            .tp = "distributed_strategy.tensor_model_parallel_size",
            .pp = "distributed_strategy.pipeline_model_parallel_size",
            .cp = "distributed_strategy.context_parallel_size",
            .micro_batch = "data.micro_batch_size",
            .global_batch = "data.global_batch_size",
            .sharding = "distributed_strategy.zero1",
            .vp = "distributed_strategy.virtual_pipeline_model_parallel_size"});
}

/* A cut stands behind the layer it names; ours names the block a stage begins with. */
static enum status cuts(struct import *im)
{
    const struct import_item *item = import_get(im, "model.pipeline_cuts");
    struct text points = {0};
    enum status st = STATUS_OK;
    if (!item) return STATUS_OK;
    for (size_t i = 0; i < item->count && !st; i++) {
        int layer, end = 0;
        if (sscanf(item->values[i], "model.layers.%6d%n", &layer, &end) < 1 ||
            item->values[i][end] || layer < 0)
            st = import_unfit(im, item, "a list of names such as model.layers.18");
        else
            text_addf(&points, "%slayers.%d", i ? "," : "", layer + 1);
    }
    if (!st && item->count)
        st = import_set(im, item, "parallelism.pipeline_parallel_split_points", points.data,
                        "There a stage ends with the layer named, here one begins.");
    text_release(&points);
    return st;
}

static enum status run_steps(struct import *im, int64_t *steps)
{
    const struct import_item *item = import_get(im, "trainer.max_steps");
    *steps = 0;
    return item ? import_int(im, item, 0, 1LL << 40, steps) : STATUS_OK;
}

static enum status schedule(struct import *im)
{
    const struct import_item *name = import_get(im, "model.optim.sched.name");
    const struct import_item *least = import_get(im, "model.optim.sched.min_lr");
    const struct import_item *steps = import_get(im, "model.optim.sched.max_steps");
    int64_t constant, length, run;
    const char *word = name && name->count == 1 ? name->values[0] : "";
    TRY(import_get_int(im, "model.optim.sched.constant_steps", 0, &constant));
    TRY(run_steps(im, &run));
    length = run;
    if (steps) TRY(import_int(im, steps, 0, 1LL << 40, &length));
    if (!name) return STATUS_OK;
    if (!strcmp(word, "CosineAnnealing")) {
        TRY(import_set(im, name, "lr_scheduler.formula", constant ? "megatron" : "nxdt",
                       constant ? "With constant_steps it is Megatron-LM's: step / warmup_steps."
                                : "(step + 1) / (warmup_steps + 1), then half a cosine."));
        TRY(import_set(im, name, "lr_scheduler.decay_type", "cosine", ""));
        if (constant > length)
            FAIL(CONFIG, "%s: constant_steps = %lld is more than the schedule's %lld steps",
                 im->file, (long long)constant, (long long)length);
        length -= constant;
    } else if (!strcmp(word, "LinearAnnealingWithWarmUp")) {
        TRY(import_set(im, name, "lr_scheduler.formula", "megatron",
                       "Hugging Face's linear schedule: the first step's rate is 0."));
        TRY(import_set(im, name, "lr_scheduler.decay_type", "linear", ""));
    } else {
        return import_unfit(im, name, "CosineAnnealing or LinearAnnealingWithWarmUp");
    }
    if (length != run || constant)
        TRY(import_setf(im, steps, "lr_scheduler.total_steps", "", "%lld", (long long)length));
    return import_set_least_rate(im, least, import_get(im, "model.optim.lr"));
}

static enum status optimizer(struct import *im, bool hf)
{
    static const char *const bug =
        "There 0.01 is applied whatever stands here: the groups of parameters have it built in.";
    const struct import_item *name = import_get(im, "model.optim.name");
    const struct import_item *betas = import_get(im, "model.optim.betas");
    const struct import_item *decay = import_get(im, "model.optim.weight_decay");
    const struct import_item *norms = import_get(im, "model.do_layer_norm_weight_decay");
    if (name && strncmp(name->count ? name->values[0] : "", "adamw", 5))
        return import_unfit(im, name, "adamw");
    if (name) import_note(im, IMPORT_NONE, name, "the moments are always float32");
    if (betas) {
        if (betas->count != 2) return import_unfit(im, betas, "a list of two");
        TRY(import_set(im, betas, "optimizer.beta1", betas->values[0], ""));
        TRY(import_set(im, betas, "optimizer.beta2", betas->values[1], ""));
    }
    if (decay) {
        TRY(import_copy(im, decay, "optimizer.weight_decay", ""));
        if (hf && im->config.optimizer.weight_decay != 0.01)
            import_note(im, IMPORT_BUG, decay, bug);
    }
    if (norms) {
        bool value;
        TRY(import_truth(im, norms, &value));
        TRY(import_set(im, norms, "optimizer.decay_norms", value ? "true" : "false", ""));
        if (hf)
            import_note(im, IMPORT_BUG, norms,
                        value ? "There true takes the norms out of the decay; here they decay."
                              : "There false leaves the norms in the decay; here they do not.");
    }
    return STATUS_OK;
}

/* What config.json says, as keys of ours. */
static enum status read_config(struct import *im, const struct import_item *item, const char *path,
                               struct model_shape *s)
{
    TRY(hf_config_read(path, s));
    const struct {
        const char *ours;
        double value;
    } sizes[] = {{"model.dim", s->D},
                 {"model.n_layers", s->L},
                 {"model.n_heads", s->H},
                 {"model.n_kv_heads", s->G},
                 {"model.head_dim", s->K},
                 {"model.ffn_hidden", s->F},
                 {"model.vocab_size", s->V},
                 {"model.rope_theta", s->rope_theta},
                 {"model.norm_eps", s->norm_eps}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        TRY(import_setf(im, item, sizes[i].ours, "", "%.17g", sizes[i].value));
    TRY(import_set(im, item, "model.tie_embeddings", s->tied ? "true" : "false", ""));
    if (s->scaling.factor != 0 && s->scaling.factor != 8 && s->scaling.factor != 32)
        import_note(im, IMPORT_MISSING, item, "its rope_scaling is neither Llama 3.1's nor 3.2's");
    if (s->scaling.factor == 32) {
        TRY(import_set(im, item, "model.name", "llama3.2", ""));
        TRY(import_set(im, item, "model.flavor", "1B", "For its rope_scaling; the sizes follow."));
    }
    return import_set(im, item, "model.rope_scaling", s->scaling.factor != 0 ? "llama3" : "none",
                      "");
}

/* Which Llama the sizes of the file are of, where config.json is not here. */
static enum status guess(struct import *im, const struct import_item *config)
{
    static const struct {
        int64_t dim;
        bool third; /* Llama 3: a rope_theta of its own */
        const char *name, *flavor;
    } known[] = {{4096, true, "llama3.1", "8B"},    {8192, true, "llama3.1", "70B"},
                 {16384, true, "llama3.1", "405B"}, {4096, false, "llama2", "7B"},
                 {5120, false, "llama2", "13B"},    {8192, false, "llama2", "70B"}};
    int64_t dim, positions;
    double theta = 0;
    const struct import_item *rope = import_get(im, "model.rope_theta");
    TRY(import_get_int(im, "model.hidden_size", 0, &dim));
    TRY(import_get_int(im, "model.max_position_embeddings", 0, &positions));
    if (rope) TRY(import_real(im, rope, &theta));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].dim != dim || known[i].third != (theta > 1e5)) continue;
        TRY(import_set(im, config, "model.name", known[i].name,
                       config ? "config.json is not here; these sizes are by "
                                "hidden_size and rope_theta. Check them."
                              : ""));
        TRY(import_set(im, config, "model.flavor", known[i].flavor, ""));
        return import_set(im, import_get(im, "model.max_position_embeddings"), "model.rope_scaling",
                          known[i].third && positions > 8192 ? "llama3" : "none",
                          "Llama 3.1 stretches rotary wavelengths, 3 does not.");
    }
    FAIL(CONFIG,
         "%s: hidden_size = %lld with rope_theta = %g is no Llama known here: put the config.json "
         "of model.model_config where it says",
         im->file, (long long)dim, theta);
}

static enum status model(struct import *im, bool hf)
{
    const struct import_item *config = import_get(im, "model.model_config");
    const struct import_item *layers = import_get(im, "model.num_layers");
    const struct import_item *dim = import_get(im, "model.hidden_size");
    const struct import_item *rope = import_get(im, "model.rope_theta");
    const struct import_item *std = import_get(im, "model.init_method_std");
    struct model_shape s;
    bool scaled;
    TRY(import_get_truth(im, "model.use_scaled_init_method", false, &scaled));
    if (!std) std = import_get(im, "model.initializer_range");
    TRY(import_llama(im, "model.activation", "swiglu", "it has a gated feed-forward layer"));
    TRY(import_llama(im, "model.normalization", "rmsnorm", "its norms are RMSNorm"));
    TRY(import_llama(im, "model.position_embedding_type", "rope", "it rotates by position"));
    for (size_t i = 0; i < im->num_items; i++)
        if (!strncmp(im->items[i].key, "model.moe.", 10))
            FAIL(CONFIG, "%s:%d: %s: a mixture of experts, and a Llama has none", im->file,
                 im->items[i].line, im->items[i].key);
    if (config && config->count == 1 && file_exists(config->values[0])) {
        TRY(read_config(im, config, config->values[0], &s));
    } else if (hf) {
        TRY(guess(im, config));
    } else {
        TRY(import_set(im, NULL, "model.name", "llama2", "The sizes follow."));
        TRY(import_set(im, NULL, "model.flavor", "7B", ""));
        if (!rope)
            TRY(import_set(im, NULL, "model.rope_theta", "10000",
                           "What it is there where nothing is said."));
    }
    if (layers) TRY(import_copy(im, layers, "model.n_layers", ""));
    if (dim) TRY(import_copy(im, dim, "model.dim", ""));
    if (rope) TRY(import_copy(im, rope, "model.rope_theta", ""));
    TRY(import_set(im, import_get(im, "model.use_scaled_init_method"), "model.init",
                   scaled ? "megatron" : "normal", ""));
    return std ? import_copy(im, std, "model.init_std", "") : STATUS_OK;
}

static enum status recompute(struct import *im)
{
    const struct import_item *how = import_get(im, "model.activations_checkpoint_granularity");
    const struct import_item *what = import_get(im, "model.activations_checkpoint_recompute");
    const char *mode = how && how->count == 1 ? how->values[0] : "none";
    if (strcmp(mode, "none") && strcmp(mode, "selective") && strcmp(mode, "full"))
        return import_unfit(im, how, "selective, full or null");
    if (what)
        import_note(im, IMPORT_NONE, what,
                    "selective redoes what is cheap: norms and activations; attention never keeps "
                    "its scores");
    return import_set(im, how, "activation_checkpoint.mode", mode, "");
}

static enum status precision(struct import *im)
{
    static const char *const known[] = {"mixed_precision", "autocast", "manual", "fp32"};
    static const char *const rounded[] = {"bf16SR", "mixed_precisionSR"};
    const struct import_item *item = import_get(im, "precision.type");
    const char *type = item && item->count == 1 ? item->values[0] : "manual";
    bool found = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) found |= !strcmp(type, known[i]);
    for (size_t i = 0; i < sizeof rounded / sizeof *rounded; i++)
        if (!strcmp(type, rounded[i])) {
            found = true;
            import_note(im, IMPORT_MISSING, item,
                        "nothing is rounded at random: master weights are float32");
            if (i)
                import_note(im, IMPORT_BUG, item,
                            "There this word is refused: its code compares with "
                            "mixed_precision_SR.");
        }
    if (!found)
        return import_unfit(im, item,
                            "bf16SR, fp32, autocast, mixed_precision, mixed_precisionSR or manual");
    return import_set(im, item, "training.mixed_precision_param",
                      strcmp(type, "fp32") ? "bfloat16" : "float32", "");
}

static enum status checkpoints(struct import *im)
{
    const struct import_item *kept =
        import_get(im, "exp_manager.checkpoint_callback_params.save_top_k");
    const struct import_item *from = import_get(im, "exp_manager.resume_from_checkpoint");
    const struct import_item *only = import_get(im, "model.weight_init_only");
    const char *dir = import_get_text(im, "exp_manager.explicit_log_dir", NULL);
    const char *base = import_get_text(im, "exp_manager.exp_dir", "nemo_experiments");
    const char *name = import_get_text(im, "exp_manager.name", "default");
    bool async, weights;
    TRY(import_get_truth(im, "exp_manager.async_checkpointing", false, &async));
    TRY(import_get_truth(im, "model.weight_init_only", false, &weights));
    TRY(import_setf(im, import_get(im, "exp_manager.name"), "job.dump_folder",
                    dir ? "" : "Its versions and runs have no folders of their own here.",
                    dir ? "%s" : "%s/%s", dir ? dir : base, name));
    TRY(import_set(im, import_get(im, "exp_manager.async_checkpointing"), "checkpoint.async_mode",
                   async ? "async" : "disabled", ""));
    if (kept) {
        int64_t k;
        TRY(import_int(im, kept, -1, 1 << 30, &k));
        TRY(import_setf(im, kept, "checkpoint.keep_latest_k",
                        k == 1 ? "One alone would be at risk while the next is written." : "",
                        "%lld",
                        (long long)(k < 0    ? 0
                                    : k == 1 ? 2
                                             : k)));
        if (!k) TRY(import_set(im, kept, "checkpoint.enable", "false", "No checkpoint was kept."));
    }
    if (!from) return STATUS_OK;
    TRY(import_set(im, from, "checkpoint.initial_load_path", from->count ? from->values[0] : "",
                   "Of their checkpoints the weights are read: a tag's folder, with the model's "
                   "config.json in it or above it."));
    return import_set(im, only, "checkpoint.initial_load_model_only", weights ? "true" : "false",
                      weights ? ""
                              : "The state of their optimizer (ZeRO-1 shards) is not read: with "
                                "true the run begins from their weights.");
}

static enum status data(struct import *im)
{
    const struct import_item *train = import_get(im, "data.train_dir");
    const struct import_item *prefix = import_get(im, "data.data_prefix");
    const struct import_item *split = import_get(im, "data.splits_string");
    const struct import_item *tokenizer = import_get(im, "data.tokenizer.model");
    const struct import_item *length = import_get(im, "data.seq_length");
    bool mask;
    if (!length) length = import_get(im, "model.encoder_seq_length");
    if (length) TRY(import_copy(im, length, "training.seq_len", ""));
    TRY(import_window(im, "model.sliding_window_size"));
    if (!tokenizer) tokenizer = import_get(im, "data.tokenizer.type");
    if (tokenizer) TRY(import_copy(im, tokenizer, "data.tokenizer", ""));
    TRY(import_get_truth(im, "data.reset_attention_mask", false, &mask));
    if (mask)
        TRY(import_set(im, import_get(im, "data.reset_attention_mask"), "model.attn_mask_type",
                       "block_causal", ""));
    if (!prefix) prefix = import_get(im, "data.data_prefix.train");
    if (prefix) {
        TRY(import_blend(im, prefix, prefix->values, prefix->count));
        if (split) TRY(import_copy(im, split, "data.split", ""));
    } else if (train) {
        const char *path = train->count == 1 ? train->values[0] : "";
        bool lines = strlen(path) > 6 && !strcmp(path + strlen(path) - 6, ".jsonl");
        import_add_source(im, path, lines ? "output" : "input_ids", 1);
        import_note(im, lines ? IMPORT_MISSING : IMPORT_NONE, train,
                    lines ? "of each line only `output` is read, without `input`'s prompt before "
                            "it: [[data.source]] column names another key"
                          : "the [[data.source]] that is read");
        if (!lines)
            TRY(import_set(im, NULL, "data.shuffle_window", "1", "Nothing is shuffled there."));
    } else {
        FAIL(CONFIG, "%s: neither data.train_dir nor data.data_prefix says what to read", im->file);
    }
    const struct import_item *packing = import_get(im, "model_alignment_strategy.sft.packing");
    bool packed = false;
    if (packing) TRY(import_truth(im, packing, &packed));
    if (packed)
        import_note(im, IMPORT_BUG, packing,
                    "There packed rows lose the prompt's mask, so that the loss is over prompts, "
                    "too.");
    return STATUS_OK;
}

static enum status validation(struct import *im)
{
    const struct import_item *every = import_get(im, "trainer.val_check_interval");
    const struct import_item *limit = import_get(im, "trainer.limit_val_batches");
    const struct import_item *dir = import_get(im, "data.val_dir");
    int64_t steps, freq = 0;
    double share = 1;
    TRY(run_steps(im, &steps));
    if (every) TRY(import_int(im, every, 1, 1LL << 40, &freq));
    if (limit) TRY(import_real(im, limit, &share));
    bool megatron = im->config.data.order == ORDER_megatron;
    if (!freq || share <= 0 || freq > steps || (!megatron && !dir)) {
        import_note(im, IMPORT_NONE, every,
                    "nothing is evaluated: longer than the run, or no "
                    "batches, or no data for it");
        return STATUS_OK;
    }
    TRY(import_set(im, every, "validation.enable", "true", ""));
    TRY(import_copy(im, every, "validation.freq", ""));
    TRY(import_setf(im, import_get(im, "data.micro_batch_size"), "validation.local_batch_size", "",
                    "%lld", (long long)im->config.training.local_batch_size));
    if (dir) TRY(import_copy(im, dir, "validation.dataset_path", ""));
    if (limit && !strchr(limit->values[0], '.'))
        return import_copy(im, limit, "validation.steps", "");
    if (share < 1) import_note(im, IMPORT_MISSING, limit, "all is evaluated, not a share of it");
    return STATUS_OK;
}

/* section.key=value of theirs changes the tree; ours are applied at the end. */
static enum status override(struct yaml_tree *root, const char *setting, bool *theirs)
{
    const char *equals = strchr(setting, '=');
    const struct config_section *section;
    struct yaml_tree *at = root;
    *theirs = false;
    if (!equals) return STATUS_OK;
    char *key = heap_string(setting, (size_t)(equals - setting)), *next;
    if (!config_find(key, &section) && !config_find_alias(key) && !config_find_ignored(key)) {
        for (char *name = strtok_r(key, ".", &next); name && at; name = strtok_r(NULL, ".", &next))
            at = yaml_tree_get(at, name);
        *theirs = at && at->kind == YAML_SCALAR;
    }
    free(key);
    if (!*theirs) return STATUS_OK;
    free(at->text);
    at->text = heap_string(equals + 1, strlen(equals + 1));
    at->plain = true, at->line = 0;
    return STATUS_OK;
}

static enum status convert(struct import *im)
{
    const char *source = import_get_text(im, "model_source", "hf");
    bool hf = strcmp(source, "megatron") != 0;
    struct import_layout l = {0};
    if (hf && strcmp(source, "hf"))
        FAIL(CONFIG, "%s: model_source = %.80s: hf or megatron is wanted", im->file, source);
    TRY(import_known(im, rows, NUM_ROWS));
    TRY(layout(im, &l));
    TRY(cuts(im));
    TRY(model(im, hf));
    TRY(schedule(im));
    TRY(optimizer(im, hf));
    TRY(recompute(im));
    TRY(precision(im));
    TRY(checkpoints(im));
    TRY(data(im));
    TRY(validation(im));
    return import_rows(im, rows, NUM_ROWS);
}

enum status import_nxdt(struct import *im, const char *bytes, size_t len, const char *file,
                        const char *const *settings, int num_settings)
{
    struct yaml_tree *root = NULL;
    enum { MOST_SETTINGS = 64 };
    bool theirs[MOST_SETTINGS] = {false};
    TRY(import_init(im, file, "NxD Training"));
    if (num_settings > MOST_SETTINGS)
        FAIL(USAGE, "%s: more than %d settings behind it", file, MOST_SETTINGS);
    enum status st = yaml_tree_parse(bytes, len, file, &root);
    if (st) return st;
    if (root->kind != YAML_MAP) FAIL_OUT(CONFIG, "%s: a mapping of keys is wanted", file);
    for (int i = 0; i < num_settings; i++) TRY_OUT(override(root, settings[i], &theirs[i]));
    TRY_OUT(interpolate(root, file));
    TRY_OUT(flatten(im, root, ""));
    TRY_OUT(convert(im));
    for (int i = 0; i < num_settings; i++)
        if (!theirs[i]) TRY_OUT(import_setting(im, settings[i]));
out:
    yaml_tree_free(root);
    return st;
}
