/* runs.h -- whole runs of the program, for system tests: a corpus, a configuration, comparisons. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test.h"

#include "base/file.h"
#include "base/json.h"

/* English-looking text, the same for the same size; *.jsonl gets one document a line. */
void runs_write_corpus(const char *path, size_t bytes);

/* A tiny run's configuration: bytes tokenizer, 2 blocks of width 32, corpus.txt beside it. */
void runs_write_config(const char *path, const char *corpus);

/* train CONFIG job.dump_folder=FOLDER and the words of `settings`, separated by spaces. */
int runs_train(const char *config, const char *dump_folder, const char *settings, struct text *err);

/* The same on so many ranks of a launcher; 1: without one; -1: there is none here. */
int runs_train_ranks(int ranks, const char *config, const char *dump_folder, const char *settings,
                     struct text *err);

/* Same bytes in every file of the two folders whose name matches neither state nor time. */
void runs_check_same_files(const char *a, const char *b, const char *name_part);

/* Same metrics.jsonl but for times and memory. */
void runs_check_same_metrics(const char *dump_a, const char *dump_b);

/* Last line's value of a key in metrics.jsonl. */
double runs_metric(const char *dump_folder, const char *key);
