// SPDX-License-Identifier: Apache-2.0
#include "system/device_check.h"

#include "backends/cpu/cpu.h"
#include "base/rng.h"
#include "perf/op_sizes.h"
#include "tensor/device.h"
#include "tensor/queue.h"
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- comparing --- */

static double number(const void *x, size_t i, enum dtype dtype)
{
    return dtype == F32 ? (double)((const float *)x)[i] : (double)bf16_to_f32(((const bf16 *)x)[i]);
}

/* Infinities of the same sign are equal. */
static double difference(const void *x, const void *y, size_t n, enum dtype dtype)
{
    double off = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        double a = number(x, i, dtype), b = number(y, i, dtype);
        if (isinf(b) && isinf(a) && signbit(a) == signbit(b)) continue;
        off += (a - b) * (a - b), size += b * b;
    }
    return off > 0 ? sqrt(off / size) : off;
}

static void report_difference(struct device_check *c, const char *what, double off,
                              double tolerance, enum dtype dtype)
{
    bool good = off <= tolerance; /* false for NaN */
    c->count++, c->failed += !good;
    if (good && off > c->worst[dtype]) c->worst[dtype] = off;
    if (c->prints || !good) printf("%s %-72s %.2e\n", good ? "ok    " : "FAILED", what, off);
}

/* --- one operation --- */

struct operands {
    const struct op_work *work;
    void *host[OP_BUFFERS], *device[OP_BUFFERS];
};

/* Buffers that the host reads right after the call. */
static bool is_result(const struct op_call *c, int i)
{
    return i == 1 && (c->op == OP_sum_squares || c->op == OP_amax);
}

/* Tokens of a row's first document.  cuDNN's plans have room for T / 256 + 1 documents per row. */
static int first_document(int T)
{
    int most = T / 256 + 1, shares = most * (most + 1) / 2;
    return T < 256 ? 1 : (T + shares - 1) / shares;
}

/* Documents of 1, 2, 3, ... times the first one's tokens; the last one of a row is truncated. */
static void fill_documents(int B, int T, int32_t *start_BT, int32_t *end_BT)
{
    const int unit = first_document(T);
    for (int b = 0; b < B; b++)
        for (int first = 0, length = unit; first < T; first += length, length += unit)
            for (int t = first; t < T && t < first + length; t++) {
                start_BT[b * T + t] = first;
                end_BT[b * T + t] = first + length < T ? first + length : T;
            }
}

/* Of a ring part: queries and keys of its rectangle. */
static void fill_rectangle(const struct attention *a, int32_t *start_BT, int32_t *end_BT)
{
    for (int n = 0; n < a->B * a->T; n++) {
        start_BT[n] = 0;
        end_BT[n] = n % a->T < a->rectangle.first_query ? 0 : a->rectangle.num_keys;
    }
}

static bool has_bounds(const struct op_call *c)
{
    return c->op == OP_attention_forward || c->op == OP_attention_backward;
}

/* The first and second list of a document mask's bounds. */
static bool is_bound(const struct op_call *c, int i)
{
    int first = c->op == OP_attention_forward ? 3 : 5;
    return has_bounds(c) && (i == first || i == first + 1);
}

static bool is_ring_part(const struct op_call *c)
{
    return has_bounds(c) && c->what.attention_forward.rectangle.num_keys;
}

static struct op_work work_of(const struct op_call *call, bool documents)
{
    struct op_work w;
    op_work(call, &w);
    const struct attention *a = &call->what.attention_forward;
    for (int i = 0; documents && i < OP_BUFFERS; i++)
        if (is_bound(call, i))
            w.buffers[i] = (struct op_buffer){(size_t)a->B * (size_t)a->T, F32, CONTENT_IDS, 1};
    return w;
}

static size_t bytes_of(const struct op_buffer *b) { return b->count * dtype_bytes(b->dtype); }

