// SPDX-License-Identifier: Apache-2.0
#include "config/import/imported.h"
#include "config/import/megatron.h"

static void add(struct import *im, const char *key, const char *value)
{
    import_add_item(im, key, 3, &value, 1);
}

TEST(lengths_in_samples_stay_in_samples_and_steps_round_down)
{
    struct import im = {0};
    CHECK_STATUS(OK, import_init(&im, "x", "Megatron-LM"));
    add(&im, "--train-samples", "1000"), add(&im, "--lr", "1"), add(&im, "--min-lr", "0.25");
    add(&im, "--lr-warmup-samples", "17");
    CHECK_STATUS(OK, megatron_import_schedule(&im, 16));
    CHECK(im.config.training.steps == 62 && im.config.lr_scheduler.warmup_samples == 17);
    CHECK(im.config.lr_scheduler.total_samples == 1000);
    CHECK(im.config.lr_scheduler.min_lr_factor == 0.25);
    import_release(&im);
}

TEST(a_batch_ramp_requires_samples_and_sizes_that_reach_the_global_batch)
{
    static const struct {
        const char *length, *ramp[3], *message;
    } cases[] = {
        {"--train-iters", {"8", "8", "100"}, "--rampup-batch-size requires --train-samples"},
        {"--train-samples", {"8", "8"}, "expected START INCREMENT SAMPLES"},
        {"--train-samples", {"8", "8", "x"}, "expected an array of whole numbers"},
        {"--train-samples", {"8", "0", "100"}, "expected an array of whole numbers"},
        {"--train-samples", {"8", "5", "100"}, "increment = 5: must divide the 8 rows"},
        {"--train-samples", {"16", "8", "100"}, "must be less than training.global_batch_size"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct import im = {0};
        CHECK_STATUS(OK, import_init(&im, "x", "Megatron-LM"));
        im.config.training.global_batch_size = 16;
        add(&im, cases[i].length, "1000"), add(&im, "--lr", "1");
        import_add_item(&im, "--rampup-batch-size", 3, cases[i].ramp, cases[i].ramp[2] ? 3 : 2);
        CHECK_STATUS(CONFIG, megatron_import_schedule(&im, 16));
        CHECK_MESSAGE(cases[i].message);
        CHECK_MESSAGE("x");
        import_release(&im);
    }
}

TEST(checkpoints_and_validation_are_off_by_default)
{
    struct import im = {0};
    CHECK_STATUS(OK, import_init(&im, "x", "Megatron-LM"));
    add(&im, "--eval-iters", "-1");
    CHECK_STATUS(OK, megatron_import_run(&im, &(struct import_layout){.micro_batch = 1}));
    CHECK(!im.config.checkpoint.enable && !im.config.validation.enable);
    CHECK(im.config.metrics.log_freq == 100 && im.config.debug.seed == 1234);
    import_release(&im);
}
