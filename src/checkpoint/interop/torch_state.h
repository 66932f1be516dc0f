/* torch_state.h -- what a directory of torch.distributed.checkpoint holds beside tensors: steps,
 * tokens, and the trainer's own part where we wrote it.
 *
 * Names are torchtitan's: train_state.step, train_state.ntokens_seen, lr_scheduler.last_epoch,
 * optimizer.state.NAME.step, dataloader.*.  Ours: llamero.train, a text of JSON. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

struct torch_state {
    int64_t step;           /* of the run: the first of these that is known; -1: none is */
    int64_t schedule_step;  /* of the schedule, -1: unknown; and so are the others */
    int64_t optimizer_step; /* of every weight */
    int64_t other_step;     /* of a weight that has another one; -1: none has */
    int64_t tokens_seen;
    bool has_data, has_losses; /* which are not read: the place in the data, old losses, */
    bool has_other_moments;    /* and moments that are not named by weights */
    struct text train;         /* the trainer's part of state.json; what is in it is JSON */
};

void torch_state_init(struct torch_state *s);
void torch_state_release(struct torch_state *s);

/* Is an item of this name one that torch_state_read takes? */
bool torch_state_handles(const char *name);
/* What is not read, but told of. */
void torch_state_note(struct torch_state *s, const char *name);
/* Its archive.  DATA: it is not what its name says. */
enum status torch_state_read(struct torch_state *s, const char *name, const unsigned char *bytes,
                             uint64_t size);
/* All were taken.  DATA: there are moments and no step.  UNSUPPORTED: weights of one model were
 * updated differently often. */
enum status torch_state_finish(struct torch_state *s, const char *path);

/* The trainer's part of state.json: as we wrote it, or as far as torch's says it. */
void torch_state_train(const struct torch_state *s, struct text *json);
/* The whole of state.json. */
void torch_state_json(const struct torch_state *s, struct text *json);
/* Of a folder: its state.json, or that of torch's files where there are moments; NULL: neither. */
enum status torch_state_or_file(const struct torch_state *s, const char *folder,
                                struct json **state);
/* One line: what goes on, and what does not. */
void torch_state_log(const struct torch_state *s, const char *path);
