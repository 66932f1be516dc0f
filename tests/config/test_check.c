// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "config/config.h"
#include "parallel/mesh.h"

TEST(check_rejects_keys_that_contradict_each_other)
{
    static const struct {
        const char *settings[3];
        int ranks;
        const char *message;
    } cases[] = {
        {{"training.dataset_path="}, 1, "no training data"},
        {{"parallelism.tensor_parallel_degree=2"}, 1, "a multiple of 2, got 1"},
        {{"parallelism.data_parallel_shard_degree=2"}, 4, "must be 2, got 4"},
        {{"parallelism.data_parallel_shard_degree=0"}, 1, "-1 or at least 1"},
        {{"training.global_batch_size=12", "training.loss_norm=rank_mean"},
         1,
         "not a multiple of local_batch_size = 8"},
        {{"training.global_batch_size=0"}, 1, "global_batch_size = 0"},
        {{"training.global_batch_size=32", "training.batch_ramp=8,7,100"}, 1, "increment = 7"},
        {{"training.global_batch_size=32", "training.batch_ramp=12,4,100",
          "training.loss_norm=rank_mean"},
         1,
         "training.batch_ramp = [12, 4, 100], steps of 12 rows: training.global_batch_size = 12 is "
         "not a multiple of local_batch_size = 8"},
        {{"training.global_batch_size=32", "training.batch_ramp=16,8,100",
          "training.loss_norm=rank_mean"},
         2,
         "steps of 24 rows: training.global_batch_size = 24 is not a multiple of"},
        {{"training.global_batch_size=32", "training.batch_ramp=[8,8,100]",
          "lr_scheduler.formula=megatron"},
         1,
         "requires lr_scheduler.total_samples, and lr_scheduler.warmup_samples"},
        {{"training.local_batch_size=1000000", "training.seq_len=100000"}, 1, "2^31"},
        {{"training.seq_len=100", "parallelism.context_parallel_degree=8"}, 8, "; try 96 or 112"},
        {{"validation.enable=true", "validation.seq_len=6",
          "parallelism.context_parallel_degree=2"},
         2,
         "validation.seq_len = 6"},
        {{"training.canonical_microbatches=8"}, 1, "requires training.determinism"},
        {{"training.determinism=elastic"}, 1, "requires training.global_batch_size"},
        {{"training.determinism=elastic", "training.global_batch_size=64",
          "device.deterministic=false"},
         1,
         "requires device.deterministic"},
        {{"training.determinism=elastic", "training.global_batch_size=64",
          "training.canonical_microbatches=6"},
         1,
         "that divides the 8 microbatches of a step; try 4 or 8"},
        {{"training.determinism=elastic", "training.global_batch_size=96"},
         3,
         "3 data-parallel ranks"},
        {{"data.packing=best_fit", "model.attn_mask_type=block_causal", "data.order=megatron"},
         1,
         "\"best_fit\" requires data.order = \"streams\", got \"megatron\""},
        {{"data.packing=best_fit"}, 1, "requires model.attn_mask_type = \"block_causal\""},
        {{"lr_scheduler.warmup_samples=5"}, 1, "requires lr_scheduler.formula = \"megatron\""},
        {{"lr_scheduler.decay_type=inverse_sqrt"},
         1,
         "requires lr_scheduler.formula = \"megatron\""},
        {{"lr_scheduler.formula=nxdt", "lr_scheduler.warmup_steps=5", "training.steps=4"},
         1,
         "warmup_steps = 5"},
        {{"lr_scheduler.decay_ratio=-0.5"}, 1, "decay_ratio"},
        {{"optimizer.beta1=1"}, 1, "below 1"},
        {{"model.init_std=0"}, 1, "model.init_std = 0: must be from"},
        {{"optimizer.eps=1e-60"}, 1, "optimizer.eps = 1e-60: must be 0 or from 1.17549e-38 to 1"},
        {{"objective.name=masked", "objective.mask_token="}, 1, "mask_token"},
        {{"objective.name=masked", "objective.mask_probability=0"}, 1, "mask_probability"},
        {{"objective.name=diffusion", "objective.mask_token="}, 1, "\"diffusion\" requires"},
        {{"objective.name=diffusion", "validation.enable=true", "validation.tasks=[\"a.jsonl\"]"},
         1,
         "remove validation.tasks"},
        {{"validation.enable=true"}, 1, "validation_share"},
        {{"checkpoint.keep_latest_k=1"}, 1, "keep_latest_k = 1"},
        {{"optimizer.master_weights=split", "training.mixed_precision_param=float32"},
         1,
         "master_weights"},
        {{"optimizer.state_dtype=int8", "optimizer.name=Muon"}, 1, "use \"bfloat16\""},
        {{"training.gradient_dtype=bfloat16", "optimizer.name=Muon"}, 1, "name = \"Muon\""},
        {{"training.gradient_dtype=bfloat16", "training.determinism=elastic",
          "training.global_batch_size=8"},
         1,
         "not supported with training.determinism"},
        {{"checkpoint.folder="}, 1, "checkpoint.folder"},
        {{"job.dump_folder="}, 1, "job.dump_folder"},
        {{"guard.on_spike=rollback", "checkpoint.enable=false"},
         1,
         "guard.on_spike = \"rollback\""},
        {{"guard.nonfinite=rollback", "checkpoint.enable=false"}, 1, "checkpoint.enable = true"},
        {{"guard.on_spike=rollback", "checkpoint.enable=true", "data.order=megatron"},
         1,
         "requires data.samples"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config c;
        const char *settings[4] = {"training.dataset_path=a.txt"};
        int n = 1;
        while (n < 4 && cases[i].settings[n - 1]) settings[n] = cases[i].settings[n - 1], n++;
        CHECK_STATUS(OK, config_load(&c, NULL, settings, n));
        CHECK_STATUS(CONFIG, config_check(&c, cases[i].ranks));
        CHECK_MESSAGE(cases[i].message);
        config_release(&c);
    }
}

TEST(check_accepts_a_valid_configuration_for_its_number_of_ranks)
{
    struct config c;
    const char *settings[] = {"training.dataset_path=a.txt", "training.global_batch_size=64",
                              "parallelism.tensor_parallel_degree=2"};
    CHECK_STATUS(OK, config_load(&c, NULL, settings, 3));
    CHECK_STATUS(OK, config_check(&c, 8));
    config_release(&c);
}

TEST(check_names_the_steps_of_a_ramp_that_a_pipeline_cannot_run)
{
    struct config c;
    const char *settings[] = {"training.dataset_path=a.txt",
                              "training.local_batch_size=1",
                              "training.global_batch_size=16",
                              "training.batch_ramp=8,1,1000",
                              "parallelism.pipeline_parallel_degree=4",
                              "parallelism.pipeline_parallel_schedule=Interleaved1F1B"};
    CHECK_STATUS(OK, config_load(&c, NULL, settings, 6));
    CHECK_STATUS(CONFIG, config_check(&c, 4));
    CHECK_MESSAGE("steps of 9 rows: 9 microbatches per step are not divisible into 2 rounds");
    c.training.batch_ramp.items[1] = 4;
    CHECK_STATUS(OK, config_check(&c, 4));
    config_release(&c);
}

TEST(fit_rejects_a_tensor_parallel_degree_that_does_not_divide_the_heads)
{
    struct config c;
    struct model_shape shape;
    struct mesh mesh;
    const char *settings[] = {"training.dataset_path=a.txt", "model.flavor=8B",
                              "parallelism.tensor_parallel_degree=3"};
    CHECK_STATUS(OK, config_load(&c, NULL, settings, 3));
    CHECK_STATUS(OK, config_check(&c, 3));
    CHECK_STATUS(OK, model_shape_resolve(&shape, &c.model, 0));
    CHECK_STATUS(OK, mesh_resolve(&mesh, &c.parallelism, 0, 3));
    CHECK_STATUS(CONFIG, config_fit(&c, &shape, &mesh));
    CHECK_MESSAGE("tensor_parallel_degree = 3 does not divide model.n_heads = 32; try 2 or 4");
    mesh.degree[AXIS_tp] = 4;
    CHECK_STATUS(OK, config_fit(&c, &shape, &mesh));
    config_release(&c);
}

TEST(fit_rejects_rows_of_validation_whose_rope_has_other_frequencies)
{
    struct config c;
    struct model_shape shape;
    struct mesh mesh;
    const char *settings[] = {
        "training.dataset_path=a.txt",   "training.seq_len=32",     "validation.enable=true",
        "validation.dataset_path=a.txt", "model.flavor=debugmodel", "model.rope_scaling=dynamic",
        "model.rope_factor=2",           "model.max_context=16",    "validation.seq_len=16"};
    CHECK_STATUS(OK, config_load(&c, NULL, settings, 9));
    CHECK_STATUS(OK, config_check(&c, 1));
    CHECK_STATUS(OK, model_shape_resolve(&shape, &c.model, 300));
    CHECK_STATUS(OK, mesh_resolve(&mesh, &c.parallelism, 0, 1));
    CHECK_STATUS(CONFIG, config_fit(&c, &shape, &mesh));
    CHECK_MESSAGE("validation.seq_len = 16 with training.seq_len = 32: with model.rope_scaling = "
                  "\"dynamic\" RoPE has other frequencies in rows of that length; set it to 0, or "
                  "both to at most 16");
    c.validation.seq_len = 0;
    CHECK_STATUS(OK, config_fit(&c, &shape, &mesh));
    c.training.seq_len = 16, c.validation.seq_len = 8;
    CHECK_STATUS(OK, config_fit(&c, &shape, &mesh));
    config_release(&c);
}

/* The pipeline of a model with 16 blocks on 4 stages with 2 data-parallel ranks each. */
static enum status resolve_pipeline(struct pipeline_config *p, const char *a, const char *b)
{
    const char *settings[] = {"training.dataset_path=a.txt",
                              "parallelism.pipeline_parallel_degree=4",
                              "training.local_batch_size=6",
                              "training.global_batch_size=24",
                              a,
                              b};
    struct config c;
    struct mesh mesh;
    CHECK_STATUS(OK, config_load(&c, NULL, settings, b ? 6 : a ? 5 : 4));
    CHECK_STATUS(OK, mesh_resolve(&mesh, &c.parallelism, 0, 8));
    enum status st = config_pipeline(&c, &mesh, 16, p);
    config_release(&c);
    return st;
}

#define PIPELINE(key, value) "parallelism.pipeline_parallel_" key "=" value

TEST(pipeline_follows_its_keys)
{
    struct pipeline_config p;
    int begin[9];
    CHECK_STATUS(OK, resolve_pipeline(&p, NULL, NULL));
    CHECK(p.schedule.kind == SCHEDULE_1F1B && p.schedule.pp == 4 && p.schedule.chunks == 1);
    CHECK(p.schedule.num_microbatches == 12 &&
          p.rows == 1); /* 24 rows over 2 ranks, one row at a time */
    CHECK_STATUS(OK, stages_split(&p.stages, begin));
    CHECK(begin[1] == 4 && begin[2] == 9 && begin[3] == 13); /* 18 layers: 5, 5, 4, 4 */

    CHECK_STATUS(OK, resolve_pipeline(&p, PIPELINE("remainder", "last"), NULL));
    CHECK_STATUS(OK, stages_split(&p.stages, begin));
    CHECK(begin[1] == 4 && begin[2] == 8 && begin[3] == 12);

    CHECK_STATUS(OK, resolve_pipeline(&p, PIPELINE("schedule", "Interleaved1F1B"),
                                      PIPELINE("microbatch_size", "3")));
    CHECK(p.schedule.kind == SCHEDULE_Interleaved1F1B && p.schedule.chunks == 2);
    CHECK(p.schedule.num_microbatches == 4 && p.rows == 3);

    CHECK_STATUS(OK, resolve_pipeline(&p, PIPELINE("layers_per_stage", "5"), NULL));
    CHECK(p.schedule.chunks == 1);

    CHECK_STATUS(
        OK, resolve_pipeline(
                &p, PIPELINE("split_points", "[\"layers.1\",\"layers.2\",\"layers.9\"]"), NULL));
    CHECK_STATUS(OK, stages_split(&p.stages, begin));
    CHECK(begin[1] == 1 && begin[2] == 2 && begin[3] == 9 && begin[4] == 16);
}

TEST(pipeline_rejects_invalid_split_points_and_layers)
{
    struct pipeline_config p;
    static const char *const wrong[] = {
        "layers", "layers.x", "layers.-1", "layers.4.attention", "layers.999999999999", "4"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char setting[128];
        snprintf(setting, sizeof setting, PIPELINE("split_points", "[\"%s\"]"), wrong[i]);
        CHECK_STATUS(CONFIG, resolve_pipeline(&p, setting, NULL));
        CHECK_MESSAGE(wrong[i]);
        CHECK_MESSAGE("expected a block such as \"layers.4\"");
    }
    CHECK_STATUS(CONFIG, resolve_pipeline(&p, PIPELINE("layers_per_stage", "7"), NULL));
    CHECK_MESSAGE("pipeline_parallel_layers_per_stage = 7 makes 3 stages");
}

TEST(check_rejects_two_places_that_name_the_data)
{
    struct config c;
    const char *path = test_path(test_folder(), "both.toml");
    const char toml[] = "[[data.source]]\npath = \"a.txt\"\n";
    CHECK_STATUS(OK, file_write(path, toml, strlen(toml)));
    const char *settings[] = {"training.dataset_path=b.txt"};
    CHECK_STATUS(OK, config_load(&c, path, settings, 1));
    CHECK_STATUS(CONFIG, config_check(&c, 1));
    CHECK_MESSAGE("are both set: set only one");
    config_release(&c);
}
