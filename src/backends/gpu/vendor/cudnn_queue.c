/* vendor_attention.h with cuDNN: one handle and its plans for each queue. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/queue.h"
#include "backends/gpu/vendor/cudnn_attention.h"
#include "backends/gpu/vendor_attention.h"
#include "base/log.h"

/* Heads of other sizes have other kernels, so the model's are checked; 0: any. */
static enum status open_checked(struct queue *queue, int head_size, struct cudnn_attention **out)
{
    const struct gpu_queue *q = (const struct gpu_queue *)queue;
    TRY(cudnn_attention_open(out, q->stream, !q->nondeterministic));
    if (q->attention_bytes) cudnn_attention_limit(*out, q->attention_bytes);
    enum status st = cudnn_attention_check(*out, head_size, queue);
    if (st) cudnn_attention_close(*out), *out = NULL;
    return st;
}

/* The first sizing pass of bf16 attention opens cuDNN. */
static enum status open_on_queue(struct queue *queue, int head_size, struct cudnn_attention **out)
{
    struct gpu_queue *q = (struct gpu_queue *)queue;
    *out = q->attention;
    if (q->attention_opened || !queue->sizing) return STATUS_OK;
    enum status st = open_checked(queue, head_size, out);
    if (st && st != STATUS_UNSUPPORTED && st != STATUS_MEMORY) return st;
    if (st)
        log_line(LOG_WARN, "attention uses our own kernels, at about half of cuDNN's speed: %s",
                 status_message());
    q->attention = *out, q->attention_opened = true;
    return STATUS_OK;
}

/* Bounds of parts may be any, which cuDNN does not support. */
static void log_own_parts(struct queue *queue)
{
    struct gpu_queue *q = (struct gpu_queue *)queue;
    if (queue->sizing && !q->has_logged_parts)
        log_line(LOG_INFO, "ring attention with documents or a sliding window uses our own "
                           "kernels, at about half of cuDNN's speed");
    q->has_logged_parts = q->has_logged_parts || queue->sizing;
}

/* The first sizing pass with a document mask, a sliding window or parts of the keys checks such
 * attention. */
static enum status find_library(struct queue *queue, const struct attention *a,
                                const int32_t *start_BT, struct cudnn_attention **out)
{
    *out = NULL;
    bool is_part = a->keys != ALL_KEYS, is_supported = !is_part || a->rectangle.num_keys;
    if (a->dtype == BF16 && !is_supported) log_own_parts(queue);
    /* Opening and checking it would take a second. */
    if (a->dtype != BF16 || !is_supported) return STATUS_OK;
    TRY(open_on_queue(queue, a->K, out));
    struct attention_case what = {
        .documents = !is_part && start_BT, .window = a->window, .parts = is_part};
    if (*out && queue->sizing) TRY(cudnn_attention_check_case(*out, what, queue));
    return STATUS_OK;
}

enum status GPU_NAME(vendor_attention_forward)(const struct attention *a,
                                               const struct attention_fwd *io, struct queue *queue,
                                               bool *done)
{
    struct cudnn_attention *c;
    *done = false;
    TRY(find_library(queue, a, io->start_BT, &c));
    if (c) TRY(cudnn_attention_forward(c, a, io, queue, done));
    return STATUS_OK;
}

enum status GPU_NAME(vendor_attention_backward)(const struct attention *a,
                                                const struct attention_bwd *io, struct queue *queue,
                                                bool *done)
{
    struct cudnn_attention *c;
    *done = false;
    TRY(find_library(queue, a, io->start_BT, &c));
    if (c) TRY(cudnn_attention_backward(c, a, io, queue, done));
    return STATUS_OK;
}

enum status GPU_NAME(vendor_attention_check)(struct queue *queue)
{
    struct cudnn_attention *c;
    TRY(open_checked(queue, 0, &c));
    enum status st = STATUS_OK;
    for (int i = 1; i < 4 && !st; i++)
        st = cudnn_attention_check_case(c, (struct attention_case){i & 1, i & 2, false}, queue);
    if (!st) st = cudnn_attention_check_case(c, (struct attention_case){.parts = true}, queue);
    struct text rejected = {0};
    cudnn_attention_add_rejected(c, &rejected);
    cudnn_attention_close(c);
    if (!st && rejected.len)
        st = FAILURE(UNSUPPORTED,
                     "cuDNN fails, or has no memory for, the self-test of attention with %s",
                     rejected.data);
    text_release(&rejected);
    return st;
}

enum status GPU_NAME(vendor_attention_library)(struct text *out)
{
    TRY(cudnn_attention_library(out));
    return STATUS_OK;
}

void GPU_NAME(vendor_attention_close)(struct queue *queue)
{
    struct gpu_queue *q = (struct gpu_queue *)queue;
    cudnn_attention_close(q->attention);
    q->attention = NULL, q->attention_opened = false;
}
