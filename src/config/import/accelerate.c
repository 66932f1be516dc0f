// SPDX-License-Identifier: Apache-2.0
#include "config/import/accelerate.h"

#include "base/file.h"
#include "config/import/rules.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct import_row rows[] = {
#define FLAG(key, arity, kind, target, text) {key, IMPORT_ROW_##kind, target, text},
#include "config/import/accelerate.def"
#undef FLAG
};
static const int arities[] = {
#define FLAG(key, arity, kind, target, text) arity,
#include "config/import/accelerate.def"
#undef FLAG
};
enum { NUM_ROWS = sizeof rows / sizeof *rows };

/* accelerate accepts dashes for underscores. */
static void spell(char *flag)
{
    for (char *at = flag + 2; *at && *at != '='; at++)
        if (*at == '-') *at = '_';
}

/* Returns whether a flag without "=" takes the next word. */
static bool takes_value(const char *flag, const char *next)
{
    for (size_t i = 0; i < NUM_ROWS; i++)
        if (!strcmp(rows[i].key, flag)) return arities[i] > 0;
    return next && strncmp(next, "--", 2) != 0; /* unknown flags are reported later */
}

static enum status read_flags(struct import *im, const struct shell_words *w, size_t begin,
                              int line)
{
    for (size_t i = begin; i < w->count; i++) {
        if (strncmp(w->items[i], "--", 2)) continue; /* the launcher's own words */
        char *flag = heap_strdup(w->items[i]);
        spell(flag);
        char *equals = strchr(flag, '=');
        if (equals) *equals = 0;
        const char *next = i + 1 < w->count ? w->items[i + 1] : NULL;
        const char *value = equals ? equals + 1 : next;
        bool has_value = equals || takes_value(flag, next);
        enum status st = STATUS_OK;
        if (has_value && !value)
            st = FAILURE(CONFIG, "%s:%d: %s requires a value", im->file, line, flag);
        else
            import_add_item(im, flag, line, &value, has_value);
        if (has_value && !equals) i++;
        free(flag);
        TRY(st);
    }
    return STATUS_OK;
}

