/* megatron_run.c -- Megatron-LM's run length, learning rate, checkpoints and metrics. */
// SPDX-License-Identifier: Apache-2.0
#include "config/import/megatron.h"

#include "config/batch_ramp.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t MAX_SAMPLES = 4294967293; /* of data.samples */

/* Reads NAME-samples if the run's length is in samples, NAME-iters if it is in iterations.
 * *item is NULL and *out is 0 without it. */
static enum status get_length(struct import *im, const char *name, bool in_samples,
                              const struct import_item **item, int64_t *out)
{
    char flags[2][64]; /* the flag and the one for the other unit */
    snprintf(flags[0], sizeof flags[0], "%s-%s", name, in_samples ? "samples" : "iters");
    snprintf(flags[1], sizeof flags[1], "%s-%s", name, in_samples ? "iters" : "samples");
    *item = import_get(im, flags[0]);
    *out = 0;
    if (import_get(im, flags[1]))
        FAIL(CONFIG, "%s: %s with %s: set all lengths in iterations or all in samples", im->file,
             flags[1], in_samples ? "--train-samples" : "--train-iters");
    return *item ? import_parse_int(im, *item, 0, 1LL << 50, out) : STATUS_OK;
}

static enum status set_decay(struct import *im, bool samples, int64_t decay)
{
    static const struct {
        const char *style, *type;
    } styles[] = {{"linear", "linear"},
                  {"cosine", "cosine"},
                  {"inverse-square-root", "inverse_sqrt"},
                  {"constant", "linear"},
                  {"WSD", NULL}};
    static const struct {
        const char *style, *type;
    } wsd_styles[] = {{"exponential", "exponential"},
                      {"linear", "linear"},
                      {"cosine", "cosine"},
                      {"minus_sqrt", "sqrt"}};
    const struct import_item *item = import_get(im, "--lr-decay-style");
    const char *style = item && item->count == 1 ? item->values[0] : "linear", *type = NULL;
    bool known = false;
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++)
        if (!strcmp(styles[i].style, style)) known = true, type = styles[i].type;
    if (!known)
        return import_bad_value(im, item, "constant, linear, cosine, inverse-square-root or WSD");
    if (!strcmp(style, "constant"))
        TRY(import_set(im, item, "lr_scheduler.decay_ratio", "0", "The rate never decays."));
    if (type) return import_set(im, item, "lr_scheduler.decay_type", type, "");
    const struct import_item *shape = import_get(im, "--lr-wsd-decay-style"), *tail;
    const char *word = shape && shape->count == 1 ? shape->values[0] : "exponential";
    int64_t last;
    for (size_t i = 0; i < sizeof wsd_styles / sizeof *wsd_styles; i++)
        if (!strcmp(wsd_styles[i].style, word)) type = wsd_styles[i].type;
    if (!type) return import_bad_value(im, shape, "exponential, linear, cosine or minus_sqrt");
    TRY(get_length(im, "--lr-wsd-decay", samples, &tail, &last));
    if (!tail || !decay || last > decay)
        FAIL(CONFIG,
             "%s: --lr-decay-style WSD requires --lr-wsd-decay-%s, at most the length of the "
             "schedule",
             im->file, samples ? "samples" : "iters");
    TRY(import_set(im, shape, "lr_scheduler.decay_type", type, ""));
    return import_set_real(im, tail, "lr_scheduler.decay_ratio", (double)last / (double)decay,
                           "As a fraction of the schedule.");
}

/* The rate of the embedding and the head.  Without a minimum of its own it has --min-lr. */
static enum status set_decoupled(struct import *im)
{
    const struct import_item *rate = import_get(im, "--decoupled-lr");
    const struct import_item *least = import_get(im, "--decoupled-min-lr");
    if (!rate) return STATUS_OK;
    TRY(import_parse_string(im, rate, NULL));
    TRY(import_copy(im, rate, "optimizer.decoupled_lr", ""));
    return rules_set_min_lr(im, least ? least : import_get(im, "--min-lr"),
                            "lr_scheduler.decoupled_min_lr_factor", rate);
}

/* --rampup-batch-size START INCREMENT SAMPLES. */
static enum status set_ramp(struct import *im, const struct import_item *samples, int64_t global,
                            struct batch_ramp *ramp)
{
    const struct import_item *item = import_get(im, "--rampup-batch-size");
    const struct training_config *t = &im->config.training;
    struct text list = {0};
    *ramp = (struct batch_ramp){.global = global};
    if (!item) return STATUS_OK;
    if (item->count != 3) return import_bad_value(im, item, "START INCREMENT SAMPLES");
    if (!samples)
        FAIL(CONFIG, "%s: --rampup-batch-size requires --train-samples, as in Megatron-LM",
             im->file);
    for (size_t i = 0; i < 3; i++) text_addf(&list, "%s%s", i ? ", " : "[", item->values[i]);
    text_adds(&list, "]");
    enum status st = import_set(im, item, "training.batch_ramp", list.data,
                                "Steps grow exactly where Megatron-LM's do.");
    text_release(&list);
    TRY(st);
    st = batch_ramp_check(t);
    if (st) return status_prefix(st, "%s: --rampup-batch-size", im->file);
    *ramp = batch_ramp_of(t, global);
    return STATUS_OK;
}

