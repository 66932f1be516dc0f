/* import_megatron_run.c -- Megatron-LM's steps and samples, rates, checkpoints, reports. */
// SPDX-License-Identifier: Apache-2.0
#include "config/import/rules.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const int64_t MOST_SAMPLES = 4294967293; /* of data.samples */

/* A length in iterations or samples; *samples: in these. */
static enum status length_of(struct import *im, const char *iters, const char *in_samples,
                             bool by_samples, const struct import_item **item, int64_t *out)
{
    const struct import_item *i = import_get(im, iters), *n = import_get(im, in_samples);
    *item = by_samples ? n : i;
    *out = 0;
    if (by_samples ? i != NULL : n != NULL)
        FAIL(CONFIG, "%s: %s with %s: all of a run's lengths are in iterations, or all in samples",
             im->file, by_samples ? iters : in_samples,
             by_samples ? "--train-samples" : "--train-iters");
    return *item ? import_int(im, *item, 0, 1LL << 50, out) : STATUS_OK;
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
    } late[] = {{"exponential", "exponential"},
                {"linear", "linear"},
                {"cosine", "cosine"},
                {"minus_sqrt", "sqrt"}};
    const struct import_item *item = import_get(im, "--lr-decay-style");
    const char *style = item && item->count == 1 ? item->values[0] : "linear", *type = NULL;
    bool known = false;
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++)
        if (!strcmp(styles[i].style, style)) known = true, type = styles[i].type;
    if (!known)
        return import_unfit(im, item, "constant, linear, cosine, inverse-square-root or WSD");
    if (!strcmp(style, "constant"))
        TRY(import_set(im, item, "lr_scheduler.decay_ratio", "0", "It never decays."));
    if (type) return import_set(im, item, "lr_scheduler.decay_type", type, "");
    const struct import_item *shape = import_get(im, "--lr-wsd-decay-style"), *tail;
    const char *word = shape && shape->count == 1 ? shape->values[0] : "exponential";
    int64_t last;
    for (size_t i = 0; i < sizeof late / sizeof *late; i++)
        if (!strcmp(late[i].style, word)) type = late[i].type;
    if (!type) return import_unfit(im, shape, "exponential, linear, cosine or minus_sqrt");
    TRY(length_of(im, "--lr-wsd-decay-iters", "--lr-wsd-decay-samples", samples, &tail, &last));
    if (!tail || !decay || last > decay)
        FAIL(CONFIG, "%s: --lr-decay-style WSD needs --lr-wsd-decay-%s, at most the schedule's",
             im->file, samples ? "samples" : "iters");
    TRY(import_set(im, shape, "lr_scheduler.decay_type", type, ""));
    return import_setf(im, tail, "lr_scheduler.decay_ratio", "A share of the schedule.", "%.17g",
                       (double)last / (double)decay);
}

