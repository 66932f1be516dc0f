/* import_megatron.c -- flags of Megatron-LM's pretrain_gpt.py: those that are more than another
 * name. */
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "config/import/import.h"
#include "config/import/rules.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct import_row rows[] = {
#define FLAG(key, arity, how, ours, text) {key, IMPORT_##how, ours, text},
#define OTHERS(arity, names)
#include "config/import/megatron.def"
#undef FLAG
#undef OTHERS
};
enum { NUM_ROWS = sizeof rows / sizeof *rows };

static const int arities[] = {
#define FLAG(key, arity, how, ours, text) arity,
#define OTHERS(arity, names)
#include "config/import/megatron.def"
#undef FLAG
#undef OTHERS
};

static const struct {
    int arity;
    const char *names;
} others[] = {
#define FLAG(key, arity, how, ours, text)
#define OTHERS(arity, names) {arity, names},
#include "config/import/megatron.def"
#undef FLAG
#undef OTHERS
};

/* How many values a flag has; -1: not known.  *other: known, and not translated. */
static int arity_of(const char *flag, bool *other)
{
    char padded[128];
    *other = false;
    for (size_t i = 0; i < NUM_ROWS; i++)
        if (!strcmp(rows[i].key, flag)) return arities[i];
    snprintf(padded, sizeof padded, " %.120s ", flag);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(others[i].names, padded)) {
            *other = true;
            return others[i].arity;
        }
    return -1;
}

static enum status read_flags(struct import *im, const char *const *words, size_t count, int line)
{
    char place[256];
    snprintf(place, sizeof place, line ? "%.240s:%d" : "%.240s", im->file, line);
    for (size_t i = 0; i < count;) {
        const char *word = words[i], *equals = strchr(word, '=');
        if (!*word) { /* an empty variable */
            i++;
            continue;
        }
        if (strncmp(word, "--", 2))
            FAIL(CONFIG, "%s: \"%.80s\" where a --flag is wanted", place, word);
        char *flag = heap_string(word, equals ? (size_t)(equals - word) : strlen(word));
        bool other;
        int arity = arity_of(flag, &other);
        const char *const *values = words + ++i, *one = equals ? equals + 1 : NULL;
        size_t num = 0;
        bool many = arity == 2 || arity < 0; /* of one not known, which is told later */
        if (equals)
            values = &one, num = 1;
        else if (arity == 1 && i < count)
            num = 1;
        else
            while (many && i + num < count && strncmp(words[i + num], "--", 2)) num++;
        enum status st = STATUS_OK;
        if ((arity > 0 && !num) || (arity == 1 && !equals && !strncmp(values[0], "--", 2)))
            st =
                status_fail(STATUS_CONFIG, __FILE__, __LINE__, "%s: %s needs a value", place, flag);
        else if (arity == 0 && num)
            st = status_fail(STATUS_CONFIG, __FILE__, __LINE__, "%s: %s takes no value", place,
                             flag);
        if (!st) import_add_item(im, flag, line, false, values, num);
        if (!st && other)
            import_note(im, IMPORT_MISSING, &im->items[im->num_items - 1],
                        "known, and not translated");
        if (!equals) i += num;
        free(flag);
        TRY(st);
    }
    return STATUS_OK;
}

static enum status required(struct import *im, const char *flag, const struct import_item **out)
{
    *out = import_get(im, flag);
    if (!*out) FAIL(CONFIG, "%s: %s is missing", im->file, flag);
    return STATUS_OK;
}

static bool has(const struct import *im, const char *flag) { return import_get(im, flag) != NULL; }

