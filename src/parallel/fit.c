// SPDX-License-Identifier: Apache-2.0
#include "parallel/fit.h"

#include "parallel/suggest.h"

#include <stdio.h>
#include <string.h>

/* The sizes that rules compare.  If the model is unknown its sizes are 0, which every number
 * divides, and the tokens of a microbatch are not checked against tensor_parallel_degree. */
struct sizes {
    long long H, G, F, V;
    long long T, rows, global, micro;
    long long tp, cp, dp;
    bool even, validates;
    long long chunks; /* of a row: two a rank with causal attention (zigzag) */
};

/* field of struct sizes, section of its key, key, maximum */
#define KEY_LIST(X)                                                                                \
    X(tp, "parallelism", "tensor_parallel_degree", 1 << 20)                                        \
    X(T, f->section, "seq_len", 1 << 24)                                                           \
    X(rows, f->section, "local_batch_size", 1 << 20)                                               \
    X(global, "training", "global_batch_size", 1 << 30)                                            \
    X(micro, "parallelism", "pipeline_parallel_microbatch_size", 1 << 20)

/* name, field to change, condition, message after "section.key = value" if it does not hold */
#define RULE_LIST(X)                                                                               \
    X(heads, tp, n->H % n->tp == 0, "does not divide model.n_heads = %lld", n->H)                  \
    X(kv_heads, tp, n->G % n->tp == 0 || n->tp % n->G == 0,                                        \
      "must divide model.n_kv_heads = %lld or be a multiple of it", n->G)                          \
    X(feed_forward, tp, n->F % n->tp == 0, "does not divide model.ffn_hidden = %lld", n->F)        \
    X(vocabulary, tp, !n->V || n->tp <= n->V, "exceeds the vocabulary of %lld tokens", n->V)       \
    X(long_batch, rows, n->rows <= INT32_MAX / n->T, "times seq_len = %lld exceeds 2^31 tokens",   \
      n->T)                                                                                        \
    X(microbatch, micro, n->validates || n->rows % n->micro == 0,                                  \
      "does not divide training.local_batch_size = %lld", n->rows)                                 \
    X(validation_rows, rows, !n->validates || n->rows % n->micro == 0,                             \
      "is not a multiple of parallelism.pipeline_parallel_microbatch_size = %lld", n->micro)       \
    X(global_rows, global, n->global < 1 || n->global >= n->dp,                                    \
      "is smaller than the %lld data-parallel ranks", n->dp)                                       \
    X(global_batch, global, !n->even || n->global < 1 || n->global % (n->rows * n->dp) == 0,       \
      "is not a multiple of local_batch_size = %lld times %lld data-parallel rank%s", n->rows,     \
      n->dp, n->dp == 1 ? "" : "s")                                                                \
    X(long_step, global,                                                                           \
      n->global < 1 || (n->global - 1) / n->dp < SCHEDULE_MAX_MICROBATCHES * n->micro,             \
      "makes more than %d microbatches of %lld rows on a rank: lower it, or raise %s",             \
      SCHEDULE_MAX_MICROBATCHES, n->micro,                                                         \
      n->micro == n->rows ? "local_batch_size" : "pipeline_parallel_microbatch_size")              \
    X(context, T, n->T % n->chunks == 0,                                                           \
      "is not divisible into %lld equal chunks for context_parallel_degree = %lld", n->chunks,     \
      n->cp)                                                                                       \
    X(sequence, T, !n->H || n->micro * n->T % (n->cp * n->tp) == 0,                                \
      "times %lld rows, over context_parallel_degree = %lld, is not divisible by "                 \
      "tensor_parallel_degree = %lld",                                                             \
      n->micro, n->cp, n->tp)

enum key {
#define X(field, section, key, max) KEY_##field,
    KEY_LIST(X)
#undef X
};

#define X(name, field, condition, ...)                                                             \
    static bool name##_holds(const struct sizes *n) { return condition; }                          \
    static void name##_message(const struct sizes *n, char *out, size_t size)                      \
    {                                                                                              \
        snprintf(out, size, __VA_ARGS__);                                                          \
    }
RULE_LIST(X)
#undef X

static const struct rule {
    enum key key;
    bool (*holds)(const struct sizes *n);
    void (*message)(const struct sizes *n, char *out, size_t size);
} rules[] = {
#define X(name, field, condition, ...) {KEY_##field, name##_holds, name##_message},
    RULE_LIST(X)
#undef X
};
enum { NUM_RULES = sizeof rules / sizeof *rules };

static long long *field(struct sizes *n, enum key key)
{
    long long *const fields[] = {
#define X(field, section, key, max) &n->field,
        KEY_LIST(X)
#undef X
    };
    return fields[key];
}

/* Sizes of which one key is varied. */
struct candidate_key {
    struct sizes sizes;
    enum key key;
};

/* Whether that value satisfies all rules about its key. */
static bool fits(int64_t value, const void *context)
{
    struct candidate_key q = *(const struct candidate_key *)context;
    *field(&q.sizes, q.key) = value;
    for (int i = 0; i < NUM_RULES; i++)
        if (rules[i].key == q.key && !rules[i].holds(&q.sizes)) return false;
    return true;
}

static enum status reject(const struct fit *f, const struct sizes *n, const struct rule *r)
{
    const struct {
        const char *section, *key;
        int64_t max;
    } keys[] = {
#define X(field, section, key, max) {section, key, max},
        KEY_LIST(X)
#undef X
    };
    char why[256];
    struct candidate_key q = {*n, r->key};
    long long value = *field(&q.sizes, r->key);
    r->message(n, why, sizeof why);
    FAIL(CONFIG, "%s.%s = %lld %s%s", keys[r->key].section, keys[r->key].key, value, why,
         suggest_values(value, 1, keys[r->key].max, fits, &q).text);
}

static enum status check_stages(const struct fit *f)
{
    struct stages stages = f->stages;
    struct schedule schedule = f->schedule;
    stages.pp = schedule.pp = f->mesh->degree[AXIS_pp];
    if (stages.pp == 1) return STATUS_OK;
    TRY(schedule_check(&schedule));
    if (!f->shape) return STATUS_OK;
    stages.blocks = f->shape->L;
    return stages_split(&stages, NULL);
}

enum status fit_check(const struct fit *f)
{
    const int *degree = f->mesh->degree;
    struct sizes n = {
        .T = f->seq_len,
        .rows = f->local_batch_size,
        .global = f->global_batch_size,
        .micro = f->micro_batch_size,
        .even = f->even,
        .validates = !strcmp(f->section, "validation"),
        .tp = degree[AXIS_tp],
        .cp = degree[AXIS_cp],
        .dp = (long long)degree[AXIS_dp_replicate] * degree[AXIS_dp_shard],
    };
    n.chunks = f->causal && n.cp > 1 ? 2 * n.cp : n.cp;
    if (f->shape) n.H = f->shape->H, n.G = f->shape->G, n.F = f->shape->F, n.V = f->shape->V;
    for (int i = 0; i < NUM_RULES; i++)
        if (!rules[i].holds(&n)) return reject(f, &n, &rules[i]);
    return check_stages(f);
}
