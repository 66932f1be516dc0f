// SPDX-License-Identifier: Apache-2.0
#include "ops/rig.h"

#include "backends/cpu/element.h"
#include "ops/cross_entropy.h"
#include "ops/linear.h"

static void compare(int N, int V, enum dtype dtype, float z_loss)
{
    size_t n = (size_t)N * (size_t)V;
    struct cross_entropy c = {
        .N = N, .V = V, .dtype = dtype, .scale = 0.25f, .z_loss = z_loss, .gradient = true};
    void *logits[2];
    float *loss[2];
    int32_t *best[2], *labels = heap((size_t)N * sizeof *labels);
    for (int i = 0; i < N; i++) labels[i] = i % 3 == 2 ? LABEL_IGNORED : i * 37 % V;
    for (int i = 0; i < 2; i++) {
        logits[i] = rig_random(1, n, dtype);
        loss[i] = rig_zeros((size_t)N, F32), best[i] = rig_zeros((size_t)N, F32);
        struct cross_entropy_io io = {logits[i], labels, loss[i], best[i], NULL, NULL, NULL};
        RIG_RUN(cross_entropy(i ? rig_fast() : &ops_cpu_reference, &c, &io, rig_queue()));
    }
    RIG_CLOSE(logits[1], logits[0], n, dtype);
    RIG_CLOSE(loss[1], loss[0], (size_t)N, F32);
    CHECK(!memcmp(best[0], best[1], (size_t)N * sizeof **best));
    for (int i = 0; i < N; i++)
        if (labels[i] == LABEL_IGNORED) CHECK(loss[1][i] == 0);
    for (int i = 0; i < 2; i++) free(logits[i]), free(loss[i]), free(best[i]);
    free(labels);
}

OPS_TEST(cross_entropy_agrees_with_the_reference_at_odd_sizes)
{
    for (int d = 0; d < DTYPE_COUNT; d++) {
        compare(1, 1, (enum dtype)d, 0);
        compare(5, 7, (enum dtype)d, 0);
        compare(33, 513, (enum dtype)d, 0);
        compare(4, 32001, (enum dtype)d, 0);
    }
}

OPS_TEST(z_loss_agrees_with_the_reference_at_odd_sizes)
{
    static const float coefficients[] = {1e-4f, 0.03f, 1};
    for (int d = 0; d < DTYPE_COUNT; d++)
        for (int i = 0; i < 3; i++) {
            compare(1, 1, (enum dtype)d, coefficients[i]);
            compare(5, 7, (enum dtype)d, coefficients[i]);
            compare(33, 513, (enum dtype)d, coefficients[i]);
            compare(4, 32001, (enum dtype)d, coefficients[i]);
        }
}

OPS_TEST(scale_of_the_gradient_may_be_in_memory)
{
    enum { N = 5, V = 37 };
    int32_t labels[N] = {7, LABEL_IGNORED, 36, 0, 12};
    for (int d = 0; d < DTYPE_COUNT; d++) {
        void *x[2];
        float loss[N], *scale = rig_zeros(1, F32);
        *scale = 0.375f;
        for (int i = 0; i < 2; i++) {
            struct cross_entropy c = {
                .N = N, .V = V, .dtype = (enum dtype)d, .scale = i ? 9 : *scale, .gradient = true};
            struct cross_entropy_io io = {.labels_N = labels, .loss_N = loss};
            io.logits_NV = x[i] = rig_random(1, N * V, (enum dtype)d);
            if (i) io.scale_1 = scale;
            RIG_RUN(cross_entropy(rig_fast(), &c, &io, rig_queue()));
        }
        CHECK(!memcmp(x[0], x[1], N * V * dtype_bytes((enum dtype)d)));
        free(x[0]), free(x[1]), free(scale);
    }
}

/* With a log-sum-exp below -1 / (2 z_loss) the z-loss makes the softmax's factor negative: 96 rows,
 * packed or not.  Logits are -4, so that lse = log(V) - 4, and the factor 1 + 2 (log(V) - 4). */
