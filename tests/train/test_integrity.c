// SPDX-License-Identifier: Apache-2.0
#include "train/integrity.h"

#include "base/rng.h"
#include "ops/linear.h"
#include "train/training.h"

enum { FLIPS = 50 };

struct buffer {
    void *x;
    size_t bytes;
    const char *name;
};

static int list_buffers(const struct trainer *t, struct buffer *out)
{
    size_t n = t->shard.elements, moment = dtype_bytes(t->optim.moments);
    const struct buffer all[] = {
        {t->optim.weights, n * sizeof(float), "weights"},
        {t->optim.low, n * sizeof *t->optim.low, "weights (low halves)"},
        {t->optim.copy, n * dtype_bytes(BF16), "compute weights"},
        {t->optim.exp_avg, n * moment, "exp_avg"},
        {t->optim.exp_avg_sq, t->optim.exp_avg_sq_shard->elements * moment, "exp_avg_sq"}};
    int count = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].x) out[count++] = all[i];
    return count;
}

/* Flips random bits between steps; returns how many of them the next step finds and names. */
static int count_found(struct training *t, int flips)
{
    struct step_result r;
    int found = 0;
    CHECK_STATUS(OK, trainer_step(&t->trainer, t->loader, &r));
    for (int i = 0; i < flips; i++) {
        struct buffer buffers[STATE_COUNT];
        int count = list_buffers(&t->trainer, buffers);
        const struct buffer *b = &buffers[i % count];
        size_t bit = rng_below(8 * b->bytes, 5, RNG_TEST, 0, (uint64_t)i);
        char message[64];
        snprintf(message, sizeof message, ": %s changed in memory", b->name);
        test_flip_bit(b->x, bit);
        enum status st = trainer_step(&t->trainer, t->loader, &r);
        found += st == STATUS_DEVICE && strstr(status_message(), message);
        CHECK(t->trainer.integrity.is_suspect);
        test_flip_bit(b->x, bit); /* mended: the run can continue */
        CHECK_STATUS(OK, trainer_step(&t->trainer, t->loader, &r));
    }
    return found;
}

TEST(fifty_flipped_bits_of_weights_and_moments_are_found)
{
    static const char *const half = "training.mixed_precision_param=bfloat16";
    struct training t;
    int found = 0;
    TRAINING_OPEN(&t, "guard.hash_every=1");
    found += count_found(&t, 20);
    training_close(&t);
    TRAINING_OPEN(&t, "guard.hash_every=1", half, "optimizer.name=Muon");
    found += count_found(&t, 15);
    training_close(&t);
    TRAINING_OPEN(&t, "guard.hash_every=1", half, "optimizer.master_weights=split",
                  "optimizer.state_dtype=bfloat16");
    found += count_found(&t, 15);
    training_close(&t);
    print_message("%d of %d flipped bits found\n", found, FLIPS);
    CHECK(found == FLIPS);
}

TEST(a_flipped_bit_of_an_eight_bit_moment_is_found)
{
    struct training t;
    struct step_result r;
    TRAINING_OPEN(&t, "guard.hash_every=1", "optimizer.state_dtype=int8", "model.dim=64",
                  "model.ffn_hidden=64");
    CHECK_STATUS(OK, trainer_step(&t.trainer, t.loader, &r));
    const struct tensor_slot *q = layout_find(&t.trainer.model.layout, PARAM_attn_q, 1);
    for (int i = 0; i < 4; i++) {
        const struct quantized_moments *m = &t.trainer.quantized;
        uint8_t *codes = i % 2 ? t.trainer.optim.exp_avg_sq : t.trainer.optim.exp_avg,
                *x = codes + q->offset;
        float *scale = &m->blocks[i % 2].scales[q->offset / BLOCKWISE_BLOCK];
        test_flip_bit(i < 2 ? (void *)x : scale, 5);
        CHECK_STATUS(DEVICE, trainer_step(&t.trainer, t.loader, &r));
        CHECK_MESSAGE(i % 2 ? ": exp_avg_sq changed in memory" : ": exp_avg changed in memory");
        test_flip_bit(i < 2 ? (void *)x : scale, 5);
        CHECK_STATUS(OK, trainer_step(&t.trainer, t.loader, &r));
    }
    training_close(&t);
}

TEST(message_of_changed_memory_names_rank_steps_and_good_checkpoints)
{
    struct training t;
    struct step_result r;
    TRAINING_OPEN(&t, "guard.hash_every=2");
    for (int i = 0; i < 4; i++) CHECK_STATUS(OK, trainer_step(&t.trainer, t.loader, &r));
    test_flip_bit(t.trainer.optim.weights, 77);
    CHECK_STATUS(DEVICE, trainer_step(&t.trainer, t.loader, &r));
    CHECK_MESSAGE("rank 0 on ");
    CHECK_MESSAGE("weights changed in memory after the update of step 4, before that of step 5");
    CHECK_MESSAGE("step 3 or earlier");
    CHECK(t.trainer.integrity.good == 3 && t.trainer.steps_done == 4);
    training_close(&t);
}