/* What Megatron-LM refuses to combine, in words that name what to change. */
static enum status exclusions(struct import *im, const struct import_layout *l)
{
    const char *why = NULL;
    bool torch = has(im, "--use-torch-fsdp2"), own = has(im, "--use-megatron-fsdp");
    if (torch && own) why = "--use-torch-fsdp2 and --use-megatron-fsdp: one of them is wanted";
    if (torch && l->pp > 1) why = "--use-torch-fsdp2 does not go with pipeline parallelism";
    if (torch && has(im, "--use-distributed-optimizer"))
        why = "--use-torch-fsdp2 does not go with --use-distributed-optimizer: it shards already";
    if (torch && !has(im, "--untie-embeddings-and-output-weights"))
        why = "--use-torch-fsdp2 needs --untie-embeddings-and-output-weights";
    if (l->replicas > 1 && !own && !has(im, "--use-distributed-optimizer"))
        why = "--num-distributed-optimizer-instances needs --use-distributed-optimizer or "
              "--use-megatron-fsdp";
    if (l->vp > 1 && l->pp < 2) why = "virtual stages need --pipeline-model-parallel-size";
    if (why) FAIL(CONFIG, "%s: %s", im->file, why);
    return STATUS_OK;
}

static enum status layout(struct import *im, struct import_layout *l)
{
    int64_t stage;
    const char *strategy = import_get_text(im, "--data-parallel-sharding-strategy", "no_shard");
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
                 "%s: --num-layers-per-virtual-pipeline-stage and "
                 "--num-virtual-stages-per-pipeline-rank: one of them is wanted",
                 im->file);
        if (l->pp < 1 || l->pp > 4096 || stage > 4096 || l->layers % (l->pp * stage))
            FAIL(CONFIG, "%s: %lld layers do not make stages of %lld on %lld ranks", im->file,
                 (long long)l->layers, (long long)stage, (long long)l->pp);
        l->vp = l->layers / (l->pp * stage);
    }
    bool moments = has(im, "--use-distributed-optimizer") || !strcmp(strategy, "optim");
    l->sharding = moments ? SHARD_MOMENTS : SHARD_NOTHING;
    if (has(im, "--use-torch-fsdp2") || !strncmp(strategy, "optim_grads", 11))
        l->sharding = SHARD_ALL;
    if (l->replicas > 1 && l->sharding == SHARD_NOTHING) l->sharding = SHARD_MOMENTS;
    TRY(exclusions(im, l));
    TRY(import_set_layout(im, l, &keys));
    if (!strcmp(strategy, "optim_grads"))
        return import_set(im, import_get(im, "--data-parallel-sharding-strategy"),
                          "parallelism.fsdp_reshard_after_forward", "never",
                          "ZeRO-2: weights stay gathered.");
    return STATUS_OK;
}

static bool holds(const char *text, const char *part)
{
    return text && strcasestr(text, part) != NULL;
}

/* A Llama 3 rotates by 500000; without --rotary-base Megatron-LM takes 10000. */
static enum status rotary(struct import *im)
{
    const struct import_item *base = import_get(im, "--rotary-base");
    const char *tokenizer = import_get_text(im, "--tokenizer-model", "");
    const struct import_item *vocab = import_get(im, "--vocab-size");
    if (base) TRY(import_copy(im, base, "model.rope_theta", ""));
    TRY(import_set(im, import_get(im, "--use-rope-scaling"), "model.rope_scaling",
                   has(im, "--use-rope-scaling") ? "llama3" : "none", ""));
    if (base) return STATUS_OK;
    const char *slash = strrchr(im->file, '/'), *name = slash ? slash + 1 : im->file;
    bool third = holds(tokenizer, "llama-3") || holds(tokenizer, "llama3") ||
                 holds(name, "llama3") || holds(name, "llama-3") ||
                 (vocab && vocab->count == 1 && !strcmp(vocab->values[0], "128256"));
    if (!third)
        return import_set(im, NULL, "model.rope_theta", "10000",
                          "--rotary-base is not given: this is what it is there, then.");
    import_note(im, IMPORT_BUG, NULL,
                "--rotary-base is not given, so that a Llama 3 is trained with a rotary base of "
                "10000 there. Here it is 500000, as Llama 3 has it; model.rope_theta = 10000 does "
                "as the original.");
    return import_set(im, NULL, "model.rope_theta", "500000", "Not said there: see above.");
}