static void make_host(struct operands *o, const struct op_call *call, bool documents)
{
    int first = call->op == OP_attention_forward ? 3 : 5;
    for (int i = 0; i < o->work->num_buffers; i++) {
        const struct op_buffer *b = &o->work->buffers[i];
        if (b->content == CONTENT_FIRST) o->host[i] = o->host[0];
        if (b->content == CONTENT_FIRST || b->content == CONTENT_NONE) continue;
        o->host[i] = heap(bytes_of(b));
        op_fill(b, o->host[i]);
    }
    if (documents && has_bounds(call)) {
        const struct attention *a = &call->what.attention_forward;
        if (is_ring_part(call))
            fill_rectangle(a, o->host[first], o->host[first + 1]);
        else
            fill_documents(a->B, a->T, o->host[first], o->host[first + 1]);
    }
}

static enum status make_device(struct operands *o, const struct op_call *call, struct arena *own,
                               struct arena *shared, struct queue *queue)
{
    for (int i = 0; i < o->work->num_buffers; i++) {
        const struct op_buffer *b = &o->work->buffers[i];
        o->device[i] = b->content == CONTENT_FIRST ? o->device[0] : NULL;
        if (b->content == CONTENT_FIRST || b->content == CONTENT_NONE) continue;
        bool is_shared = is_result(call, i) || is_bound(call, i); /* as in training */
        o->device[i] = arena_alloc(is_shared ? shared : own, bytes_of(b), 1);
        if (o->device[i]) TRY(queue_copy(queue, o->device[i], o->host[i], bytes_of(b)));
    }
    return STATUS_OK;
}

/* Runs the call, with the scratch memory that it needs. */
static enum status run(const struct machine *m, const struct op_call *call, void *const *buffers)
{
    void *sizing[OP_BUFFERS] = {0};
    enum status st = STATUS_OK;
    for (int i = 0; i < OP_BUFFERS; i++)
        if (is_bound(call, i)) sizing[i] = buffers[i]; /* whether there is a document mask */
    arena_release(&m->queue->scratch);
    m->queue->sizing = true;
    st = op_run(call, m->ops, sizing, m->queue);
    m->queue->sizing = false;
    TRY_OUT(st);
    size_t scratch = m->queue->scratch.peak;
    TRY_OUT(arena_init(&m->queue->scratch, scratch, queue_device_allocator(m->queue)));
    TRY_OUT(op_run(call, m->ops, buffers, m->queue));
    TRY_OUT(queue_wait(m->queue));
out:
    arena_release(&m->queue->scratch);
    return st;
}

/* The backward of attention needs its forward's results; that of a part takes them as bf16. */
static enum status run_forward(struct device_check *c, const struct op_call *call,
                               struct operands *o)
{
    if (call->op != OP_attention_backward) return STATUS_OK;
    struct op_call forward = {OP_attention_forward,
                              {.attention_forward = call->what.attention_backward}};
    struct attention *a = &forward.what.attention_forward;
    if (is_ring_part(call)) a->keys = ALL_KEYS, a->rectangle = (struct attention_rectangle){0};
    void **h = o->host;
    void *const io[OP_BUFFERS] = {h[0], h[1], h[2], h[5], h[6], h[3], h[7]};
    TRY(run(&c->cpu, &forward, io));
    return STATUS_OK;
}

/* The log-sum-exp of bf16 attention may sum probs after rounding them to bf16.  Tensor cores
 * truncate sums instead of rounding them (Fasi et al. 2021): over 8192 tokens that adds up to some
 * 1e-5, over 65,544 to 1e-4, computed. */
static double tolerance_of(const struct op_call *call, int i, enum dtype dtype)
{
    bool is_lse = call->op == OP_attention_forward && i == 6;
    if (is_lse && call->what.attention_forward.dtype == BF16) return 5e-4;
    /* A library rounds what it computes of a part. */
    if (is_ring_part(call) && call->what.attention_forward.dtype == BF16) return 1e-2;
    bool is_bf16_product =
        call->op == OP_linear_backward_weight && call->what.linear_backward_weight.dtype == BF16;
    bool is_long =
        call->op == OP_linear_backward_weight && call->what.linear_backward_weight.N > 10000;
    if (is_long) return is_bf16_product ? 4e-4 : 1e-4; /* one of the terms is 4e-3 of the sum */
    if (is_bf16_product && dtype == F32) return 1e-4;
    return dtype == F32 ? 1e-5 : 1e-2;
}

/* The largest relative difference of n sums in f64; NaN if one is not a number. */
static double difference_of_sums(const double *got, const double *expected, size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++) {
        double off = fabs(got[i] / expected[i] - 1);
        if (isnan(off) || off > largest) largest = off;
        if (isnan(off)) break;
    }
    return largest;
}

