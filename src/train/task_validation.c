// SPDX-License-Identifier: Apache-2.0
#include "train/task_validation.h"

#include "train/task_evaluator.h"

enum status task_validation_open(struct task_validation *v, const struct config *c,
                                 const struct tokenizer *tok, bool log)
{
    bool masked = c->objective.name == OBJECTIVE_masked;
    struct task_options o = {.limit = c->validation.task_items,
                             .max_tokens = trainer_validation_tokens(c),
                             .masked = masked};
    v->mask = -1;
    if (!c->validation.enable || !c->validation.tasks.count) return STATUS_OK;
    if (!tok) FAIL(CONFIG, "validation.tasks requires data.tokenizer");
    if (masked) TRY(task_list_find_mask(tok, c->objective.mask_token, &v->mask));
    TRY_PREFIX(task_list_open(&v->tasks, &c->validation.tasks, &o, tok), "validation.tasks");
    if (log) task_list_warn(&v->tasks, &o);
    return STATUS_OK;
}

void task_validation_close(struct task_validation *v) { task_list_close(&v->tasks); }

enum status task_validation_run(struct task_validation *v, struct trainer *t,
                                struct metrics *metrics)
{
    for (size_t i = 0; i < v->tasks.count; i++) {
        const struct task *task = &v->tasks.tasks[i];
        TRY(task_evaluator_run(&t->evaluator, task, v->mask, &t->step, &v->tasks.scores));
        if (v->tasks.scores.stopped) return STATUS_OK;
        struct task_result r = task_result_compute(task, &v->tasks.scores);
        if (metrics) metrics_task(metrics, t->steps_done, task, &r);
    }
    return STATUS_OK;
}
