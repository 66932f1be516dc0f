// SPDX-License-Identifier: Apache-2.0
#include "train/training.h"

#include "base/file.h"
#include "train/task_evaluator.h"

#include <stdlib.h>

static const char lines[] = "{\"text\": \"a llama walks over\"}\n{\"text\": \"x y\"}\n"
                            "{\"text\": \"the llama walks over the mountain and carries salt\"}\n";
enum { REQUESTS = 3 };

static void open_task(struct task *t, const struct training *of, bool masked)
{
    const char *path = test_path(test_folder(), "task.jsonl");
    struct task_options o = {.name = "t", .path = path, .max_tokens = 64, .masked = masked};
    CHECK_STATUS(OK, file_write(path, lines, sizeof lines - 1));
    CHECK_STATUS(OK, task_open(t, &o, of->tokenizer));
}

/* Scores the task in batches of B rows of T tokens. */
static void score(struct training *t, const struct task *task, int B, int T, double *got)
{
    struct arena run = {0}, step = {0};
    int64_t misses[REQUESTS];
    struct task_scores s = {got, misses, false};
    struct evaluator e = t->trainer.evaluator;
    e.causal = !task->masked;
    CHECK_STATUS(OK, arena_init(&run, 1 << 20, NULL));
    CHECK_STATUS(OK, arena_init(&step, 64 << 20, NULL));
    CHECK_STATUS(OK, arena_init(&t->machine.queue->scratch, 1 << 20, NULL));
    evaluator_alloc(&e, B, T, &run);
    CHECK_STATUS(OK, task_evaluator_run(&e, task, 258, &step, &s));
    CHECK(!s.stopped);
    evaluator_release(&e);
    arena_release(&run), arena_release(&step);
    arena_release(&t->machine.queue->scratch);
}

TEST(log_likelihoods_do_not_depend_on_batches_and_padding)
{
    struct training t;
    TRAINING_OPEN(&t, "debug.seed=2", "training.seq_len=64", "data.tokenizer=bytes",
                  "model.vocab_size=264");
    arena_release(&t.machine.queue->scratch);
    for (int masked = 0; masked < 2; masked++) {
        struct task task;
        double one[REQUESTS], other[REQUESTS];
        open_task(&task, &t, masked);
        CHECK(task.num_requests == REQUESTS);
        score(&t, &task, 1, 56, one);
        score(&t, &task, 4, 64, other);
        for (int i = 0; i < REQUESTS; i++) {
            CHECK(one[i] < 0);
            CHECK_NEAR(one[i], other[i], 1e-5);
        }
        CHECK(fabs(one[1] / 2 + log(264)) < 1); /* " y": two tokens of an untrained model */
        task_close(&task);
    }
    training_close(&t);
}
