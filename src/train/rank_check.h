/* rank_check.h -- checks that all ranks of a run work on the same: configuration, tokenizer, data,
 * starting weights, and the sequence of their collectives.
 *
 * Ranks    Every function is collective over all ranks.
 * Errors   CONFIG, on every rank: the key or file that differs, with its values, ranks and hosts.
 *          COMM: a rank failed. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"
#include "data/loader.h"
#include "parallel/groups.h"
#include "tokenizer/tokenizer.h"
#include "train/start.h"
#include "train/trainer.h"

/* Before anything whose size or number of collectives depends on the configuration.  Keys that may
 * differ between hosts without changing the result are not compared. */
enum status rank_check_config(const struct config *c, const struct comm *world);
/* What every rank reads: the bytes of the tokenizer (NULL: the run has no tokenizer), and the files
 * of the validation tasks. */
enum status rank_check_inputs(const struct config *c, const struct tokenizer *t,
                              const struct comm *world);
/* The files of training and validation data: names, sizes and a sample of the content, but not the
 * time of modification, which copies on several hosts do not share.  loader NULL: this rank does
 * not read data. */
enum status rank_check_data(const struct config *c, const struct loader *loader,
                            const struct comm *world);
/* The checkpoint or model that the run starts from. */
enum status rank_check_start(const struct start *s, const struct comm *world);

/* Lets the groups compare every collective before it starts if debug.check_collectives says so, or
 * the program was built for debugging.  On this rank alone. */
void rank_check_enable(const struct config *c, const struct groups *groups);
/* COMM: the ranks of a group have started different collectives. */
enum status rank_check_collectives(const struct trainer *t);
