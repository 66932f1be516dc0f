/* prompt_list.h -- `llamero generate --prompts FILE`: texts after many prompts, decoded together
 * and printed as JSON lines. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "infer/text_batch.h"

/* The prompts of a file: the key "prompt" of each line of a .jsonl file, otherwise its lines; empty
 * lines are skipped. */
struct prompt_list {
    char **all;
    size_t count, longest; /* bytes of the longest one */
};

/* MISSING, IO; DATA: no prompt at all, a line that is not an object with a "prompt", a NUL; the
 * message has file and line. */
enum status prompt_list_read(struct prompt_list *p, const char *path);
void prompt_list_release(struct prompt_list *p);

/* Prints `copies` texts of each prompt, with the seeds g->sampling.seed, + 1, ... */
enum status prompt_list_generate(const struct prompt_list *p, struct generation *g, int64_t copies,
                                 const char *const *stops, int num_stops);
