/* task_session.h -- `eval --task`: scores a model on published data sets (tasks/task.h). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "infer/loaded_model.h"
#include "tasks/task_list.h"
#include "train/task_evaluator.h"

/* The caller sets the first fields; the rest is zero. */
struct task_session {
    struct option_list words;    /* FILE or NAME=FILE; borrowed */
    int format;                  /* of all tasks, in TASK_FORMATS; -1: detect it */
    const char *per_item;        /* .jsonl file for the log-likelihoods of each item; "": none */
    int64_t limit;               /* items of each task; 0: all */
    int rows;                    /* per batch and rank */
    struct loaded_model *loaded; /* borrowed; before task_session_run */
    struct task_list tasks;
    struct evaluator evaluator;
    struct arena run;
    struct text items; /* lines of per_item */
};

/* USAGE: a flag's value is wrong. */
enum status task_session_check(const struct task_session *s);
/* Evaluates all tasks, and prints a table or one JSON object on rank 0.  CONFIG: the model has no
 * tokenizer, or a masked model no mask token.  Other errors: those of task_open.  Collective. */
enum status task_session_run(struct task_session *s, bool json);
void task_session_release(struct task_session *s);
