// SPDX-License-Identifier: Apache-2.0
#include "config/import/rules.h"

#include "checkpoint/interop/hf_config.h"
#include "config/sections.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_RANKS = 1 << 20, MAX_ROWS = 1 << 30 };

static const struct import_item *get_if_named(const struct import *im, const char *key)
{
    return key ? import_get(im, key) : NULL;
}

static enum status check_sizes(const struct import *im, const struct import_layout *l,
                               const struct import_layout_keys *keys, int64_t *dp)
{
    const struct {
        const char *name;
        int64_t value, most;
    } sizes[] = {
        {"tensor parallel size", l->tp, MAX_RANKS},    {"pipeline parallel size", l->pp, MAX_RANKS},
        {"context parallel size", l->cp, MAX_RANKS},   {"virtual pipeline size", l->vp, MAX_RANKS},
        {"micro batch size", l->micro_batch, 1 << 20}, {"replicas", l->replicas, MAX_RANKS}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value < 1 || sizes[i].value > sizes[i].most)
            FAIL(CONFIG, "%s: %s = %lld: must be between 1 and %lld", im->file, sizes[i].name,
                 (long long)sizes[i].value, (long long)sizes[i].most);
    const struct import_item *batch = get_if_named(im, keys->global_batch);
    if (batch && !l->global_batch) return import_bad_value(im, batch, "at least 1");
    if (l->global_batch > MAX_ROWS || l->ranks > MAX_RANKS || l->ranks < 0)
        FAIL(CONFIG, "%s: global batch size %lld on %lld ranks: too large", im->file,
             (long long)l->global_batch, (long long)l->ranks);
    int64_t model = l->tp * l->pp, cp = l->cp;
    *dp = 0;
    if (model > MAX_RANKS || model * cp > MAX_RANKS)
        FAIL(CONFIG, "%s: tensor x pipeline x context = %lld x %lld x %lld ranks: too large",
             im->file, (long long)l->tp, (long long)l->pp, (long long)cp);
    model *= cp;
    if (l->ranks && l->ranks % model)
        FAIL(CONFIG,
             "%s: %lld ranks: must be a multiple of tensor x pipeline x context = %lld x %lld x "
             "%lld",
             im->file, (long long)l->ranks, (long long)l->tp, (long long)l->pp, (long long)cp);
    *dp = l->ranks / model;
    if (*dp % l->replicas)
        FAIL(CONFIG, "%s: %lld data-parallel ranks: must be a multiple of %lld replicas", im->file,
             (long long)*dp, (long long)l->replicas);
    int64_t rows = l->micro_batch * (*dp ? *dp : 1);
    if (l->global_batch % rows)
        FAIL(CONFIG,
             "%s: global batch size %lld: must be a multiple of micro batch size x data-parallel "
             "ranks = %lld x %lld",
             im->file, (long long)l->global_batch, (long long)l->micro_batch,
             (long long)(*dp ? *dp : 1));
    return STATUS_OK;
}

static enum status set_pipeline(struct import *im, const struct import_layout *l,
                                const struct import_layout_keys *keys)
{
    const struct import_item *pp = get_if_named(im, keys->pp), *vp = get_if_named(im, keys->vp);
    int64_t stages = l->pp * l->vp;
    TRY(import_set(im, vp, "parallelism.pipeline_parallel_schedule",
                   l->vp > 1 ? "Interleaved1F1B" : "1F1B", ""));
    TRY(import_set_int(im, get_if_named(im, keys->micro_batch),
                       "parallelism.pipeline_parallel_microbatch_size", l->micro_batch, ""));
    if (l->vp > 1) {
        if (!l->layers || l->layers % stages)
            FAIL(CONFIG, "%s: %lld layers: must be a multiple of %lld x %lld stages", im->file,
                 (long long)l->layers, (long long)l->pp, (long long)l->vp);
        TRY(import_set_int(im, vp, "parallelism.pipeline_parallel_layers_per_stage",
                           l->layers / stages, ""));
    }
    TRY(import_set(im, pp, "parallelism.pipeline_parallel_first_stage_less_layers", "0",
                   "Only transformer blocks are counted when layers are divided."));
    TRY(import_set(im, pp, "parallelism.pipeline_parallel_last_stage_less_layers", "0", ""));
    if (l->last_gets_more)
        TRY(import_set(im, pp, "parallelism.pipeline_parallel_remainder", "last", ""));
    return STATUS_OK;
}