static enum status sizes(struct import *im)
{
    const struct import_item *layers, *dim, *heads;
    const struct import_item *groups = import_get(im, "--num-query-groups");
    const struct import_item *ffn = import_get(im, "--ffn-hidden-size");
    int64_t width;
    TRY(required(im, "--num-layers", &layers));
    TRY(required(im, "--hidden-size", &dim));
    TRY(required(im, "--num-attention-heads", &heads));
    TRY(import_int(im, dim, 1, 1 << 20, &width));
    TRY(import_set(im, NULL, "model.name", "llama2", "The sizes follow."));
    TRY(import_set(im, NULL, "model.flavor", "7B", ""));
    TRY(import_copy(im, dim, "model.dim", ""));
    TRY(import_copy(im, layers, "model.n_layers", ""));
    TRY(import_copy(im, heads, "model.n_heads", ""));
    if (!has(im, "--group-query-attention"))
        TRY(import_copy(im, heads, "model.n_kv_heads", ""));
    else
        TRY(import_set(im, groups, "model.n_kv_heads", groups ? groups->values[0] : "1",
                       groups ? "" : "Its default, without --num-query-groups."));
    if (ffn) return import_copy(im, ffn, "model.ffn_hidden", "");
    return import_setf(im, NULL, "model.ffn_hidden", "Two thirds of four times the width.", "%lld",
                       (long long)((int64_t)((double)(4 * width) * 2 / 3) / 64 * 64));
}

static enum status model(struct import *im)
{
    static const char *const parts[][2] = {
        {"--swiglu", "a gated feed-forward layer"},
        {"--disable-bias-linear", "no biases"},
        {"--normalization", "RMSNorm"},
    };
    static const char *const dropouts[] = {"--attention-dropout", "--hidden-dropout"};
    const struct import_item *std = import_get(im, "--init-method-std");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!has(im, parts[i][0]))
            FAIL(CONFIG, "%s: %s is missing: without it this is no Llama, which has %s", im->file,
                 parts[i][0], parts[i][1]);
    TRY(import_llama(im, "--normalization", "RMSNorm", "its norms are RMSNorm"));
    TRY(import_llama(im, "--position-embedding-type", "rope", "it rotates by position"));
    if (!has(im, "--position-embedding-type") && !has(im, "--use-rotary-position-embeddings"))
        FAIL(CONFIG, "%s: --position-embedding-type rope is missing: a Llama rotates by position",
             im->file);
    TRY(sizes(im));
    TRY(rotary(im));
    bool untied = has(im, "--untie-embeddings-and-output-weights");
    TRY(import_set(im, import_get(im, "--untie-embeddings-and-output-weights"),
                   "model.tie_embeddings", untied ? "false" : "true",
                   untied ? "" : "--untie-embeddings-and-output-weights is not given."));
    TRY(import_set(im, NULL, "model.init", "megatron", ""));
    TRY(import_set(im, std, "model.init_std", std ? std->values[0] : "0.02", ""));
    for (size_t i = 0; i < 2; i++) {
        const struct import_item *item = import_get(im, dropouts[i]);
        double share = 0.1;
        struct text note = {0};
        if (item) TRY(import_real(im, item, &share));
        text_addf(&note, "%s is %g there%s: a Llama has no dropout", dropouts[i], share,
                  item ? "" : " where it is not given");
        import_note(im, share != 0 ? IMPORT_MISSING : IMPORT_NONE, item,
                    share != 0 ? note.data : "so it is here");
        text_release(&note);
    }
    return STATUS_OK;
}

