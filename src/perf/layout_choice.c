// SPDX-License-Identifier: Apache-2.0
#include "perf/layout_choice.h"

static const struct {
    const char *name;
    enum activation_checkpoint_mode mode;
} recomputations[] = {
#define X(name, mode) {#name, mode},
    RECOMPUTATION_LIST(X)
#undef X
};

static const struct {
    const char *name;
    enum fsdp_reshard reshard;
    bool shards_gradients;
} shardings[] = {
#define X(name, reshard, shards_gradients) {#name, reshard, shards_gradients},
    SHARDING_LIST(X)
#undef X
};

const char *layout_choice_recomputation_name(enum recomputation r)
{
    return recomputations[r].name;
}
const char *layout_choice_sharding_name(enum sharding s) { return shardings[s].name; }

static int64_t reader_rows(const struct layout_choice *x, int64_t step_rows)
{
    int64_t readers = (int64_t)x->degree[AXIS_dp_replicate] * x->degree[AXIS_dp_shard];
    return (step_rows + readers - 1) / readers;
}

/* Microbatches of a step on each reader. */
static int64_t num_microbatches(const struct layout_choice *x, int64_t step_rows)
{
    return reader_rows(x, step_rows) / x->rows;
}

/* --- enumeration --- */

enum { MAX_DIVISORS = 512 }; /* of a number up to 2^24 */

struct enumeration {
    const struct layout_choices *all;
    int divisors[MAX_DIVISORS], num_divisors; /* of the ranks, ascending */
    void (*each)(void *context, const struct layout_choice *choice);
    void *context;
    struct layout_choice at;
};

bool layout_choice_keeps_rows(const struct config *c)
{
    return c->training.loss_norm == LOSS_NORM_rank_mean ||
           c->training.determinism == DETERMINISM_elastic;
}

static bool tp_suits(const struct model_shape *s, int tp)
{
    return s->H % tp == 0 && (s->G % tp == 0 || tp % s->G == 0) && s->F % tp == 0 && tp <= s->V;
}

static bool cp_suits(const struct config *c, int cp)
{
    bool is_causal = c->objective.name == OBJECTIVE_causal;
    return c->training.seq_len % (is_causal && cp > 1 ? 2 * cp : cp) == 0;
}

/* Without shards all kinds of sharding are the same. */
static void each_kind(struct enumeration *e)
{
    struct layout_choice *x = &e->at;
    bool is_sharded = x->degree[AXIS_dp_shard] * x->degree[AXIS_cp] > 1;
    for (int r = 0; r < RECOMPUTATION_COUNT; r++)
        for (int s = 0; s < (is_sharded ? SHARDING_COUNT : 1); s++) {
            x->recomputation = (enum recomputation)r, x->sharding = (enum sharding)s;
            e->each(e->context, x);
        }
}

/* The layers per stage that make that many stages (stages_chunks); 0: none do. */
static int layers_per_stage(const struct layout_choices *all, int stages)
{
    const struct parallelism_config *p = &all->config->parallelism;
    int layers = all->shape->L;
    if (p->pipeline_parallel_remainder == PIPELINE_REMAINDER_first)
        layers += (int)(p->pipeline_parallel_first_stage_less_layers +
                        p->pipeline_parallel_last_stage_less_layers);
    int each = (layers + stages - 1) / stages;
    return (layers + each - 1) / each == stages ? each : 0;
}

static void each_schedule(struct enumeration *e)
{
    struct layout_choice *x = &e->at;
    int pp = x->degree[AXIS_pp];
    int64_t all = num_microbatches(x, e->all->step_rows);
    bool is_even = all % (all < pp ? 1 : all / pp) == 0; /* rounds of microbatches (schedule.h) */
    for (x->chunks = 1; x->chunks * pp <= e->all->shape->L; x->chunks *= 2) {
        if (x->chunks == 1 || layers_per_stage(e->all, x->chunks * pp)) each_kind(e);
        if (pp == 1 || !is_even) break;
    }
}

static void each_rows(struct enumeration *e)
{
    enum { MAX_ROWS = 64 };
    const struct config *c = e->all->config;
    struct layout_choice *x = &e->at;
    int64_t all = reader_rows(x, e->all->step_rows);
    int64_t share = (int64_t)x->degree[AXIS_cp] * x->degree[AXIS_tp];
    int first = 1, last = all < MAX_ROWS ? (int)all : MAX_ROWS;
    bool keeps = layout_choice_keeps_rows(c);
    if (keeps) first = last = (int)c->training.local_batch_size;
    for (int rows = first; rows <= last; rows++) {
        bool is_candidate = keeps || (rows & (rows - 1)) == 0 || rows == all;
        if (!is_candidate || all % rows || rows * c->training.seq_len % share) continue;
        x->rows = rows;
        each_schedule(e);
    }
}

