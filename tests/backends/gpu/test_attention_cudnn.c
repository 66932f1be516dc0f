// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "app/rehearsal.h"
#include "backends/gpu/attention_cudnn.h"
#include "backends/gpu/described.h"
#include "base/log.h"
#include "config/config.h"
#include "train/trainer.h"

#include <glob.h>

static struct attention_cudnn *open_h200(bool deterministic)
{
    struct attention_cudnn *c;
    size_t length;
    char *json = described_h200(&length);
    log_quiet(true);
    CHECK_STATUS(OK, attention_cudnn_describe(&c, json, length, deterministic));
    CHECK(c);
    free(json);
    return c;
}

/* T tokens, H query heads over G of keys and values, of K numbers, in one fused row. */
static struct attention shape(int T, int H, int G, int K)
{
    size_t row = (size_t)(H + 2 * G) * (size_t)K;
    return (struct attention){.B = 1,
                              .T = T,
                              .S = T,
                              .H = H,
                              .G = G,
                              .K = K,
                              .q_stride = row,
                              .kv_stride = row,
                              .scale = 0.125f,
                              .causal = true,
                              .dtype = BF16};
}

/* Measures a pass; the scratch it takes. */
static size_t measure(struct attention_cudnn *c, const struct attention *a, bool backward,
                      bool documents, bool *done)
{
    static const int32_t bound;
    const int32_t *bounds = documents ? &bound : NULL;
    struct queue on = {.measuring = true};
    struct attention_fwd forward = {.start_BT = bounds, .end_BT = bounds};
    struct attention_bwd io = {.start_BT = bounds, .end_BT = bounds};
    if (backward)
        CHECK_STATUS(OK, attention_cudnn_backward(c, a, &io, &on, done));
    else
        CHECK_STATUS(OK, attention_cudnn_forward(c, a, &forward, &on, done));
    CHECK(on.scratch.used == 0);
    return on.scratch.peak;
}

static void check_not_taken(const struct attention *a, const char *why)
{
    struct attention_cudnn *c = open_h200(false);
    struct attention_way w;
    for (int backward = 0; backward < 2; backward++) {
        bool done = true;
        size_t scratch = measure(c, a, backward, false, &done);
        if (done || scratch || attention_cudnn_way(c, 0, &w)) print_error("taken: %s\n", why);
        CHECK(!done && !scratch && !attention_cudnn_way(c, 0, &w));
    }
    attention_cudnn_close(c);
}

TEST(what_cudnn_cannot_do_is_left_to_our_own_kernel)
{
    struct attention good = shape(256, 4, 2, 64), a;
    a = good, a.T = a.S = 192;
    check_not_taken(&a, "T is no multiple of 128");
    a = good, a.S = 512;
    check_not_taken(&a, "more keys than queries");
    a = good, a.dtype = F32;
    check_not_taken(&a, "float32");
    a = good, a.keys = FIRST_KEYS;
    check_not_taken(&a, "keys in parts");
    a = shape(256, 4, 2, 36);
    check_not_taken(&a, "K is no multiple of 8");
    a = shape(256, 4, 2, 264);
    check_not_taken(&a, "K above 256");
    a = good, a.kv_stride = 1028;
    check_not_taken(&a, "rows that do not begin at 16 bytes");
}

TEST(a_plan_is_made_once_for_each_shape_and_pass)
{
    struct attention_cudnn *c = open_h200(true);
    struct attention a = shape(256, 4, 2, 64), other = a;
    struct attention_way w;
    bool done;
    other.causal = false;
    for (int i = 0; i < 3; i++) measure(c, &a, false, false, &done);
    CHECK(done && attention_cudnn_way(c, 0, &w) && !attention_cudnn_way(c, 1, &w));
    a.scale = 1; /* is told with every run */
    measure(c, &a, false, false, &done);
    CHECK(!attention_cudnn_way(c, 1, &w));
    measure(c, &other, false, false, &done);
    CHECK(attention_cudnn_way(c, 1, &w) && !attention_cudnn_way(c, 2, &w));
    measure(c, &a, true, false, &done);
    CHECK(attention_cudnn_way(c, 2, &w) && !attention_cudnn_way(c, 3, &w));
    attention_cudnn_close(c);
}

TEST(scratch_is_what_the_plan_asks_for_and_what_stands_beside_it)
{
    struct attention_cudnn *c = open_h200(false);
    struct attention a = shape(256, 4, 2, 64);
    struct attention_way w;
    bool done;
    size_t scratch = measure(c, &a, true, false, &done);
    CHECK(done && attention_cudnn_way(c, 0, &w));
    CHECK(w.found && w.backward && !w.documents && w.rows == 1 && w.groups == 2);
    CHECK(w.work == 256 * 4 * 4 + 256 * 4 * 64 * 4); /* delta, and dq's sum */
    CHECK(scratch >= w.workspace + w.work && scratch < w.workspace + w.work + 3 * ARENA_ALIGN);
    attention_cudnn_close(c);
}

/* Llama 3 8B: a key head with its four query heads stores 512 MiB. */
TEST(a_reproducible_backward_goes_by_as_many_key_heads_as_there_is_memory_for)
{
    struct attention_cudnn *c = open_h200(true);
    struct attention a = shape(8192, 32, 8, 128);
    struct attention_way w;
    bool done;
    a.B = 2;
    size_t scratch = measure(c, &a, true, false, &done);
    CHECK(done && attention_cudnn_way(c, 0, &w));
    CHECK(w.rows == 1 && w.groups == 4);
    CHECK(w.workspace <= ATTENTION_MOST_BYTES && w.workspace > ATTENTION_MOST_BYTES / 2);
    CHECK(scratch < ATTENTION_MOST_BYTES + (1 << 20));
    attention_cudnn_close(c);
}

