/* megatron.c -- the rules for Megatron-LM's flags that need more than a table row. */
// SPDX-License-Identifier: Apache-2.0
#include "config/import/megatron.h"

#include "base/file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct import_row rows[] = {
#define FLAG(key, arity, kind, target, text) {key, IMPORT_ROW_##kind, target, text},
#define IGNORED_FLAGS(arity, text, names)
#include "config/import/megatron.def"
#undef FLAG
#undef IGNORED_FLAGS
};
enum { NUM_ROWS = sizeof rows / sizeof *rows };

static const int arities[] = {
#define FLAG(key, arity, kind, target, text) arity,
#define IGNORED_FLAGS(arity, text, names)
#include "config/import/megatron.def"
#undef FLAG
#undef IGNORED_FLAGS
};

static const struct ignored_flags {
    int arity;
    const char *text, *names;
} ignored_flags[] = {
#define FLAG(key, arity, kind, target, text)
#define IGNORED_FLAGS(arity, text, names) {arity, text, names},
#include "config/import/megatron.def"
#undef FLAG
#undef IGNORED_FLAGS
};

/* Returns the number of values a flag takes, as in megatron.def; -1: unknown.  *reason: why it is
 * ignored, if it has no row of its own; else NULL. */
static int flag_arity(const char *flag, const char **reason)
{
    char padded[128];
    *reason = NULL;
    for (size_t i = 0; i < NUM_ROWS; i++)
        if (!strcmp(rows[i].key, flag)) return arities[i];
    snprintf(padded, sizeof padded, " %.120s ", flag);
    for (size_t i = 0; i < sizeof ignored_flags / sizeof *ignored_flags; i++)
        if (strstr(ignored_flags[i].names, padded)) {
            *reason = ignored_flags[i].text;
            return ignored_flags[i].arity;
        }
    return -1;
}

static enum status read_flags(struct import *im, const char *const *words, size_t count, int line)
{
    char place[256];
    snprintf(place, sizeof place, line ? "%.240s:%d" : "%.240s", im->file, line);
    for (size_t i = 0; i < count;) {
        const char *word = words[i], *equals = strchr(word, '=');
        if (!*word) { /* from an empty variable */
            i++;
            continue;
        }
        if (strncmp(word, "--", 2))
            FAIL(CONFIG, "%s: expected a --flag, got \"%.80s\"", place, word);
        char *flag = heap_string(word, equals ? (size_t)(equals - word) : strlen(word));
        const char *reason;
        int arity = flag_arity(flag, &reason);
        const char *const *values = words + ++i, *one = equals ? equals + 1 : NULL;
        size_t num = 0;
        bool many = arity == 2 || arity < 0; /* import_check_known reports unknown flags */
        if (equals)
            values = &one, num = 1;
        else if (arity == 1 && i < count)
            num = 1;
        else
            while (many && i + num < count && strncmp(words[i + num], "--", 2)) num++;
        enum status st = STATUS_OK;
        if ((arity > 0 && !num) || (arity == 1 && !equals && !strncmp(values[0], "--", 2)))
            st = FAILURE(CONFIG, "%s: %s requires a value", place, flag);
        else if (arity == 0 && num)
            st = FAILURE(CONFIG, "%s: %s takes no value", place, flag);
        if (!st) import_add_item(im, flag, line, values, num);
        if (!st && reason)
            import_add_note(im, IMPORT_IGNORED, &im->items[im->num_items - 1], reason);
        if (!equals) i += num;
        free(flag);
        TRY(st);
    }
    return STATUS_OK;
}

static enum status required(struct import *im, const char *flag, const struct import_item **out)
{
    *out = import_get(im, flag);
    if (!*out) FAIL(CONFIG, "%s: %s is required", im->file, flag);
    return STATUS_OK;
}

static bool has(const struct import *im, const char *flag) { return import_get(im, flag) != NULL; }

