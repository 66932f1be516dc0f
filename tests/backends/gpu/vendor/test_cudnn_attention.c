// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "backends/gpu/queue.h"
#include "backends/gpu/vendor/cudnn_attention.h"
#include "backends/gpu/vendor/h200.h"
#include "base/log.h"
#include "config/config.h"
#include "perf/step_simulator.h"
#include "train/trainer.h"

#include <glob.h>

/* An H200, but of this compute capability (900: its own). */
static struct cudnn_attention *open_capability(int capability, bool deterministic)
{
    struct cudnn_attention *c;
    size_t length;
    char *json = h200_with_capability(capability, &length);
    log_set_quiet(true);
    CHECK_STATUS(OK, cudnn_attention_open_described(&c, json, length, deterministic));
    CHECK(c);
    free(json);
    return c;
}

static struct cudnn_attention *open_h200(bool deterministic)
{
    return open_capability(900, deterministic);
}

/* Q, K and V of a token are in one fused row. */
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

/* Runs a sizing pass; returns the scratch that it reserves. */
static size_t size_pass(struct cudnn_attention *c, const struct attention *a, bool backward,
                        bool varlen, bool *done)
{
    static const int32_t bound;
    const int32_t *bounds = varlen ? &bound : NULL;
    struct queue queue = {.sizing = true};
    struct attention_fwd forward = {.start_BT = bounds, .end_BT = bounds};
    struct attention_bwd io = {.start_BT = bounds, .end_BT = bounds};
    if (backward)
        CHECK_STATUS(OK, cudnn_attention_backward(c, a, &io, &queue, done));
    else
        CHECK_STATUS(OK, cudnn_attention_forward(c, a, &forward, &queue, done));
    CHECK(queue.scratch.used == 0);
    return queue.scratch.peak;
}

static void check_unsupported(const struct attention *a, const char *why)
{
    struct cudnn_attention *c = open_h200(false);
    struct cudnn_attention_plan w;
    for (int backward = 0; backward < 2; backward++) {
        bool done = true;
        size_t scratch = size_pass(c, a, backward, false, &done);
        bool has_plan = cudnn_attention_plan(c, 0, &w) && w.found;
        if (done || scratch || has_plan) print_error("supported: %s\n", why);
        CHECK(!done && !scratch && !has_plan);
    }
    cudnn_attention_close(c);
}

TEST(cudnn_attention_rejects_unsupported_shapes)
{
    struct attention good = shape(256, 4, 2, 64), a;
    a = good, a.T = a.S = 192;
    check_unsupported(&a, "T is not a multiple of 128");
    a = good, a.S = 512;
    check_unsupported(&a, "more keys than queries");
    a = good, a.dtype = F32;
    check_unsupported(&a, "float32");
    a = good, a.keys = FIRST_KEYS;
    check_unsupported(&a, "ring parts with any bounds");
    a = good, a.keys = FIRST_KEYS, a.causal = false, a.rectangle.num_keys = 192;
    check_unsupported(&a, "a rectangle whose keys are not a multiple of 128");
    a.rectangle.num_keys = 256, a.rectangle.first_query = 64;
    check_unsupported(&a, "a rectangle whose queries are not a multiple of 128");
    a = shape(256, 4, 2, 36);
    check_unsupported(&a, "K is not a multiple of 8");
    a = shape(256, 4, 2, 264);
    check_unsupported(&a, "K above 256");
    a = good, a.kv_stride = 1028;
    check_unsupported(&a, "rows that are not aligned to 16 bytes");
}

TEST(plans_are_built_once_per_shape_and_direction)
{
    struct cudnn_attention *c = open_h200(true);
    struct attention a = shape(256, 4, 2, 64), other = a;
    struct cudnn_attention_plan w;
    bool done;
    other.causal = false;
    for (int i = 0; i < 3; i++) size_pass(c, &a, false, false, &done);
    CHECK(done && cudnn_attention_plan(c, 0, &w) && !cudnn_attention_plan(c, 1, &w));
    size_pass(c, &other, false, false, &done);
    CHECK(cudnn_attention_plan(c, 1, &w) && !cudnn_attention_plan(c, 2, &w));
    size_pass(c, &a, true, false, &done);
    CHECK(cudnn_attention_plan(c, 2, &w) && !cudnn_attention_plan(c, 3, &w));
    a.scale = 1; /* the calls of a plan bind its scale */
    size_pass(c, &a, false, false, &done);
    CHECK(cudnn_attention_plan(c, 0, &w) && w.shape.scale == 1);
    CHECK(cudnn_attention_plan(c, 3, &w) && !cudnn_attention_plan(c, 4, &w));
    cudnn_attention_close(c);
}