TEST(a_row_too_long_to_store_is_left_to_our_own_kernel_unless_any_order_will_do)
{
    struct attention a = shape(131072, 4, 1, 128);
    struct attention_cudnn *same = open_h200(true), *any = open_h200(false);
    struct attention_way w;
    bool done;
    CHECK(!measure(same, &a, true, false, &done) && !done);
    CHECK(attention_cudnn_way(same, 0, &w) && !w.found);
    measure(same, &a, false, false, &done);
    CHECK(done);
    CHECK(measure(any, &a, true, false, &done) < (size_t)1 << 30);
    CHECK(done);
    attention_cudnn_close(same), attention_cudnn_close(any);
}

TEST(documents_go_forward_by_cudnn_and_backward_where_any_order_will_do)
{
    struct attention a = shape(2048, 4, 1, 64);
    struct attention_cudnn *same = open_h200(true), *any = open_h200(false);
    struct attention_way w;
    bool done;
    a.B = 3;
    CHECK(measure(same, &a, false, true, &done) >= 3 * 2048 * 4 * 4 && done); /* lse by tokens */
    CHECK(attention_cudnn_way(same, 0, &w) && w.found && w.documents);
    CHECK(w.rows == 3 * 2048 / 256 + 3);
    CHECK(!measure(same, &a, true, true, &done) && !done);
    measure(any, &a, true, true, &done);
    CHECK(done);
    attention_cudnn_close(same), attention_cudnn_close(any);
}

/* ---- the recipes */

struct hearer {
    struct rehearsal rehearsal;
    struct attention_cudnn *ways[2]; /* in a fixed order, in any */
    bool documents;
};

static void hear(struct rehearsal *r, const struct op_call *call)
{
    struct hearer *h = (struct hearer *)r;
    bool backward = call->op == OP_attention_backward, done;
    const struct attention *a =
        backward ? &call->what.attention_backward : &call->what.attention_forward;
    if (!backward && call->op != OP_attention_forward) return;
    for (int any = 0; any < (backward ? 2 : 1); any++)
        measure(h->ways[any], a, backward, h->documents, &done);
}

/* All that a recipe's step asks of attention. */
static void hear_recipe(struct hearer *h, const char *path, const char *recompute)
{
    const char *const settings[] = {recompute, "training.mixed_precision_param=bfloat16"};
    struct config c;
    struct model_shape s;
    struct machine machine = {.ops = &rehearsal_ops, .on = &h->rehearsal.base};
    struct memory_plan memory;
    CHECK_STATUS(OK, config_load(&c, path, settings, 2));
    const struct parallelism_config *p = &c.parallelism;
    int shard = (int)p->data_parallel_shard_degree;
    int ranks =
        (int)(p->data_parallel_replicate_degree * (shard < 1 ? 1 : shard) *
              p->tensor_parallel_degree * p->context_parallel_degree * p->pipeline_parallel_degree);
    CHECK_STATUS(OK, model_shape_resolve(&s, &c.model, 0));
    CHECK_STATUS(OK, mesh_resolve(&machine.mesh, p, 0, ranks));
    groups_plan(&machine.groups, &machine.mesh);
    h->documents = c.model.attn_mask_type == ATTN_MASK_block_causal;
    CHECK_STATUS(OK, trainer_plan(&c, &s, &machine, &memory));
    arena_release(&h->rehearsal.base.scratch);
    config_release(&c);
}

static void tell(const struct attention_cudnn *c, const char *order)
{
    struct attention_way w;
    for (int i = 0; attention_cudnn_way(c, i, &w); i++) {
        const struct attention *a = &w.what;
        print_message("  %-9s B=%-3d T=%-6d H=%-2d G=%-2d K=%-3d %-8s %-9s %-11s", order, a->B,
                      a->T, a->H, a->G, a->K, a->causal ? "causal" : "all keys",
                      w.documents ? "documents" : "rows", w.backward ? "backward" : "forward");
        if (w.found)
            print_message(
                " engine %d, %d x %d heads at once, workspace %.1f MiB, beside it %.1f MiB\n",
                w.engine, w.rows, w.groups * a->H / a->G, (double)w.workspace / (1 << 20),
                (double)w.work / (1 << 20));
        else
            print_message(" our own kernel\n");
    }
}

/* Without a plan is only what would store too much to be reproducible. */
static void check_found(const struct attention_cudnn *c, bool deterministic)
{
    struct attention_way w;
    for (int i = 0; attention_cudnn_way(c, i, &w); i++) {
        size_t T = (size_t)w.what.T, heads = (size_t)(w.what.H / w.what.G);
        bool is_large = w.documents || 2 * T * T * heads > ATTENTION_MOST_BYTES * 9 / 10;
        CHECK(w.found || (deterministic && w.backward && is_large));
    }
}

TEST(attention_of_every_recipe_has_plans_on_an_h200)
{
    struct hearer h = {.rehearsal = {.base = {.num_threads = 1}, .call = hear},
                       .ways = {open_h200(true), open_h200(false)}};
    struct attention_way w;
    glob_t files;
    CHECK(!glob("configs/*.toml", 0, NULL, &files));
    for (size_t i = 0; i < files.gl_pathc; i++) {
        hear_recipe(&h, files.gl_pathv[i], "activation_checkpoint.mode=none");
        hear_recipe(&h, files.gl_pathv[i], "activation_checkpoint.mode=full");
    }
    globfree(&files);
    tell(h.ways[0], "same bits"), tell(h.ways[1], "any order");
    CHECK(attention_cudnn_way(h.ways[0], 10, &w));
    check_found(h.ways[0], true), check_found(h.ways[1], false);
    attention_cudnn_close(h.ways[0]), attention_cudnn_close(h.ways[1]);
}
