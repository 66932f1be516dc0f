/* task_result.h -- scores of a task: accuracies with standard errors, and perplexity.
 *
 * Rules    As in lm-evaluation-harness: of equally likely choices the first counts.  acc_norm
 *          divides each log-likelihood by the number of characters of the answer.  The standard
 *          error of an accuracy is sqrt(acc (1 - acc) / (items - 1)).
 * Ranks    Inputs are those of all requests; every rank computes the same. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tasks/task.h"

/* What the model gives for each request. */
struct task_scores {
    double *log_likelihoods; /* nats; of a masked model pseudo-log-likelihoods */
    int64_t *misses;         /* tokens of the continuation that are not the most likely ones */
    bool stopped;            /* by a signal: the scores are incomplete */
};

struct task_result {
    int64_t items, correct, correct_norm;
    double log_likelihood_sum; /* of the correct choices */
};

/* A score under lm-evaluation-harness's name.  error NaN: none. */
struct task_value {
    const char *name;    /* "acc", "acc_norm", "perplexity" */
    double value, error; /* standard error */
};
enum { TASK_MAX_VALUES = 3 };

/* DIVERGED: a log-likelihood is not finite, so that no choice is the most likely one. */
enum status task_result_check(const struct task *t, const struct task_scores *s);
struct task_result task_result_compute(const struct task *t, const struct task_scores *s);
/* Fills `values`; returns how many. */
int task_result_values(const struct task *t, const struct task_result *r,
                       struct task_value values[TASK_MAX_VALUES]);
/* Appends the members of an object: task, format, items, and each value with its stderr. */
void task_result_write_json(const struct task *t, const struct task_result *r,
                            struct json_writer *w);
/* Appends a line of JSON for each item: its log-likelihoods, choices and correct choice. */
void task_result_write_items(const struct task *t, const struct task_scores *s, struct text *out);