/* The family, flavor and scaled RoPE of a model on the Hub, by its name. */
static enum status set_hub_model(struct import *im, const struct import_item *item)
{
    static const struct {
        const char *part, *name, *flavor;
    } known[] = {{"llama-3.1-8b", "llama3.1", "8B"},     {"llama-3.1-70b", "llama3.1", "70B"},
                 {"llama-3.1-405b", "llama3.1", "405B"}, {"llama-3.2-1b", "llama3.2", "1B"},
                 {"llama-3.2-3b", "llama3.2", "3B"},     {"llama-3.3-70b", "llama3.1", "70B"},
                 {"llama-3-8b", "llama3", "8B"},         {"llama-3-70b", "llama3", "70B"},
                 {"llama-2-7b", "llama2", "7B"},         {"llama-2-13b", "llama2", "13B"},
                 {"llama-2-70b", "llama2", "70B"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcasestr(item->values[0], known[i].part)) {
            TRY(import_set(im, item, "model.name", known[i].name, ""));
            return import_set(im, item, "model.flavor", known[i].flavor, "");
        }
    return import_bad_value(im, item,
                            "a Llama 2 or 3 of the Hub, or a folder that has its config.json");
}

static enum status set_model(struct import *im)
{
    const struct import_item *item = import_get(im, "--model_name_or_path");
    const struct import_item *weights = import_get(im, "--use_pretrained_weights");
    if (!item) FAIL(CONFIG, "%s: --model_name_or_path is required", im->file);
    TRY(import_parse_string(im, item, NULL));
    char *json = file_join(item->values[0], "config.json");
    bool is_folder = file_exists(json);
    enum status st =
        is_folder ? rules_set_model_from_json(im, item, json) : set_hub_model(im, item);
    free(json);
    TRY(st);
    const char *form = is_folder ? "%s" : "hf://%s";
    TRY(import_setf(im, item, "data.tokenizer", form, item->values[0]));
    TRY(import_set(im, NULL, "model.init", "normal", "Hugging Face's initialization."));
    TRY(import_set(im, NULL, "model.init_std", "0.02", ""));
    TRY(import_set(im, NULL, "activation_checkpoint.mode", "full",
                   "train.py calls gradient_checkpointing_enable."));
    if (!weights) return STATUS_OK;
    TRY(import_setf(im, weights, "checkpoint.initial_load_path", form, item->values[0]));
    return import_set(im, weights, "checkpoint.initial_load_model_only", "true", "");
}

/* Returns a flag's value if it is a number, 0 if the script does not set it, and -1 if it is known
 * only when the script runs. */
static enum status get_count(struct import *im, const char *flag, int64_t preset, int64_t *out)
{
    const struct import_item *item = import_get(im, flag);
    *out = preset;
    if (item && item->count == 1 && shell_is_unknown(item->values[0])) {
        *out = -1;
        return STATUS_OK;
    }
    return item ? import_parse_int(im, item, 0, 1 << 20, out) : STATUS_OK;
}

static enum status set_layout(struct import *im)
{
    static const char *const strategies[] = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD",
                                             "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"};
    const struct import_item *item = import_get(im, "--fsdp_sharding_strategy");
    const struct import_item *again = import_get(im, "--fsdp_reshard_after_forward");
    const char *word = item && item->count == 1 ? item->values[0] : "FULL_SHARD";
    bool fsdp = import_get(im, "--use_fsdp") != NULL;
    int64_t ranks, nodes, micro, accumulation, batch;
    int strategy = -1;
    bool resharded = true;
    TRY(get_count(im, "--num_processes", 0, &ranks));
    TRY(get_count(im, "--num_machines", 1, &nodes));
    TRY(import_get_int(im, "--per_device_train_batch_size", 8, &micro));
    TRY(import_get_int(im, "--gradient_accumulation_steps", 1, &accumulation));
    for (int i = 0; i < 5; i++)
        if (!strcmp(word, strategies[i]) || (word[0] == '1' + i && !word[1])) strategy = i;
    if (strategy < 0)
        return import_bad_value(im, item, "1 to 5, or FULL_SHARD, SHARD_GRAD_OP, ...");
    if (again) TRY(import_parse_bool(im, again, &resharded));
    if (ranks < 0) ranks = 0;
    bool hybrid = fsdp && strategy >= 3;
    if (hybrid && nodes < 1)
        FAIL(CONFIG,
             "%s: --num_machines is known only when the script runs; set it on the command line: "
             "SLURM_NNODES=VALUE",
             im->file);
    if (accumulation > 1 && !ranks)
        FAIL(CONFIG,
             "%s: --num_processes is known only when the script runs; set it on the command line: "
             "SLURM_NNODES=VALUE",
             im->file);
    if (micro < 1 || accumulation < 1)
        FAIL(CONFIG, "%s: batch size %lld x %lld: must be at least 1", im->file, (long long)micro,
             (long long)accumulation);
    if (__builtin_mul_overflow(micro, accumulation, &batch) ||
        __builtin_mul_overflow(batch, ranks, &batch))
        FAIL(CONFIG, "%s: batch size %lld x %lld on %lld ranks: too large", im->file,
             (long long)micro, (long long)accumulation, (long long)ranks);
    struct import_layout l = {.ranks = ranks,
                              .tp = 1,
                              .pp = 1,
                              .cp = 1,
                              .vp = 1,
                              .micro_batch = micro,
                              .global_batch = batch,
                              .replicas = hybrid ? nodes : 1,
                              .sharding = fsdp && strategy != 2 ? SHARD_ALL : SHARD_NOTHING};
    TRY(rules_set_layout(
        im, &l,
        &(struct import_layout_keys){.micro_batch = "--per_device_train_batch_size",
                                     .sharding = "--fsdp_sharding_strategy"}));
    if (fsdp && (strategy == 1 || strategy == 4 || !resharded))
        return import_set(im, again ? again : item, "parallelism.fsdp_reshard_after_forward",
                          "never", "Parameters stay gathered.");
    return STATUS_OK;
}