/* Compares the buffers on the device with those on the host. */
static enum status compare(struct device_check *c, const struct op_call *call,
                           const struct operands *o, const char *name)
{
    enum status st = STATUS_OK;
    for (int i = 0; i < o->work->num_buffers && !st; i++) {
        const struct op_buffer *b = &o->work->buffers[i];
        if (!o->device[i] || b->content == CONTENT_FIRST) continue;
        void *got = heap(bytes_of(b));
        struct text what = {0};
        st = queue_copy(c->device.queue, got, o->device[i], bytes_of(b));
        double off = b->content == CONTENT_IDS ? memcmp(got, o->host[i], bytes_of(b)) != 0
                                               : difference(got, o->host[i], b->count, b->dtype);
        if (is_result(call, i) && call->op == OP_sum_squares)
            off = difference_of_sums(got, o->host[i], bytes_of(b) / sizeof(double));
        text_addf(&what, "%s, %s %d", name, dtype_name(b->dtype), i);
        if (!st) report_difference(c, what.data, off, tolerance_of(call, i, b->dtype), b->dtype);
        text_release(&what);
        free(got);
    }
    return st;
}

enum status device_check_call(struct device_check *c, const struct op_call *call, bool documents)
{
    struct op_work w = work_of(call, documents);
    struct operands o = {.work = &w};
    struct arena own = {0}, shared = {0};
    struct queue *queue = c->device.queue;
    struct text name = {0};
    enum status st = STATUS_OK;
    text_addf(&name, "%s ", op_name(call->op));
    op_sizes(call, &name);
    if (documents) text_adds(&name, is_ring_part(call) ? " ring part" : " documents");
    make_host(&o, call, documents);
    TRY_OUT(run_forward(c, call, &o));
    TRY_OUT(make_device(&o, call, &own, &shared, queue));
    size_t own_bytes = own.used, shared_bytes = shared.used;
    TRY_OUT(arena_init(&own, own_bytes, queue_device_allocator(queue)));
    TRY_OUT(arena_init(&shared, shared_bytes, queue_shared_allocator(queue)));
    TRY_OUT(make_device(&o, call, &own, &shared, queue));
    TRY_OUT(run(&c->cpu, call, o.host));
    TRY_OUT(run(&c->device, call, o.device));
    TRY_OUT(compare(c, call, &o, name.data));
out:
    for (int i = 0; i < w.num_buffers; i++)
        if (w.buffers[i].content != CONTENT_FIRST) free(o.host[i]);
    arena_release(&own);
    arena_release(&shared);
    text_release(&name);
    return st;
}

bool device_check_begin(struct device_check *c, const char *what)
{
    if (c->limit_s) alarm(0);
    if (c->is_lost || c->begun_here++ < c->begun) return false;
    c->begun++;
    snprintf(c->what, sizeof c->what, "%s", what);
    if (c->limit_s) alarm(c->limit_s);
    return true;
}

void device_check_fail(struct device_check *c)
{
    c->count++, c->failed++;
    printf("FAILED %s: %s\n", c->what, status_message());
    c->is_lost = !c->device.queue || queue_wait(c->device.queue);
}

/* Continues after an error: other operations may work. */
static void check_call(struct device_check *c, const struct op_call *call, bool documents)
{
    if (!device_check_begin(c, op_name(call->op))) return;
    if (c->prints) printf("%s\n", op_name(call->op)); /* before it can hang */
    if (device_check_call(c, call, documents)) device_check_fail(c);
}

/* --- odd sizes --- */

#define CALL(name, ...)                                                                            \
    {                                                                                              \
        OP_##name,                                                                                 \
        {                                                                                          \
            .name = { __VA_ARGS__ }                                                                \
        }                                                                                          \
    }
#define ATTEND(b, t, s, h, g, k, ...)                                                              \
    .B = b, .T = t, .S = s, .H = h, .G = g, .K = k, .scale = 0.3f, .dtype = d,                     \
    .q_stride = (h) * (k) + 8, .kv_stride = (g) * (k) + 8, __VA_ARGS__

#define PART(...) ATTEND(2, 256, 256, 2, 1, 64, __VA_ARGS__)