/* The combinations that Megatron-LM rejects. */
static enum status check_combinations(struct import *im, const struct import_layout *l)
{
    const char *why = NULL;
    bool torch = has(im, "--use-torch-fsdp2"), own = has(im, "--use-megatron-fsdp");
    if (torch && own) why = "set only one of --use-torch-fsdp2 and --use-megatron-fsdp";
    if (torch && l->pp > 1) why = "--use-torch-fsdp2 does not support pipeline parallelism";
    if (torch && has(im, "--use-distributed-optimizer"))
        why = "--use-torch-fsdp2 and --use-distributed-optimizer are mutually exclusive";
    if (torch && !has(im, "--untie-embeddings-and-output-weights"))
        why = "--use-torch-fsdp2 requires --untie-embeddings-and-output-weights";
    if (l->replicas > 1 && !own && !has(im, "--use-distributed-optimizer"))
        why = "--num-distributed-optimizer-instances requires --use-distributed-optimizer or "
              "--use-megatron-fsdp";
    if (l->vp > 1 && l->pp < 2) why = "virtual stages require --pipeline-model-parallel-size";
    if (why) FAIL(CONFIG, "%s: %s", im->file, why);
    return STATUS_OK;
}

static enum status set_layout(struct import *im, struct import_layout *l)
{
    int64_t stage;
    const char *strategy = import_get_string(im, "--data-parallel-sharding-strategy", "no_shard");
    const struct import_layout_keys keys = {
        .tp = "--tensor-model-parallel-size",
        .pp = "--pipeline-model-parallel-size",
        .cp = "--context-parallel-size",
        .vp = "--num-virtual-stages-per-pipeline-rank",
        .micro_batch = "--micro-batch-size",
        .global_batch = "--global-batch-size",
        .sharding = has(im, "--use-torch-fsdp2")     ? "--use-torch-fsdp2"
                    : has(im, "--use-megatron-fsdp") ? "--use-megatron-fsdp"
                                                     : "--use-distributed-optimizer"};
    const struct import_item *unused;
    TRY(required(im, "--micro-batch-size", &unused));
    TRY(import_get_int(im, keys.tp, 1, &l->tp));
    TRY(import_get_int(im, keys.pp, 1, &l->pp));
    TRY(import_get_int(im, keys.cp, 1, &l->cp));
    TRY(import_get_int(im, keys.vp, 1, &l->vp));
    TRY(import_get_int(im, keys.micro_batch, 1, &l->micro_batch));
    TRY(import_get_int(im, keys.global_batch, 0, &l->global_batch));
    TRY(import_get_int(im, "--num-distributed-optimizer-instances", 1, &l->replicas));
    TRY(import_get_int(im, "--num-layers", 0, &l->layers));
    TRY(import_get_int(im, "--num-layers-per-virtual-pipeline-stage", 0, &stage));
    if (stage) {
        if (l->vp > 1)
            FAIL(CONFIG,
                 "%s: set only one of --num-layers-per-virtual-pipeline-stage and "
                 "--num-virtual-stages-per-pipeline-rank",
                 im->file);
        if (l->pp < 1 || l->pp > 4096 || stage > 4096 || l->layers % (l->pp * stage))
            FAIL(CONFIG, "%s: %lld layers do not divide into stages of %lld on %lld ranks",
                 im->file, (long long)l->layers, (long long)stage, (long long)l->pp);
        l->vp = l->layers / (l->pp * stage);
    }
    bool moments = has(im, "--use-distributed-optimizer") || !strcmp(strategy, "optim");
    l->sharding = moments ? SHARD_MOMENTS : SHARD_NOTHING;
    if (has(im, "--use-torch-fsdp2") || !strncmp(strategy, "optim_grads", 11))
        l->sharding = SHARD_ALL;
    if (l->replicas > 1 && l->sharding == SHARD_NOTHING) l->sharding = SHARD_MOMENTS;
    TRY(check_combinations(im, l));
    TRY(rules_set_layout(im, l, &keys));
    if (!strcmp(strategy, "optim_grads"))
        return import_set(im, import_get(im, "--data-parallel-sharding-strategy"),
                          "parallelism.fsdp_reshard_after_forward", "never",
                          "ZeRO-2: parameters stay gathered.");
    return STATUS_OK;
}