static enum status set_sharding(struct import *im, const struct import_layout *l,
                                const struct import_item *item, int64_t dp)
{
    if (l->sharding == SHARD_ALL) {
        TRY(import_set(im, item, "parallelism.data_parallel_shard_degree", "-1", ""));
        TRY(import_set(im, item, "parallelism.fsdp_reshard_after_forward", "always", ""));
    } else if (l->sharding == SHARD_MOMENTS || !dp) {
        TRY(import_set(im, item, "parallelism.data_parallel_shard_degree", "-1", ""));
        TRY(import_set(im, item, "parallelism.fsdp_shard_gradients", "false",
                       l->sharding == SHARD_MOMENTS
                           ? "ZeRO-1: only optimizer states are sharded."
                           : "The original shards nothing. Here optimizer states are sharded, as "
                             "the number of ranks is unknown; results are the same."));
    } else {
        TRY(import_set(im, item, "parallelism.data_parallel_shard_degree", "1", ""));
        return import_set_int(im, item, "parallelism.data_parallel_replicate_degree", dp,
                              "Every data-parallel rank holds the full state.");
    }
    if (l->replicas > 1)
        TRY(import_set_int(im, item, "parallelism.data_parallel_replicate_degree", l->replicas,
                           ""));
    return STATUS_OK;
}

enum status rules_set_layout(struct import *im, const struct import_layout *l,
                             const struct import_layout_keys *keys)
{
    int64_t dp = 0;
    TRY(check_sizes(im, l, keys, &dp));
    im->num_ranks = l->ranks;
    const struct {
        const char *key, *target;
        int64_t value;
    } degrees[] = {
        {keys->tp, "parallelism.tensor_parallel_degree", l->tp},
        {keys->pp, "parallelism.pipeline_parallel_degree", l->pp},
        {keys->cp, "parallelism.context_parallel_degree", l->cp},
        {keys->micro_batch, "training.local_batch_size", l->micro_batch},
        {keys->global_batch, "training.global_batch_size", l->global_batch ? l->global_batch : -1}};
    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++)
        TRY(import_set_int(im, get_if_named(im, degrees[i].key), degrees[i].target,
                           degrees[i].value, ""));
    if (l->pp > 1) TRY(set_pipeline(im, l, keys));
    return set_sharding(im, l, get_if_named(im, keys->sharding), dp);
}

enum status rules_set_min_lr(struct import *im, const struct import_item *least, const char *target,
                             const struct import_item *peak)
{
    double low = 0, high = 0;
    if (least) TRY(import_parse_real(im, least, &low));
    if (peak) TRY(import_parse_real(im, peak, &high));
    if (!least || low == 0) return import_set(im, least, target, "0", "");
    if (!(high > 0) || low < 0 || low > high)
        return import_bad_value(im, least, "a number from 0 to the peak rate");
    return import_set_real(im, least, target, low / high, "As a fraction of the peak rate.");
}

void rules_require_llama(struct import *im, const char *key, const char *word, const char *text)
{
    const struct import_item *item = import_get(im, key);
    struct text note = {0};
    if (!item) return;
    bool same = item->count == 1 && !strcasecmp(item->values[0], word);
    if (!same) text_addf(&note, "not a Llama: %s (%s)", text, word);
    import_add_note(im, same ? IMPORT_IGNORED : IMPORT_UNSUPPORTED, item,
                    same ? "same here" : note.data);
    text_release(&note);
}

static enum status set_factors(struct import *im, const struct import_item *item,
                               const char *target, const double *factors, int count)
{
    struct text list = {0};
    for (int j = 0; j < count; j++) text_addf(&list, "%s%.17g", j ? ", " : "[", factors[j]);
    text_adds(&list, "]");
    enum status st = count ? import_set(im, item, target, list.data, "") : STATUS_OK;
    text_release(&list);
    return st;
}

/* Sets what differs from the defaults of the scaling. */
static enum status set_scaling(struct import *im, const struct import_item *item,
                               const struct rope_scaling *r)
{
    const bool llama3 = r->factor > 0 && r->method == ROPE_llama3;
    const struct {
        const char *target;
        double value, preset;
    } options[] = {{"model.rope_factor", r->factor, llama3 ? 8 : 0},
                   {"model.rope_original_context", r->original_context, llama3 ? 8192 : 0},
                   {"model.rope_low_freq_factor", r->low_frequency_factor, llama3},
                   {"model.rope_high_freq_factor", r->high_frequency_factor, llama3 ? 4 : 0},
                   {"model.rope_beta_fast", r->beta_fast, 32},
                   {"model.rope_beta_slow", r->beta_slow, 1},
                   {"model.rope_attention_factor", r->attention_factor, 0}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].value != 0 && options[i].value != options[i].preset)
            TRY(import_set_real(im, item, options[i].target, options[i].value, ""));
    TRY(set_factors(im, item, "model.rope_short_factor", r->short_factors, r->num_factors));
    TRY(set_factors(im, item, "model.rope_long_factor", r->long_factors, r->num_factors));
    return import_set(im, item, "model.rope_scaling", r->factor > 0 ? rope_method_name(r) : "none",
                      "");
}