void device_check_odd(struct device_check *c)
{
    for (enum dtype d = 0; d < DTYPE_COUNT; d++) {
        const struct op_call calls[] = {
            CALL(embedding_forward, .N = 37, .V = 19, .D = 45, .dtype = d),
            CALL(embedding_backward, .N = 67, .V = 19, .D = 45, .dtype = d),
            CALL(linear_forward, .N = 37, .D = 45, .F = 53, .dtype = d),
            CALL(linear_forward, .N = 1, .D = 136, .F = 72, .dtype = d, .accumulate = true),
            CALL(linear_backward_input, .N = 37, .D = 45, .F = 53, .dtype = d),
            CALL(linear_backward_input, .N = 130, .D = 64, .F = 72, .dtype = d),
            CALL(linear_backward_weight, .N = 37, .D = 45, .F = 53, .dtype = d, .accumulate = true),
            CALL(linear_backward_weight, .N = 130, .D = 64, .F = 72, .dtype = d),
            /* Long sums, which vendor libraries split, and whose end split-K may lose. */
            CALL(linear_forward, .N = 24, .D = 8200, .F = 16, .dtype = d),
            CALL(linear_forward, .N = 24, .D = 8195, .F = 16, .dtype = d),
            CALL(linear_backward_input, .N = 24, .D = 16, .F = 8200, .dtype = d),
            CALL(linear_backward_weight, .N = 8200, .D = 24, .F = 16, .dtype = d),
            CALL(linear_backward_weight, .N = 65544, .D = 24, .F = 16, .dtype = d),
            CALL(linear_backward_weight, .N = 65543, .D = 24, .F = 16, .dtype = d),
            CALL(rmsnorm_forward, .N = 5, .D = 333, .eps = 1e-5f, .dtype = d),
            CALL(rmsnorm_backward, .N = 37, .D = 333, .eps = 1e-5f, .dtype = d, .accumulate = true),
            CALL(rmsnorm_forward, .N = 37, .D = 64, .eps = 1e-5f, .dtype = d),
            CALL(rmsnorm_backward, .N = 8300, .D = 128, .eps = 1e-5f, .dtype = d),
            /* 48 KiB of dynamic shared memory, besides static. */
            CALL(rmsnorm_backward, .N = 2, .D = 12288, .eps = 1e-5f, .dtype = d),
            CALL(bias_forward, .N = 5, .F = 77, .dtype = d),
            CALL(bias_backward, .N = 37, .F = 77, .dtype = d),
            CALL(rope, .B = 2, .T = 5, .H = 3, .K = 10, .J = 5, .first = 4, .stride = 33,
                 .dtype = d),
            CALL(attention_forward, ATTEND(2, 37, 37, 6, 2, 40, .causal = true)),
            CALL(attention_forward, ATTEND(2, 37, 37, 6, 2, 40, .causal = true, .window = 9)),
            CALL(attention_backward, ATTEND(2, 67, 67, 6, 2, 40, .causal = true, .window = 9)),
            CALL(attention_forward, ATTEND(1, 3, 70, 4, 4, 64, .causal = true)),
            CALL(attention_forward, ATTEND(2, 33, 65, 2, 1, 128, .causal = false)),
            CALL(attention_backward, ATTEND(2, 37, 37, 6, 2, 40, .causal = true)),
            CALL(attention_backward, ATTEND(1, 65, 65, 2, 1, 64, .causal = true)),
            CALL(attention_backward, ATTEND(1, 33, 65, 2, 1, 128, .causal = false)),
            /* Rectangles that cuDNN computes. */
            CALL(attention_forward, PART(.keys = FIRST_KEYS, .rectangle = {128, 256})),
            CALL(attention_forward, PART(.keys = MORE_KEYS, .rectangle = {0, 128})),
            CALL(attention_backward, PART(.keys = FIRST_KEYS, .rectangle = {0, 128})),
            CALL(attention_backward, PART(.keys = MORE_KEYS, .rectangle = {128, 256})),
            CALL(attention_backward,
                 PART(.keys = MORE_KEYS, .rectangle = {0, 256}, .causal = true)),
            CALL(kv_append, .N = 37, .P = 77, .dtype = d),
            CALL(swiglu_forward, .N = 5, .F = 77, .dtype = d),
            CALL(swiglu_backward, .N = 5, .F = 77, .dtype = d),
            CALL(cross_entropy, .N = 7, .V = 1003, .dtype = d, .scale = 0.1f, .gradient = true),
            CALL(cross_entropy, .N = 7, .V = 1003, .dtype = d),
            CALL(sum_squares, .n = 100003),
            CALL(sum_squares, .n = 20001, .sums = 3),
            CALL(adamw, .n = 1003, .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8,
                 .weight_decay = 0.1, .scale = 0.5, .step = 3, .copy_dtype = d),
            CALL(adamw, .n = 1003, .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8,
                 .weight_decay = 0.1, .scale = 0.5, .step = 3, .copy_dtype = d, .moments = BF16),
            CALL(axpby, .n = 1003, .alpha = 0.3, .beta = -1.7),
            CALL(axpby, .n = 1003, .alpha = 0.3),
            CALL(divide_by_norm, .n = 100003, .to = d, .min_norm = 1e-7),
            CALL(matrix_polynomial, .n = 67, .a = 3.4, .b = -4.8, .c = 2.0, .dtype = d),
            CALL(apply_update, .n = 1003, .keep = 0.9, .rate = 0.1, .copy_dtype = d),
            CALL(update_ema, .n = 1003, .decay = 0.9),
            CALL(unsplit, .n = 1003),
            CALL(cast, .n = 1003, .from = d, .to = BF16),
            CALL(cast, .n = 13, .rows = 7, .from = F32, .to = d, .from_stride = 15, .to_stride = 17,
                 .accumulate = true),
            CALL(amax, .n = 1003, .dtype = d),
        };
        for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
            const struct attention *a = &calls[i].what.attention_forward;
            if (!is_ring_part(&calls[i])) check_call(c, &calls[i], false);
            if (has_bounds(&calls[i]) && a->S == a->T) check_call(c, &calls[i], true);
        }
    }
}