static bool contains(const char *text, const char *part)
{
    return text && strcasestr(text, part) != NULL;
}

/* Llama 3.1's scaling, or position interpolation. */
static enum status set_rope_scaling(struct import *im)
{
    const struct import_item *scaling = import_get(im, "--use-rope-scaling");
    const struct import_item *factor = import_get(im, "--rope-scaling-factor");
    const struct import_item *linear = import_get(im, "--rotary-seq-len-interpolation-factor");
    double stretch = 1;
    if (linear) TRY(import_parse_real(im, linear, &stretch));
    if (stretch < 1) return import_bad_value(im, linear, "at least 1");
    if (linear && stretch > 1 && !scaling) {
        TRY(import_set(im, linear, "model.rope_scaling", "linear", ""));
        return import_copy(im, linear, "model.rope_factor", "");
    }
    if (linear)
        import_add_note(im, stretch > 1 ? IMPORT_UNSUPPORTED : IMPORT_IGNORED, linear,
                        stretch > 1 ? "RoPE is already scaled by --use-rope-scaling" : "same here");
    TRY(import_set(im, scaling, "model.rope_scaling", scaling ? "llama3" : "none", ""));
    return scaling && factor ? import_copy(im, factor, "model.rope_factor", "") : STATUS_OK;
}

/* --no-rope-freq N: every Nth layer has no RoPE. */
static enum status set_layers_without_rope(struct import *im)
{
    const struct import_item *item = import_get(im, "--no-rope-freq");
    int64_t every;
    if (!item) return STATUS_OK;
    if (strchr(item->values[0], '['))
        return import_bad_value(im, item, "an integer; lists of layers are not supported");
    TRY(import_parse_int(im, item, 0, 4096, &every));
    if (every && im->config.model.n_layers % every)
        return import_bad_value(im, item, "a divisor of --num-layers");
    return import_copy(im, item, "model.no_rope_layer_interval", "");
}

/* Llama 3 has a RoPE base of 500000, but the default of --rotary-base is 10000. */
static enum status set_rope_base(struct import *im)
{
    const struct import_item *base = import_get(im, "--rotary-base");
    const char *tokenizer = import_get_string(im, "--tokenizer-model", "");
    const struct import_item *vocab = import_get(im, "--vocab-size");
    if (base) return import_copy(im, base, "model.rope_theta", "");
    const char *name = file_name(im->file);
    bool is_llama3 = contains(tokenizer, "llama-3") || contains(tokenizer, "llama3") ||
                     contains(name, "llama3") || contains(name, "llama-3") ||
                     (vocab && vocab->count == 1 && !strcmp(vocab->values[0], "128256"));
    if (!is_llama3)
        return import_set(im, NULL, "model.rope_theta", "10000", "The default of --rotary-base.");
    import_add_note(
        im, IMPORT_ORIGINAL_BUG, NULL,
        "--rotary-base is not set, so Megatron-LM trains this Llama 3 with a rotary base of "
        "10000. Here it is 500000, as in Llama 3; set model.rope_theta = 10000 to reproduce "
        "the original.");
    return import_set(im, NULL, "model.rope_theta", "500000",
                      "Not set in the original; see above.");
}

