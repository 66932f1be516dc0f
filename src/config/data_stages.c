// SPDX-License-Identifier: Apache-2.0
#include "config/data_stages.h"

#include "config/batch_ramp.h"

#include <stdlib.h>
#include <string.h>

size_t data_stages_count(const struct config *c) { return c->data.num_stages + 1; }

/* Sets the keys that the stage changes. */
static void apply(const struct stage_config *s, struct config *c)
{
    for (size_t i = 0; i < s->weights.count && i < c->data.num_sources; i++)
        c->data.sources[i].weight = s->weights.items[i];
    if (s->seq_len) c->training.seq_len = s->seq_len;
    if (s->local_batch_size) c->training.local_batch_size = s->local_batch_size;
    if (s->global_batch_size) c->training.global_batch_size = s->global_batch_size;
    if (s->attn_mask_type == STAGE_MASK_causal) c->model.attn_mask_type = ATTN_MASK_causal;
    if (s->attn_mask_type == STAGE_MASK_block_causal)
        c->model.attn_mask_type = ATTN_MASK_block_causal;
}

/* Rows and tokens of the run at the end of a stage. */
struct run_position {
    int64_t rows, tokens;
};

static int64_t limited_product(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

/* When the stage `next` begins, which follows one of that configuration, begun after `begin`
 * steps. */
static int64_t find_end(const struct data_stage *s, const struct stage_config *next,
                        const struct mesh *mesh, struct run_position *at)
{
    const struct batch_ramp r =
        batch_ramp_of(&s->config.training, config_step_rows(&s->config, mesh));
    int64_t row = s->config.training.seq_len, end = next->at_step;
    if (next->at_tokens) {
        int64_t left = next->at_tokens > at->tokens ? next->at_tokens - at->tokens : 0;
        end = s->begin + batch_ramp_steps_to(&r, at->rows, at->rows + left / row + !!(left % row));
    }
    int64_t rows = end > s->begin ? batch_ramp_advance(&r, at->rows, end - s->begin) : at->rows;
    int64_t tokens = limited_product(rows - at->rows, row);
    at->tokens = tokens > INT64_MAX - at->tokens ? INT64_MAX : at->tokens + tokens;
    at->rows = rows;
    return end;
}

static void open_stage(struct data_stage *s, const struct config *c, const struct mesh *mesh,
                       size_t index)
{
    size_t count = c->data.num_stages, bytes = c->data.num_sources * sizeof *c->data.sources;
    struct run_position at = {0};
    *s = (struct data_stage){.config = *c, .end = c->training.steps};
    s->config.data.sources = heap(bytes);
    if (bytes) memcpy(s->config.data.sources, c->data.sources, bytes);
    s->config.data.stages = NULL, s->config.data.num_stages = 0;
    for (size_t i = 0; i < index; i++) {
        s->begin = find_end(s, &c->data.stages[i], mesh, &at);
        apply(&c->data.stages[i], &s->config);
    }
    if (index < count) {
        int64_t end = find_end(s, &c->data.stages[index], mesh, &at);
        if (end < s->end) s->end = end;
    }
}

void data_stages_close(struct data_stage *s)
{
    free(s->config.data.sources);
    *s = (struct data_stage){0};
}

size_t data_stages_find(const struct config *c, const struct mesh *mesh, int64_t steps)
{
    size_t found = 0;
    for (size_t i = 1; i < data_stages_count(c); i++) {
        struct data_stage s;
        open_stage(&s, c, mesh, i);
        if (s.begin <= steps) found = i;
        data_stages_close(&s);
    }
    return found;
}

int64_t data_stages_advance(const struct config *c, const struct mesh *mesh, int64_t step,
                            int64_t rows, int64_t until)
{
    for (size_t i = 0; i < data_stages_count(c) && step < until; i++) {
        struct data_stage s;
        open_stage(&s, c, mesh, i);
        const struct batch_ramp r =
            batch_ramp_of(&s.config.training, config_step_rows(&s.config, mesh));
        int64_t end = until < s.end || i + 1 == data_stages_count(c) ? until : s.end;
        if (end > step) rows = batch_ramp_advance(&r, rows, end - step), step = end;
        data_stages_close(&s);
    }
    return rows;
}

/* Megatron-LM's order depends on the number of samples, which is that of the whole run. */
void data_stages_open(struct data_stage *s, const struct config *c, const struct mesh *mesh,
                      size_t index)
{
    open_stage(s, c, mesh, index);
    if (c->data.order == ORDER_megatron && c->data.num_stages && !c->data.samples)
        s->config.data.samples = data_stages_advance(c, mesh, 0, 0, c->training.steps);
}

static enum status check_stage(const struct config *c, size_t i)
{
    const struct stage_config *s = &c->data.stages[i];
    double sum = 0;
    if (!s->at_step == !s->at_tokens)
        FAIL(CONFIG, "data.stage.%zu: set either at_step or at_tokens", i);
    for (size_t k = 0; k < s->weights.count; k++) sum += s->weights.items[k];
    if (s->weights.count && s->weights.count != c->data.num_sources)
        FAIL(CONFIG,
             "data.stage.%zu.weights: expected %zu weights, one for each [[data.source]], "
             "got %zu",
             i, c->data.num_sources, s->weights.count);
    if (s->weights.count && !(sum > 0))
        FAIL(CONFIG, "data.stage.%zu.weights: at least one must be greater than 0", i);
    if (c->data.order == ORDER_megatron && (s->weights.count || s->seq_len))
        FAIL(CONFIG,
             "data.stage.%zu: data.order = \"megatron\" has one order of samples for the "
             "whole run: weights and seq_len cannot change",
             i);
    if (c->data.sampler != SAMPLER_single && (s->local_batch_size || s->global_batch_size))
        FAIL(CONFIG,
             "data.stage.%zu: data.sampler = \"%s\" depends on the batch size, which cannot change",
             i, data_sampler_word(c->data.sampler));
    bool packs = c->data.packing == PACKING_best_fit;
    if (packs && (s->weights.count || s->seq_len || s->attn_mask_type == STAGE_MASK_causal))
        FAIL(CONFIG,
             "data.stage.%zu: data.packing = \"best_fit\" packs documents for the whole run: "
             "weights, seq_len and attn_mask_type cannot change",
             i);
    return STATUS_OK;
}

enum status data_stages_check(const struct config *c, const struct mesh *mesh)
{
    const struct checkpoint_config *k = &c->checkpoint;
    int64_t before = 0;
    if (c->data.num_stages && (!k->enable || k->load_only))
        FAIL(CONFIG, "[[data.stage]] requires checkpoint.enable = true and checkpoint.load_only "
                     "= false: a stage begins from a checkpoint");
    for (size_t i = 0; i < c->data.num_stages; i++) {
        struct data_stage s;
        TRY(check_stage(c, i));
        data_stages_open(&s, c, mesh, i + 1);
        int64_t begin = s.begin;
        data_stages_close(&s);
        if (begin <= before)
            FAIL(CONFIG,
                 "data.stage.%zu begins after step %lld: it must begin after the stage before, "
                 "which begins after step %lld",
                 i, (long long)begin, (long long)before);
        before = begin;
    }
    return STATUS_OK;
}

void data_stages_describe(const struct data_stage *s, const struct mesh *mesh, struct text *out)
{
    const struct config *c = &s->config;
    double total = 0;
    text_addf(out, "rows of %lld tokens, %lld per step", (long long)c->training.seq_len,
              (long long)config_step_rows(c, mesh));
    for (size_t i = 0; i < c->data.num_sources; i++) total += c->data.sources[i].weight;
    for (size_t i = 0; i < c->data.num_sources; i++) {
        const struct source_config *source = &c->data.sources[i];
        text_addf(out, "%s%.3g ", i ? ", " : "; ", source->weight / total);
        text_adds(out, data_config_label(source));
    }
}
