/* import_rules.h -- rules that the readers of several programs share. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/import/import.h"

enum import_sharding { SHARD_NOTHING, SHARD_MOMENTS, SHARD_ALL };

/* How ranks share the work there; the keys, for messages, may be NULL. */
struct import_layout {
    int64_t ranks;                     /* 0: not known */
    int64_t tp, pp, cp, vp;            /* vp: stages of a rank */
    int64_t layers;                    /* 0: not known */
    int64_t micro_batch, global_batch; /* global 0: whatever the ranks make */
    int64_t replicas;                  /* of what is sharded */
    enum import_sharding sharding;
    bool last_gets_more; /* of layers that do not divide */
};
struct import_layout_keys {
    const char *tp, *pp, *cp, *vp, *micro_batch, *global_batch, *sharding;
};
/* CONFIG: sizes that do not divide; which, and by what. */
enum status import_set_layout(struct import *im, const struct import_layout *l,
                              const struct import_layout_keys *keys);

/* min_lr as a share of the peak.  CONFIG: the peak is 0, or less than it. */
enum status import_set_least_rate(struct import *im, const struct import_item *least,
                                  const struct import_item *peak);
/* CONFIG: the item is there and not `word`: no Llama, which has `text`. */
enum status import_llama(struct import *im, const char *key, const char *word, const char *text);
/* A window of attention that is as long as a row is none. */
enum status import_window(struct import *im, const char *key);
/* [WEIGHT PREFIX ...] or [PREFIX ...], in Megatron-LM's order.  CONFIG: some weights, not all. */
enum status import_blend(struct import *im, const struct import_item *item, char *const *values,
                         size_t count);
/* section.key=value of ours, over all that was imported. */
enum status import_setting(struct import *im, const char *setting);

/* Flags of Megatron-LM's pretrain_gpt.py into what import_init made; `line` of a script, or 0. */
enum status import_megatron(struct import *im, const char *const *words, size_t count, int line);
/* Of it: lengths and rates; then checkpoints, reports, validation.  CONFIG as its own
 * checks, and where a needed flag is missing. */
enum status import_megatron_schedule(struct import *im, int64_t global_batch);
enum status import_megatron_run(struct import *im, const struct import_layout *l);