/* Phi-3's partial RoPE, Granite's multipliers, and SmolLM3's blocks without RoPE. */
static enum status set_extra(struct import *im, const struct import_item *item,
                             const struct model_shape *s)
{
    const struct {
        const char *target;
        double value;
    } options[] = {{"model.partial_rotary_factor", s->partial_rotary_factor},
                   {"model.no_rope_layer_interval", s->no_rope_interval},
                   {"model.embedding_multiplier", s->embedding_multiplier},
                   {"model.residual_multiplier", s->residual_multiplier},
                   {"model.attention_multiplier", s->attention_multiplier},
                   {"model.logits_scaling", s->logits_scaling}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].value > 0)
            TRY(import_set_real(im, item, options[i].target, options[i].value, ""));
    return STATUS_OK;
}

enum status rules_set_model_from_json(struct import *im, const struct import_item *item,
                                      const char *path)
{
    struct model_shape shape, *s = &shape;
    TRY(hf_config_read(path, s));
    const struct {
        const char *target;
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
        TRY(import_set_real(im, item, sizes[i].target, sizes[i].value, ""));
    TRY(import_set(im, item, "model.tie_embeddings", s->tied ? "true" : "false", ""));
    if (s->qk_norm && !s->post_norm) TRY(import_set(im, item, "model.qk_norm", "true", ""));
    if (s->post_norm) TRY(import_set(im, item, "model.post_norm", "true", ""));
    if (strcmp(model_shape_biases(s), "none") != 0)
        TRY(import_set(im, item, "model.attention_bias", model_shape_biases(s), ""));
    if (s->mlp_bias) TRY(import_set(im, item, "model.mlp_bias", "true", ""));
    if (s->window) TRY(import_set_real(im, item, "model.sliding_window", s->window, ""));
    TRY(set_extra(im, item, s));
    return set_scaling(im, item, &s->scaling);
}

static bool is_weight(const char *word, double *weight)
{
    char *end;
    *weight = strtod(word, &end);
    return end != word && !*end && isfinite(*weight) && *weight >= 0;
}

enum status rules_add_blend(struct import *im, const struct import_item *item, char *const *values,
                            size_t count)
{
    size_t weights = 0;
    double weight;
    for (size_t i = 0; i + 1 < count && count % 2 == 0; i += 2)
        weights += is_weight(values[i], &weight);
    if (!count || (weights && weights != count / 2))
        return import_bad_value(im, item,
                                "prefixes, each with a weight before it or none with one");
    for (size_t i = 0; i < count; i += weights ? 2 : 1) {
        if (weights) is_weight(values[i], &weight);
        import_add_source(im, values[i + (weights > 0)], "text", weights ? weight : 1);
    }
    TRY(import_set(im, item, "data.order", "megatron",
                   "Sample order of Megatron-LM's GPTDataset."));
    if (weights) return import_set(im, item, "data.blend", "weights", "");
    return count > 1 ? import_set(im, item, "data.blend", "lengths", "") : STATUS_OK;
}

enum status rules_set_eod_mask(struct import *im, const struct import_item *item, bool per_token)
{
    bool masked;
    if (!item) return STATUS_OK;
    TRY(import_parse_bool(im, item, &masked));
    TRY(import_set(im, item, "data.eod_mask_loss", masked ? "true" : "false", ""));
    if (!masked || per_token) return STATUS_OK;
    return import_set(im, item, "training.loss_norm", "rank_mean",
                      "The original averages the mean losses of microbatches; where tokens are "
                      "masked, that differs from the mean over all tokens.");
}

enum status rules_set_cyclic(struct import *im, const struct import_item *item,
                             const struct import_layout *l, bool sharded)
{
    int64_t ranks = l->ranks / (l->tp * l->pp * l->cp);
    TRY(import_set(im, item, "data.sampler", sharded ? "cyclic" : "cyclic_unsharded",
                   l->ranks ? "The order of the original's ranks, on any number of ranks here."
                            : "The order depends on data.sampler_ranks, the original's "
                              "data-parallel ranks, unknown here: those of the run count."));
    if (l->ranks) TRY(import_set_int(im, item, "data.sampler_ranks", ranks, ""));
    return import_set_int(im, item, "data.sampler_rows", l->micro_batch, "");
}

enum status rules_apply_setting(struct import *im, const char *setting)
{
    const char *equals = strchr(setting, '=');
    if (!equals) FAIL(CONFIG, "command line: %s: expected section.key=value", setting);
    char *key = heap_string(setting, (size_t)(equals - setting));
    const struct config_alias *alias = config_find_alias(key);
    const struct config_section *section;
    enum status st = config_assign(&im->config, key, equals + 1, "command line");
    if (!st && config_find(alias ? alias->key : key, &section)) {
        st = import_set(im, NULL, alias ? alias->key : key, equals + 1, "Set on the command line.");
    }
    free(key);
    return st;
}
