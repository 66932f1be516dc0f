// SPDX-License-Identifier: Apache-2.0
#include "parallel/stages.h"

#include "parallel/suggest.h"

/* Layers to divide, as `split` counts them. */
static int64_t num_layers(const struct stages *s)
{
    return s->split == SPLIT_first ? (int64_t)s->blocks + s->first_less + s->last_less : s->blocks;
}

/* The least number of layers per stage that leaves no stage between first and last empty. */
static int64_t min_layers(const struct stages *s)
{
    int64_t ends = s->first_less > s->last_less ? s->first_less : s->last_less;
    return s->split == SPLIT_first && ends > 1 ? ends : 1;
}

static bool is_valid_degree(int64_t pp, const void *context)
{
    const struct stages *s = context;
    int64_t stages = pp * s->chunks;
    return stages == 1 || num_layers(s) / stages >= min_layers(s);
}

static enum status check_cuts(const struct stages *s)
{
    int stages = s->pp * s->chunks;
    if (s->num_cuts != stages - 1)
        FAIL(CONFIG,
             "parallelism.pipeline_parallel_split_points: expected %d blocks for %d stages, got %d",
             stages - 1, stages, s->num_cuts);
    for (int i = 0; i < s->num_cuts; i++) {
        int min = i ? s->cuts[i - 1] + 1 : 0, max = s->blocks - 1 - (s->num_cuts - i);
        if (s->cuts[i] < min || s->cuts[i] > max)
            FAIL(CONFIG,
                 "parallelism.pipeline_parallel_split_points: number %d is after block %d: must be "
                 "between %d and %d",
                 i + 1, s->cuts[i], min, max);
    }
    return STATUS_OK;
}

static enum status check(const struct stages *s)
{
    if (s->split == SPLIT_cuts) return check_cuts(s);
    if (is_valid_degree(s->pp, s)) return STATUS_OK;
    struct suggestion suggestion = suggest_values(s->pp, 1, num_layers(s), is_valid_degree, s);
    if (s->split == SPLIT_last)
        FAIL(CONFIG,
             "parallelism.pipeline_parallel_degree = %d with %d stage%s per rank leaves a stage "
             "without any of the model.n_layers = %d blocks%s",
             s->pp, s->chunks, s->chunks == 1 ? "" : "s", s->blocks, suggestion.text);
    FAIL(CONFIG,
         "parallelism.pipeline_parallel_degree = %d with %d stage%s per rank leaves stages with "
         "fewer than %lld layers: model.n_layers = %d, the embedding counts as %d, the head as "
         "%d%s",
         s->pp, s->chunks, s->chunks == 1 ? "" : "s", (long long)min_layers(s), s->blocks,
         s->first_less, s->last_less, suggestion.text);
}

enum status stages_split(const struct stages *s, int *begin)
{
    TRY(check(s));
    if (!begin) return STATUS_OK;
    int stages = s->pp * s->chunks, each = (int)(num_layers(s) / stages);
    int remainder = (int)(num_layers(s) % stages);
    begin[0] = 0;
    for (int i = 0; i + 1 < stages; i++) {
        bool one_more = s->split == SPLIT_first ? i < remainder : i >= stages - remainder;
        int count = each + one_more - (s->split == SPLIT_first && i == 0 ? s->first_less : 0);
        begin[i + 1] = s->split == SPLIT_cuts ? s->cuts[i] + 1 : begin[i] + count;
    }
    begin[stages] = s->blocks;
    return STATUS_OK;
}

struct chunk_context {
    const struct stages *stages;
    bool interleaved;
};

static bool makes_chunks(int64_t layers_per_stage, const void *context)
{
    const struct chunk_context *c = context;
    int64_t stages = (num_layers(c->stages) + layers_per_stage - 1) / layers_per_stage;
    return stages % c->stages->pp == 0 && (stages > c->stages->pp) == c->interleaved;
}

enum status stages_chunks(const struct stages *s, enum schedule_kind kind, int layers_per_stage,
                          int *chunks)
{
    struct chunk_context c = {.stages = s, .interleaved = kind == SCHEDULE_Interleaved1F1B};
    *chunks = c.interleaved ? 2 : 1;
    if (layers_per_stage < 1) return STATUS_OK;
    int64_t stages = (num_layers(s) + layers_per_stage - 1) / layers_per_stage;
    if (!makes_chunks(layers_per_stage, &c))
        FAIL(CONFIG,
             "parallelism.pipeline_parallel_layers_per_stage = %d makes %lld stages of %lld layers "
             "(embedding and head counted), but the schedule %s over %d ranks requires %s%s",
             layers_per_stage, (long long)stages, (long long)num_layers(s),
             schedule_kind_word(kind), s->pp,
             c.interleaved ? "the same number, 2 or more, per rank" : "one per rank",
             suggest_values(layers_per_stage, 1, num_layers(s), makes_chunks, &c).text);
    *chunks = (int)(stages / s->pp);
    return STATUS_OK;
}