static enum status optimizer(struct import *im)
{
    static const struct {
        const char *flag, *ours, *preset;
    } numbers[] = {{"--adam-beta1", "optimizer.beta1", "0.9"},
                   {"--adam-beta2", "optimizer.beta2", "0.999"},
                   {"--adam-eps", "optimizer.eps", "1e-08"},
                   {"--weight-decay", "optimizer.weight_decay", "0.01"},
                   {"--clip-grad", "training.max_norm", "1.0"}};
    const struct import_item *kind = import_get(im, "--optimizer");
    if (kind && strcmp(kind->values[0], "adam")) return import_unfit(im, kind, "adam (AdamW)");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const struct import_item *item = import_get(im, numbers[i].flag);
        if (item) TRY(import_text(im, item, NULL));
        TRY(import_set(im, item, numbers[i].ours, item ? item->values[0] : numbers[i].preset,
                       item ? "" : "Not given there: its default."));
    }
    return import_set(im, NULL, "optimizer.decay_norms", "false",
                      "Vectors do not decay there, whatever is said.");
}

static enum status precision(struct import *im)
{
    const struct import_item *half = import_get(im, "--fp16"), *brain = import_get(im, "--bf16");
    const struct import_item *format = import_get(im, "--fp8-format");
    const struct import_item *recipe = import_get(im, "--fp8-recipe");
    const struct import_item *length = import_get(im, "--fp8-amax-history-len");
    const struct import_item *algorithm = import_get(im, "--fp8-amax-compute-algo");
    const struct import_item *margin = import_get(im, "--fp8-margin");
    if (half && brain) FAIL(CONFIG, "%s: --fp16 and --bf16: one of them is wanted", im->file);
    if (half) FAIL(CONFIG, "%s: --fp16: products are of bfloat16 or float32 here", im->file);
    TRY(import_set(im, brain, "training.mixed_precision_param", brain ? "bfloat16" : "float32",
                   ""));
    if (!recipe) recipe = import_get(im, "--linear-fp8-scaling");
    if (!length) length = import_get(im, "--linear-fp8-amax-history");
    if (!algorithm) algorithm = import_get(im, "--linear-fp8-amax-algo");
    if (!format) format = import_get(im, "--linear-fp8");
    if (!format) return STATUS_OK;
    if (has(im, "--fp4-format"))
        FAIL(CONFIG, "%s: --fp4-format and --fp8-format: one of them is wanted", im->file);
    const char *word = recipe && recipe->count == 1 ? recipe->values[0] : "delayed";
    if (strcmp(word, "delayed") && strcmp(word, "tensorwise")) {
        import_note(im, IMPORT_MISSING, recipe,
                    "scales of blocks and rows are not done: products run in bfloat16");
        import_note(im, IMPORT_MISSING, format, "its recipe is not done");
        return STATUS_OK;
    }
    if (format->count == 1 && strcmp(format->values[0], "hybrid"))
        import_note(im, IMPORT_MISSING, format, "gradients are E5M2, as hybrid has them");
    TRY(import_set(im, format, "float8.enable_float8_linear", "true", ""));
    TRY(import_set(im, recipe, "float8.recipe_name", word, ""));
    if (margin) TRY(import_copy(im, margin, "float8.margin", ""));
    if (strcmp(word, "delayed")) return STATUS_OK;
    /* its defaults are a history of 1 and the newest */
    TRY(import_set(im, length, "float8.amax_history_len", length ? length->values[0] : "1", ""));
    return import_set(im, algorithm, "float8.amax_compute_algo",
                      algorithm ? algorithm->values[0] : "most_recent", "");
}

