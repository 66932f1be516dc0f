// SPDX-License-Identifier: Apache-2.0
#include "config/no_effect.h"
#include "test.h"

static void check_listed(const char *const *settings, int count, const char *want)
{
    struct config c;
    struct text lines = {0};
    CHECK_STATUS(OK, config_load(&c, NULL, settings, count));
    struct config run = c;
    run.training.dataset_path = "corpus.txt";
    CHECK_STATUS(OK, config_check(&run, (int)c.parallelism.pipeline_parallel_degree));
    no_effect_find(&c, &lines);
    if (strcmp(lines.len ? lines.data : "", want))
        fail_msg("%s: \"%s\", expected \"%s\"", settings[0], lines.len ? lines.data : "", want);
    text_release(&lines);
    config_release(&c);
}
#define CHECK_NO_EFFECT(want, ...)                                                                 \
    check_listed((const char *const[]){__VA_ARGS__},                                               \
                 sizeof(const char *const[]){__VA_ARGS__} / sizeof(const char *), want)

TEST(settings_that_others_leave_without_effect_are_listed)
{
    CHECK_NO_EFFECT("validation.freq = 3 has no effect: requires validation.enable = true",
                    "validation.freq=3");
    CHECK_NO_EFFECT("checkpoint.interval = 3 has no effect: no checkpoint is saved: set "
                    "checkpoint.enable = true",
                    "checkpoint.interval=3");
    CHECK_NO_EFFECT("checkpoint.interval = 3 has no effect: no checkpoint is saved: set "
                    "checkpoint.enable = true",
                    "checkpoint.interval=3", "checkpoint.enable=true", "checkpoint.load_only=true");
    CHECK_NO_EFFECT(
        "profiling.profile_freq = 3 has no effect: requires profiling.enable_profiling = "
        "true\nmetrics.save_tb_folder = \"x\" has no effect: requires "
        "metrics.enable_tensorboard = true",
        "metrics.save_tb_folder=x", "profiling.profile_freq=3");
    CHECK_NO_EFFECT("objective.mask_probability = 0.2 has no effect: requires objective.name = "
                    "\"masked\"",
                    "objective.mask_probability=0.2", "objective.name=diffusion");
    CHECK_NO_EFFECT("data.shuffle_window = 9 has no effect: requires data.order = \"streams\"",
                    "data.shuffle_window=9", "data.order=megatron");
    CHECK_NO_EFFECT(
        "device.tune_file = \"x\" has no effect: on a CPU requires device.tune_gemm = true",
        "device.tune_file=x", "device.kind=cpu");
    CHECK_NO_EFFECT("", "device.tune_file=x", "device.kind=cuda");
    CHECK_NO_EFFECT("guard.skip_steps = [[30, 40]] contains steps after training.steps",
                    "guard.skip_steps=[[30,40]]", "training.steps=20");
    CHECK_NO_EFFECT("data.stage.0.at_step = 20 has no effect: training.steps = 20",
                    "data.stage.0.at_step=20", "training.steps=20", "checkpoint.enable=true");
    CHECK_NO_EFFECT("", "data.stage.0.at_step=19", "training.steps=20", "checkpoint.enable=true");
    CHECK_NO_EFFECT("lr_scheduler.decay_type = \"cosine\" has no effect: with "
                    "lr_scheduler.decay_ratio = 0 the rate never decays",
                    "lr_scheduler.decay_type=cosine", "lr_scheduler.decay_ratio=0");
    CHECK_NO_EFFECT("data.split = \"1\" has no effect: requires data.order = \"megatron\"",
                    "data.split=1");
    CHECK_NO_EFFECT("lr_scheduler.warmup_steps = 30 is longer than the schedule: the learning rate "
                    "rises until the last step",
                    "lr_scheduler.warmup_steps=30", "training.steps=20");
    CHECK_NO_EFFECT(
        "lr_scheduler.total_steps = 10 is less than training.steps: the steps after it keep "
        "the schedule's last learning rate",
        "lr_scheduler.total_steps=10", "lr_scheduler.warmup_steps=2", "training.steps=20");
    CHECK_NO_EFFECT("", "lr_scheduler.total_steps=10", "lr_scheduler.warmup_steps=2",
                    "lr_scheduler.decay_ratio=0", "training.steps=20");
    CHECK_NO_EFFECT("", "lr_scheduler.total_steps=20", "lr_scheduler.warmup_steps=2",
                    "training.steps=20");
    CHECK_NO_EFFECT("model.rope_factor = 4.0 has no effect: requires model.rope_scaling",
                    "model.rope_factor=4", "model.rope_scaling=none");
    CHECK_NO_EFFECT(
        "model.rope_beta_fast = 4.0 has no effect: requires model.rope_scaling = \"yarn\"",
        "model.rope_factor=4", "model.rope_scaling=linear", "model.rope_beta_fast=4");
    CHECK_NO_EFFECT("", "model.rope_factor=4", "model.rope_scaling=yarn", "model.rope_beta_fast=4",
                    "model.rope_original_context=9");
    CHECK_NO_EFFECT("parallelism.pipeline_parallel_microbatch_size = 2 has no effect: requires "
                    "parallelism.pipeline_parallel_degree of at least 2",
                    "parallelism.pipeline_parallel_microbatch_size=2");
    CHECK_NO_EFFECT("parallelism.pipeline_parallel_layers_per_stage = 2 has no effect: "
                    "parallelism.pipeline_parallel_split_points sets the stages",
                    "parallelism.pipeline_parallel_layers_per_stage=2",
                    "parallelism.pipeline_parallel_degree=2",
                    "parallelism.pipeline_parallel_split_points=layers.3");
}

TEST(settings_with_effect_or_with_their_default_are_not_listed)
{
    CHECK_NO_EFFECT("", "validation.freq=10"); /* its default */
    CHECK_NO_EFFECT("", "validation.freq=3", "validation.enable=true", "validation.dataset_path=x");
    CHECK_NO_EFFECT("", "checkpoint.interval=3", "checkpoint.enable=true");
    CHECK_NO_EFFECT("", "training.steps=20"); /* the warmup's default is longer */
    CHECK_NO_EFFECT("", "data.shuffle_window=9");
    CHECK_NO_EFFECT("", "objective.mask_probability=0.2", "objective.name=masked");
    CHECK_NO_EFFECT("", "float8.amax_history_len=3", "float8.enable_float8_linear=true");
    CHECK_NO_EFFECT("", "parallelism.pipeline_parallel_degree=2");
}