/* --iterations-to-skip 100 101 */
static enum status set_skipped_steps(struct import *im)
{
    const struct import_item *item = import_get(im, "--iterations-to-skip");
    struct text list = {0};
    if (!item) return STATUS_OK;
    for (size_t i = 0; i < item->count; i++)
        text_addf(&list, "%s%s", i ? ", " : "[", item->values[i]);
    text_adds(&list, "]");
    enum status st = import_set(im, item, "guard.skip_steps", list.data,
                                "These steps count in the learning-rate schedule.");
    text_release(&list);
    return st;
}

enum status megatron_import_schedule(struct import *im, int64_t global_batch)
{
    struct batch_ramp ramp;
    const struct import_item *iters = import_get(im, "--train-iters");
    const struct import_item *all = import_get(im, "--train-samples");
    const struct import_item *rate = import_get(im, "--lr"), *decay_item, *warmup_item;
    const struct import_item *fraction = import_get(im, "--lr-warmup-fraction");
    int64_t total, decay, warmup;
    if ((iters && all) || (!iters && !all))
        FAIL(CONFIG, "%s: set either --train-iters or --train-samples", im->file);
    if (!rate) FAIL(CONFIG, "%s: --lr is required", im->file);
    if (all && !global_batch)
        FAIL(CONFIG, "%s: --train-samples requires --global-batch-size", im->file);
    TRY(import_parse_int(im, all ? all : iters, 0, 1LL << 50, &total));
    TRY(set_ramp(im, all, global_batch, &ramp));
    TRY(import_set_int(im, all ? all : iters, "training.steps",
                       all ? batch_ramp_steps_of_samples(&ramp, total) : total, ""));
    if (all && total <= MAX_SAMPLES)
        TRY(import_set_int(im, all, "data.samples", total,
                           "The order of samples depends on their number."));
    TRY(import_parse_string(im, rate, NULL));
    TRY(import_copy(im, rate, "optimizer.lr", ""));
    TRY(import_set(im, NULL, "lr_scheduler.formula", "megatron", "The first step's rate is 0."));
    TRY(get_length(im, "--lr-decay", all != NULL, &decay_item, &decay));
    TRY(get_length(im, "--lr-warmup", all != NULL, &warmup_item, &warmup));
    if (!decay_item) decay = total;
    if (fraction) {
        double share;
        TRY(import_parse_real(im, fraction, &share));
        if (warmup_item)
            FAIL(CONFIG, "%s: set either --lr-warmup-fraction or %s", im->file, warmup_item->key);
        if (share < 0 || share > 1) return import_bad_value(im, fraction, "a number from 0 to 1");
        warmup = llround(share * (double)decay), warmup_item = fraction;
    }
    if (warmup > decay)
        FAIL(CONFIG, "%s: a warmup of %lld is longer than the schedule (%lld)", im->file,
             (long long)warmup, (long long)decay);
    TRY(import_set_int(im, warmup_item, "lr_scheduler.warmup_steps",
                       all && warmup ? batch_ramp_steps_of_samples(&ramp, warmup) : warmup,
                       all && warmup ? "Whole steps; warmup_samples is exact." : ""));
    if (all) {
        TRY(import_set_int(im, warmup_item, "lr_scheduler.warmup_samples", warmup, ""));
        TRY(import_set_int(im, decay_item, "lr_scheduler.total_samples", decay, ""));
    } else if (decay != total) {
        TRY(import_set_int(im, decay_item, "lr_scheduler.total_steps", decay, ""));
    }
    TRY(set_decay(im, all != NULL, decay));
    TRY(set_decoupled(im));
    TRY(set_skipped_steps(im));
    return rules_set_min_lr(im, import_get(im, "--min-lr"), "lr_scheduler.min_lr_factor", rate);
}

