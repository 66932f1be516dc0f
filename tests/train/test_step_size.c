// SPDX-License-Identifier: Apache-2.0
#include "train/training.h"

#define ONE_ROW "training.local_batch_size=1"
#define RAMP    ONE_ROW, "training.global_batch_size=8", "training.batch_ramp=2,2,9"

/* 0 and 2 rows done are in the first of three parts of 3 rows, 4 in the second, 8 in the third. */
static const int sizes[] = {2, 2, 4, 6, 8};
enum { STEPS = sizeof sizes / sizeof *sizes };

TEST(steps_of_a_ramp_read_the_rows_of_equal_steps_in_their_order)
{
    struct training ramp, rows;
    struct step_result r;
    int64_t done = 0;
    TRAINING_OPEN(&ramp, RAMP);
    TRAINING_OPEN(&rows, ONE_ROW);
    const struct trainer *t = &ramp.trainer;
    for (int step = 0; step < STEPS; step++) {
        CHECK_STATUS(OK, trainer_step(&ramp.trainer, ramp.loader, &r));
        CHECK(t->batch.B == sizes[step] && t->local.B == sizes[step]);
        CHECK(t->pipeline.schedule.num_microbatches == sizes[step]);
        done += sizes[step];
        CHECK(t->rows_done == done && t->tokens_seen == done * 16);
        for (int row = 0, filled; row < t->batch.B; row++) {
            struct batch *one = &rows.trainer.batch;
            CHECK_STATUS(OK, loader_next(rows.loader, one, &filled));
            size_t at = (size_t)row * 16, bytes = 16 * sizeof(int32_t);
            CHECK(!memcmp(t->batch.ids_BT + at, one->ids_BT, bytes));
            CHECK(!memcmp(t->batch.labels_BT + at, one->labels_BT, bytes));
        }
    }
    training_close(&ramp), training_close(&rows);
}

TEST(the_first_steps_of_a_ramp_equal_those_of_a_run_with_their_batch)
{
    struct training ramp, small;
    struct step_result a, b;
    TRAINING_OPEN(&ramp, RAMP);
    TRAINING_OPEN(&small, ONE_ROW, "training.global_batch_size=2");
    for (int step = 0; step < 2; step++) {
        CHECK_STATUS(OK, trainer_step(&ramp.trainer, ramp.loader, &a));
        CHECK_STATUS(OK, trainer_step(&small.trainer, small.loader, &b));
        CHECK(a.loss == b.loss && a.grad_norm == b.grad_norm && a.lr == b.lr);
    }
    size_t bytes = ramp.trainer.shard.elements * sizeof(float);
    CHECK(!memcmp(ramp.trainer.optim.weights, small.trainer.optim.weights, bytes));
    training_close(&ramp), training_close(&small);
}

TEST(a_ramp_needs_the_memory_of_full_steps)
{
    struct training t;
    struct memory_plan plan, full;
    struct step_result r;
    TRAINING_OPEN(&t, RAMP, "activation_checkpoint.mode=none");
    struct arena scratch = t.machine.queue->scratch;
    t.machine.queue->scratch = (struct arena){0};
    CHECK_STATUS(OK, trainer_plan(&t.config, &t.trainer.model.shape, &t.machine, &plan));
    size_t count = t.config.training.batch_ramp.count;
    t.config.training.batch_ramp.count = 0;
    CHECK_STATUS(OK, trainer_plan(&t.config, &t.trainer.model.shape, &t.machine, &full));
    t.config.training.batch_ramp.count = count;
    CHECK(!memcmp(&plan, &full, sizeof plan));
    t.machine.queue->scratch = scratch;
    for (int step = 0; step < STEPS; step++)
        CHECK_STATUS(OK, trainer_step(&t.trainer, t.loader, &r));
    CHECK(t.trainer.step.peak == t.trainer.step.size);
    training_close(&t);
}

TEST(a_step_of_a_resumed_run_has_the_rows_of_its_position)
{
    struct training t;
    TRAINING_OPEN(&t, RAMP);
    static const int64_t done[] = {0, 2, 3, 5, 6, 8, 9, 10, 100};
    static const int rows[] = {2, 2, 4, 4, 6, 6, 8, 8, 8};
    for (size_t i = 0; i < sizeof done / sizeof *done; i++) {
        t.trainer.rows_done = done[i];
        trainer_begin_step(&t.trainer);
        CHECK(t.trainer.batch.B == rows[i]);
    }
    t.trainer.rows_done = 0; /* back, as after load_step */
    trainer_begin_step(&t.trainer);
    CHECK(t.trainer.batch.B == 2 && t.trainer.pipeline.schedule.num_microbatches == 2);
    training_close(&t);
}