TEST(state_replaced_from_outside_is_not_corrupt)
{
    struct training t;
    struct step_result r;
    TRAINING_OPEN(&t, "guard.hash_every=1");
    CHECK_STATUS(OK, trainer_step(&t.trainer, t.loader, &r));
    CHECK_STATUS(OK, trainer_init_weights(&t.trainer, 2)); /* as a rollback does */
    CHECK_STATUS(OK, trainer_sync_weights(&t.trainer));
    CHECK_STATUS(OK, trainer_step(&t.trainer, t.loader, &r));
    training_close(&t);
}

TEST(without_the_option_nothing_is_hashed_or_allocated)
{
    struct training off, on;
    struct step_result r;
    TRAINING_OPEN(&off, "debug.seed=1");
    TRAINING_OPEN(&on, "guard.hash_every=1", "guard.replay_every=1");
    CHECK(!off.trainer.integrity.all && on.trainer.integrity.all);
    CHECK(off.trainer.shared.size < on.trainer.shared.size);
    CHECK_STATUS(OK, trainer_step(&off.trainer, off.loader, &r));
    CHECK(!off.trainer.integrity.is_current);
    test_flip_bit(off.trainer.optim.weights, 77);
    CHECK_STATUS(OK, trainer_step(&off.trainer, off.loader, &r));
    training_close(&off), training_close(&on);
}

/* Flips a bit of one linear layer's result, in its call number `at`: of the last token, as the
 * first one attends only to itself, whatever its query is; and of column 0, as the last ones of the
 * head are padding. */
static struct {
    const struct ops *real;
    int calls, at;
} faulty;

static enum status faulty_linear(const struct linear *a, const struct linear_fwd *io,
                                 struct queue *queue)
{
    TRY(faulty.real->linear_forward(a, io, queue));
    size_t last = (size_t)(a->N - 1) * (size_t)a->F;
    if (++faulty.calls == faulty.at) test_flip_bit(io->y_NF, 32 * last + 23);
    return STATUS_OK;
}

TEST(a_flip_in_either_pass_of_a_replay_is_found)
{
    struct training t;
    struct step_result r;
    struct ops ops = ops_cpu_reference;
    ops.linear_forward = faulty_linear;
    TRAINING_OPEN(&t, "guard.replay_every=2", "training.global_batch_size=4",
                  "activation_checkpoint.mode=none"); /* so that every result is read */
    t.trainer.model.ops = &ops;
    faulty.real = &ops_cpu_reference, faulty.calls = 0, faulty.at = 0;
    CHECK_STATUS(OK, trainer_step(&t.trainer, t.loader, &r));
    int calls = faulty.calls; /* of one pass */
    CHECK_STATUS(OK, trainer_step(&t.trainer, t.loader, &r));
    CHECK(faulty.calls == 3 * calls);
    for (int at = 1; at <= 2 * calls; at++) {
        t.trainer.steps_done = 1;
        faulty.calls = 0, faulty.at = at;
        CHECK_STATUS(DEVICE, trainer_step(&t.trainer, t.loader, &r));
        CHECK_MESSAGE("rank 0 on ");
        CHECK_MESSAGE("the replay of step 2 gave other ");
    }
    training_close(&t);
}

TEST(a_replayed_run_has_the_same_bits)
{
    static const char *const settings[][4] = {
        {"training.global_batch_size=4"},
        {"training.mixed_precision_param=bfloat16", "model.converters=[\"float8\"]",
         "model.ffn_hidden=32"},
        {"training.mixed_precision_param=bfloat16", "model.converters=[\"float8\"]",
         "model.ffn_hidden=32", "float8.recipe_name=delayed"},
        {"training.global_batch_size=4", "training.determinism=elastic"},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const char *const *s = settings[i];
        struct training plain, checked;
        struct step_result a, b;
        TRAINING_OPEN(&plain, s[0], s[1], s[2], s[3]);
        TRAINING_OPEN(&checked, "guard.hash_every=1", "guard.replay_every=1", s[0], s[1], s[2],
                      s[3]);
        for (int step = 0; step < 6; step++) {
            CHECK_STATUS(OK, trainer_step(&plain.trainer, plain.loader, &a));
            CHECK_STATUS(OK, trainer_step(&checked.trainer, checked.loader, &b));
            CHECK(a.loss == b.loss && a.grad_norm == b.grad_norm);
        }
        CHECK(!memcmp(plain.trainer.optim.weights, checked.trainer.optim.weights,
                      plain.trainer.shard.elements * sizeof(float)));
        training_close(&plain), training_close(&checked);
    }
}
