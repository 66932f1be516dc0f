// SPDX-License-Identifier: Apache-2.0
#include "tasks/task_result.h"

#include <math.h>
#include <string.h>

/* The first of the most likely choices; lengths NULL: without normalization. */
static int choose(const struct task_item *item, const double *log_likelihoods,
                  const int64_t *lengths)
{
    double best = -INFINITY;
    int choice = 0;
    for (int i = 0; i < item->num_choices; i++) {
        size_t request = item->first_request + (size_t)i;
        double score = log_likelihoods[request] / (lengths ? (double)lengths[request] : 1);
        if (score > best) best = score, choice = i;
    }
    return choice;
}

enum status task_result_check(const struct task *t, const struct task_scores *s)
{
    for (size_t i = 0; i < t->num_requests; i++)
        if (!isfinite(s->log_likelihoods[i]))
            FAIL(
                DIVERGED,
                "%s: the log-likelihood of request %zu is %g: expected a finite value; the model's "
                "activations overflow: try training.mixed_precision_param=float32, or another "
                "checkpoint",
                t->name, i, isnan(s->log_likelihoods[i]) ? fabs(NAN) : s->log_likelihoods[i]);
    return STATUS_OK;
}

struct task_result task_result_compute(const struct task *t, const struct task_scores *s)
{
    struct task_result r = {.items = (int64_t)t->num_items};
    bool greedy = t->format->metrics & TASK_GREEDY;
    for (size_t i = 0; i < t->num_items; i++) {
        const struct task_item *item = &t->items[i];
        size_t gold = item->first_request + (size_t)item->gold;
        bool chosen = choose(item, s->log_likelihoods, NULL) == item->gold;
        r.correct += greedy ? !s->misses[gold] : chosen;
        r.correct_norm += choose(item, s->log_likelihoods, t->lengths) == item->gold;
        r.log_likelihood_sum += s->log_likelihoods[gold];
    }
    return r;
}

static struct task_value accuracy(const char *name, int64_t correct, int64_t items)
{
    double acc = (double)correct / (double)items;
    double error = items > 1 ? sqrt(acc * (1 - acc) / (double)(items - 1)) : NAN;
    return (struct task_value){name, acc, error};
}

int task_result_values(const struct task *t, const struct task_result *r,
                       struct task_value values[TASK_MAX_VALUES])
{
    unsigned metrics = t->format->metrics;
    int count = 0;
    if (metrics & TASK_ACC) values[count++] = accuracy("acc", r->correct, r->items);
    if (metrics & TASK_ACC_NORM) values[count++] = accuracy("acc_norm", r->correct_norm, r->items);
    if (metrics & TASK_PERPLEXITY)
        values[count++] =
            (struct task_value){"perplexity", exp(-r->log_likelihood_sum / (double)r->items), NAN};
    return count;
}

void task_result_write_json(const struct task *t, const struct task_result *r,
                            struct json_writer *w)
{
    struct task_value values[TASK_MAX_VALUES];
    int count = task_result_values(t, r, values);
    json_write_string(w, "task", t->name);
    json_write_string(w, "format", t->format->name);
    json_write_int(w, "items", r->items);
    for (int i = 0; i < count; i++) {
        json_write_format(w, values[i].name, "%.9g", values[i].value);
        if (!strcmp(values[i].name, "perplexity")) continue;
        struct text name = {0};
        text_addf(&name, "%s_stderr", values[i].name);
        json_write_format(w, name.data, "%.9g", values[i].error);
        text_release(&name);
    }
}

void task_result_write_items(const struct task *t, const struct task_scores *s, struct text *out)
{
    for (size_t i = 0; i < t->num_items; i++) {
        const struct task_item *item = &t->items[i];
        struct json_writer w = {.text = out};
        json_begin_object(&w, NULL, JSON_INLINE);
        json_write_string(&w, "task", t->name);
        json_write_int(&w, "item", (int64_t)i);
        json_write_int(&w, "gold", item->gold);
        json_write_int(&w, "choice", choose(item, s->log_likelihoods, NULL));
        if (t->format->metrics & TASK_ACC_NORM)
            json_write_int(&w, "choice_norm", choose(item, s->log_likelihoods, t->lengths));
        json_begin_array(&w, "log_likelihoods", JSON_INLINE);
        for (int c = 0; c < item->num_choices; c++)
            json_write_real(&w, NULL, s->log_likelihoods[item->first_request + (size_t)c]);
        json_end_array(&w);
        json_begin_array(&w, "greedy", JSON_INLINE);
        for (int c = 0; c < item->num_choices; c++)
            json_write_bool(&w, NULL, !s->misses[item->first_request + (size_t)c]);
        json_end_array(&w);
        json_end_object(&w);
        json_finish(&w);
        text_adds(out, "\n");
    }
}
