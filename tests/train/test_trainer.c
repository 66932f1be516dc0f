// SPDX-License-Identifier: Apache-2.0
#include "train/training.h"

#include "ops/cross_entropy.h"

TEST(loss_starts_near_uniform_and_decreases)
{
    struct training t;
    TRAINING_OPEN(&t, "debug.seed=1");
    double vocabulary = t.trainer.model.shape.V, first = training_steps(&t, 1),
           last = training_steps(&t, 39);
    CHECK(first > 0.8 * log(vocabulary) && first < 1.4 * log(vocabulary));
    CHECK(last < first - 1);
    CHECK(t.trainer.steps_done == 40 && t.trainer.tokens_seen == 40 * 2 * 16);
    training_close(&t);
}

TEST(gradient_accumulation_matches_the_whole_batch)
{
    struct training whole, parts;
    struct step_result a, b;
    TRAINING_OPEN(&whole, "training.local_batch_size=4");
    TRAINING_OPEN(&parts, "training.local_batch_size=1", "training.global_batch_size=4");
    CHECK_STATUS(OK, trainer_step(&whole.trainer, whole.loader, &a));
    CHECK_STATUS(OK, trainer_step(&parts.trainer, parts.loader, &b));
    CHECK_NEAR(a.loss, b.loss, 1e-6);
    CHECK_NEAR(a.grad_norm, b.grad_norm, 1e-5);
    training_close(&whole), training_close(&parts);
}

TEST(diffusion_averages_over_all_tokens_of_the_batch)
{
    struct training whole, parts;
    struct step_result a, b;
    const char *name = "objective.name=diffusion", *mask = "objective.mask_token=<|mask|>";
    TRAINING_OPEN(&whole, name, mask, "training.local_batch_size=4");
    TRAINING_OPEN(&parts, name, mask, "training.local_batch_size=1",
                  "training.global_batch_size=4");
    for (int i = 0; i < 3; i++) {
        double sum = 0;
        CHECK_STATUS(OK, trainer_step(&whole.trainer, whole.loader, &a));
        CHECK_STATUS(OK, trainer_step(&parts.trainer, parts.loader, &b));
        CHECK_NEAR(a.loss, b.loss, 1e-6 * a.loss);
        CHECK_NEAR(a.grad_norm, b.grad_norm, 1e-5 * a.grad_norm);
        const struct batch *t = &whole.trainer.batch;
        CHECK(t->valid == t->B * t->T);
        for (int n = 0; n < t->B * t->T; n++) {
            sum += (double)whole.trainer.loss_BT[n];
            CHECK((whole.trainer.loss_BT[n] > 0) == (t->labels_BT[n] != LABEL_IGNORED));
        }
        CHECK_NEAR(a.loss, sum / (double)t->valid, 1e-6 * a.loss);
    }
    training_close(&whole), training_close(&parts);
}

TEST(loss_norms_differ_with_a_masked_objective)
{
    struct training token, rank;
    struct step_result a, b;
    const char *masked = "objective.name=masked", *mask = "objective.mask_token=<|mask|>";
    const char *rows = "training.global_batch_size=4", *part = "training.local_batch_size=1";
    TRAINING_OPEN(&token, masked, mask, rows, part);
    TRAINING_OPEN(&rank, masked, mask, rows, part, "training.loss_norm=rank_mean");
    CHECK_STATUS(OK, trainer_step(&token.trainer, token.loader, &a));
    CHECK_STATUS(OK, trainer_step(&rank.trainer, rank.loader, &b));
    CHECK(a.loss != b.loss && fabs(a.loss - b.loss) < 0.5);
    training_close(&token), training_close(&rank);
}

TEST(gradients_are_clipped_to_max_norm)
{
    struct training free_, clipped;
    struct step_result a, b;
    TRAINING_OPEN(&free_, "training.max_norm=0");
    TRAINING_OPEN(&clipped, "training.max_norm=1e-3");
    CHECK_STATUS(OK, trainer_step(&free_.trainer, free_.loader, &a));
    CHECK_STATUS(OK, trainer_step(&clipped.trainer, clipped.loader, &b));
    CHECK(a.grad_norm == b.grad_norm); /* reported before clipping */
    double scale = 1e-3 / (a.grad_norm + 1e-6);
    for (size_t i = 0; i < free_.trainer.model.layout.elements; i++)
        CHECK_NEAR((double)((const float *)clipped.trainer.optim.exp_avg)[i],
                   scale * (double)((const float *)free_.trainer.optim.exp_avg)[i], 1e-7);
    training_close(&free_), training_close(&clipped);
}

