/* runs.h -- helpers for system tests that run the program: a corpus, a configuration, comparisons.
 */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test.h"

#include "base/file.h"
#include "base/json.h"

#include <sys/types.h>

/* English-looking text, the same for the same size; *.jsonl gets one document a line. */
void runs_write_corpus(const char *path, size_t bytes);

/* The configuration of a tiny run on `corpus`: bytes tokenizer, 2 blocks of width 32.  With
 * metrics.peak_flops, as measuring that of a CPU takes longer than the run. */
void runs_write_config(const char *path, const char *corpus);

/* Runs `train CONFIG job.dump_folder=FOLDER SETTINGS`; settings are separated by spaces.  Returns
 * the exit code. */
int runs_train(const char *config, const char *dump_folder, const char *settings, struct text *err);
/* The folder, on the heap, of a new run with these settings over a corpus of 60,000 bytes. */
char *runs_trained(const char *settings);

/* The same with a launcher, on `ranks` ranks; 1: without a launcher.  Returns -1 if none is
 * installed. */
int runs_train_ranks(int ranks, const char *config, const char *dump_folder, const char *settings,
                     struct text *err);

/* Starts `llamero ...` with stderr in the file `err`; the arguments end with NULL. */
pid_t runs_start(const char *err, const char *const *arguments);
#define RUNS_START(err, ...) runs_start(err, (const char *const[]){__VA_ARGS__, NULL})
/* Waits until a file of it has that many bytes. */
void runs_wait_for_bytes(const char *path, uint64_t bytes);
/* Waits for its end: the exit code, or 128 + the signal; *said gets what it wrote to stderr. */
int runs_wait(pid_t run, const char *err, struct text *said);

/* The ranks that `--ranks` started: their number, at most `most`. */
int runs_find_ranks(pid_t launcher, pid_t *ranks, int most);

/* Copies a tokenizer.json with the IDs of two tokens of one letter swapped. */
void runs_swap_ids(const char *from, const char *to, char a, char b);

/* Checks that all files whose names contain name_part have the same bytes in both folders. */
void runs_check_same_files(const char *a, const char *b, const char *name_part);

/* Checks that metrics.jsonl is the same except for times and memory. */
void runs_check_same_metrics(const char *dump_a, const char *dump_b);
/* Checks that it has the same steps, and losses that differ by the tolerance at most. */
void runs_check_close_losses(const char *dump_a, const char *dump_b, double tolerance);

/* The last value of a key in metrics.jsonl. */
double runs_metric(const char *dump_folder, const char *key);

/* Copies the program under test to `path`, with another build ID. */
void runs_copy_other_build(const char *path);
