// SPDX-License-Identifier: Apache-2.0
#include "model/rig.h"

#include "data/batch.h"
#include "model/head.h"
#include "ops/linear.h"

/* A vocabulary whose logits need two chunks for 1100 rows, and one for half of them. */
TEST(chunked_logits_match_unchunked)
{
    struct model_shape s = small_shape();
    s.V = 33000, s.D = s.K = s.F = 4, s.L = s.H = s.G = 1, s.rope_theta = 100;
    struct rig r;
    rig_open(&r, &s, F32, 2, 550);
    size_t n = r.m.layout.elements;
    float *loss = heap(1100 * sizeof *loss), *gradients = heap(n * sizeof *gradients);
    rig_train(&r);
    CHECK(r.step.size > 550 * 33000 * sizeof(float) && r.step.size < 1024 * 33000 * sizeof(float));
    memcpy(loss, r.loss, 1100 * sizeof *loss);
    memcpy(gradients, r.gradients, n * sizeof *gradients);
    memset(r.gradients, 0, n * sizeof *gradients);
    r.b.B = 1;
    for (int row = 0; row < 2; row++) {
        CHECK_STATUS(OK, single_stage_train(&r.m, &r.b, &r.step));
        for (int t = 0; t < 550; t++) CHECK_NEAR(r.loss[t], loss[row * 550 + t], 1e-6);
        r.b.ids_BT += 550, r.b.labels_BT += 550;
    }
    for (size_t i = 0; i < n; i++) CHECK_NEAR(r.gradients[i], gradients[i], 1e-6);
    free(loss), free(gradients);
    rig_close(&r);
}

/* Two chunks by default; one if the backend has logit_rows of 2048 rows. */
TEST(backend_chooses_how_many_logits_exist_at_a_time)
{
    struct model_shape s = small_shape();
    s.V = 33000, s.D = s.K = s.F = 4, s.L = s.H = s.G = 1, s.rope_theta = 100;
    struct rig r;
    rig_open(&r, &s, F32, 1, 1100);
    size_t n = r.m.layout.elements, by_default = rig_size(&r, single_stage_train);
    float *loss = heap(1100 * sizeof *loss), *gradients = heap(n * sizeof *gradients);
    rig_train(&r);
    memcpy(loss, r.loss, 1100 * sizeof *loss);
    memcpy(gradients, r.gradients, n * sizeof *gradients);
    r.ops.logit_rows = 2048;
    rig_train(&r);
    CHECK(r.step.size > by_default + 500 * 33000 * sizeof(float));
    for (int t = 0; t < 1100; t++) CHECK(r.loss[t] == loss[t]);
    for (size_t i = 0; i < n; i++) CHECK_NEAR(r.gradients[i], gradients[i], 1e-6);
    free(loss), free(gradients);
    rig_close(&r);
}

enum { ROWS = 2, T = 95, N = ROWS * T, CHUNK = 64 };

static int rows_of_logits;
static enum status count_rows(const struct linear *l, const struct linear_fwd *io,
                              struct queue *queue)
{
    if (l->F == rig_shape().V && !queue->sizing) rows_of_logits += l->N;
    return ops_cpu_reference.linear_forward(l, io, queue);
}

/* Chunks of 64, 64 and 62 tokens. */
static void open_masked(struct rig *r, enum dtype dtype)
{
    struct model_shape s = rig_shape();
    rig_open(r, &s, dtype, ROWS, T);
    r->b.causal = false;
    r->ops.logit_rows = 4 * CHUNK, r->ops.linear_forward = count_rows;
}

/* Leaves that many labels, spread over the tokens. */
static void keep_labels(struct rig *r, int count)
{
    for (int n = 0; n < N; n++) {
        bool keeps = (n + 1) * count / N > n * count / N;
        r->labels[n] = keeps ? (r->ids[n] * 7 + 3) % r->m.shape.V : LABEL_IGNORED;
    }
}

/* Lets the head compute the tokens that have a label. */
static void skip_others(struct rig *r, struct batch *b, int32_t *arrays)
{
    *b = (struct batch){.B = ROWS, .T = T, .labels_BT = r->labels};
    b->order_BT = arrays, b->inverse_order_BT = arrays + N, b->num_labels = arrays + (size_t)2 * N;
    batch_order_labels(b, 1);
    r->b.order_BT = b->order_BT, r->b.inverse_order_BT = b->inverse_order_BT;
    r->b.head_tokens = head_count_tokens(&r->m, &r->b, b->num_labels[0]);
}

