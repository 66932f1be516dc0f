/* torch_state.h -- what a torch.distributed.checkpoint directory holds besides tensors: steps,
 * tokens, and the trainer's own state if we wrote it.
 *
 * Names are torchtitan's: train_state.step, train_state.ntokens_seen, lr_scheduler.last_epoch,
 * optimizer.state.NAME.step, dataloader.*.  Ours: llamero.train, a string of JSON. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

struct torch_state {
    int64_t step;           /* of the run: the first known of these three; -1: unknown */
    int64_t schedule_step;  /* of the lr_scheduler; -1: unknown, as for the others */
    int64_t optimizer_step; /* of every weight */
    int64_t other_step;     /* of a weight whose step differs; -1: none */
    int64_t tokens_seen;
    int64_t samples;           /* consumed_train_samples of Megatron-LM, where its data continues */
    struct text order_args;    /* and the arguments that decide their order (megatron_args.h) */
    bool has_data, has_losses; /* entries that are not read: data position, old losses, */
    char other_moment[120];    /* and the first that is not AdamW's of a Llama's weight; "": none */
    int64_t iteration;         /* of Megatron-LM's checkpoints without moments; -1: unknown */
    struct text train;         /* the trainer's part of state.json, valid JSON */
};

void torch_state_init(struct torch_state *s);
void torch_state_release(struct torch_state *s);

/* Whether torch_state_read reads the entry of this name. */
bool torch_state_handles(const char *name);
/* Notes that an entry exists which is only reported, not read. */
void torch_state_note(struct torch_state *s, const char *name);
/* Reads an entry's archive.  DATA: it does not hold what its name says. */
enum status torch_state_read(struct torch_state *s, const char *name, const unsigned char *bytes,
                             uint64_t size);
/* Call after the last entry.  DATA: moments without a step.  UNSUPPORTED: the weights have
 * different numbers of updates. */
enum status torch_state_finish(struct torch_state *s, const char *path);

/* Writes the trainer's part of state.json: the one we saved, or what torch's counters provide. */
void torch_state_train(const struct torch_state *s, struct text *json);
/* Writes the whole state.json. */
void torch_state_json(const struct torch_state *s, struct text *json);
/* Reads a folder's state.json, or makes it from torch files with moments; NULL: neither. */
enum status torch_state_or_file(const struct torch_state *s, const char *folder,
                                struct json **state);
/* Logs one line: what is resumed, and what is not. */
void torch_state_log(const struct torch_state *s, const char *path, bool with_moments);
/* UNSUPPORTED: besides moments that are read there are others, which would be ignored. */
enum status torch_state_check_moments(const struct torch_state *s, const char *path);
/* Of files without moments that are read: warns of those that are ignored, and of a step that is
 * not resumed. */
void torch_state_warn(const struct torch_state *s, const char *path);