OPS_TEST(z_loss_pushes_a_small_log_sum_exp_up)
{
    enum { N = 96, V = 32 };
    for (int d = 0; d < 2 * DTYPE_COUNT; d++) {
        enum dtype dtype = d % 2 ? BF16 : F32;
        struct cross_entropy c = {
            .N = N, .V = V, .dtype = dtype, .scale = 1, .z_loss = 1, .gradient = true};
        c.is_packed = d / 2; /* the same value everywhere: in any order */
        void *x = rig_zeros(N * V, dtype);
        float loss[N];
        int32_t labels[N];
        for (size_t i = 0; i < N * V; i++) {
            if (dtype == F32)
                ((float *)x)[i] = -4;
            else
                ((bf16 *)x)[i] = bf16_from_f32(-4);
        }
        for (int i = 0; i < N; i++) labels[i] = i % 3 ? 100 : LABEL_IGNORED; /* of another part */
        struct cross_entropy_io io = {x, labels, loss, NULL, NULL, NULL, NULL};
        RIG_RUN(cross_entropy(rig_fast(), &c, &io, rig_queue()));
        double want = (1 + 2 * (log(V) - 4)) / V;
        int rows_with_label = 0, zeros = 0;
        CHECK(want < -0.001);
        for (size_t i = 0; i < N * V; i++) {
            double got = (double)element_get(x, i, dtype);
            rows_with_label += got < 0, zeros += got == 0;
            if (got < 0) CHECK_NEAR(got, want, 0.01 * fabs(want));
        }
        CHECK(rows_with_label == 64 * V && zeros == 32 * V);
        free(x);
    }
}

OPS_TEST(z_loss_changes_the_gradient_and_not_the_reported_loss)
{
    enum { N = 5, V = 300 };
    for (int d = 0; d < DTYPE_COUNT; d++) {
        enum dtype dtype = (enum dtype)d;
        void *x[2] = {rig_random(6, N * V, dtype), NULL};
        float loss[2][N];
        int32_t labels[N] = {7, LABEL_IGNORED, 299, 0, 12}, best[2][N];
        x[1] = rig_copy(x[0], N * V, dtype);
        for (int i = 0; i < 2; i++) {
            struct cross_entropy c = {.N = N,
                                      .V = V,
                                      .dtype = dtype,
                                      .scale = 0.5f,
                                      .z_loss = i ? 0.01f : 0,
                                      .gradient = true};
            struct cross_entropy_io io = {x[i], labels, loss[i], best[i], NULL, NULL, NULL};
            RIG_RUN(cross_entropy(rig_fast(), &c, &io, rig_queue()));
        }
        CHECK(!memcmp(loss[0], loss[1], sizeof loss[0]));
        CHECK(!memcmp(best[0], best[1], sizeof best[0]));
        for (int n = 0; n < N; n++) {
            double sums[2] = {0};
            for (int i = 0; i < 2; i++)
                for (size_t v = 0; v < V; v++)
                    sums[i] += (double)element_get(x[i], (size_t)n * V + v, dtype);
            /* without z-loss a row's gradients add up to 0, with it to scale 2 z lse */
            CHECK_NEAR(sums[0], 0, dtype == F32 ? 1e-6 : 4e-3);
            if (labels[n] == LABEL_IGNORED)
                CHECK(sums[1] == 0);
            else
                CHECK_NEAR(sums[1], 0.5 * 2 * 0.01 * (log(V) + 0.5), dtype == F32 ? 0.005 : 0.008);
        }
        free(x[0]), free(x[1]);
    }
}

OPS_TEST(loss_of_equal_logits_is_log_of_the_vocabulary)
{
    enum { V = 50 };
    for (int i = 0; i < 2; i++) {
        float logits[V] = {0}, loss, sum = 0;
        int32_t label = 7, best;
        struct cross_entropy c = {.N = 1, .V = V, .scale = 1, .gradient = true};
        struct cross_entropy_io io = {logits, &label, &loss, &best, NULL, NULL, NULL};
        RIG_RUN(cross_entropy(i ? rig_fast() : &ops_cpu_reference, &c, &io, rig_queue()));
        CHECK_NEAR((double)loss, log(V), 1e-6);
        CHECK(best == 0);
        for (int v = 0; v < V; v++) sum += logits[v];
        CHECK_NEAR((double)sum, 0, 1e-6);
        CHECK_NEAR((double)logits[7], 1.0 / V - 1, 1e-6);
    }
}

