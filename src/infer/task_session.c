// SPDX-License-Identifier: Apache-2.0
#include "infer/task_session.h"

#include "base/file.h"
#include "hub/hub.h"
#include "tensor/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum status task_session_check(const struct task_session *s)
{
    if (!s->words.count && (s->limit || s->format >= 0 || s->per_item[0]))
        FAIL(USAGE, "--limit, --task-format and --per-item require --task");
    return STATUS_OK;
}

/* Row lengths that the ranks can divide are multiples of this. */
static int row_unit(const struct task_session *s)
{
    int peers = s->loaded->machine.groups.of[GROUP_peers].size;
    return peers == 1 ? 1 : 2 * peers;
}

static enum status open_tasks(struct task_session *s, int32_t *mask)
{
    const struct loaded_model *l = s->loaded;
    const struct objective_config *objective = &l->config.objective;
    bool masked = objective->name == OBJECTIVE_masked;
    int max_tokens = l->model.max_tokens;
    struct task_options o = {.format = s->format < 0 ? NULL : &task_formats[s->format],
                             .limit = s->limit,
                             .max_tokens = max_tokens - max_tokens % row_unit(s),
                             .masked = masked};
    if (objective->name == OBJECTIVE_diffusion)
        FAIL(CONFIG,
             "%s is a diffusion model: --task requires a causal or masked one; evaluate its bound "
             "on "
             "DATA instead",
             l->folder);
    if (!l->tokenizer) FAIL(CONFIG, "%s: has no tokenizer; set --tokenizer", l->folder);
    if (masked) TRY(task_list_find_mask(l->tokenizer, objective->mask_token, mask));
    TRY(task_list_open(&s->tasks, &s->words, &o, l->tokenizer));
    if (!l->machine.world.rank) task_list_warn(&s->tasks, &o);
    return STATUS_OK;
}

static enum status size_forward(void *context)
{
    struct task_session *s = context;
    return task_evaluator_size(&s->evaluator, &s->loaded->step);
}

static enum status open_evaluator(struct task_session *s)
{
    struct loaded_model *l = s->loaded;
    int unit = row_unit(s), T = (task_list_longest_row(&s->tasks) + unit - 1) / unit * unit;
    loaded_model_warn_context(l, task_list_longest_row(&s->tasks));
    s->evaluator = (struct evaluator){
        .pipeline = loaded_model_pipeline(l),
        .readers = &l->machine.groups.of[GROUP_data],
        .contexts = &l->machine.groups.of[GROUP_cp],
        .peers = &l->machine.groups.of[GROUP_peers],
        .causal = l->config.objective.name == OBJECTIVE_causal,
    };
    evaluator_alloc(&s->evaluator, s->rows, T, &s->run);
    TRY(loaded_model_alloc_step(l, size_forward, s));
    size_t bytes = s->run.used;
    evaluator_release(&s->evaluator);
    TRY(arena_init(&s->run, bytes, queue_shared_allocator(l->machine.queue)));
    evaluator_alloc(&s->evaluator, s->rows, T, &s->run);
    return STATUS_OK;
}

static void print_result(const struct task *t, const struct task_result *r)
{
    struct task_value values[TASK_MAX_VALUES];
    int count = task_result_values(t, r, values);
    for (int i = 0; i < count; i++) {
        printf("%-24s %8lld  %-10s  %8.4f", t->name, (long long)r->items, values[i].name,
               values[i].value);
        if (isfinite(values[i].error)) printf("  %8.4f", values[i].error);
        printf("\n");
    }
}

static enum status report(struct task_session *s, const struct task_result *results, bool json)
{
    if (s->per_item[0]) TRY(file_write(s->per_item, s->items.data, s->items.len));
    if (!json) {
        printf("%-24s %8s  %-10s  %8s  %8s\n", "task", "items", "metric", "value", "stderr");
        for (size_t i = 0; i < s->tasks.count; i++) print_result(&s->tasks.tasks[i], &results[i]);
        return STATUS_OK;
    }
    struct text t = {0};
    struct json_writer w = {.text = &t};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_begin_array(&w, "tasks", JSON_INLINE);
    for (size_t i = 0; i < s->tasks.count; i++) {
        json_begin_object(&w, NULL, JSON_INLINE);
        task_result_write_json(&s->tasks.tasks[i], &results[i], &w);
        json_end_object(&w);
    }
    json_end_array(&w);
    json_end_object(&w);
    json_finish(&w);
    printf("%s\n", t.data);
    text_release(&t);
    return STATUS_OK;
}

static enum status run_tasks(struct task_session *s, int32_t mask, struct task_result *results)
{
    const struct comm *world = &s->loaded->machine.world;
    for (size_t i = 0; i < s->tasks.count; i++) {
        const struct task *t = &s->tasks.tasks[i];
        TRY(task_evaluator_run(&s->evaluator, t, mask, &s->loaded->step, &s->tasks.scores));
        if (s->tasks.scores.stopped)
            FAIL(REQUEUE, "stopped by a signal before the end of %s", t->name);
        TRY(comm_agree(world, world->rank ? STATUS_OK : task_result_check(t, &s->tasks.scores)));
        results[i] = task_result_compute(t, &s->tasks.scores);
        if (s->per_item[0]) task_result_write_items(t, &s->tasks.scores, &s->items);
    }
    return STATUS_OK;
}

enum status task_session_run(struct task_session *s, bool json)
{
    const struct comm *world = &s->loaded->machine.world;
    struct task_result *results = heap((s->words.count + 1) * sizeof *results);
    int32_t mask = -1;
    enum status st = STATUS_OK;
    for (size_t i = 0; i < s->words.count; i++)
        TRY_OUT(hub_fetch(task_list_path(s->words.items[i]), HUB_DATA, world));
    TRY_OUT(comm_agree(world, open_tasks(s, &mask)));
    TRY_OUT(comm_agree(world, open_evaluator(s)));
    TRY_OUT(run_tasks(s, mask, results));
    TRY_OUT(comm_agree(world, world->rank ? STATUS_OK : report(s, results, json)));
out:
    free(results);
    return st;
}

void task_session_release(struct task_session *s)
{
    evaluator_release(&s->evaluator);
    task_list_close(&s->tasks);
    arena_release(&s->run);
    text_release(&s->items);
}
