// SPDX-License-Identifier: Apache-2.0
#include "parallel/fit.h"

#include "parallel/nearest.h"

#include <stdio.h>

/* What rules are about; where the model is not known its sizes are 0, a multiple of everything, and
 * tensor_parallel_degree, which it is likeliest to be at odds with, is not looked at. */
struct sizes {
    long long H, G, F, V;
    long long T, rows, global, micro;
    long long tp, cp, dp;
    long long chunks; /* a row is cut into: two a rank where later tokens cost more */
};

/* field of struct sizes, section of its key, key, most */
#define KEY_LIST(X)                                                                                \
    X(tp, "parallelism", "tensor_parallel_degree", 1 << 20)                                        \
    X(T, f->section, "seq_len", 1 << 24)                                                           \
    X(rows, f->section, "local_batch_size", 1 << 20)                                               \
    X(global, "training", "global_batch_size", 1 << 30)                                            \
    X(micro, "parallelism", "pipeline_parallel_microbatch_size", 1 << 20)

/* name, field to change, what must hold, what to say behind "section.key = value" where it does not
 */
#define RULE_LIST(X)                                                                               \
    X(heads, tp, n->H % n->tp == 0, "does not divide model.n_heads = %lld", n->H)                  \
    X(kv_heads, tp, n->G % n->tp == 0 || n->tp % n->G == 0,                                        \
      "neither divides model.n_kv_heads = %lld nor is a multiple of it", n->G)                     \
    X(feed_forward, tp, n->F % n->tp == 0, "does not divide model.ffn_hidden = %lld", n->F)        \
    X(vocabulary, tp, n->V % n->tp == 0,                                                           \
      "does not divide the vocabulary's %lld tokens (model.vocab_size = %lld would be next)",      \
      n->V, (n->V / n->tp + 1) * n->tp)                                                            \
    X(long_batch, rows, n->rows <= INT32_MAX / n->T, "times seq_len = %lld is beyond 2^31 tokens", \
      n->T)                                                                                        \
    X(micro_batch, micro, n->rows % n->micro == 0, "does not divide local_batch_size = %lld",      \
      n->rows)                                                                                     \
    X(global_batch, global, n->global < 1 || n->global % (n->rows * n->dp) == 0,                   \
      "is no multiple of local_batch_size = %lld times %lld data-parallel rank%s", n->rows, n->dp, \
      n->dp == 1 ? "" : "s")                                                                       \
    X(context, T, n->T % n->chunks == 0,                                                           \
      "cannot be cut into %lld parts of one size for context_parallel_degree = %lld", n->chunks,   \
      n->cp)                                                                                       \
    X(sequence, T, !n->H || n->micro * n->T % (n->cp * n->tp) == 0,                                \
      "times %lld rows, over context_parallel_degree = %lld, cannot be shared out by "             \
      "tensor_parallel_degree = %lld",                                                             \
      n->micro, n->cp, n->tp)

enum key {
#define X(field, section, key, most) KEY_##field,
    KEY_LIST(X)
#undef X
};

#define X(name, field, condition, ...)                                                             \
    static bool name##_holds(const struct sizes *n) { return condition; }                          \
    static void name##_say(const struct sizes *n, char *out, size_t size)                          \
    {                                                                                              \
        snprintf(out, size, __VA_ARGS__);                                                          \
    }
RULE_LIST(X)
#undef X

static const struct rule {
    enum key key;
    bool (*holds)(const struct sizes *n);
    void (*say)(const struct sizes *n, char *out, size_t size);
} rules[] = {
#define X(name, field, condition, ...) {KEY_##field, name##_holds, name##_say},
    RULE_LIST(X)
#undef X
};
enum { NUM_RULES = sizeof rules / sizeof *rules };

static long long *field(struct sizes *n, enum key key)
{
    long long *const fields[] = {
#define X(field, section, key, most) &n->field,
        KEY_LIST(X)
#undef X
    };
    return fields[key];
}

struct question {
    struct sizes sizes;
    enum key key;
};

/* Whether that value would do for all the rules about its key. */
static bool fits(int64_t value, const void *context)
{
    struct question q = *(const struct question *)context;
    *field(&q.sizes, q.key) = value;
    for (int i = 0; i < NUM_RULES; i++)
        if (rules[i].key == q.key && !rules[i].holds(&q.sizes)) return false;
    return true;
}

static enum status refuse(const struct fit *f, const struct sizes *n, const struct rule *r)
{
    const struct {
        const char *section, *key;
        int64_t most;
    } keys[] = {
#define X(field, section, key, most) {section, key, most},
        KEY_LIST(X)
#undef X
    };
    char why[256];
    struct question q = {*n, r->key};
    long long value = *field(&q.sizes, r->key);
    r->say(n, why, sizeof why);
    FAIL(CONFIG, "%s.%s = %lld %s%s", keys[r->key].section, keys[r->key].key, value, why,
         nearest_find(value, 1, keys[r->key].most, fits, &q).text);
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
        .tp = degree[AXIS_tp],
        .cp = degree[AXIS_cp],
        .dp = (long long)degree[AXIS_dp_replicate] * degree[AXIS_dp_shard],
    };
    n.chunks = f->causal && n.cp > 1 ? 2 * n.cp : n.cp;
    if (f->shape) n.H = f->shape->H, n.G = f->shape->G, n.F = f->shape->F, n.V = f->shape->V;
    for (int i = 0; i < NUM_RULES; i++)
        if (!rules[i].holds(&n)) return refuse(f, &n, &rules[i]);
    return check_stages(f);
}
