// SPDX-License-Identifier: Apache-2.0
#include "parallel/stages.h"

#include "parallel/nearest.h"

/* Layers that are counted. */
static int64_t layers(const struct stages *s)
{
    return s->split == SPLIT_first ? (int64_t)s->blocks + s->first_less + s->last_less : s->blocks;
}

/* The least that a stage must be so that none is short of blocks. */
static int64_t share(const struct stages *s)
{
    int64_t ends = s->first_less > s->last_less ? s->first_less : s->last_less;
    return s->split == SPLIT_first && ends > 1 ? ends : 1;
}

static bool divide(int64_t pp, const void *context)
{
    const struct stages *s = context;
    int64_t stages = pp * s->chunks;
    return stages == 1 || layers(s) / stages >= share(s);
}

static enum status check_cuts(const struct stages *s)
{
    int stages = s->pp * s->chunks;
    if (s->num_cuts != stages - 1)
        FAIL(CONFIG, "%d cuts of the blocks make %d stages, not the %d of the pipeline",
             s->num_cuts, s->num_cuts + 1, stages);
    for (int i = 0; i < s->num_cuts; i++) {
        int least = i ? s->cuts[i - 1] + 1 : 0, most = s->blocks - 1 - (s->num_cuts - i);
        if (s->cuts[i] < least || s->cuts[i] > most)
            FAIL(CONFIG, "cut %d of the pipeline is after block %d: %d to %d are possible", i + 1,
                 s->cuts[i], least, most);
    }
    return STATUS_OK;
}

static enum status check(const struct stages *s)
{
    if (s->split == SPLIT_cuts) return check_cuts(s);
    if (divide(s->pp, s)) return STATUS_OK;
    struct nearest near = nearest_find(s->pp, 1, layers(s), divide, s);
    if (s->split == SPLIT_last)
        FAIL(CONFIG,
             "parallelism.pipeline_parallel_degree = %d with %d stage%s a rank leaves a stage "
             "without any of model.n_layers = %d blocks%s",
             s->pp, s->chunks, s->chunks == 1 ? "" : "s", s->blocks, near.text);
    FAIL(CONFIG,
         "parallelism.pipeline_parallel_degree = %d with %d stage%s a rank leaves stages with less "
         "than %lld of the layers: model.n_layers = %d, the embedding counts as %d, the head as "
         "%d%s",
         s->pp, s->chunks, s->chunks == 1 ? "" : "s", (long long)share(s), s->blocks, s->first_less,
         s->last_less, near.text);
}

enum status stages_split(const struct stages *s, int *begin)
{
    TRY(check(s));
    if (!begin) return STATUS_OK;
    int stages = s->pp * s->chunks, each = (int)(layers(s) / stages);
    int rest = (int)(layers(s) % stages);
    begin[0] = 0;
    for (int i = 0; i + 1 < stages; i++) {
        bool one_more = s->split == SPLIT_first ? i < rest : i >= stages - rest;
        int count = each + one_more - (s->split == SPLIT_first && i == 0 ? s->first_less : 0);
        begin[i + 1] = s->split == SPLIT_cuts ? s->cuts[i] + 1 : begin[i] + count;
    }
    begin[stages] = s->blocks;
    return STATUS_OK;
}

struct chunking {
    const struct stages *stages;
    bool interleaved;
};

static bool makes_chunks(int64_t layers_per_stage, const void *context)
{
    const struct chunking *c = context;
    int64_t stages = (layers(c->stages) + layers_per_stage - 1) / layers_per_stage;
    return stages % c->stages->pp == 0 && (stages > c->stages->pp) == c->interleaved;
}

enum status stages_chunks(const struct stages *s, enum schedule_kind kind, int layers_per_stage,
                          int *chunks)
{
    struct chunking c = {.stages = s, .interleaved = kind == SCHEDULE_interleaved};
    *chunks = c.interleaved ? 2 : 1;
    if (layers_per_stage < 1) return STATUS_OK;
    int64_t stages = (layers(s) + layers_per_stage - 1) / layers_per_stage;
    if (!makes_chunks(layers_per_stage, &c))
        FAIL(CONFIG,
             "parallelism.pipeline_parallel_layers_per_stage = %d makes %lld stages of %lld layers "
             "(embedding and head counted), where the schedule %s over %d ranks wants %s%s",
             layers_per_stage, (long long)stages, (long long)layers(s), schedule_word(kind), s->pp,
             c.interleaved ? "the same number, 2 or more, a rank" : "one a rank",
             nearest_find(layers_per_stage, 1, layers(s), makes_chunks, &c).text);
    *chunks = (int)(stages / s->pp);
    return STATUS_OK;
}
