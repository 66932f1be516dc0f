// SPDX-License-Identifier: Apache-2.0
#include "train/step_graph.h"

#include "base/log.h"
#include "base/text.h"
#include "model/float8.h"
#include "tensor/device.h"

#include <stdlib.h>
#include <string.h>

const char *step_graph_obstacle(const struct config *c, const struct mesh *mesh,
                                const struct queue *queue)
{
    bool is_float8 = false;
    if (!queue_has_graphs(queue)) return "it requires a GPU";
    for (int i = 0; i < AXIS_COUNT; i++)
        if (mesh->degree[i] > 1) return "transfers between ranks are not captured";
    if (c->model.attn_mask_type == ATTN_MASK_block_causal)
        return "with model.attn_mask_type = \"block_causal\" launches depend on the documents";
    if (float8_resolve(&c->model, &c->float8, &is_float8) || is_float8)
        return "FP8 changes scales in each step";
    if (c->activation_checkpoint.offload)
        return "activation_checkpoint.offload copies on streams that are not captured";
    if (training_gradient_dtype(&c->training) == BF16)
        return "bfloat16 gradients are rounded with other random numbers in each step";
    return NULL;
}

bool step_graph_is_requested(const struct config *c, const struct queue *queue, double parameters)
{
    if (c->device.graphs == AUTO)
        return queue_has_graphs(queue) && queue->device->graphs_by_default &&
               parameters < STEP_GRAPH_MAX_PARAMETERS;
    return c->device.graphs == YES;
}

void step_graph_log(const struct config *c, const struct mesh *mesh, const struct queue *queue,
                    double parameters)
{
    const char *obstacle = step_graph_obstacle(c, mesh, queue);
    if (!obstacle || !step_graph_is_requested(c, queue, parameters)) return;
    if (c->device.graphs == YES)
        log_line(LOG_WARN, "device.graphs = true has no effect: %s", obstacle);
    else
        log_line(LOG_INFO, "forward and backward do not run as a graph: %s", obstacle);
}

void step_graph_alloc(struct step_graph *g, int max_microbatches, struct arena *run,
                      struct arena *shared)
{
    size_t count = (size_t)max_microbatches;
    if (!g->is_enabled) return;
    g->scales = arena_alloc(run, count, sizeof *g->scales);
    g->host_scales = arena_alloc(shared, count, sizeof *g->host_scales);
    g->before = heap(count * sizeof *g->before);
}

static void forget_graph(struct step_graph *g)
{
    queue_free_graph(g->queue, g->graph);
    g->graph = NULL;
}

void step_graph_release(struct step_graph *g)
{
    forget_graph(g);
    free(g->before);
    *g = (struct step_graph){0};
}

/* More tokens without a label change no bit: their losses and gradients are zero, and they follow
 * the others. */
static void raise_head_tokens(struct step_graph *g, struct microbatch *microbatches, int count)
{
    int N = microbatches[0].B * microbatches[0].T;
    if (g->tokens != N) g->tokens = N, g->head_tokens = 0;
    for (int i = 0; i < count; i++) {
        int listed = microbatches[i].head_tokens;
        if (listed < N && listed > g->head_tokens) g->head_tokens = listed;
    }
    for (int i = 0; i < count; i++)
        if (microbatches[i].head_tokens && microbatches[i].head_tokens < N)
            microbatches[i].head_tokens = g->head_tokens;
}

enum status step_graph_upload(struct step_graph *g, struct microbatch *microbatches, int count)
{
    bool is_changed = false;
    if (!g->is_enabled) return STATUS_OK;
    for (int i = 0; i < count; i++) {
        is_changed |= g->host_scales[i] != microbatches[i].scale;
        g->host_scales[i] = microbatches[i].scale;
        microbatches[i].scale_1 = &g->scales[i];
    }
    raise_head_tokens(g, microbatches, count);
    if (is_changed)
        TRY(queue_copy(g->queue, g->scales, g->host_scales, (size_t)count * sizeof *g->scales));
    return STATUS_OK;
}

/* Whether the same launches compute both, with scale_1 for `scale`. */
static bool is_same_microbatch(const struct microbatch *a, const struct microbatch *b)
{
    return a->B == b->B && a->T == b->T && a->ids_BT == b->ids_BT && a->labels_BT == b->labels_BT &&
           a->start_BT == b->start_BT && a->end_BT == b->end_BT && a->causal == b->causal &&
           a->last == b->last && a->scale_1 == b->scale_1 && a->z_loss == b->z_loss &&
           a->weight_BT == b->weight_BT && a->loss_BT == b->loss_BT && a->best_BT == b->best_BT &&
           a->head_tokens == b->head_tokens && a->order_BT == b->order_BT;
}

static bool is_same_step(const struct step_graph *g, const struct microbatch *microbatches,
                         int count, const struct arena *step)
{
    if (count != g->num_before || arena_mark(step) != g->arena_mark) return false;
    for (int i = 0; i < count; i++)
        if (!is_same_microbatch(&g->before[i], &microbatches[i])) return false;
    return true;
}

/* Afterwards the graph exists, or graphs are disabled; nothing has run. */
static enum status capture(struct step_graph *g, const struct microbatch *microbatches,
                           struct arena *step)
{
    size_t mark = arena_mark(step), scratch = arena_mark(&g->queue->scratch);
    struct failure why = {0};
    TRY(queue_begin_capture(g->queue));
    (void)status_save(&why, pipeline_run(g->pipeline, microbatches, step));
    (void)status_save(&why, queue_end_capture(g->queue, &g->graph));
    if (!why.status) {
        if (!g->was_captured) log_line(LOG_INFO, "forward and backward now run as one graph");
        g->was_captured = true;
        return STATUS_OK;
    }
    forget_graph(g);
    arena_reset(step, mark), arena_reset(&g->queue->scratch, scratch);
    if (why.status != STATUS_DEVICE) return status_restore(&why); /* such as a request to stop */
    log_line(LOG_WARN, "forward and backward cannot run as a graph: %s", why.message);
    g->is_enabled = false;
    return STATUS_OK;
}

enum status step_graph_run(struct step_graph *g, const struct microbatch *microbatches, int count,
                           struct arena *step)
{
    bool is_eager = !g->is_enabled || g->queue->trace || g->fsdp->observer;
    if (!is_eager && !is_same_step(g, microbatches, count, step)) {
        forget_graph(g);
        memcpy(g->before, microbatches, (size_t)count * sizeof *g->before);
        g->num_before = count, g->arena_mark = arena_mark(step);
        is_eager = true;
    }
    if (!is_eager && !g->graph) TRY(capture(g, microbatches, step));
    if (!is_eager && g->graph) return queue_launch_graph(g->queue, g->graph);
    if (!is_eager) fsdp_begin_step(g->fsdp); /* the failed capture has changed its state */
    TRY(pipeline_run(g->pipeline, microbatches, step));
    return STATUS_OK;
}