/* Without a device the check ends after its sizing pass, when the plans have been built. */
TEST(the_check_is_of_heads_of_the_size_that_is_given)
{
    static const int sizes[][2] = {{128, 128}, {72, 72}, {20, 64}, {512, 64}, {0, 64}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct cudnn_attention *c = open_h200(false);
        struct gpu_queue q = {.device = 0};
        struct cudnn_attention_plan w;
        CHECK(cudnn_attention_check(c, sizes[i][0], &q.base) != STATUS_OK);
        CHECK(cudnn_attention_plan(c, 0, &w) && w.found && w.shape.K == sizes[i][1]);
        cudnn_attention_close(c);
    }
}

TEST(scratch_is_the_workspace_and_our_own_buffers)
{
    struct cudnn_attention *c = open_h200(false);
    struct attention a = shape(256, 4, 2, 64);
    struct cudnn_attention_plan w;
    bool done;
    size_t scratch = size_pass(c, &a, true, false, &done);
    CHECK(done && cudnn_attention_plan(c, 0, &w));
    CHECK(w.found && w.backward && !w.varlen && w.rows == 1 && w.kv_heads == 2);
    CHECK(w.scratch == 256 * 4 * 4 + 256 * 4 * 64 * 4); /* delta, and the dq accumulator */
    CHECK(scratch >= w.workspace + w.scratch &&
          scratch < w.workspace + w.scratch + 3 * ARENA_ALIGN);
    cudnn_attention_close(c);
}

/* Of keys of the own rank, of one before, and of one after. */
static struct attention part_of(int T, int part)
{
    enum { H = 32, G = 8, K = 128 };
    struct attention a = shape(T, H, G, K);
    a.kv_stride = 2 * G * K; /* as ring.c packs keys and values */
    a.keys = MORE_KEYS, a.causal = part == 0;
    a.rectangle.num_keys = part == 1 ? T / 2 : T;
    a.rectangle.first_query = part == 2 ? T / 2 : 0;
    return a;
}

TEST(ring_parts_have_plans_and_scratch_for_their_results)
{
    enum { T = 2048, H = 32, G = 8, K = 128 };
    for (int part = 0; part < 3; part++)
        for (int i = 0; i < 3; i++) {
            struct cudnn_attention *c = open_h200(i == 2);
            struct attention a = part_of(T, part);
            struct cudnn_attention_plan w;
            bool done, backward = i > 0;
            size_t queries = T - (size_t)a.rectangle.first_query;
            size_t keys = (size_t)a.rectangle.num_keys, results = queries * H * K * 2;
            a.B = 2;
            size_t scratch = size_pass(c, &a, backward, false, &done);
            CHECK(done && cudnn_attention_plan(c, 0, &w) && w.found && w.rows == 2);
            CHECK(w.shape.rectangle.num_keys == (int)keys && w.kv_heads == G);
            if (backward) results += 2 * keys * G * K * 2;
            if (!backward || a.rectangle.first_query) results += queries * H * 4;
            results *= 2;
            CHECK(scratch >= w.workspace + w.scratch + results);
            CHECK(scratch < w.workspace + w.scratch + results + 8 * ARENA_ALIGN);
            cudnn_attention_close(c);
        }
}

/* Half of the keys or queries store half of dS. */
TEST(deterministic_backward_of_ring_parts_keeps_to_the_limit)
{
    struct cudnn_attention *c = open_h200(true);
    for (int part = 0; part < 3; part++) {
        struct attention a = part_of(8192, part);
        struct cudnn_attention_plan w;
        bool done;
        size_pass(c, &a, true, false, &done);
        CHECK(done && cudnn_attention_plan(c, 0, &w));
        CHECK(w.kv_heads == (part ? 8 : 4) && w.workspace <= CUDNN_ATTENTION_MAX_BYTES);
        a = part_of(65536, part);
        CHECK(!size_pass(c, &a, true, false, &done) && !done);
        size_pass(c, &a, false, false, &done);
        CHECK(done);
    }
    cudnn_attention_close(c);
}

/* Llama 3 8B: a key/value head with its four query heads stores 512 MiB. */
TEST(deterministic_backward_covers_the_kv_heads_that_fit_in_memory)
{
    struct cudnn_attention *c = open_h200(true);
    struct attention a = shape(8192, 32, 8, 128);
    struct cudnn_attention_plan w;
    bool done;
    a.B = 2;
    size_t scratch = size_pass(c, &a, true, false, &done);
    CHECK(done && cudnn_attention_plan(c, 0, &w));
    CHECK(w.rows == 1 && w.kv_heads == 4);
    CHECK(w.workspace <= CUDNN_ATTENTION_MAX_BYTES && w.workspace > CUDNN_ATTENTION_MAX_BYTES / 2);
    CHECK(scratch < CUDNN_ATTENTION_MAX_BYTES + (1 << 20));
    cudnn_attention_close(c);
}

