/* task_format.h -- evaluation data sets, in the columns that they are published with, as questions
 * to a language model.
 *
 * Prompts  Those of lm-evaluation-harness 0.4 without examples (0-shot), so that scores compare
 *          with published ones: arc_easy and arc_challenge, hellaswag, piqa, winogrande, mmlu,
 *          lambada_openai and lambada_standard.
 * Source   EleutherAI/lm-evaluation-harness at 4e7e0d47, lm_eval/tasks/ and api/task.py. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "base/option.h"

struct task_choice {
    struct text context, continuation;
    int64_t length; /* characters of the answer, for acc_norm */
};

/* One row.  Its memory is reused for the next. */
struct task_question {
    struct task_choice *choices; /* owned */
    int num_choices, capacity;
    int gold; /* the correct choice */
};
void task_format_release_question(struct task_question *q);

enum task_metric {
    TASK_ACC = 1,        /* the most likely choice is the correct one */
    TASK_ACC_NORM = 2,   /* the same with log-likelihoods divided by `length` */
    TASK_GREEDY = 4,     /* acc: greedy decoding yields the continuation */
    TASK_PERPLEXITY = 8, /* of the whole continuation (LAMBADA) */
};

struct task_format {
    const char *name;
    unsigned metrics;       /* of enum task_metric */
    const char *columns[6]; /* by which the format is detected; the rest are NULL */
    /* Fills in the question.  DATA: a column has another type, or the answer is missing. */
    enum status (*read)(const struct json *row, struct task_question *q);
};

#define TASK_FORMATS (task_format_id, TASK_FORMAT, arc, hellaswag, piqa, winogrande, mmlu, lambada)
OPT_ENUM_ENUM(TASK_FORMATS)
extern const struct task_format task_formats[]; /* by enum task_format_id */

/* The format whose columns the row has; NULL: none. */
const struct task_format *task_format_detect(const struct json *row);