enum status import_megatron_schedule(struct import *im, int64_t global_batch)
{
    const struct import_item *iters = import_get(im, "--train-iters");
    const struct import_item *all = import_get(im, "--train-samples");
    const struct import_item *rate = import_get(im, "--lr"), *decay_item, *warmup_item;
    const struct import_item *fraction = import_get(im, "--lr-warmup-fraction");
    int64_t total, decay, warmup;
    if ((iters && all) || (!iters && !all))
        FAIL(CONFIG, "%s: one of --train-iters and --train-samples is wanted", im->file);
    if (!rate) FAIL(CONFIG, "%s: --lr is missing", im->file);
    if (all && !global_batch)
        FAIL(CONFIG, "%s: --train-samples needs --global-batch-size here", im->file);
    TRY(import_int(im, all ? all : iters, 0, 1LL << 50, &total));
    TRY(import_setf(im, all ? all : iters, "training.steps", "", "%lld",
                    (long long)(all ? total / global_batch : total)));
    if (all && total <= MOST_SAMPLES)
        TRY(import_setf(im, all, "data.samples", "The order of samples depends on their number.",
                        "%lld", (long long)total));
    TRY(import_text(im, rate, NULL));
    TRY(import_copy(im, rate, "optimizer.lr", ""));
    TRY(import_set(im, NULL, "lr_scheduler.formula", "megatron", "The first step's rate is 0."));
    TRY(length_of(im, "--lr-decay-iters", "--lr-decay-samples", all != NULL, &decay_item, &decay));
    TRY(length_of(im, "--lr-warmup-iters", "--lr-warmup-samples", all != NULL, &warmup_item,
                  &warmup));
    if (!decay_item) decay = total;
    if (fraction) {
        double share;
        TRY(import_real(im, fraction, &share));
        if (warmup_item)
            FAIL(CONFIG, "%s: --lr-warmup-fraction and %s: one of them is wanted", im->file,
                 warmup_item->key);
        if (share < 0 || share > 1) return import_unfit(im, fraction, "a number from 0 to 1");
        warmup = llround(share * (double)decay), warmup_item = fraction;
    }
    if (warmup > decay)
        FAIL(CONFIG, "%s: a warmup of %lld is longer than the schedule of %lld", im->file,
             (long long)warmup, (long long)decay);
    TRY(import_setf(im, warmup_item, "lr_scheduler.warmup_steps",
                    all && warmup ? "warmup_samples says it exactly." : "", "%lld",
                    (long long)(all ? warmup / global_batch : warmup)));
    if (all) {
        TRY(import_setf(im, warmup_item, "lr_scheduler.warmup_samples", "", "%lld",
                        (long long)warmup));
        TRY(import_setf(im, decay_item, "lr_scheduler.total_samples", "", "%lld",
                        (long long)decay));
    } else if (decay != total) {
        TRY(import_setf(im, decay_item, "lr_scheduler.total_steps", "", "%lld", (long long)decay));
    }
    TRY(set_decay(im, all != NULL, decay));
    return import_set_least_rate(im, import_get(im, "--min-lr"), rate);
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
        TRY(import_text(im, save, NULL));
        TRY(import_copy(im, save, "job.dump_folder",
                        "With the run's logs; a run goes on from the checkpoints in it."));
        TRY(import_set(im, newest, "checkpoint.keep_latest_k", newest ? newest->values[0] : "0",
                       newest ? "" : "All are kept."));
        if (!every) FAIL(CONFIG, "%s: --save needs --save-interval", im->file);
        TRY(import_copy(im, every, "checkpoint.interval", ""));
        if (async) TRY(import_set(im, async, "checkpoint.async_mode", "async", ""));
    }
    if (!load) return STATUS_OK;
    TRY(import_text(im, load, NULL));
    if (save && !strcmp(save->values[0], load->values[0])) {
        import_note(im, IMPORT_NONE, load, "a run goes on from its own checkpoints by itself");
        return STATUS_OK;
    }
    TRY(import_copy(im, load, "checkpoint.initial_load_path",
                    "Their own directories are not read: give a Hugging Face folder, or what "
                    "`llamero convert` reads."));
    return import_set(im, weights, "checkpoint.initial_load_model_only", weights ? "true" : "false",
                      "");
}

static enum status validation(struct import *im, const struct import_layout *l)
{
    const struct import_item *batches = import_get(im, "--eval-iters");
    const struct import_item *every = import_get(im, "--eval-interval");
    int64_t count = 100;
    if (batches) TRY(import_int(im, batches, -1, 1LL << 40, &count));
    TRY(import_set(im, batches, "validation.enable", count > 0 ? "true" : "false",
                   batches ? "" : "Its default is 100 batches."));
    if (count <= 0) return STATUS_OK;
    TRY(import_setf(im, batches, "validation.steps", "", "%lld", (long long)count));
    TRY(import_set(im, every, "validation.freq", every ? every->values[0] : "1000", ""));
    return import_setf(im, import_get(im, "--micro-batch-size"), "validation.local_batch_size",
                       "Batches of an evaluation are a rank's micro-batches here.", "%lld",
                       (long long)l->micro_batch);
}

enum status import_megatron_run(struct import *im, const struct import_layout *l)
{
    const struct import_item *log = import_get(im, "--log-interval");
    const struct import_item *board = import_get(im, "--tensorboard-dir");
    const struct import_item *seed = import_get(im, "--seed");
    const struct import_item *profile = import_get(im, "--profile");
    TRY(import_set(im, seed, "debug.seed", seed ? seed->values[0] : "1234",
                   seed ? "" : "Its default."));
    TRY(import_set(im, log, "metrics.log_freq", log ? log->values[0] : "100", ""));
    if (board)
        TRY(import_set(im, board, "metrics.enable_tensorboard", "true",
                       "The files lie in job.dump_folder."));
    if (profile) TRY(import_set(im, profile, "profiling.enable_profiling", "true", ""));
    TRY(checkpoints(im));
    return validation(im, l);
}
