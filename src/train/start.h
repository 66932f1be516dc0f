/* start.h -- where a run gets its first weights: from the newest checkpoint in its folder, else
 * from checkpoint.initial_load_path, else from random numbers.
 *
 * The folder may also hold a torch.distributed.checkpoint directory as step-N.  As in torchtitan,
 * the run resumes from it, but step 0 only provides weights; it may lack tensors. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/checkpoint.h"
#include "comm/comm.h"
#include "config/config.h"
#include "model/model_shape.h"

struct start {
    char *folder;                /* heap; NULL: random weights */
    bool own;                    /* a checkpoint in the run's folder, of this step: */
    int64_t step;                /* -1: from elsewhere */
    bool native;                 /* in our format, so an older one may replace it */
    bool whole;                  /* resume the optimizer, the schedule and the data, too */
    bool partial;                /* the folder may lack tensors */
    bool rewinds;                /* goes back to checkpoint.load_step, for the first time */
    struct option_list excluded; /* what not to load; the strings are the configuration's */
};

struct start_search {
    int64_t limit; /* only own checkpoints of earlier steps */
    bool is_quiet; /* warn of damaged checkpoints only if there is no other */
    bool fetch;    /* download initial_load_path; otherwise skip it if it is not in the cache */
};

/* Finds the start.  Collective.  DATA: the run's folder has checkpoints, but none is intact, or
 * all were set aside (folder_abandon), so that a run never starts over silently.  MISSING: no model
 * at initial_load_path, or no step load_step.  CONFIG: the only checkpoints there are
 * Megatron-LM's.  Also the errors of hub_fetch. */
enum status start_find(struct start *s, const struct config *c, const struct start_search *search,
                       const struct comm *world);
void start_release(struct start *s);

/* Compares the configuration, and the model's shape, with those of the run's own checkpoint; on one
 * rank, before the checkpoint is loaded.  `log`: logs which settings differ, and what becomes of
 * them.  CONFIG: a change makes another model of its weights (config_changes.refused).  DATA: its
 * config.json is damaged. */
enum status start_compare(const struct start *s, const struct config *c,
                          const struct model_shape *shape, bool log);

/* Once the state of an own checkpoint is loaded: with checkpoint.load_step sets later checkpoints
 * aside (checkpoint/rewind.h).  Collective. */
enum status start_finish(const struct start *s, const struct config *c,
                         struct checkpointer *checkpointer, const struct comm *world);

/* Whether a run that resumes from this checkpoint of its own leaves out the part of its state:
 * checkpoint.exclude_from_loading has it, and has not had it yet when the checkpoint was saved.  So
 * a part is left out once, and a job that is requeued resumes with all of its state. */
bool start_leaves_out(const char *folder, const struct config *c, const char *part);
/* What not to load from there. */
struct load_rules start_load_rules(const struct start *s);

/* Finds the start of a run of this model, and compares its tensors with the model's without reading
 * weights.  On this rank alone; downloads nothing, so that a missing start is no error if the run
 * may fetch a copy (checkpoint.copy_to).  `log`: logs which tensors will be loaded, and if the run
 * resumes, which settings changed and which checkpoints are damaged, from which the run falls back
 * to an older one.  DATA: no other is intact, or checkpoint.load_step names a damaged one; without
 * `log` the run that falls back finds that.  Errors: also those of checkpoint_check_shapes. */
enum status start_check(const struct config *c, const struct model_shape *shape, bool log);

/* Where a run would resume: what its start has besides weights. */
struct start_state {
    struct start start;
    struct checkpoint_found found; /* empty unless the run begins with a whole state */
};
/* Reads that, after start_check, of the newest checkpoint of the run's own whose JSON is intact.
 * Without one, and of one that is not on this machine, the state is empty.  `log` and errors
 * of others: those of checkpoint_read_state.  CONFIG: as start_check_state. */
enum status start_read_state(struct start_state *s, const struct config *c,
                             const struct model_shape *shape, bool log);
void start_release_state(struct start_state *s);
/* Steps that are done when the run begins. */
int64_t start_steps_done(const struct start *s, const struct checkpoint_found *found);
/* CONFIG: the run cannot resume from what was found, as that has only the model.  A run that has no
 * step left needs no more. */
enum status start_check_state(const struct start *s, const struct config *c,
                              const struct checkpoint_found *found);
