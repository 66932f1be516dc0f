// SPDX-License-Identifier: Apache-2.0
#include "train/training.h"

#include "base/file.h"
#include "train/inputs.h"

static void evaluate_rows(struct training *t, int B, int T, int64_t batches, struct evaluation *e)
{
    struct loader *loader;
    struct arena run = {0}, step = {0};
    struct loader_options o = inputs_loader_options(&t->config, &t->machine.mesh, &t->data,
                                                    t->tokenizer, t->trainer.model.shape.V);
    o.once = true, o.seq_len = T;
    struct evaluator evaluator = t->trainer.evaluator;
    CHECK_STATUS(OK, loader_open(&loader, &o));
    CHECK_STATUS(OK, arena_init(&run, 1 << 20, NULL));
    CHECK_STATUS(OK, arena_init(&step, 64 << 20, NULL));
    CHECK_STATUS(OK, arena_init(&t->machine.queue->scratch, 1 << 20, NULL));
    evaluator_alloc(&evaluator, B, T, &run);
    CHECK_STATUS(OK, evaluator_run(&evaluator, loader, batches, &step, e));
    evaluator_release(&evaluator);
    loader_close(loader);
    arena_release(&run), arena_release(&step);
    arena_release(&t->machine.queue->scratch);
}

static void evaluate(struct training *t, int B, int64_t batches, struct evaluation *e)
{
    evaluate_rows(t, B, 16, batches, e);
}

TEST(mean_loss_does_not_depend_on_the_batch_size)
{
    struct training t;
    struct evaluation a, b;
    TRAINING_OPEN(&t, "debug.seed=2");
    arena_release(&t.machine.queue->scratch);
    evaluate(&t, 3, -1, &a);
    evaluate(&t, 8, -1, &b);
    CHECK(a.tokens == b.tokens && a.tokens > 50000 && a.bytes == b.bytes && a.bytes > 0);
    CHECK(a.batches > b.batches);
    CHECK_NEAR(a.loss_sum / (double)a.tokens, b.loss_sum / (double)b.tokens, 1e-6);
    CHECK(a.correct >= 0 && a.correct < a.tokens);
    training_close(&t);
}

TEST(diffusion_is_evaluated_on_all_tokens_with_the_same_masks_each_time)
{
    struct training t;
    struct evaluation e[2];
    TRAINING_OPEN(&t, "objective.name=diffusion", "objective.mask_token=<|mask|>");
    arena_release(&t.machine.queue->scratch);
    for (int i = 0; i < 2; i++) evaluate(&t, i ? 8 : 3, -1, &e[i]);
    CHECK(e[0].tokens > 50000 && e[0].tokens == e[1].tokens && e[0].bytes == e[1].bytes);
    CHECK(e[0].bytes > e[0].tokens * 9 / 10); /* of all tokens, masked or not */
    double loss = e[0].loss_sum / (double)e[0].tokens;
    CHECK_NEAR(loss, e[1].loss_sum / (double)e[1].tokens, 1e-6);
    CHECK(loss > 0.9 * log(t.trainer.model.shape.V) && loss < 1.4 * log(t.trainer.model.shape.V));
    training_close(&t);
}

TEST(evaluation_stops_after_the_given_number_of_batches)
{
    struct training t;
    struct evaluation e;
    TRAINING_OPEN(&t, "debug.seed=2");
    arena_release(&t.machine.queue->scratch);
    evaluate(&t, 4, 5, &e);
    CHECK(e.batches == 5 && e.tokens == 5 * 4 * 16);
    training_close(&t);
}

/* The end of a document stands for no bytes. */
TEST(bytes_are_known_where_a_batch_only_predicts_the_end_of_a_document)
{
    struct training t;
    struct evaluation e;
    const char *text = "{\"text\": \"ab\"}\n{\"text\": \"abc\"}\n";
    TRAINING_OPEN(&t, "debug.seed=2");
    arena_release(&t.machine.queue->scratch);
    t.source.path = test_path(test_folder(), "two.jsonl"), t.source.column = "text";
    CHECK_STATUS(OK, file_write(t.source.path, text, strlen(text)));
    evaluate_rows(&t, 1, 1, -1, &e);
    CHECK(e.tokens == 8 && e.bytes == 5); /* also two ends and the second beginning */
    training_close(&t);
}

TEST(losses_of_the_mark_are_also_summed_separately)
{
    struct training t;
    struct evaluation plain, e;
    TRAINING_OPEN(&t, "debug.seed=2");
    arena_release(&t.machine.queue->scratch);
    evaluate(&t, 4, 5, &plain);
    t.trainer.evaluator.has_marks = true, t.trainer.evaluator.mark = ' ';
    evaluate(&t, 4, 5, &e);
    CHECK(plain.marks == 0 && e.marks > 0 && e.marks < e.tokens / 2);
    CHECK(e.tokens == plain.tokens && e.loss_sum == plain.loss_sum);
    /* the model is untrained, so all labels have about the same loss */
    CHECK_NEAR(e.mark_loss_sum / (double)e.marks, e.loss_sum / (double)e.tokens, 0.2);
    training_close(&t);
}

TEST(evaluation_without_tokens_or_with_a_loss_that_is_not_finite_fails)
{
    struct evaluation v = {.loss_sum = 3, .tokens = 2};
    CHECK_STATUS(OK, evaluator_check(&v, "a.txt"));
    v.loss_sum = (double)NAN;
    CHECK_STATUS(DIVERGED, evaluator_check(&v, "a.txt"));
    CHECK_MESSAGE("a.txt: the loss is nan");
    v.loss_sum = (double)INFINITY;
    CHECK_STATUS(DIVERGED, evaluator_check(&v, "a.txt"));
    v.tokens = 0;
    CHECK_STATUS(DATA, evaluator_check(&v, "a.txt"));
}