struct entropy_loss {
    int32_t labels[3];
    float *x, scale, z_loss;
};

/* log(sum of exp(x)) of row n. */
static double log_sum_exp(const struct entropy_loss *k, int n)
{
    double sum = 0;
    for (int v = 0; v < 6; v++) sum += exp((double)k->x[n * 6 + v]);
    return log(sum);
}

static double loss(void *context)
{
    struct entropy_loss *k = context;
    struct cross_entropy c = {.N = 3, .V = 6, .scale = 1};
    float losses[3];
    struct cross_entropy_io io = {k->x, k->labels, losses, NULL, NULL, NULL, NULL};
    CHECK_STATUS(OK, cross_entropy(&ops_cpu_reference, &c, &io, rig_queue()));
    double sum = 0;
    for (int n = 0; n < 3; n++) {
        bool counts = k->labels[n] != LABEL_IGNORED;
        sum += (double)losses[n];
        if (counts) sum += (double)k->z_loss * pow(log_sum_exp(k, n), 2);
    }
    return (double)k->scale * sum;
}

static void check_gradient(float z_loss)
{
    struct entropy_loss k = {.labels = {5, LABEL_IGNORED, 0}, .scale = 0.5f, .z_loss = z_loss};
    struct cross_entropy c = {.N = 3, .V = 6, .scale = k.scale, .z_loss = z_loss, .gradient = true};
    float losses[3];
    k.x = rig_random(1, 18, F32);
    float *dx = rig_copy(k.x, 18, F32);
    struct cross_entropy_io io = {dx, k.labels, losses, NULL, NULL, NULL, NULL};
    CHECK_STATUS(OK, cross_entropy(&ops_cpu_reference, &c, &io, rig_queue()));
    rig_check_gradient("logits", k.x, 18, dx, loss, &k);
    free(k.x), free(dx);
}

TEST(cross_entropy_gradient_matches_finite_differences) { check_gradient(0); }
TEST(cross_entropy_gradient_with_z_loss_matches_finite_differences) { check_gradient(0.1f); }

/* The vocabulary in three parts, each with its own logits only. */
static void compare_parts(float z_loss)
{
    enum { N = 9, V = 21, PARTS = 3, EACH = V / PARTS };
    for (int table = 0; table < 2; table++)
        for (int d = 0; d < DTYPE_COUNT; d++) {
            enum dtype dtype = (enum dtype)d;
            const struct ops *ops = table ? rig_fast() : &ops_cpu_reference;
            struct cross_entropy whole = {
                .N = N, .V = V, .dtype = dtype, .scale = 0.25f, .z_loss = z_loss, .gradient = true};
            void *x = rig_random(1, N * V, dtype), *part[PARTS];
            float loss[2][N], stats[PARTS * N * LOSS_STATS_COUNT];
            int32_t labels[N], best[2][N];
            size_t each = dtype_bytes(dtype);
            for (int n = 0; n < N; n++) labels[n] = n == 4 ? LABEL_IGNORED : n * 5 % V;
            for (int p = 0; p < PARTS; p++) {
                struct cross_entropy c = whole;
                c.V = EACH, c.step = LOSS_STATS, c.first = p * EACH;
                struct cross_entropy_io io = {
                    NULL, labels, NULL, NULL, stats + p * N * LOSS_STATS_COUNT, NULL, NULL};
                io.logits_NV = part[p] = rig_zeros(N * EACH, dtype);
                for (size_t n = 0; n < N; n++)
                    memcpy((char *)part[p] + n * EACH * each,
                           (char *)x + (n * V + (size_t)p * EACH) * each, EACH * each);
                RIG_RUN(cross_entropy(ops, &c, &io, rig_queue()));
            }
            struct cross_entropy_io io = {x, labels, loss[0], best[0], NULL, NULL, NULL};
            RIG_RUN(cross_entropy(ops, &whole, &io, rig_queue()));
            for (int p = 0; p < PARTS; p++) {
                struct cross_entropy c = whole;
                c.V = EACH, c.step = LOSS_FROM_STATS, c.first = p * EACH, c.parts = PARTS;
                struct cross_entropy_io joined = {part[p], labels, loss[1], best[1],
                                                  stats,   NULL,   NULL};
                RIG_RUN(cross_entropy(ops, &c, &joined, rig_queue()));
                for (size_t n = 0; n < N; n++)
                    for (size_t v = 0; v < EACH; v++)
                        CHECK_NEAR((double)element_get(part[p], n * EACH + v, dtype),
                                   (double)element_get(x, n * V + (size_t)p * EACH + v, dtype),
                                   dtype == F32 ? 1e-6 : 2e-3);
                CHECK(!memcmp(best[0], best[1], sizeof best[0]));
                for (int n = 0; n < N; n++)
                    CHECK_NEAR((double)loss[1][n], (double)loss[0][n], 1e-6);
                free(part[p]);
            }
            free(x);
        }
}

