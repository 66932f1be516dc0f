/* task_list.h -- the tasks of one evaluation, as users write them: FILE or NAME=FILE.  The default
 * name is that of the file: hellaswag.jsonl is "hellaswag". */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/option.h"
#include "tasks/task_result.h"

struct task_list {
    struct task *tasks; /* owned */
    size_t count;
    struct task_scores scores; /* arrays for the task with the most requests; owned */
};

/* FILE in "FILE" or "NAME=FILE", where NAME has no slash; FILE may be an hf:// or s3:// path. */
const char *task_list_path(const char *word);

/* Opens the tasks; name and path of `o` are ignored.  CONFIG: two tasks have the same name.  Also
 * the errors of task_open. */
enum status task_list_open(struct task_list *l, const struct option_list *words,
                           const struct task_options *o, const struct tokenizer *tok);
void task_list_close(struct task_list *l);
/* Warns about tasks with requests that lost their beginning. */
void task_list_warn(const struct task_list *l, const struct task_options *o);
/* Finds the ID of the mask token, which scoring a masked model requires.  CONFIG: the tokenizer has
 * no such token. */
enum status task_list_find_mask(const struct tokenizer *tok, const char *token, int32_t *mask);
/* Tokens of the longest row. */
int task_list_longest_row(const struct task_list *l);