static void list_divisors(struct enumeration *e)
{
    for (int d = 1; d <= e->all->ranks; d++)
        if (e->all->ranks % d == 0) {
            BUG_IF(e->num_divisors == MAX_DIVISORS);
            e->divisors[e->num_divisors++] = d;
        }
}

static void each_replication(struct enumeration *e, int dp)
{
    for (int i = 0; i < e->num_divisors && e->divisors[i] <= dp; i++) {
        int shard = e->divisors[i];
        if (dp % shard) continue;
        e->at.degree[AXIS_dp_shard] = shard, e->at.degree[AXIS_dp_replicate] = dp / shard;
        each_rows(e);
    }
}

/* `rest`: ranks that tp and pp leave. */
static void each_context(struct enumeration *e, int rest)
{
    for (int i = 0; i < e->num_divisors && e->divisors[i] <= rest; i++) {
        int cp = e->divisors[i];
        if (rest % cp || !cp_suits(e->all->config, cp) || rest / cp > e->all->step_rows) continue;
        e->at.degree[AXIS_cp] = cp;
        each_replication(e, rest / cp);
    }
}

void layout_choice_each(const struct layout_choices *all,
                        void (*each)(void *context, const struct layout_choice *choice),
                        void *context)
{
    struct enumeration e = {.all = all, .each = each, .context = context, .at = {.chunks = 1}};
    list_divisors(&e);
    for (int i = 0; i < e.num_divisors; i++) {
        int tp = e.at.degree[AXIS_tp] = e.divisors[i], rest = all->ranks / tp;
        if (!tp_suits(all->shape, tp)) continue;
        for (int k = 0; k < e.num_divisors && e.divisors[k] <= all->shape->L; k++) {
            if (rest % e.divisors[k]) continue;
            e.at.degree[AXIS_pp] = e.divisors[k];
            each_context(&e, rest / e.divisors[k]);
        }
    }
}

/* --- options --- */

void layout_choice_apply(const struct layout_choice *x, const struct layout_choices *all,
                         struct config *c, struct mesh *mesh)
{
    struct parallelism_config *p = &c->parallelism;
    *c = *all->config;
    *mesh = mesh_single_rank();
    for (enum axis a = 0; a < AXIS_COUNT; a++) mesh->degree[a] = x->degree[a];
    p->data_parallel_replicate_degree = x->degree[AXIS_dp_replicate];
    p->data_parallel_shard_degree = x->degree[AXIS_dp_shard];
    p->tensor_parallel_degree = x->degree[AXIS_tp];
    p->context_parallel_degree = x->degree[AXIS_cp];
    p->pipeline_parallel_degree = x->degree[AXIS_pp];
    p->pipeline_parallel_split_points.count = 0;
    p->pipeline_parallel_schedule = x->chunks > 1 ? SCHEDULE_Interleaved1F1B : SCHEDULE_1F1B;
    p->pipeline_parallel_layers_per_stage =
        x->chunks > 1 ? layers_per_stage(all, x->chunks * x->degree[AXIS_pp]) : 0;
    p->pipeline_parallel_microbatch_size = x->rows;
    p->fsdp_reshard_after_forward = shardings[x->sharding].reshard;
    p->fsdp_shard_gradients = shardings[x->sharding].shards_gradients;
    c->training.local_batch_size = x->rows;
    c->training.global_batch_size = all->step_rows;
    c->activation_checkpoint.mode = recomputations[x->recomputation].mode;
    c->activation_checkpoint.selective_ac_option = "op";
}

void layout_choice_settings(const struct layout_choice *x, const struct layout_choices *all,
                            struct text *out)
{
    const struct parallelism_config *p;
    struct config c;
    struct mesh mesh;
    layout_choice_apply(x, all, &c, &mesh);
    p = &c.parallelism;
    text_addf(out, "training.local_batch_size=%d training.global_batch_size=%lld", x->rows,
              (long long)all->step_rows);
    for (enum axis a = 0; a < AXIS_COUNT; a++)
        text_addf(out, " parallelism.%s=%d", mesh_axis_key(a), x->degree[a]);
    if (x->degree[AXIS_pp] > 1) {
        text_addf(out, " parallelism.pipeline_parallel_schedule=%s",
                  schedule_kind_word(p->pipeline_parallel_schedule));
        text_addf(out, " parallelism.pipeline_parallel_microbatch_size=%d", x->rows);
        text_addf(out, " parallelism.pipeline_parallel_layers_per_stage=%lld",
                  (long long)p->pipeline_parallel_layers_per_stage);
        text_addf(out, " parallelism.pipeline_parallel_split_points=[]");
    }
    text_addf(out, " parallelism.fsdp_reshard_after_forward=%s",
              fsdp_reshard_word(p->fsdp_reshard_after_forward));
    text_addf(out, " parallelism.fsdp_shard_gradients=%s",
              p->fsdp_shard_gradients ? "true" : "false");
    text_addf(out, " activation_checkpoint.mode=%s activation_checkpoint.selective_ac_option=op",
              activation_checkpoint_mode_word(c.activation_checkpoint.mode));
}
