/* rules.h -- rules that several importers share. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/import/import.h"

enum import_sharding { SHARD_NOTHING, SHARD_MOMENTS, SHARD_ALL };

/* The original's parallel layout. */
struct import_layout {
    int64_t ranks;                     /* 0: unknown */
    int64_t tp, pp, cp, vp;            /* vp: virtual stages per rank */
    int64_t layers;                    /* 0: unknown */
    int64_t micro_batch, global_batch; /* global_batch 0: micro_batch on each data-parallel rank */
    int64_t replicas;                  /* of sharded state (HSDP) */
    enum import_sharding sharding;
    bool last_gets_more; /* the last stages take the layers that do not divide evenly */
};
/* The original's names of these values, for messages; may be NULL. */
struct import_layout_keys {
    const char *tp, *pp, *cp, *vp, *micro_batch, *global_batch, *sharding;
};
/* CONFIG: a size does not divide another; the message has both. */
enum status rules_set_layout(struct import *im, const struct import_layout *l,
                             const struct import_layout_keys *keys);

/* Sets `target`, a factor, from a minimum and a peak rate.  CONFIG: the peak is 0 or below the
 * minimum. */
enum status rules_set_min_lr(struct import *im, const struct import_item *least, const char *target,
                             const struct import_item *peak);
/* Refuses a key that is set to anything but `word`, Llama's value; `text` says what a Llama has. */
void rules_require_llama(struct import *im, const char *key, const char *word, const char *text);
/* Sets the model's sizes from Hugging Face's config.json.  MISSING, DATA, CONFIG: as
 * hf_config_read. */
enum status rules_set_model_from_json(struct import *im, const struct import_item *item,
                                      const char *path);
/* Adds [WEIGHT PREFIX ...] or [PREFIX ...] in Megatron-LM's sample order.  CONFIG: some prefixes
 * have weights and others do not. */
enum status rules_add_blend(struct import *im, const struct import_item *item, char *const *values,
                            size_t count);
/* Tokens without a loss after a document's end; `item` may be NULL.  Unless the original divides by
 * the tokens of the whole batch (`per_token`), a token's weight depends on its microbatch. */
enum status rules_set_eod_mask(struct import *im, const struct import_item *item, bool per_token);
/* Megatron-LM's cyclic sampler, whose order depends on the original's data-parallel ranks. */
enum status rules_set_cyclic(struct import *im, const struct import_item *item,
                             const struct import_layout *l, bool sharded);
/* Applies section.key=value of ours over the imported values. */
enum status rules_apply_setting(struct import *im, const char *setting);