static enum status set_schedule(struct import *im, bool has_steps)
{
    static const struct {
        const char *word, *type;
    } kinds[] = {{"cosine", "cosine"}, {"cosine_with_restarts", "cosine"}, /* one cycle */
                 {"linear", "linear"}, {"polynomial", "linear"},           /* of power 1 */
                 {"constant", NULL},   {"constant_with_warmup", NULL}};
    const struct import_item *kind = import_get(im, "--lr_scheduler_type");
    const struct import_item *steps = import_get(im, "--max_train_steps");
    const struct import_item *warmup = import_get(im, "--num_warmup_steps");
    const struct import_item *rate = import_get(im, "--learning_rate");
    const char *word = kind && kind->count == 1 ? kind->values[0] : "cosine", *type = NULL;
    bool found = false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].word, word)) found = true, type = kinds[i].type;
    if (!found) return import_bad_value(im, kind, "cosine, linear, polynomial or constant");
    if (steps)
        TRY(import_copy(im, steps, "training.steps", ""));
    else if (!has_steps)
        FAIL(CONFIG,
             "%s: --num_train_epochs: the number of steps depends on the tokens of the data; add "
             "training.steps=N",
             im->file);
    TRY(import_set(im, rate, "optimizer.lr", rate ? rate->values[0] : "1e-4", ""));
    TRY(import_set(im, NULL, "lr_scheduler.formula", "megatron",
                   "Hugging Face's schedules; the first step's rate is 0."));
    bool warms = strcmp(word, "constant") != 0;
    TRY(import_set(im, warmup, "lr_scheduler.warmup_steps",
                   !warms   ? "0"
                   : warmup ? warmup->values[0]
                            : "100",
                   ""));
    if (!type) return import_set(im, kind, "lr_scheduler.decay_ratio", "0", "It never decays.");
    TRY(import_set(im, kind, "lr_scheduler.decay_type", type, ""));
    if (strcmp(word, "polynomial")) return STATUS_OK;
    return import_set_real(im, kind, "lr_scheduler.min_lr_factor", 1e-7 / im->config.optimizer.lr,
                           "It ends at 1e-7.");
}

static enum status set_optimizer(struct import *im)
{
    static const char *const fixed[][2] = {{"optimizer.beta1", "0.9"},
                                           {"optimizer.beta2", "0.999"},
                                           {"optimizer.eps", "1e-8"},
                                           {"training.max_norm", "0"}};
    const struct import_item *decay = import_get(im, "--weight_decay");
    const struct import_item *precision = import_get(im, "--mixed_precision");
    const char *word = precision && precision->count == 1 ? precision->values[0] : "no";
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        TRY(import_set(im, NULL, fixed[i][0], fixed[i][1], i ? "" : "PyTorch's defaults."));
    TRY(import_set(im, decay, "optimizer.weight_decay", decay ? decay->values[0] : "0", ""));
    if (im->config.optimizer.weight_decay > 0)
        import_add_note(im, IMPORT_ORIGINAL_BUG, decay,
                        "train.py exempts layer_norm.weight, but a Llama's norms have other names: "
                        "they decay, as here.");
    TRY(import_set(im, precision, "training.mixed_precision_param", "bfloat16", ""));
    if (!strcmp(word, "bf16")) return STATUS_OK;
    if (precision)
        import_add_note(im, IMPORT_UNSUPPORTED, precision,
                        "only bf16 is supported; master weights are float32");
    else
        import_refuse_default(im, "--mixed_precision",
                              "not set: the original trains bfloat16 weights without float32 "
                              "master weights");
    return STATUS_OK;
}