static enum status shape_of(const struct config *config, struct model_shape *shape)
{
    TRY(model_shape_resolve(shape, &config->model, 0));
    if (shape->max_context < config->training.seq_len)
        shape->max_context = (int)config->training.seq_len;
    return STATUS_OK;
}

/* The layout of FP8 values is opaque: each backend has its own. */
static bool is_fp8(const struct op_call *c)
{
    bool linear = c->op == OP_linear_forward || c->op == OP_linear_backward_input ||
                  c->op == OP_linear_backward_weight;
    return c->op == OP_quantize || (linear && c->what.linear_forward.float8);
}

/* Each backend has its own layout of packed tensors. */
static struct op_call unpacked(const struct op_call *call)
{
    struct op_call c = *call;
    switch (c.op) {
    case OP_linear_forward:
    case OP_linear_backward_input:
    case OP_linear_backward_weight:
        c.what.linear_forward.x_packed = c.what.linear_forward.y_packed = false;
        break;
    case OP_rmsnorm_forward:
    case OP_rmsnorm_backward: c.what.rmsnorm_forward.y_packed = false; break;
    case OP_swiglu_forward:
    case OP_swiglu_backward: c.what.swiglu_forward.is_packed = false; break;
    case OP_cross_entropy: c.what.cross_entropy.is_packed = false; break;
    default: break;
    }
    return c;
}

enum status device_check_step(struct device_check *c, const struct config *config)
{
    struct model_shape shape;
    struct op_calls list = {0};
    enum status st = STATUS_OK;
    TRY(shape_of(config, &shape));
    TRY_OUT(op_calls_record_step(&list, config, &shape, &ops_cpu_reference, false));
    for (size_t i = 0; i < list.count; i++) {
        const struct op_call call = unpacked(&list.calls[i].call);
        if (is_fp8(&call) || (c->only_attention && !has_bounds(&call))) continue;
        check_call(c, &call, false);
        if (has_bounds(&call)) check_call(c, &call, true);
    }
out:
    op_calls_release(&list);
    return st;
}

/* --- training --- */

