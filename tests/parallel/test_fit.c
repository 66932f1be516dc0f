// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "parallel/fit.h"

struct fit_case {
    struct mesh mesh;
    struct model_shape shape;
    struct fit fit;
};

/* An 8B on one rank, which fits. */
static void make(struct fit_case *p)
{
    p->mesh = mesh_single_rank();
    p->shape = (struct model_shape){.V = 128256, .D = 4096, .L = 32, .H = 32, .G = 8, .F = 14336};
    p->fit = (struct fit){
        .mesh = &p->mesh,
        .shape = &p->shape,
        .section = "training",
        .seq_len = 8192,
        .local_batch_size = 4,
        .global_batch_size = -1,
        .micro_batch_size = 4,
        .causal = true,
        .stages = {.split = SPLIT_first, .chunks = 1, .first_less = 1, .last_less = 1},
        .schedule = {.kind = SCHEDULE_1F1B, .chunks = 1, .num_microbatches = 8},
    };
}

TEST(fit_accepts_the_layouts_of_the_reference_runs)
{
    static const int layouts[][AXIS_COUNT] = {
        {1, 1, 1, 1, 1}, {1, 2, 32, 1, 8}, {1, 1, 64, 1, 1},
        {8, 1, 4, 1, 4}, {1, 1, 8, 2, 1},  {1, 1, 2, 4, 32},
    };
    struct fit_case p;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        make(&p);
        memcpy(p.mesh.degree, layouts[i], sizeof layouts[i]);
        CHECK_STATUS(OK, fit_check(&p.fit));
    }
}

static void check_tp(struct fit_case *p, int tp, const char *message)
{
    p->mesh.degree[AXIS_tp] = tp;
    if (!message) {
        CHECK_STATUS(OK, fit_check(&p->fit));
        return;
    }
    CHECK_STATUS(CONFIG, fit_check(&p->fit));
    CHECK_MESSAGE(message);
}

TEST(fit_requires_whole_heads_per_tensor_parallel_rank)
{
    struct fit_case p;
    make(&p);
    check_tp(&p, 4, NULL);
    check_tp(&p, 3,
             "parallelism.tensor_parallel_degree = 3 does not divide model.n_heads = 32; try 2 "
             "or 4");
    check_tp(&p, 64, "does not divide model.n_heads = 32; try 32");
}

TEST(fit_slices_or_replicates_key_value_heads)
{
    struct fit_case p;
    make(&p);
    check_tp(&p, 8, NULL);
    check_tp(&p, 16, NULL);
    p.shape.H = 48, p.shape.G = 12, p.shape.F = 4800, p.shape.V = 48000;
    p.fit.seq_len = 4800;
    check_tp(&p, 6, NULL);
    check_tp(&p, 24, NULL);
    check_tp(&p, 8, "must divide model.n_kv_heads = 12 or be a multiple of it; try 6 or 12");
}

TEST(fit_requires_equal_slices_of_the_feed_forward_layer)
{
    struct fit_case p;
    make(&p);
    p.shape.F = 5460;
    check_tp(&p, 4, NULL);
    check_tp(&p, 8, "does not divide model.ffn_hidden = 5460; try 4");
}

TEST(fit_requires_a_token_per_tensor_parallel_rank)
{
    struct fit_case p;
    make(&p);
    p.shape.V = 50257;
    check_tp(&p, 2, NULL);
    p.shape.V = 3;
    check_tp(&p, 4, "= 4 exceeds the vocabulary of 3 tokens; try 2");
}

TEST(fit_suggests_only_values_that_satisfy_all_rules_about_the_key)
{
    struct fit_case p;
    make(&p);
    p.shape.V = 258;
    check_tp(&p, 3, "does not divide model.n_heads = 32; try 2");
}

TEST(fit_requires_two_chunks_per_context_parallel_rank_with_causal_attention)
{
    struct fit_case p;
    make(&p);
    p.mesh.degree[AXIS_cp] = 8;
    p.fit.seq_len = 96;
    CHECK_STATUS(OK, fit_check(&p.fit));
    p.fit.seq_len = 104;
    CHECK_STATUS(CONFIG, fit_check(&p.fit));
    CHECK_MESSAGE("training.seq_len = 104 is not divisible into 16 equal chunks for "
                  "context_parallel_degree = 8; try 96 or 112");
    p.fit.causal = false;
    CHECK_STATUS(OK, fit_check(&p.fit));
    p.fit.seq_len = 105;
    p.fit.section = "validation";
    CHECK_STATUS(CONFIG, fit_check(&p.fit));
    CHECK_MESSAGE("validation.seq_len = 105 is not divisible into 8 equal chunks");
    CHECK_MESSAGE("; try 104 or 112");
    p.mesh.degree[AXIS_cp] = 1;
    CHECK_STATUS(OK, fit_check(&p.fit));
}

TEST(fit_divides_the_tokens_of_a_microbatch_over_tensor_parallel_ranks)
{
    struct fit_case p;
    make(&p);
    p.mesh.degree[AXIS_tp] = 8;
    p.fit.seq_len = 6;
    CHECK_STATUS(OK, fit_check(&p.fit));
    p.fit.seq_len = 5;
    CHECK_STATUS(CONFIG, fit_check(&p.fit));
    CHECK_MESSAGE("training.seq_len = 5 times 4 rows, over context_parallel_degree = 1, is not "
                  "divisible by tensor_parallel_degree = 8; try 4 or 6");
    p.mesh.degree[AXIS_cp] = 2;
    p.fit.seq_len = 4;
    CHECK_STATUS(OK, fit_check(&p.fit));
    p.fit.micro_batch_size = 2;
    CHECK_STATUS(CONFIG, fit_check(&p.fit));
    CHECK_MESSAGE("; try 8");
}