/* Copies the string literal at *at, after spaces, to `out`; *at moves past it and a comma. */
static bool read_literal(const char **at, char *out, size_t size)
{
    const char *from = *at + strspn(*at, " \t\r\n");
    char quote = *from;
    if (quote != '"' && quote != '\'') return false;
    size_t len = 0;
    while (from[1 + len] && from[1 + len] != quote) len++;
    if (!from[1 + len] || !len || len >= size) return false;
    memcpy(out, from + 1, len);
    out[len] = 0;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)out[i]) && !strchr("/-_.", out[i])) return false;
    *at = from + len + 2;
    *at += strspn(*at, " \t\r\n,");
    return true;
}

/* load_dataset("ORG/NAME", "CONFIG", ...) becomes Parquet files of the Hub. */
static enum status set_data(struct import *im, const char *program)
{
    const struct import_item *block = import_get(im, "--block_size");
    const struct import_item *every = import_get(im, "--checkpointing_steps");
    const char *at = strstr(program, "load_dataset(");
    char name[128], part[128];
    struct text path = {0};
    TRY(import_set(im, block, "training.seq_len", block ? block->values[0] : "8192",
                   "The original predicts one token less of each row."));
    TRY(import_set(im, NULL, "data.eos", "false", "The tokenizer only adds its first token."));
    if (at) at += strlen("load_dataset(");
    if (!at || !read_literal(&at, name, sizeof name))
        FAIL(CONFIG,
             "%s: the data is named by load_dataset in the Python program, which was not found in "
             "the same folder",
             im->file);
    bool has_part = read_literal(&at, part, sizeof part);
    text_addf(&path, "hf://datasets/%s/%s/", name, has_part ? part : "data");
    size_t folder = path.len;
    text_adds(&path, "train-*.parquet");
    import_add_source(im, path.data, "text", 1);
    path.len = folder;
    text_adds(&path, "validation-*.parquet");
    bool counts = every && every->count == 1 && strspn(every->values[0], "0123456789") &&
                  !every->values[0][strspn(every->values[0], "0123456789")];
    enum status st = STATUS_OK;
    if (counts) {
        TRY_OUT(import_set(im, every, "validation.enable", "true",
                           "Validation follows each checkpoint."));
        TRY_OUT(import_set(im, every, "validation.freq", every->values[0], ""));
        TRY_OUT(import_set(im, NULL, "validation.dataset_path", path.data, ""));
        TRY_OUT(import_set_int(im, NULL, "validation.local_batch_size",
                               2 * im->config.training.local_batch_size, ""));
    }
out:
    text_release(&path);
    return st;
}

static enum status set_checkpoints(struct import *im)
{
    const struct import_item *every = import_get(im, "--checkpointing_steps");
    const struct import_item *folder = import_get(im, "--output_dir");
    const char *word = every && every->count == 1 ? every->values[0] : NULL;
    if (folder)
        TRY(import_copy(im, folder, "job.dump_folder",
                        "A run resumes from the checkpoints in it."));
    TRY(import_set(im, every, "checkpoint.enable", word ? "true" : "false", ""));
    if (!word) return STATUS_OK;
    TRY(import_set(im, every, "checkpoint.keep_latest_k", "0", "Keep all checkpoints."));
    if (strcmp(word, "epoch")) return import_copy(im, every, "checkpoint.interval", "");
    import_add_note(im, IMPORT_IGNORED, every, "use checkpoint.interval, in steps");
    return STATUS_OK;
}

enum status accelerate_import(struct import *im, const struct shell *s, const char *program,
                              bool has_steps)
{
    im->format = "accelerate";
    TRY(read_flags(im, &s->launcher, 0, s->command_line));
    TRY(read_flags(im, &s->command, 0, s->command_line));
    TRY(import_check_known(im, rows, NUM_ROWS));
    TRY(set_layout(im));
    TRY(set_model(im));
    TRY(set_schedule(im, has_steps));
    TRY(set_optimizer(im));
    TRY(set_data(im, program));
    TRY(set_checkpoints(im));
    return import_apply_rows(im, rows, NUM_ROWS);
}
