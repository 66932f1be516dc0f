/* batch.h -- the script that Slurm runs: starts all ranks, has them stop in time, comes back. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdint.h>

/* Strings are borrowed; words for Slurm (name, time, partition, account, mpi) are of its letters,
 * see batch_word; paths and settings may be anything. */
struct batch {
    const char *name, *time, *partition, *account; /* the last two: "" for the site's own */
    int64_t nodes, ranks_per_node;
    int64_t cpus_per_rank;   /* 0: whole nodes, shared out by their ranks */
    int64_t gpus_per_node;   /* 0: none is asked for */
    int64_t signal_before_s; /* the end of the time, when the run is asked to stop */
    const char *mpi;         /* how ranks find each other: "pmix", "pmi2" */
    const char *interface;   /* of the network between nodes; "": the library's choice */
    const char *program, *folder, *config;
    const char *const *settings; /* section.key=value */
    int num_settings;
    const char *checkpoints; /* the folder they are in: a new one there is progress */
    const char *remark;      /* a line of plain text, for the head of the script */
};

void batch_write(const struct batch *b, struct text *script);

/* USAGE: `word`, the value of --flag, has other letters than those of a word for Slurm. */
enum status batch_word(const char *flag, const char *word);
/* Seconds of a time as Slurm takes it: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S.  USAGE: something else,
 * or no time at all. */
enum status batch_seconds(const char *time, int64_t *seconds);
/* One word for a shell, whatever is in it. */
void batch_quote(struct text *out, const char *word);