static enum status set_sizes(struct import *im)
{
    const struct import_item *layers, *dim, *heads;
    const struct import_item *groups = import_get(im, "--num-query-groups");
    const struct import_item *ffn = import_get(im, "--ffn-hidden-size");
    int64_t width;
    TRY(required(im, "--num-layers", &layers));
    TRY(required(im, "--hidden-size", &dim));
    TRY(required(im, "--num-attention-heads", &heads));
    TRY(import_parse_int(im, dim, 1, 1 << 20, &width));
    TRY(import_set(im, NULL, "model.name", "llama2", "The sizes are set below."));
    TRY(import_set(im, NULL, "model.flavor", "7B", ""));
    TRY(import_copy(im, dim, "model.dim", ""));
    TRY(import_copy(im, layers, "model.n_layers", ""));
    TRY(import_copy(im, heads, "model.n_heads", ""));
    if (!has(im, "--group-query-attention"))
        TRY(import_copy(im, heads, "model.n_kv_heads", ""));
    else
        TRY(import_set(im, groups, "model.n_kv_heads", groups ? groups->values[0] : "1",
                       groups ? "" : "The default of --num-query-groups."));
    if (ffn) return import_copy(im, ffn, "model.ffn_hidden", "");
    return import_set_int(im, NULL, "model.ffn_hidden",
                          (int64_t)((double)(4 * width) * 2 / 3) / 64 * 64,
                          "The default: 4 * hidden_size * 2/3, rounded down to a multiple of 64.");
}

static enum status set_biases(struct import *im)
{
    const struct import_item *qkv = import_get(im, "--add-qkv-bias");
    const struct import_item *all = import_get(im, "--add-bias-linear");
    if (has(im, "--disable-bias-linear"))
        return qkv ? import_set(im, qkv, "model.attention_bias", "qkv", "") : STATUS_OK;
    TRY(import_set(im, all, "model.attention_bias", "all",
                   all ? "" : "--disable-bias-linear is not set."));
    return import_set(im, all, "model.mlp_bias", "true", "");
}

/* --window-size LEFT,RIGHT: the tokens to which one attends before and, unless the mask is causal,
 * after it; -1: all. */
static enum status set_window(struct import *im)
{
    const struct import_item *item = import_get(im, "--window-size");
    const struct import_item *skip = import_get(im, "--window-attn-skip-freq");
    int64_t left, right;
    if (!item) return STATUS_OK;
    const char *text = item->values[0] + strspn(item->values[0], "( ");
    int end = 0;
    if (sscanf(text, "%9" SCNd64 " ,%9" SCNd64 "%n", &left, &right, &end) != 2 || !end ||
        text[end + (int)strspn(text + end, ") ")] || left < -1 || right < -1 || right > 0)
        return import_bad_value(im, item, "LEFT,0 such as 4095,0");
    if (skip && left >= 0)
        import_add_note(im, IMPORT_UNSUPPORTED, skip, "windows apply to all layers");
    return import_set_int(im, item, "model.sliding_window", left + 1,
                          "It counts the token itself.");
}

static enum status set_model(struct import *im)
{
    static const char *const parts[][2] = {
        {"--swiglu", "GELU by default; a Llama has SwiGLU"},
        {"--normalization", "LayerNorm by default; a Llama has RMSNorm"},
    };
    static const char *const dropouts[] = {"--attention-dropout", "--hidden-dropout"};
    const struct import_item *std = import_get(im, "--init-method-std");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!has(im, parts[i][0])) import_refuse_default(im, parts[i][0], parts[i][1]);
    rules_require_llama(im, "--normalization", "RMSNorm", "its normalization is RMSNorm");
    rules_require_llama(im, "--position-embedding-type", "rope", "it uses RoPE");
    if (!has(im, "--position-embedding-type") && !has(im, "--use-rotary-position-embeddings"))
        import_refuse_default(im, "--position-embedding-type",
                              "learned positions by default; a Llama uses RoPE");
    TRY(set_sizes(im));
    TRY(set_rope_base(im));
    TRY(set_rope_scaling(im));
    TRY(set_layers_without_rope(im));
    TRY(set_biases(im));
    TRY(set_window(im));
    bool untied = has(im, "--untie-embeddings-and-output-weights");
    TRY(import_set(im, import_get(im, "--untie-embeddings-and-output-weights"),
                   "model.tie_embeddings", untied ? "false" : "true",
                   untied ? "" : "--untie-embeddings-and-output-weights is not set."));
    TRY(import_set(im, NULL, "model.init", "megatron", ""));
    TRY(import_set(im, std, "model.init_std", std ? std->values[0] : "0.02", ""));
    for (size_t i = 0; i < 2; i++) {
        const struct import_item *item = import_get(im, dropouts[i]);
        double rate = 0.1;
        if (item) TRY(import_parse_real(im, item, &rate));
        if (item)
            import_add_note(im, rate != 0 ? IMPORT_UNSUPPORTED : IMPORT_IGNORED, item,
                            rate != 0 ? "dropout is not supported" : "same here");
        else
            import_refuse_default(im, dropouts[i], "0.1 by default; dropout is not supported");
    }
    return STATUS_OK;
}

