// SPDX-License-Identifier: Apache-2.0
#include "tasks/task_list.h"

#include "base/file.h"
#include "base/log.h"
#include "hub/hub.h"

#include <stdlib.h>
#include <string.h>

const char *task_list_path(const char *word)
{
    const char *equals = strchr(word, '='), *slash = strchr(word, '/');
    return equals && equals > word && !(slash && slash < equals) ? equals + 1 : word;
}

/* NAME, or the file's name up to its first dot; heap. */
static char *name_of(const char *word)
{
    const char *path = task_list_path(word), *file = file_name(path);
    if (path != word) return heap_string(word, (size_t)(path - word) - 1);
    return heap_string(file, strcspn(file, "."));
}

static enum status open_task(struct task_list *l, const char *word, const struct task_options *o,
                             const struct tokenizer *tok)
{
    struct task_options here = *o;
    char *name = name_of(word), *path = NULL;
    enum status st = STATUS_OK;
    for (size_t i = 0; i < l->count; i++)
        if (!strcmp(l->tasks[i].name, name))
            FAIL_OUT(CONFIG, "%s: two tasks are named \"%s\"; rename one with NAME=FILE", word,
                     name);
    TRY_OUT(hub_find(task_list_path(word), &path));
    here.name = name, here.path = path;
    TRY_OUT(task_open(&l->tasks[l->count], &here, tok));
    l->count++;
out:
    free(name), free(path);
    return st;
}

enum status task_list_open(struct task_list *l, const struct option_list *words,
                           const struct task_options *o, const struct tokenizer *tok)
{
    size_t most = 0;
    enum status st = STATUS_OK;
    *l = (struct task_list){.tasks = heap((words->count + 1) * sizeof *l->tasks)};
    for (size_t i = 0; i < words->count; i++) {
        TRY_OUT(open_task(l, words->items[i], o, tok));
        if (l->tasks[i].num_requests > most) most = l->tasks[i].num_requests;
    }
    l->scores.log_likelihoods = heap((most + 1) * sizeof *l->scores.log_likelihoods);
    l->scores.misses = heap((most + 1) * sizeof *l->scores.misses);
out:
    if (st) task_list_close(l);
    return st;
}

void task_list_close(struct task_list *l)
{
    for (size_t i = 0; i < l->count; i++) task_close(&l->tasks[i]);
    free(l->tasks), free(l->scores.log_likelihoods), free(l->scores.misses);
    *l = (struct task_list){0};
}

int task_list_longest_row(const struct task_list *l)
{
    int longest = 1;
    for (size_t i = 0; i < l->count; i++)
        for (size_t r = 0; r < l->tasks[i].num_requests; r++) {
            int tokens = task_row_tokens(&l->tasks[i], &l->tasks[i].requests[r]);
            if (tokens > longest) longest = tokens;
        }
    return longest;
}

void task_list_warn(const struct task_list *l, const struct task_options *o)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->tasks[i].num_truncated)
            log_line(LOG_WARN,
                     "task %s: %zu of %zu requests are longer than %d tokens: their beginning is "
                     "left out",
                     l->tasks[i].name, l->tasks[i].num_truncated, l->tasks[i].num_requests,
                     o->max_tokens);
}

enum status task_list_find_mask(const struct tokenizer *tok, const char *token, int32_t *mask)
{
    *mask = tokenizer_special(tok, token);
    if (*mask < 0)
        FAIL(CONFIG, "objective.mask_token = \"%s\": not a special token of the tokenizer", token);
    return STATUS_OK;
}
