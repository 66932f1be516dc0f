/* preflight.h -- what `train` checks before its first step, and `check` on its own: configuration
 * and layout, tokenizer, model, data, validation data, initial weights or the checkpoint to resume
 * from, the dump folder, the device and its memory.
 *
 * Order    A check runs if what it depends on is right, whatever else is wrong, so that a user sees
 *          all problems at once. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "app/problems.h"
#include "config/config.h"
#include "parallel/mesh.h"
#include "tokenizer/tokenizer.h"

/* Where the run will be. */
enum preflight_place {
    PREFLIGHT_ELSEWHERE, /* maybe on other machines: what this one lacks is a warning */
    PREFLIGHT_HERE,
    PREFLIGHT_RUN, /* here and now; logs only what is wrong, as the run logs the rest */
    PREFLIGHT_JOB, /* later, on other machines: neither device, memory nor initial weights */
};

struct preflight_options {
    int num_ranks;
    enum preflight_place place;
    int host_ranks;     /* that share a machine's memory; 0: device.node_ranks */
    bool oversubscribe; /* accepts a run that needs more memory or disk space than it has */
};

struct preflight {
    struct mesh mesh; /* rank 0's */
    struct model_shape shape;
    struct tokenizer *tokenizer; /* owned; may be NULL */
    bool data_checked;           /* all data was opened */
    bool *
        has_source; /* of the training data, and then the validation data: on this machine; owned */
    bool can_scan;  /* all data can be opened, with the tokenizer and the model */
    int64_t resume_step; /* the checkpoint to resume from; -1: none */
    bool has_only_model; /* that checkpoint, so no step can follow */
    int64_t steps_done;  /* when the run begins: 0 without that checkpoint's lr_scheduler */
    struct problems problems;
};

#define PREFLIGHT_FEWEST_RANKS INT64_MIN
enum { PREFLIGHT_MAX_RANKS = 1 << 24 };
/* The number of ranks to check: `requested`, or for PREFLIGHT_FEWEST_RANKS the smallest with the
 * degrees of [parallelism].  USAGE: not between 1 and 2^24. */
enum status preflight_ranks(const struct config *c, int64_t requested, int *num_ranks);

/* Fills in `p`, with all problems.  Allocates no model, and leaves nothing on disk, but tokenizers
 * of the Hub in its cache.  Data on the Hub is not downloaded: if the cache does not have it, or
 * the Hub cannot be reached, a log line says so.  Release `p` even after a failure, which leaves
 * mesh and shape valid.  Errors: as problems_report. */
enum status preflight(struct preflight *p, const struct config *c,
                      const struct preflight_options *o);
void preflight_release(struct preflight *p);