static enum status set_optimizer(struct import *im)
{
    static const struct {
        const char *flag, *target, *preset;
    } numbers[] = {{"--adam-beta1", "optimizer.beta1", "0.9"},
                   {"--adam-beta2", "optimizer.beta2", "0.999"},
                   {"--adam-eps", "optimizer.eps", "1e-08"},
                   {"--weight-decay", "optimizer.weight_decay", "0.01"},
                   {"--clip-grad", "training.max_norm", "1.0"}};
    const struct import_item *kind = import_get(im, "--optimizer");
    if (kind && strcmp(kind->values[0], "adam")) return import_bad_value(im, kind, "adam (AdamW)");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const struct import_item *item = import_get(im, numbers[i].flag);
        if (item) TRY(import_parse_string(im, item, NULL));
        TRY(import_set(im, item, numbers[i].target, item ? item->values[0] : numbers[i].preset,
                       item ? "" : "The default."));
    }
    return import_set(im, NULL, "optimizer.decay_norms", "false",
                      "Megatron-LM never decays norms and biases.");
}

/* --first-last-layers-bf16 keeps blocks at both ends in bfloat16. */
static enum status set_bf16_layers(struct import *im)
{
    const struct import_item *flag = import_get(im, "--first-last-layers-bf16");
    int64_t first, last, layers = im->config.model.n_layers;
    struct text list = {0};
    if (!flag) return STATUS_OK;
    TRY(import_get_int(im, "--num-layers-at-start-in-bf16", 1, &first));
    TRY(import_get_int(im, "--num-layers-at-end-in-bf16", 1, &last));
    if (first + last > layers)
        FAIL(CONFIG, "%s: %lld + %lld layers in bfloat16 exceed --num-layers", im->file,
             (long long)first, (long long)last);
    for (int64_t i = 0; i < layers; i++)
        if (i < first || i >= layers - last)
            text_addf(&list, "%slayers.%lld.", list.len ? "," : "", (long long)i);
    enum status st =
        list.len ? import_set(im, flag, "float8.filter_fqns", list.data, "") : STATUS_OK;
    text_release(&list);
    return st;
}