static void fill_rows(struct batch *b, const struct config *c, int V, int step)
{
    size_t tokens = (size_t)b->B * (size_t)b->T;
    for (size_t n = 0; n < tokens; n++) {
        b->ids_BT[n] = (int32_t)rng_below((uint64_t)V, 1, RNG_TEST, (uint64_t)step, n);
        b->labels_BT[n] = (b->ids_BT[n] * 7 + 3) % V; /* predictable from the previous token */
        b->start_BT[n] = 0, b->end_BT[n] = b->T;
    }
    if (c->model.attn_mask_type == ATTN_MASK_block_causal)
        fill_documents(b->B, b->T, b->start_BT, b->end_BT);
    b->valid = (int64_t)tokens;
}

static enum status open_trainer(struct trainer *t, const struct config *config,
                                const struct machine *m)
{
    struct model_shape shape;
    TRY(shape_of(config, &shape));
    TRY(trainer_open(t, config, &shape, m));
    TRY(trainer_init_weights(t, 1));
    TRY(trainer_sync_weights(t));
    return STATUS_OK;
}

static enum status compare_gradients(struct device_check *c, const struct trainer *host,
                                     const struct trainer *device, double tolerance)
{
    size_t bytes = host->shard.elements * sizeof(float);
    float *got = heap(bytes);
    enum status st = STATUS_OK;
    TRY_OUT(queue_copy(device->machine.queue, got, device->gradients, bytes));
    for (size_t i = 0; i < host->shard.count; i++) {
        const struct shard_run *p = &host->shard.runs[i];
        char name[96];
        layout_tensor_name(&host->whole.tensors[p->tensor], false, name);
        struct text what = {0};
        text_addf(&what, "gradient of %s", name);
        report_difference(
            c, what.data,
            difference(got + p->at, (const float *)host->gradients + p->at, p->count, F32),
            tolerance, host->model.dtype);
        text_release(&what);
    }
out:
    free(got);
    return st;
}

enum status device_check_training(struct device_check *c, const struct config *config, int steps,
                                  double tolerance)
{
    struct trainer host = {0}, device = {0};
    enum status st = STATUS_OK;
    TRY_OUT(open_trainer(&host, config, &c->cpu));
    TRY_OUT(open_trainer(&device, config, &c->device));
    for (int step = 0; step < steps; step++) {
        struct step_result a = {0}, b = {0};
        fill_rows(&host.batch, config, host.shape.V, step);
        fill_rows(&device.batch, config, device.shape.V, step);
        TRY_OUT(trainer_train_batch(&host, &a));
        TRY_OUT(trainer_train_batch(&device, &b));
        struct text what = {0};
        text_addf(&what, "loss of step %d: %.6f", step + 1, b.loss);
        report_difference(c, what.data, fabs(b.loss / a.loss - 1), tolerance, host.model.dtype);
        text_release(&what);
        if (!step) TRY_OUT(compare_gradients(c, &host, &device, tolerance));
    }
out:
    trainer_close(&device);
    trainer_close(&host);
    return st;
}

/* What each of `steps` steps computes, and the norm of the weights behind them: 2 steps + 1. */
static enum status train_on_device(const struct device_check *c, const struct config *config,
                                   int steps, double *out)
{
    struct trainer device = {0};
    enum status st = STATUS_OK;
    TRY_OUT(open_trainer(&device, config, &c->device));
    for (int step = 0; step < steps; step++) {
        struct step_result r = {0};
        fill_rows(&device.batch, config, device.shape.V, step);
        TRY_OUT(trainer_train_batch(&device, &r));
        *out++ = r.loss, *out++ = r.grad_norm;
    }
    TRY_OUT(trainer_parameter_norm(&device, out));
out:
    trainer_close(&device);
    return st;
}

enum status device_check_same_bits(struct device_check *c, const struct config *plain,
                                   const struct config *other, int steps)
{
    size_t count = 2 * (size_t)steps + 1, different = 0;
    double *x = heap(count * sizeof *x), *y = heap(count * sizeof *y);
    enum status st = STATUS_OK;
    TRY_OUT(train_on_device(c, plain, steps, x));
    TRY_OUT(train_on_device(c, other, steps, y));
    for (size_t i = 0; i < count; i++) different += memcmp(&x[i], &y[i], sizeof *x) != 0;
    report_difference(c, "losses and norms with other bits", (double)different, 0, F32);
out:
    free(x), free(y);
    return st;
}