OPS_TEST(vocab_parallel_cross_entropy_matches_the_whole_vocabulary) { compare_parts(0); }
OPS_TEST(vocab_parallel_z_loss_matches_the_whole_vocabulary) { compare_parts(0.05f); }

/* Each token's loss and gradient times its weight, computed whole and from the statistics. */
OPS_TEST(weights_multiply_losses_and_gradients)
{
    enum { N = 33, V = 70 };
    for (int k = 0; k < 8; k++) {
        const struct ops *ops = k / 2 % 2 ? rig_fast() : &ops_cpu_reference;
        enum dtype dtype = k % 2 ? BF16 : F32;
        struct cross_entropy c = {.N = N,
                                  .V = V,
                                  .dtype = dtype,
                                  .scale = 0.25f,
                                  .z_loss = k / 4 ? 0.2f : 0,
                                  .gradient = true};
        void *x[3] = {rig_random(1, N * V, dtype)};
        float loss[3][N], weights[N], stats[N * LOSS_STATS_COUNT];
        int32_t labels[N];
        for (int n = 0; n < N; n++) {
            labels[n] = n % 5 == 3 ? LABEL_IGNORED : n * 37 % V;
            weights[n] = 1 + (float)(n * 29 % 31) * 3.25f;
        }
        for (int i = 1; i < 3; i++) x[i] = rig_copy(x[0], N * V, dtype);
        struct cross_entropy_io io = {x[0], labels, loss[0], NULL, NULL, NULL, NULL};
        RIG_RUN(cross_entropy(ops, &c, &io, rig_queue()));
        io.weight_N = weights, io.logits_NV = x[1], io.loss_N = loss[1];
        RIG_RUN(cross_entropy(ops, &c, &io, rig_queue()));
        io.logits_NV = x[2], io.loss_N = loss[2], io.stats_PN4 = stats;
        c.step = LOSS_STATS, c.parts = 1;
        RIG_RUN(cross_entropy(ops, &c, &io, rig_queue()));
        c.step = LOSS_FROM_STATS;
        RIG_RUN(cross_entropy(ops, &c, &io, rig_queue()));
        double exact = dtype == F32 ? 1e-5 : 1e-2;
        for (size_t n = 0; n < N; n++)
            for (int i = 1; i < 3; i++) {
                double w = (double)weights[n];
                CHECK_NEAR((double)loss[i][n], w * (double)loss[0][n], 1e-5 * w);
                for (size_t v = 0; v < V; v++) {
                    double plain = (double)element_get(x[0], n * V + v, dtype);
                    CHECK_NEAR((double)element_get(x[i], n * V + v, dtype), w * plain,
                               exact * (w * fabs(plain) + 1e-3));
                }
            }
        for (int i = 0; i < 3; i++) free(x[i]);
    }
}

/* Results of the head of a model with packed logits or plain ones. */
struct head {
    void *dx;
    float *dw, *loss, *stats;
    int32_t *best;
};

struct head_case {
    int N, D, V, row; /* row: logits of a token, padding included */
    float size;       /* of one token's weights */
    bool packed;
};