static enum status set_precision(struct import *im)
{
    const struct import_item *half = import_get(im, "--fp16"), *brain = import_get(im, "--bf16");
    const struct import_item *format = import_get(im, "--fp8-format");
    const struct import_item *recipe = import_get(im, "--fp8-recipe");
    const struct import_item *length = import_get(im, "--fp8-amax-history-len");
    const struct import_item *algorithm = import_get(im, "--fp8-amax-compute-algo");
    const struct import_item *margin = import_get(im, "--fp8-margin");
    if (half && brain) FAIL(CONFIG, "%s: set only one of --fp16 and --bf16", im->file);
    if (half) FAIL(CONFIG, "%s: --fp16: not supported; use bfloat16 or float32", im->file);
    TRY(import_set(im, brain, "training.mixed_precision_param", brain ? "bfloat16" : "float32",
                   ""));
    if (!recipe) recipe = import_get(im, "--linear-fp8-scaling");
    if (!length) length = import_get(im, "--linear-fp8-amax-history");
    if (!algorithm) algorithm = import_get(im, "--linear-fp8-amax-algo");
    if (!format) format = import_get(im, "--linear-fp8");
    if (!format) return STATUS_OK;
    if (has(im, "--fp4-format"))
        FAIL(CONFIG, "%s: set only one of --fp4-format and --fp8-format", im->file);
    const char *word = recipe && recipe->count == 1 ? recipe->values[0] : "delayed";
    if (strcmp(word, "delayed") && strcmp(word, "tensorwise")) {
        import_add_note(im, IMPORT_UNSUPPORTED, recipe,
                        "only delayed and tensorwise scaling are supported; GEMMs run in bfloat16");
        import_add_note(im, IMPORT_IGNORED, format, "its recipe is not supported");
        return STATUS_OK;
    }
    if (format->count == 1 && strcmp(format->values[0], "hybrid"))
        import_add_note(im, IMPORT_UNSUPPORTED, format,
                        "only hybrid is supported: gradients are E5M2");
    TRY(import_set(im, format, "float8.enable_float8_linear", "true", ""));
    TRY(import_set(im, recipe, "float8.recipe_name", word, ""));
    if (margin) TRY(import_copy(im, margin, "float8.margin", ""));
    TRY(set_bf16_layers(im));
    if (strcmp(word, "delayed")) return STATUS_OK;
    /* Transformer Engine's defaults: a history of 1 and its most recent amax */
    TRY(import_set(im, length, "float8.amax_history_len", length ? length->values[0] : "1", ""));
    return import_set(im, algorithm, "float8.amax_compute_algo",
                      algorithm ? algorithm->values[0] : "most_recent", "");
}

static enum status set_recompute(struct import *im)
{
    const struct import_item *how = import_get(im, "--recompute-granularity");
    const struct import_item *method = import_get(im, "--recompute-method");
    const struct import_item *some = import_get(im, "--recompute-num-layers");
    const char *mode = how && how->count == 1 ? how->values[0] : "none";
    int64_t layers, all;
    if (!how && has(im, "--recompute-activations")) {
        how = import_get(im, "--recompute-activations");
        mode = "selective";
    }
    if (strcmp(mode, "none") && strcmp(mode, "full") && strcmp(mode, "selective"))
        return import_bad_value(im, how, "full or selective");
    bool full = !strcmp(mode, "full");
    if (full && (!method || !some))
        FAIL(CONFIG,
             "%s: --recompute-granularity full requires --recompute-method and "
             "--recompute-num-layers",
             im->file);
    if (!full && (method || some))
        FAIL(CONFIG,
             "%s: --recompute-method and --recompute-num-layers require "
             "--recompute-granularity full",
             im->file);
    TRY(import_set(im, how, "activation_checkpoint.mode", mode, ""));
    if (!full) return STATUS_OK;
    if (strcmp(method->count ? method->values[0] : "", "block") &&
        strcmp(method->count ? method->values[0] : "", "uniform"))
        return import_bad_value(im, method, "block or uniform");
    TRY(import_parse_int(im, some, 1, 4096, &layers));
    TRY(import_get_int(im, "--num-layers", 0, &all));
    bool every = !strcmp(method->values[0], "block") ? layers >= all : layers == 1;
    import_add_note(im, IMPORT_IGNORED, some,
                    every ? "every block is recomputed"
                          : "every block is recomputed, one at a time; only memory differs");
    return STATUS_OK;
}

static enum status set_tokenizer(struct import *im)
{
    const struct import_item *kind = import_get(im, "--tokenizer-type");
    const struct import_item *path = import_get(im, "--tokenizer-model");
    const char *type = kind && kind->count == 1 ? kind->values[0] : "";
    if (!strcmp(type, "NullTokenizer")) {
        const struct import_item *vocab;
        TRY(required(im, "--vocab-size", &vocab));
        import_add_note(im, IMPORT_IGNORED, kind, "no tokenizer is needed; see model.vocab_size");
        return import_copy(im, vocab, "model.vocab_size", "");
    }
    if (!path && !strcmp(type, "GPT2BPETokenizer")) {
        import_add_note(im, IMPORT_UNSUPPORTED, kind,
                        "vocab and merges files are not read: set data.tokenizer to the folder of "
                        "a tokenizer.json");
        return STATUS_OK;
    }
    if (kind) import_add_note(im, IMPORT_IGNORED, kind, "tokenizer formats are detected");
    if (!path) FAIL(CONFIG, "%s: --tokenizer-model is required", im->file);
    const char *name = path->count == 1 ? path->values[0] : "", *slash = strchr(name, '/');
    bool hub = !strcmp(type, "HuggingFaceTokenizer") && slash && slash != name &&
               !strchr(slash + 1, '/') && *name != '.' && *name != '~' && *name != '$' &&
               !file_exists(name);
    return import_setf(im, path, "data.tokenizer", hub ? "hf://%s" : "%s", name);
}