/* Losses are the same bits as without skipping, gradients about the same.  An odd number of labels
 * has weights. */
static void check_masked(enum dtype dtype, int labels, int computed)
{
    struct rig r;
    struct batch b;
    int32_t arrays[2 * N + ROWS], best[N];
    float loss[N], weights[N];
    open_masked(&r, dtype);
    keep_labels(&r, labels);
    for (int n = 0; n < N; n++) weights[n] = 1 + (float)(n % 5);
    if (labels % 2) r.b.weight_BT = weights;
    r.b.z_loss = 0.1f;
    size_t elements = r.m.layout.elements, bytes = rig_size(&r, single_stage_train);
    float *gradients = heap(elements * sizeof *gradients);
    rig_train(&r);
    memcpy(gradients, r.gradients, elements * sizeof *gradients);
    memcpy(loss, r.loss, sizeof loss), memcpy(best, r.best, sizeof best);
    skip_others(&r, &b, arrays);
    CHECK(r.b.head_tokens == computed && rig_size(&r, single_stage_train) == bytes);
    rows_of_logits = 0;
    rig_train(&r);
    CHECK(rows_of_logits == computed && !memcmp(r.loss, loss, sizeof loss));
    for (int n = 0; n < N; n++) CHECK(r.labels[n] < 0 || r.best[n] == best[n]);
    for (size_t i = 0; i < elements; i++)
        CHECK_NEAR(r.gradients[i], gradients[i], dtype == F32 ? 1e-6 : 1e-3);
    memset(r.loss, 0xff, sizeof loss), memset(r.best, 0xff, sizeof best);
    rig_run(&r, single_stage_evaluate);
    CHECK(rows_of_logits == 2 * computed && !memcmp(r.loss, loss, sizeof loss));
    for (int n = 0; n < N; n++) CHECK(r.labels[n] < 0 || r.best[n] == best[n]);
    free(gradients);
    rig_close(&r);
}

TEST(chunks_without_labels_are_not_computed)
{
    const enum dtype dtypes[] = {F32, BF16};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        enum dtype dtype = dtypes[i];
        check_masked(dtype, 1, CHUNK);
        check_masked(dtype, CHUNK, CHUNK);
        check_masked(dtype, CHUNK + 1, 2 * CHUNK);
        check_masked(dtype, 2 * CHUNK + 1, N); /* the third chunk is the last, of 62 tokens */
        check_masked(dtype, N, N);
    }
}

/* One chunk is computed, as it may have to overwrite what the gradients hold. */
TEST(without_any_label_the_gradient_is_zero)
{
    struct rig r;
    struct batch b;
    int32_t arrays[2 * N + ROWS];
    open_masked(&r, F32);
    keep_labels(&r, 0);
    skip_others(&r, &b, arrays);
    rows_of_logits = 0;
    rig_train(&r);
    CHECK(rows_of_logits == CHUNK);
    for (size_t i = 0; i < r.m.layout.elements; i++) CHECK(r.gradients[i] == 0);
    for (int n = 0; n < N; n++) CHECK(r.loss[n] == 0);
    rig_close(&r);
}

/* With causal attention a chunk has at least 1024 tokens, so the head computes all tokens of a
 * smaller microbatch; without, at least 256. */
TEST(causal_microbatches_keep_large_chunks)
{
    struct rig r;
    struct model_shape s = rig_shape();
    rig_open(&r, &s, F32, ROWS, T);
    CHECK(head_count_tokens(&r.m, &r.b, 1) == N);
    r.b.B = 32, r.m.shape.V = 128000;
    CHECK(head_count_tokens(&r.m, &r.b, 32 * T) == 32 * T);
    CHECK(head_count_tokens(&r.m, &r.b, 32 * T - 100) == 32 * T);
    CHECK(head_count_tokens(&r.m, &r.b, 1025) == 2 * 1024);
    r.b.causal = false;
    CHECK(head_count_tokens(&r.m, &r.b, 1025) == 5 * 256);
    rig_close(&r);
}

TEST(head_param_of_tied_model_is_the_embedding)
{
    struct model m = {.shape = rig_shape()};
    CHECK(head_param(&m) == PARAM_head);
    m.shape.tied = true;
    CHECK(head_param(&m) == PARAM_embed);
}