TEST(fit_requires_a_multiple_of_the_local_batches_as_global_batch_if_ranks_must_be_even)
{
    struct fit_case p;
    make(&p);
    p.fit.even = true;
    p.mesh.degree[AXIS_dp_replicate] = 2, p.mesh.degree[AXIS_dp_shard] = 3;
    p.fit.global_batch_size = 48;
    CHECK_STATUS(OK, fit_check(&p.fit));
    p.fit.global_batch_size = 60;
    CHECK_STATUS(CONFIG, fit_check(&p.fit));
    CHECK_MESSAGE(
        "training.global_batch_size = 60 is not a multiple of local_batch_size = 4 times 6 "
        "data-parallel ranks; try 48 or 72");
    p.fit.global_batch_size = 20;
    CHECK_STATUS(CONFIG, fit_check(&p.fit));
    CHECK_MESSAGE("ranks; try 24");
}

TEST(fit_requires_whole_microbatches_and_fewer_than_2_to_31_tokens)
{
    struct fit_case p;
    make(&p);
    p.fit.micro_batch_size = 2;
    CHECK_STATUS(OK, fit_check(&p.fit));
    p.fit.micro_batch_size = 3;
    CHECK_STATUS(CONFIG, fit_check(&p.fit));
    CHECK_MESSAGE("parallelism.pipeline_parallel_microbatch_size = 3 does not divide "
                  "training.local_batch_size = 4; try 2 or 4");
    p.fit.section = "validation";
    CHECK_STATUS(CONFIG, fit_check(&p.fit));
    CHECK_MESSAGE("validation.local_batch_size = 4 is not a multiple of "
                  "parallelism.pipeline_parallel_microbatch_size = 3; try 3 or 6");
    make(&p);
    p.fit.local_batch_size = p.fit.micro_batch_size = 262143;
    CHECK_STATUS(OK, fit_check(&p.fit));
    p.fit.local_batch_size = 262144;
    CHECK_STATUS(CONFIG, fit_check(&p.fit));
    CHECK_MESSAGE("training.local_batch_size = 262144 times seq_len = 8192 exceeds 2^31 tokens; "
                  "try 262143");
}

TEST(fit_checks_stages_and_schedule_of_a_pipeline)
{
    struct fit_case p;
    make(&p);
    p.mesh.degree[AXIS_pp] = 34;
    CHECK_STATUS(OK, fit_check(&p.fit));
    p.mesh.degree[AXIS_pp] = 35;
    CHECK_STATUS(CONFIG, fit_check(&p.fit));
    CHECK_MESSAGE("parallelism.pipeline_parallel_degree = 35");
    CHECK_MESSAGE("; try 34");
    p.fit.shape = NULL;
    CHECK_STATUS(OK, fit_check(&p.fit));
    p.fit.schedule = (struct schedule){SCHEDULE_Interleaved1F1B, 0, 2, 6};
    p.mesh.degree[AXIS_pp] = 3;
    CHECK_STATUS(OK, fit_check(&p.fit));
    p.fit.schedule.num_microbatches = 7;
    CHECK_STATUS(CONFIG, fit_check(&p.fit));
    CHECK_MESSAGE("7 microbatches per step are not divisible into 2 rounds");
    p.mesh.degree[AXIS_pp] = 1;
    CHECK_STATUS(OK, fit_check(&p.fit));
}

TEST(fit_requires_a_row_for_every_data_parallel_rank)
{
    struct fit_case p;
    make(&p);
    p.mesh.degree[AXIS_dp_replicate] = 2, p.mesh.degree[AXIS_dp_shard] = 3;
    p.fit.global_batch_size = 7;
    CHECK_STATUS(OK, fit_check(&p.fit));
    p.fit.global_batch_size = 5;
    CHECK_STATUS(CONFIG, fit_check(&p.fit));
    CHECK_MESSAGE(
        "training.global_batch_size = 5 is smaller than the 6 data-parallel ranks; try 6");
}

TEST(fit_limits_the_microbatches_of_a_step)
{
    struct fit_case p;
    make(&p);
    long long most = (long long)SCHEDULE_MAX_MICROBATCHES * p.fit.micro_batch_size;
    p.fit.global_batch_size = most;
    CHECK_STATUS(OK, fit_check(&p.fit));
    p.fit.global_batch_size = most + 1;
    CHECK_STATUS(CONFIG, fit_check(&p.fit));
    CHECK_MESSAGE("makes more than 1048576 microbatches of 4 rows on a rank: lower it, or raise "
                  "local_batch_size; try ");
}

TEST(fit_without_a_model_checks_only_batches)
{
    struct fit_case p;
    make(&p);
    p.fit.shape = NULL;
    p.fit.seq_len = 1;
    check_tp(&p, 64, NULL);
    p.fit.even = true, p.fit.global_batch_size = 3;
    CHECK_STATUS(CONFIG, fit_check(&p.fit));
}