static enum status set_sampler(struct import *im, const struct import_layout *l)
{
    const struct import_item *kind = import_get(im, "--dataloader-type");
    const char *word = kind && kind->count == 1 ? kind->values[0] : "single";
    if (kind && !strcmp(word, "single")) import_add_note(im, IMPORT_IGNORED, kind, "same here");
    if (!strcmp(word, "single")) return STATUS_OK;
    if (!strcmp(word, "external")) {
        import_add_note(im, IMPORT_UNSUPPORTED, kind, "external data loaders are not supported");
        return STATUS_OK;
    }
    if (strcmp(word, "cyclic")) return import_bad_value(im, kind, "single, cyclic or external");
    return rules_set_cyclic(im, kind, l, !has(im, "--no-data-sharding"));
}

static enum status set_data(struct import *im)
{
    const struct import_item *blend = import_get(im, "--data-path");
    const struct import_item *mock = import_get(im, "--mock-data");
    const struct import_item *split = mock ? NULL : import_get(im, "--split");
    bool own_split = !blend && has(im, "--train-data-path"); /* each split has its own files */
    if (own_split) blend = import_get(im, "--train-data-path");
    if ((blend && mock) || (!blend && !mock))
        FAIL(CONFIG, "%s: set either --data-path or --mock-data", im->file);
    TRY(set_tokenizer(im));
    if (mock) {
        import_add_source(im, "mock", "text", 1);
        TRY(import_set(im, mock, "data.order", "megatron", ""));
        TRY(import_set(im, mock, "data.split", "1,1,1", "Mock data ignores --split."));
    } else {
        TRY(rules_add_blend(im, blend, blend->values, blend->count));
    }
    if (own_split)
        TRY(import_set(im, blend, "data.split", "1, 0, 0", "All of it is for training."));
    if (own_split) split = NULL;
    if (split) {
        struct text plain = {0};
        text_adds(&plain, "");
        for (const char *at = split->count ? split->values[0] : ""; *at; at++)
            if (*at != '\'' && *at != '"') text_add(&plain, at, 1);
        enum status st = import_set(im, split, "data.split", plain.data, "");
        text_release(&plain);
        TRY(st);
    }
    TRY(rules_set_eod_mask(im, import_get(im, "--eod-mask-loss"),
                           has(im, "--calculate-per-token-loss")));
    const struct import_item *mask = import_get(im, "--reset-attention-mask");
    if (!mask) mask = import_get(im, "--dataloader-inter-document-masking");
    return mask ? import_set(im, mask, "model.attn_mask_type", "block_causal", "") : STATUS_OK;
}

enum status megatron_import(struct import *im, const char *const *words, size_t count, int line)
{
    struct import_layout l = {.ranks = im->num_ranks};
    TRY(read_flags(im, words, count, line));
    TRY(import_check_known(im, rows, NUM_ROWS));
    TRY(set_layout(im, &l));
    TRY(set_model(im));
    TRY(megatron_import_schedule(im, l.global_batch));
    TRY(set_optimizer(im));
    TRY(set_precision(im));
    TRY(set_recompute(im));
    TRY(set_data(im));
    TRY(set_sampler(im, &l));
    TRY(megatron_import_run(im, &l));
    return import_apply_rows(im, rows, NUM_ROWS);
}