TEST(non_finite_step_is_skipped_and_changes_no_byte_of_the_state)
{
    struct training t;
    struct step_result r;
    TRAINING_OPEN(&t, "debug.seed=1");
    training_steps(&t, 2);
    size_t n = t.trainer.model.layout.elements, bytes = n * sizeof(float);
    t.trainer.optim.weights[n / 2] = NAN;
    float *before = heap(3 * bytes);
    memcpy(before, t.trainer.optim.weights, bytes);
    memcpy(before + n, t.trainer.optim.exp_avg, bytes);
    memcpy(before + 2 * n, t.trainer.optim.exp_avg_sq, bytes);
    for (int skips = 1; skips <= 3; skips++) {
        CHECK_STATUS(OK, trainer_step(&t.trainer, t.loader, &r));
        CHECK(r.skipped && r.step == 2 + skips && t.trainer.skips == skips);
        CHECK(!memcmp(before, t.trainer.optim.weights, bytes));
        CHECK(!memcmp(before + n, t.trainer.optim.exp_avg, bytes));
        CHECK(!memcmp(before + 2 * n, t.trainer.optim.exp_avg_sq, bytes));
    }
    t.trainer.optim.weights[n / 2] = 0;
    CHECK_STATUS(OK, trainer_step(&t.trainer, t.loader, &r));
    CHECK(!r.skipped && t.trainer.skips == 0);
    free(before);
    training_close(&t);
}

TEST(moments_that_begin_at_zero_later_are_updated_as_in_a_first_step)
{
    struct training first, later;
    struct step_result a, b;
    TRAINING_OPEN(&first, "lr_scheduler.warmup_steps=0", "lr_scheduler.decay_ratio=0");
    TRAINING_OPEN(&later, "lr_scheduler.warmup_steps=0", "lr_scheduler.decay_ratio=0");
    later.trainer.steps_done = later.trainer.moments_begin = 50;
    CHECK_STATUS(OK, trainer_step(&first.trainer, first.loader, &a));
    CHECK_STATUS(OK, trainer_step(&later.trainer, later.loader, &b));
    CHECK(a.lr == b.lr && b.step == 51);
    size_t bytes = first.trainer.shard.elements * sizeof(float);
    CHECK(!memcmp(first.trainer.optim.weights, later.trainer.optim.weights, bytes));
    training_close(&first), training_close(&later);
}

/* Losses of 30 steps, during which they fall from 5.6 to about 3. */
TEST(eight_bit_moments_train_as_float32_moments)
{
    struct training plain, quantized;
    const char *width = "model.dim=64", *hidden = "model.ffn_hidden=64";
    TRAINING_OPEN(&plain, width, hidden);
    TRAINING_OPEN(&quantized, width, hidden, "optimizer.state_dtype=int8");
    CHECK(quantized.trainer.optim.moments == INT8);
    for (int step = 0; step < 30; step++) {
        double want = training_steps(&plain, 1), got = training_steps(&quantized, 1);
        CHECK(fabs(got - want) < 0.02 * want);
    }
    training_close(&plain), training_close(&quantized);
}

/* Eight microbatches a step. */
TEST(bfloat16_gradients_train_as_float32_gradients)
{
    struct training wide, narrow;
    const char *batch = "training.global_batch_size=16", *rows = "training.local_batch_size=2";
    const char *half = "training.mixed_precision_param=bfloat16";
    const char *split = "optimizer.master_weights=split";
    double norm[2];
    TRAINING_OPEN(&wide, batch, rows, half, split);
    TRAINING_OPEN(&narrow, batch, rows, half, split, "training.gradient_dtype=bfloat16");
    CHECK(narrow.trainer.optim.gradients == BF16);
    for (int step = 0; step < 30; step++) {
        double want = training_steps(&wide, 1), got = training_steps(&narrow, 1);
        CHECK(fabs(got - want) < 0.01 * want);
    }
    CHECK_STATUS(OK, trainer_parameter_norm(&wide.trainer, &norm[0]));
    CHECK_STATUS(OK, trainer_parameter_norm(&narrow.trainer, &norm[1]));
    CHECK_NEAR(norm[1], norm[0], 1e-2);
    training_close(&wide), training_close(&narrow);
}

/* Compute weights are rounded alike, except for rare ties. */
TEST(split_weights_train_as_float32_master_weights)
{
    struct training plain, halves;
    const char *half = "training.mixed_precision_param=bfloat16";
    TRAINING_OPEN(&plain, half);
    TRAINING_OPEN(&halves, half, "optimizer.master_weights=split");
    CHECK_NEAR(training_steps(&halves, 5), training_steps(&plain, 5), 1e-3);
    double norm[2];
    CHECK_STATUS(OK, trainer_parameter_norm(&plain.trainer, &norm[0]));
    CHECK_STATUS(OK, trainer_parameter_norm(&halves.trainer, &norm[1]));
    CHECK_NEAR(norm[1], norm[0], 1e-3);
    training_close(&plain), training_close(&halves);
}