TEST(deterministic_backward_keeps_to_the_limit_that_is_set)
{
    static const struct {
        size_t bytes;
        int kv_heads; /* 0: no plan */
    } limits[] = {{(size_t)5 << 30, 8}, {(size_t)3 << 29, 2}, {(size_t)1 << 28, 0}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct cudnn_attention *c = open_h200(true);
        struct attention a = shape(8192, 32, 8, 128);
        struct cudnn_attention_plan w;
        bool done;
        cudnn_attention_limit(c, limits[i].bytes);
        size_pass(c, &a, true, false, &done);
        CHECK(cudnn_attention_plan(c, 0, &w) && w.found == (limits[i].kv_heads > 0));
        CHECK(done == w.found && (!w.found || w.kv_heads == limits[i].kv_heads));
        CHECK(!w.found || w.workspace <= limits[i].bytes);
        cudnn_attention_close(c);
    }
}

TEST(long_rows_have_a_backward_plan_only_if_nondeterministic)
{
    struct attention a = shape(131072, 4, 1, 128);
    struct cudnn_attention *deterministic = open_h200(true), *any_order = open_h200(false);
    struct cudnn_attention_plan w;
    bool done;
    CHECK(!size_pass(deterministic, &a, true, false, &done) && !done);
    CHECK(cudnn_attention_plan(deterministic, 0, &w) && !w.found);
    size_pass(deterministic, &a, false, false, &done);
    CHECK(done);
    CHECK(size_pass(any_order, &a, true, false, &done) < (size_t)1 << 30);
    CHECK(done);
    cudnn_attention_close(deterministic), cudnn_attention_close(any_order);
}

TEST(varlen_has_a_backward_plan_on_an_h200_only_if_nondeterministic)
{
    struct attention a = shape(2048, 4, 1, 64);
    struct cudnn_attention *deterministic = open_h200(true), *any_order = open_h200(false);
    struct cudnn_attention_plan w;
    bool done;
    a.B = 3;
    CHECK(size_pass(deterministic, &a, false, true, &done) >= 3 * 2048 * 4 * 4 &&
          done); /* lse with heads last */
    CHECK(cudnn_attention_plan(deterministic, 0, &w) && w.found && w.varlen);
    CHECK(w.rows == 3 * 2048 / 256 + 3);
    CHECK(!size_pass(deterministic, &a, true, true, &done) && !done);
    size_pass(any_order, &a, true, true, &done);
    CHECK(done);
    a = (struct attention){.B = 1,
                           .T = 512,
                           .S = 512,
                           .H = 2,
                           .G = 1,
                           .K = 64,
                           .q_stride = 128,
                           .kv_stride = 64,
                           .scale = 0.125f,
                           .causal = true,
                           .dtype = BF16};
    size_pass(any_order, &a, true, true, &done); /* the self-test: attention_check.c */
    CHECK(done);
    cudnn_attention_close(deterministic), cudnn_attention_close(any_order);
}

/* Without memory for dS: one call for all, where an H200 covers half the heads of one row. */
TEST(deterministic_backward_stores_no_ds_on_a_b200)
{
    static const int capabilities[] = {1000, 1030};
    struct attention a = shape(8192, 32, 8, 128);
    struct cudnn_attention_plan w;
    bool done;
    skip_before_cudnn_9_18_1();
    for (int i = 0; i < 2; i++) {
        struct cudnn_attention *c = open_capability(capabilities[i], true);
        a.B = 2;
        size_pass(c, &a, true, false, &done);
        CHECK(done && cudnn_attention_plan(c, 0, &w) && w.found);
        print_message("  %d: engine %d, workspace %.1f MiB\n", capabilities[i], w.engine,
                      (double)w.workspace / (1 << 20));
        CHECK(w.engine == 5 && w.rows == 2 && w.kv_heads == 8);
        CHECK(w.workspace < (size_t)1 << 30);
        cudnn_attention_close(c);
    }
}

/* cuDNN proposes engines, but its front end excludes them. */
TEST(varlen_has_no_plans_on_an_a100)
{
    struct cudnn_attention *c = open_capability(800, false);
    struct attention a = shape(2048, 4, 1, 64);
    struct cudnn_attention_plan w;
    bool done = true;
    for (int backward = 0; backward < 2; backward++) {
        CHECK(!size_pass(c, &a, backward, true, &done) && !done);
        CHECK(!cudnn_attention_plan(c, 0, &w));
    }
    size_pass(c, &a, true, false, &done);
    CHECK(done);
    cudnn_attention_close(c);
}