static enum status recompute(struct import *im)
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
        return import_unfit(im, how, "full or selective");
    bool full = !strcmp(mode, "full");
    if (full && (!method || !some))
        FAIL(CONFIG,
             "%s: --recompute-granularity full needs --recompute-method and "
             "--recompute-num-layers",
             im->file);
    if (!full && (method || some))
        FAIL(CONFIG,
             "%s: --recompute-method and --recompute-num-layers go with "
             "--recompute-granularity full only",
             im->file);
    TRY(import_set(im, how, "activation_checkpoint.mode", mode, ""));
    if (!full) return STATUS_OK;
    if (strcmp(method->count ? method->values[0] : "", "block") &&
        strcmp(method->count ? method->values[0] : "", "uniform"))
        return import_unfit(im, method, "block or uniform");
    TRY(import_int(im, some, 1, 4096, &layers));
    TRY(import_get_int(im, "--num-layers", 0, &all));
    bool every = !strcmp(method->values[0], "block") ? layers >= all : layers == 1;
    import_note(im, every ? IMPORT_NONE : IMPORT_MISSING, some,
                every ? "every block is redone" : "every block is redone, not some or in groups");
    return STATUS_OK;
}

static enum status tokenizer(struct import *im)
{
    const struct import_item *kind = import_get(im, "--tokenizer-type");
    const struct import_item *path = import_get(im, "--tokenizer-model");
    const char *type = kind && kind->count == 1 ? kind->values[0] : "";
    if (!strcmp(type, "NullTokenizer")) {
        const struct import_item *vocab;
        TRY(required(im, "--vocab-size", &vocab));
        import_note(im, IMPORT_NONE, kind, "there is no tokenizer: model.vocab_size says it all");
        return import_copy(im, vocab, "model.vocab_size", "");
    }
    if (strstr(type, "BPETokenizer") && !strncmp(type, "GPT2", 4))
        return import_unfit(im, kind, "another, with a tokenizer.json as --tokenizer-model,");
    if (kind) import_note(im, IMPORT_NONE, kind, "the tokenizer's kind is detected");
    if (!path) FAIL(CONFIG, "%s: --tokenizer-model is missing", im->file);
    const char *name = path->count == 1 ? path->values[0] : "", *slash = strchr(name, '/');
    bool hub = !strcmp(type, "HuggingFaceTokenizer") && slash && slash != name &&
               !strchr(slash + 1, '/') && *name != '.' && *name != '~' && *name != '$' &&
               !file_exists(name);
    return import_setf(im, path, "data.tokenizer", "", hub ? "hf://%s" : "%s", name);
}

static enum status data(struct import *im)
{
    const struct import_item *blend = import_get(im, "--data-path");
    const struct import_item *mock = import_get(im, "--mock-data");
    const struct import_item *split = mock ? NULL : import_get(im, "--split");
    if (!blend) blend = import_get(im, "--train-data-path");
    if ((blend && mock) || (!blend && !mock))
        FAIL(CONFIG, "%s: one of --data-path and --mock-data is wanted", im->file);
    TRY(tokenizer(im));
    if (mock) {
        import_add_source(im, "mock", "text", 1);
        TRY(import_set(im, mock, "data.order", "megatron", ""));
        TRY(import_set(im, mock, "data.split", "1,1,1", "Whatever --split says."));
    } else {
        TRY(import_blend(im, blend, blend->values, blend->count));
    }
    if (split) {
        char plain[128];
        size_t n = 0;
        for (const char *at = split->count ? split->values[0] : ""; *at && n < 127; at++)
            if (*at != '\'' && *at != '"') plain[n++] = *at;
        plain[n] = 0;
        TRY(import_set(im, split, "data.split", plain, ""));
    }
    const struct import_item *mask = import_get(im, "--reset-attention-mask");
    return mask ? import_set(im, mask, "model.attn_mask_type", "block_causal", "") : STATUS_OK;
}

enum status import_megatron(struct import *im, const char *const *words, size_t count, int line)
{
    struct import_layout l = {.ranks = im->num_ranks};
    TRY(read_flags(im, words, count, line));
    TRY(import_known(im, rows, NUM_ROWS));
    TRY(layout(im, &l));
    TRY(model(im));
    TRY(import_megatron_schedule(im, l.global_batch));
    TRY(optimizer(im));
    TRY(precision(im));
    TRY(recompute(im));
    TRY(data(im));
    TRY(import_megatron_run(im, &l));
    return import_rows(im, rows, NUM_ROWS);
}
