/* task_list.h -- the tasks of one evaluation, as users name them: FILE or NAME=FILE.  Without a
 * name a task is called after its file: hellaswag.jsonl is "hellaswag". */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/option.h"
#include "tasks/task_result.h"

struct task_list {
    struct task *tasks; /* owned */
    size_t count;
    struct task_scores scores; /* arrays for the task with most requests; owned */
};

/* FILE of the words "FILE" and "NAME=FILE", where NAME has no slash; it may be an hf:// path. */
const char *task_list_path(const char *word);

/* Opens the tasks; of `o` name and path are ignored.  CONFIG: two tasks have the same name.  The
 * other errors are those of task_open. */
enum status task_list_open(struct task_list *l, const struct option_list *words,
                           const struct task_options *o, const struct tokenizer *tok);
void task_list_close(struct task_list *l);
/* Warns about tasks with requests whose beginning was left out. */
void task_list_warn(const struct task_list *l, const struct task_options *o);
/* The ID of the mask token, which scoring a masked model requires.  CONFIG: it has none. */
enum status task_list_find_mask(const struct tokenizer *tok, const char *token, int32_t *mask);
/* Tokens of the longest row. */
int task_list_longest_row(const struct task_list *l);