struct recorder {
    struct simulated_queue queue;
    struct cudnn_attention *cudnn[2]; /* deterministic, and not */
    bool varlen;
};

static void record_call(struct simulated_queue *r, const struct op_call *call)
{
    struct recorder *h = (struct recorder *)r;
    bool backward = call->op == OP_attention_backward, done;
    const struct attention *a =
        backward ? &call->what.attention_backward : &call->what.attention_forward;
    if (!backward && call->op != OP_attention_forward) return;
    for (int i = 0; i < (backward ? 2 : 1); i++)
        size_pass(h->cudnn[i], a, backward, h->varlen, &done);
}

/* Builds plans for the attention calls of a step of the recipe. */
static void plan_recipe(struct recorder *h, const char *path, const char *recompute)
{
    const char *const settings[] = {recompute, "training.mixed_precision_param=bfloat16"};
    struct config c;
    struct model_shape s;
    struct machine machine = {.ops = &step_simulator_ops, .queue = &h->queue.base};
    struct memory_plan memory;
    CHECK_STATUS(OK, config_load(&c, path, settings, 2));
    const struct parallelism_config *p = &c.parallelism;
    int shard = (int)p->data_parallel_shard_degree;
    int ranks =
        (int)(p->data_parallel_replicate_degree * (shard < 1 ? 1 : shard) *
              p->tensor_parallel_degree * p->context_parallel_degree * p->pipeline_parallel_degree);
    CHECK_STATUS(OK, model_shape_resolve(&s, &c.model, 0));
    CHECK_STATUS(OK, mesh_resolve(&machine.mesh, p, 0, ranks));
    groups_init_simulated(&machine.groups, &machine.mesh);
    h->varlen = c.model.attn_mask_type == ATTN_MASK_block_causal;
    CHECK_STATUS(OK, trainer_plan(&c, &s, &machine, &memory));
    arena_release(&h->queue.base.scratch);
    config_release(&c);
}

static void print_plans(const struct cudnn_attention *c, const char *order)
{
    struct cudnn_attention_plan w;
    for (int i = 0; cudnn_attention_plan(c, i, &w); i++) {
        const struct attention *a = &w.shape;
        print_message("  %-13s B=%-3d T=%-6d H=%-2d G=%-2d K=%-3d %-8s %-9s %-11s", order, a->B,
                      a->T, a->H, a->G, a->K, a->causal ? "causal" : "all keys",
                      w.varlen ? "varlen" : "rows", w.backward ? "backward" : "forward");
        if (w.found)
            print_message(
                " engine %d, %d x %d heads per call, workspace %.1f MiB, scratch %.1f MiB\n",
                w.engine, w.rows, w.kv_heads * a->H / a->G, (double)w.workspace / (1 << 20),
                (double)w.scratch / (1 << 20));
        else
            print_message(" our own kernel\n");
    }
}

/* Only shapes whose deterministic backward would store too much may have no plan. */
static void check_found(const struct cudnn_attention *c, bool deterministic)
{
    struct cudnn_attention_plan w;
    for (int i = 0; cudnn_attention_plan(c, i, &w); i++) {
        size_t T = (size_t)w.shape.T, heads = (size_t)(w.shape.H / w.shape.G);
        bool is_large = w.varlen || 2 * T * T * heads > CUDNN_ATTENTION_MAX_BYTES * 9 / 10;
        CHECK(w.found || (deterministic && w.backward && is_large));
    }
}

TEST(attention_of_every_recipe_has_cudnn_plans_on_an_h200)
{
    struct recorder h = {.queue = {.base = {.num_threads = 1}, .on_call = record_call},
                         .cudnn = {open_h200(true), open_h200(false)}};
    struct cudnn_attention_plan w;
    glob_t files;
    CHECK(!glob("configs/*.toml", 0, NULL, &files));
    for (size_t i = 0; i < files.gl_pathc; i++) {
        plan_recipe(&h, files.gl_pathv[i], "activation_checkpoint.mode=none");
        plan_recipe(&h, files.gl_pathv[i], "activation_checkpoint.mode=full");
    }
    globfree(&files);
    print_plans(h.cudnn[0], "deterministic"), print_plans(h.cudnn[1], "any order");
    CHECK(cudnn_attention_plan(h.cudnn[0], 10, &w));
    check_found(h.cudnn[0], true), check_found(h.cudnn[1], false);
    cudnn_attention_close(h.cudnn[0]), cudnn_attention_close(h.cudnn[1]);
}
