// SPDX-License-Identifier: Apache-2.0
#include "runs/run_cell.h"

#include "base/closest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum run_column {
#define X(name, text) COLUMN_##name,
    RUN_COLUMNS(X)
#undef X
        NUM_RUN_COLUMNS
};

static const char *const column_names[] = {
#define X(name, text) #name,
    RUN_COLUMNS(X)
#undef X
};

bool run_cell_parse_number(const char *text, double *number)
{
    char *end;
    if (!*text || text[strspn(text, "+-.0123456789eE_")]) return false;
    *number = strtod(text, &end);
    return !*end && isfinite(*number);
}

static struct run_cell text_cell(const char *text)
{
    struct run_cell c = {.kind = text ? RUN_CELL_text : RUN_CELL_none, .text = text};
    if (text && run_cell_parse_number(text, &c.number)) c.kind = RUN_CELL_number;
    return c;
}

static struct run_cell number_cell(bool is_known, double number)
{
    return (struct run_cell){.kind = is_known ? RUN_CELL_number : RUN_CELL_none, .number = number};
}

static struct run_cell metric_cell(const struct run_folder *r, const char *key)
{
    const struct run_series *s = run_metrics_find(&r->metrics, key);
    bool has = s && s->count;
    return number_cell(has, has ? s->values[s->count - 1] : NAN);
}

static struct run_cell best_cell(const struct run_folder *r)
{
    double best = NAN;
    int64_t step;
    bool has = run_metrics_least(&r->metrics, "validation_loss", &best, &step);
    return number_cell(has, best);
}

static struct run_cell built_in_cell(const struct run_folder *r, enum run_column column,
                                     double now_s)
{
    double eta_s = r->state == RUN_running ? run_folder_eta_s(r) : NAN;
    size_t n = r->num_checkpoints;
    switch (column) {
    case COLUMN_run: return (struct run_cell){.kind = RUN_CELL_text, .text = r->title};
    case COLUMN_state:
        return (struct run_cell){.kind = RUN_CELL_text, .text = run_state_name(r->state)};
    case COLUMN_step: return number_cell(r->metrics.last_step >= 0, (double)r->metrics.last_step);
    case COLUMN_steps: return number_cell(r->last_step > 0, (double)r->last_step);
    case COLUMN_loss: return metric_cell(r, "loss");
    case COLUMN_best_validation: return best_cell(r);
    case COLUMN_tokens: return metric_cell(r, "tokens_seen");
    case COLUMN_age: return number_cell(r->written_s > 0, fmax(now_s - r->written_s, 0));
    case COLUMN_eta: return number_cell(isfinite(eta_s), eta_s);
    case COLUMN_checkpoint: return number_cell(n > 0, n ? (double)r->checkpoints[n - 1].step : 0);
    case COLUMN_ranks: return number_cell(run_folder_ranks(r) > 0, (double)run_folder_ranks(r));
    case COLUMN_error:
        return (struct run_cell){r->error ? RUN_CELL_text : RUN_CELL_none, 0, r->error};
    case NUM_RUN_COLUMNS: break;
    }
    BUG_IF(true);
    return (struct run_cell){0};
}

struct run_cell run_cell_of(const struct run_folder *r, const char *column, double now_s)
{
    for (int i = 0; i < NUM_RUN_COLUMNS; i++)
        if (!strcmp(column, column_names[i])) return built_in_cell(r, (enum run_column)i, now_s);
    const char *setting = run_settings_find(&r->settings, column);
    return setting ? text_cell(setting) : metric_cell(r, column);
}

static bool has_column(const struct run_folder *r, const char *column)
{
    return run_settings_find(&r->settings, column) || run_metrics_find(&r->metrics, column);
}

/* A key without its section counts as equal. */
static void offer(struct closest *c, const char *name)
{
    const char *dot = strrchr(name, '.');
    closest_offer(c, name);
    if (dot && !strcmp(dot + 1, c->word)) c->name = name, c->cost = 0;
}

enum status run_cell_check_column(const struct run_list *l, const char *column)
{
    struct closest c = closest_to(column);
    for (int i = 0; i < NUM_RUN_COLUMNS; i++) {
        if (!strcmp(column, column_names[i])) return STATUS_OK;
        offer(&c, column_names[i]);
    }
    for (size_t i = 0; i < l->count; i++)
        if (has_column(&l->runs[i], column)) return STATUS_OK;
    for (size_t i = 0; i < l->count && i < 10; i++) {
        const struct run_folder *r = &l->runs[i];
        for (size_t k = 0; k < r->settings.count; k++) offer(&c, r->settings.all[k].key);
        for (size_t k = 0; k < r->metrics.num_series; k++) offer(&c, r->metrics.series[k].key);
    }
    if (c.name) FAIL(USAGE, "unknown column %s; did you mean %s?", column, c.name);
    FAIL(USAGE,
         "unknown column %s; expected run, state, loss, ..., a key of config.toml or of "
         "metrics.jsonl",
         column);
}