static struct head head_of(const struct head_case *k)
{
    size_t N = (size_t)k->N, D = (size_t)k->D, V = (size_t)k->V, row = (size_t)k->row;
    bool packed = k->packed;
    struct linear l = {.N = k->N, .D = k->D, .F = k->row, .dtype = BF16, .y_packed = packed};
    struct cross_entropy c = {.N = k->N,
                              .V = k->V,
                              .row = k->row,
                              .dtype = BF16,
                              .scale = 0.25f,
                              .z_loss = 0.05f,
                              .gradient = true,
                              .step = LOSS_STATS,
                              .is_packed = packed};
    bf16 *x = rig_random(1, N * D, BF16), *w = rig_random(2, row * D, BF16);
    bf16 *logits = rig_zeros(N * row, BF16);
    int32_t *labels = heap(N * sizeof *labels);
    struct head h = {rig_zeros(N * D, BF16), rig_zeros(row * D, F32), rig_zeros(N, F32),
                     rig_zeros(N * LOSS_STATS_COUNT, F32), heap(N * sizeof *h.best)};
    for (size_t i = 0; i < N; i++) labels[i] = i % 5 == 3 ? LABEL_IGNORED : (int)(i * 37 % V);
    for (size_t i = V / 2 * D; i < V / 2 * D + D; i++) w[i] = bf16_from_f32(k->size);
    struct cross_entropy_io io = {logits, labels, h.loss, h.best, h.stats, NULL, NULL};
    struct queue *queue = rig_queue();
    RIG_RUN(linear_forward(rig_fast(), &l,
                           &(struct linear_fwd){.x_ND = x, .w_FD = w, .y_NF = logits}, queue));
    RIG_RUN(cross_entropy(rig_fast(), &c, &io, queue));
    c.step = LOSS_WHOLE, io.stats_PN4 = NULL;
    RIG_RUN(cross_entropy(rig_fast(), &c, &io, queue));
    struct linear_bwd_input to_x = {.dy_NF = logits, .w_FD = w, .dx_ND = h.dx};
    struct linear_bwd_weight to_w = {.dy_NF = logits, .x_ND = x, .dw_FD = h.dw};
    RIG_RUN(linear_backward_input(rig_fast(), &l, &to_x, queue));
    RIG_RUN(linear_backward_weight(rig_fast(), &l, &to_w, queue));
    free(x), free(w), free(logits), free(labels);
    return h;
}

static void head_free(struct head *h)
{
    free(h->dx), free(h->dw), free(h->loss), free(h->best), free(h->stats);
}

OPS_TEST(packed_logits_change_no_bit)
{
    static const int sizes[][3] = {{96, 32, 96}, {128, 8, 1376}, {96, 16, 544}, {33, 8, 64}};
    size_t num_sizes = rig_is_gpu() ? 1 : sizeof sizes / sizeof *sizes;
    for (size_t i = 0; i < 2 * num_sizes; i++) {
        int n = sizes[i / 2][0], d = sizes[i / 2][1], v = sizes[i / 2][2];
        struct head h[2];
        for (int k = 0; k < 2; k++)
            h[k] = head_of(&(struct head_case){n, d, v, v, i % 2 ? 200 : 1, k});
        CHECK(!memcmp(h[0].dx, h[1].dx, (size_t)(n * d) * sizeof(bf16)));
        CHECK(!memcmp(h[0].dw, h[1].dw, (size_t)(v * d) * sizeof(float)));
        CHECK(!memcmp(h[0].loss, h[1].loss, (size_t)n * sizeof(float)));
        CHECK(!memcmp(h[0].best, h[1].best, (size_t)n * sizeof(int32_t)));
        CHECK(!memcmp(h[0].stats, h[1].stats, (size_t)n * LOSS_STATS_COUNT * sizeof(float)));
        for (int k = 0; k < 2; k++) head_free(&h[k]);
    }
}

