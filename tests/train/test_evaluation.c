// SPDX-License-Identifier: Apache-2.0
#include "train/training.h"

#include "train/run.h"

static void evaluate(struct training *t, int B, int64_t batches, struct evaluation *e)
{
    struct loader *loader;
    struct arena run = {0}, step = {0};
    struct loader_options o = run_loader_options(&t->config, &t->machine.mesh, &t->data,
                                                 t->tokenizer, t->trainer.model.shape.V);
    o.once = true;
    struct evaluator evaluator = t->trainer.evaluator;
    CHECK_STATUS(OK, loader_open(&loader, &o));
    CHECK_STATUS(OK, arena_init(&run, 1 << 20, NULL));
    CHECK_STATUS(OK, arena_init(&step, 64 << 20, NULL));
    CHECK_STATUS(OK, arena_init(&t->machine.on->scratch, 1 << 20, NULL));
    evaluator_take(&evaluator, B, 16, &run);
    CHECK_STATUS(OK, evaluator_run(&evaluator, loader, batches, &step, e));
    evaluator_release(&evaluator);
    loader_close(loader);
    arena_release(&run), arena_release(&step);
    arena_release(&t->machine.on->scratch);
}

/* What lies at a token says which one it is. */
static void fill(struct batch *b, int b_first)
{
    for (int i = 0; i < b->B * b->T; i++) {
        b->ids_BT[i] = b_first + i, b->labels_BT[i] = 1000 + b_first + i;
        b->start_BT[i] = i % b->T / 3, b->end_BT[i] = b->T;
    }
}

TEST(a_batch_is_cut_into_the_tokens_that_are_here)
{
    enum { T = 12, PARTS = 3 };
    struct arena run = {0};
    struct batch whole, here;
    struct comm contexts = {.rank = 1, .size = PARTS};
    CHECK_STATUS(OK, arena_init(&run, 1 << 12, NULL));
    batch_take(&whole, 2, T, &run);
    fill(&whole, 5);
    whole.valid = 20, whole.bytes = 21;
    batch_here_take(&whole, &contexts, &here, &run);
    for (int causal = 0; causal < 2; causal++) {
        static const int places[2][T / PARTS] = {{4, 5, 6, 7}, {2, 3, 8, 9}};
        batch_cut(&whole, &contexts, causal, &here);
        CHECK(here.B == 2 && here.T == T / PARTS && here.valid == 20 && here.bytes == 21);
        for (int i = 0; i < 2 * here.T; i++) {
            int token = i / here.T * T + places[causal][i % here.T];
            CHECK(here.ids_BT[i] == 5 + token && here.labels_BT[i] == 1005 + token);
            CHECK(here.start_BT[i] == token % T / 3 && here.end_BT[i] == T);
        }
    }
    arena_release(&run);
}

TEST(a_batch_that_is_not_cut_is_its_own_part)
{
    struct arena run = {0};
    struct batch whole, here;
    struct comm alone = {.size = 1};
    CHECK_STATUS(OK, arena_init(&run, 1 << 12, NULL));
    batch_take(&whole, 2, 5, &run);
    size_t taken = run.used;
    batch_here_take(&whole, &alone, &here, &run);
    CHECK(run.used == taken && here.ids_BT == whole.ids_BT && here.T == 5);
    whole.valid = 9;
    batch_cut(&whole, &alone, true, &here);
    CHECK(here.valid == 9 && here.end_BT == whole.end_BT);
    arena_release(&run);
}

TEST(the_mean_loss_does_not_depend_on_the_rows_of_a_batch)
{
    struct training t;
    struct evaluation a, b;
    TRAINING_OPEN(&t, "debug.seed=2");
    arena_release(&t.machine.on->scratch);
    evaluate(&t, 3, -1, &a);
    evaluate(&t, 8, -1, &b);
    CHECK(a.tokens == b.tokens && a.tokens > 50000 && a.bytes == b.bytes && a.bytes > 0);
    CHECK(a.batches > b.batches);
    CHECK_NEAR(a.loss_sum / (double)a.tokens, b.loss_sum / (double)b.tokens, 1e-6);
    CHECK(a.correct >= 0 && a.correct < a.tokens);
    training_close(&t);
}

TEST(an_evaluation_reads_as_many_batches_as_it_is_told)
{
    struct training t;
    struct evaluation e;
    TRAINING_OPEN(&t, "debug.seed=2");
    arena_release(&t.machine.on->scratch);
    evaluate(&t, 4, 5, &e);
    CHECK(e.batches == 5 && e.tokens == 5 * 4 * 16);
    training_close(&t);
}

TEST(labels_that_are_the_mark_are_summed_apart_too)
{
    struct training t;
    struct evaluation plain, e;
    TRAINING_OPEN(&t, "debug.seed=2");
    arena_release(&t.machine.on->scratch);
    evaluate(&t, 4, 5, &plain);
    t.trainer.evaluator.has_marks = true, t.trainer.evaluator.mark = ' ';
    evaluate(&t, 4, 5, &e);
    CHECK(plain.marks == 0 && e.marks > 0 && e.marks < e.tokens / 2);
    CHECK(e.tokens == plain.tokens && e.loss_sum == plain.loss_sum);
    /* it has learnt nothing, so that no label costs much more than another */
    CHECK_NEAR(e.mark_loss_sum / (double)e.marks, e.loss_sum / (double)e.tokens, 0.2);
    training_close(&t);
}