static enum status checkpoints(struct import *im)
{
    const struct import_item *save = import_get(im, "--save"), *load = import_get(im, "--load");
    const struct import_item *every = import_get(im, "--save-interval");
    const struct import_item *newest = import_get(im, "--most-recent-k");
    const struct import_item *async = import_get(im, "--async-save");
    const struct import_item *weights = import_get(im, "--finetune");
    if (!weights) weights = import_get(im, "--no-load-optim");
    TRY(import_set(im, save, "checkpoint.enable", save ? "true" : "false",
                   save ? "" : "Nothing is saved without --save."));
    if (save) {
        TRY(import_parse_string(im, save, NULL));
        TRY(import_copy(im, save, "job.dump_folder",
                        "For checkpoints and logs; a run resumes from the checkpoints in it."));
        TRY(import_set(im, newest, "checkpoint.keep_latest_k", newest ? newest->values[0] : "0",
                       newest ? "" : "Keep all checkpoints."));
        if (!every) FAIL(CONFIG, "%s: --save requires --save-interval", im->file);
        TRY(import_copy(im, every, "checkpoint.interval", ""));
        if (async) TRY(import_set(im, async, "checkpoint.async_mode", "async", ""));
    }
    const struct import_item *base = import_get(im, "--pretrained-checkpoint");
    if (!load && base) {
        TRY(import_copy(im, base, "checkpoint.initial_load_path", ""));
        return import_set(im, base, "checkpoint.initial_load_model_only", "true", "");
    }
    if (!load) return STATUS_OK;
    TRY(import_parse_string(im, load, NULL));
    if (save && !strcmp(save->values[0], load->values[0])) {
        import_add_note(im, IMPORT_IGNORED, load,
                        "a run always resumes from its own checkpoints; to continue from "
                        "Megatron-LM's, set checkpoint.initial_load_path to this folder and "
                        "checkpoint.initial_load_model_only = false");
        return STATUS_OK;
    }
    TRY(import_copy(im, load, "checkpoint.initial_load_path",
                    "Megatron-LM's checkpoints, or another format that `llamero convert` reads."));
    return import_set(im, weights, "checkpoint.initial_load_model_only", weights ? "true" : "false",
                      "");
}

/* Whether the values are PREFIX or WEIGHT PREFIX. */
static bool is_one_prefix(const struct import_item *item)
{
    char *end = NULL;
    if (!item || item->count != 2) return item && item->count == 1;
    return strtod(item->values[0], &end) > 0 && !*end;
}

static enum status validation(struct import *im, const struct import_layout *l)
{
    const struct import_item *batches = import_get(im, "--eval-iters");
    const struct import_item *every = import_get(im, "--eval-interval");
    int64_t count = 100;
    const struct import_item *full = import_get(im, "--full-validation");
    const struct import_item *data = import_get(im, "--valid-data-path");
    if (batches) TRY(import_parse_int(im, batches, -1, 1LL << 40, &count));
    bool own_files = import_get(im, "--train-data-path") && !import_get(im, "--data-path");
    bool one = is_one_prefix(data);
    if (data && !one)
        import_add_note(im, IMPORT_IGNORED, data, "validation reads one prefix, not a blend");
    if (count > 0 && own_files && !one)
        return import_set(im, batches, "validation.enable", "false", "No validation data.");
    TRY(import_set(im, batches, "validation.enable", count > 0 ? "true" : "false",
                   batches ? "" : "The default is 100 batches."));
    if (count <= 0) return STATUS_OK;
    TRY(import_set_int(im, full ? full : batches, "validation.steps", full ? -1 : count, ""));
    if (one)
        TRY(import_set(im, data, "validation.dataset_path", data->values[data->count - 1], ""));
    TRY(import_set(im, every, "validation.freq", every ? every->values[0] : "1000", ""));
    return import_set_int(im, import_get(im, "--micro-batch-size"), "validation.local_batch_size",
                          l->micro_batch, "A validation batch is one microbatch of a rank.");
}

enum status megatron_import_run(struct import *im, const struct import_layout *l)
{
    const struct import_item *log = import_get(im, "--log-interval");
    const struct import_item *board = import_get(im, "--tensorboard-dir");
    const struct import_item *wandb = import_get(im, "--wandb-project");
    const struct import_item *seed = import_get(im, "--seed");
    const struct import_item *profile = import_get(im, "--profile");
    TRY(import_set(im, seed, "debug.seed", seed ? seed->values[0] : "1234",
                   seed ? "" : "The default."));
    TRY(import_set(im, log, "metrics.log_freq", log ? log->values[0] : "100", ""));
    TRY(import_set(im, NULL, "metrics.console", "megatron", "Megatron-LM's log lines."));
    if (board)
        TRY(import_set(im, board, "metrics.enable_tensorboard", "true",
                       "The files are written to job.dump_folder."));
    if (wandb && wandb->count == 1 && wandb->values[0][0]) {
        TRY(import_set(im, wandb, "metrics.enable_wandb", "true",
                       "`wandb sync` uploads the files in job.dump_folder."));
        TRY(import_copy(im, wandb, "metrics.wandb_project", ""));
    }
    if (profile) TRY(import_set(im, profile, "profiling.enable_profiling", "true", ""));
    TRY(checkpoints(im));
    return validation(im, l);
}