/* The padding's weights are as large as any: only the loss function can ignore them. */
OPS_TEST(padding_of_the_vocabulary_has_no_probability_and_no_gradient)
{
    static const int sizes[][4] = {
        {96, 32, 96, 128}, {128, 8, 1371, 1376}, {96, 16, 513, 640}, {33, 8, 61, 64}};
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        const int *s = sizes[i / 2];
        struct head_case k = {s[0], s[1], s[2], s[2], 1, i % 2}, wide = k;
        wide.row = s[3];
        struct head want = head_of(&k), got = head_of(&wide);
        size_t N = (size_t)k.N, D = (size_t)k.D, V = (size_t)k.V;
        RIG_CLOSE(got.dx, want.dx, N * D, BF16);
        RIG_CLOSE(got.dw, want.dw, V * D, F32);
        RIG_CLOSE(got.loss, want.loss, N, F32);
        CHECK(!memcmp(got.best, want.best, N * sizeof *want.best));
        const float *dw = got.dw;
        for (size_t j = V * D; j < (size_t)wide.row * D; j++) CHECK(dw[j] == 0);
        head_free(&want), head_free(&got);
    }
}

TEST(cross_entropy_rejects_empty_sizes)
{
    struct cross_entropy c = {.N = 1};
    CHECK_STATUS(SHAPE, cross_entropy(&ops_cpu_reference, &c, NULL, rig_queue()));
    c.V = 3, c.row = 2;
    CHECK_STATUS(SHAPE, cross_entropy(&ops_cpu_reference, &c, NULL, rig_queue()));
    CHECK_MESSAGE("row of 2 elements: must hold V = 3 logits");
    c.row = 0, c.z_loss = -1;
    CHECK_STATUS(SHAPE, cross_entropy(&ops_cpu_reference, &c, NULL, rig_queue()));
    CHECK_MESSAGE("z_loss -1 must not be negative");
}

static void put(void *x, size_t i, enum dtype dtype, float value)
{
    if (dtype == F32)
        ((float *)x)[i] = value;
    else
        ((bf16 *)x)[i] = bf16_from_f32(value);
}

/* Unaligned rows: with an odd vocabulary they begin at any element. */
OPS_TEST(cross_entropy_of_unaligned_rows_agrees_with_the_reference)
{
    enum { N = 5 };
    static const int widths[] = {1, 2, 3, 8, 9, 31, 257, 2048, 2051};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (int kind = 0; kind < 4; kind++) {
            enum dtype dtype = kind & 1 ? BF16 : F32;
            size_t V = (size_t)widths[i], n = N * V, at = 1 + (size_t)kind / 2;
            struct cross_entropy c = {
                .N = N, .V = widths[i], .dtype = dtype, .scale = 2, .gradient = true};
            int32_t labels[N], best[2][N];
            float loss[2][N];
            void *x = rig_random(i, n + at, dtype), *logits[2] = {x, rig_copy(x, n + at, dtype)};
            for (int k = 0; k < N; k++) labels[k] = k == 3 ? LABEL_IGNORED : k * 7 % widths[i];
            for (int k = 0; k < 2; k++) {
                struct cross_entropy_io io = {(char *)logits[k] + at * dtype_bytes(dtype),
                                              labels,
                                              loss[k],
                                              best[k],
                                              NULL,
                                              NULL,
                                              NULL};
                const struct ops *ops = k ? rig_fast() : &ops_cpu_reference;
                RIG_RUN(cross_entropy(ops, &c, &io, rig_queue()));
            }
            RIG_CLOSE(logits[1], logits[0], n + at, dtype);
            for (int k = 0; k < N; k++) CHECK_NEAR((double)loss[1][k], (double)loss[0][k], 1e-5);
            CHECK(!memcmp(best[0], best[1], sizeof best[0]));
            free(logits[0]), free(logits[1]);
        }
}

OPS_TEST(logits_of_minus_infinity_are_ignored_and_argmax_is_the_lowest_id_on_ties)
{
    enum { V = 3001 };
    for (int table = 0; table < 2; table++)
        for (int d = 0; d < DTYPE_COUNT; d++) {
            enum dtype dtype = (enum dtype)d;
            struct cross_entropy c = {.N = 1, .V = V, .dtype = dtype, .scale = 1, .gradient = true};
            void *x = rig_zeros(V, dtype);
            float loss;
            int32_t label = 2002, best;
            for (size_t v = 0; v < V; v++) put(x, v, dtype, -INFINITY);
            put(x, 1001, dtype, 2), put(x, 2002, dtype, 2);
            struct cross_entropy_io io = {x, &label, &loss, &best, NULL, NULL, NULL};
            const struct ops *ops = table ? rig_fast() : &ops_cpu_reference;
            RIG_RUN(cross_entropy(ops, &c, &io, rig_queue()));
            CHECK_NEAR((double)loss, log(2), 1e-6);
            CHECK(best == 1001);
            for (size_t v = 0; v < V; v++) {
                float want = v == 1001 ? 0.5f : v == 2002 ? -0.5f : 0;
                CHECK(fabsf(element_get(x, v, dtype) - want) < 1e-6f);
            }
            free(x);
        }
}

OPS_TEST(nan_logit_propagates_to_the_loss)
{
    enum { V = 300 };
    for (int table = 0; table < 2; table++)
        for (int v = 0; v < V; v += 43) {
            float logits[V] = {0}, loss = 0;
            int32_t label = 5;
            logits[v] = NAN;
            struct cross_entropy c = {.N = 1, .V = V};
            struct cross_entropy_io io = {logits, &label, &loss, NULL, NULL, NULL, NULL};
            RIG_RUN(cross_entropy(table ? rig_fast() : &ops_cpu_reference, &c, &io, rig_queue()));
            CHECK(isnan(loss));
        }
}

/* Packed or not: a panel of 32 rows has the same elements in both layouts.  The first has labels;
 * all logits of the others are not finite. */
OPS_TEST(ignored_tokens_have_no_gradient_whatever_their_logits)
{
    enum { N = 128, V = 160, PANEL_ELEMENTS = 32 * V };
    static const float bad[] = {0, NAN, INFINITY, -INFINITY};
    for (int d = 0; d < 2 * DTYPE_COUNT; d++) {
        enum dtype dtype = d % 2 ? BF16 : F32;
        struct cross_entropy c = {.N = N, .V = V, .dtype = dtype, .scale = 1, .gradient = true};
        void *x = rig_random(3, N * V, dtype);
        float loss[N];
        int32_t labels[N];
        c.is_packed = d / 2;
        for (int n = 0; n < N; n++) labels[n] = n < 32 ? n : LABEL_IGNORED;
        for (size_t i = PANEL_ELEMENTS; i < N * V; i++)
            element_set(x, i, dtype, bad[i / PANEL_ELEMENTS]);
        struct cross_entropy_io io = {.logits_NV = x, .labels_N = labels, .loss_N = loss};
        RIG_RUN(cross_entropy(rig_fast(), &c, &io, rig_queue()));
        for (size_t i = 0; i < N * V; i++)
            CHECK((element_get(x, i, dtype) == 0) == (i >= PANEL_ELEMENTS));
        for (int n = 32; n < N; n++) CHECK(loss[n] == 0);
        free(x);
    }
}

OPS_TEST(online_softmax_is_exact_when_the_max_rises_late)
{
    enum { V = 2050 };
    for (int d = 0; d < DTYPE_COUNT; d++)
        for (float high = 8; high < 5000; high *= 4) {
            struct cross_entropy c = {
                .N = 1, .V = V, .dtype = (enum dtype)d, .scale = 1, .gradient = true};
            void *x[2] = {rig_random(3, V, c.dtype), NULL};
            float loss[2];
            int32_t label = 7, best[2];
            put(x[0], 2001, c.dtype, high), put(x[0], 2002, c.dtype, high);
            x[1] = rig_copy(x[0], V, c.dtype);
            for (int i = 0; i < 2; i++) {
                struct cross_entropy_io io = {x[i], &label, &loss[i], &best[i], NULL, NULL, NULL};
                const struct ops *ops = i ? rig_fast() : &ops_cpu_reference;
                RIG_RUN(cross_entropy(ops, &c, &io, rig_queue()));
                CHECK(best[i] == 2001);
            }
            CHECK_NEAR((double)loss[1], (double)loss[0], 1e-5 * (double)high);
            RIG_CLOSE(x[1], x[0], V, c.dtype);
            free(x[0]), free(x[1]);
        }
}
