/* step_graph.h -- replays forward and backward of a step as one graph of the device
 * (tensor/queue.h: CUDA graphs, HIP graphs): one submission instead of hundreds of launches.
 *
 * A small model's kernels take less time than their launches.  A step runs eagerly the first time
 * its microbatches have these sizes and addresses, because libraries may allocate or load code in
 * it.  The next such step is captured, and all others replay the capture.  One of the sizes is
 * head_tokens: in every step the largest that any microbatch needed so far, except that of all
 * tokens, which would change the order of sums.  What differs between steps is read from device
 * memory: the batch and the scales of the losses.  The graph has neither the optimizer, whose AdamW
 * is one launch, nor the gradient norm, which the host waits for.
 *
 * Order    The same kernels on the same arguments: the same bits as without graphs.
 * Memory   The scales, in the run's device memory and in memory shared with the host.
 * Ranks    One; see step_graph_obstacle. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"
#include "parallel/fsdp.h"
#include "parallel/mesh.h"
#include "parallel/pipeline.h"

enum { STEP_GRAPH_MAX_PARAMETERS = 200000000 }; /* that device.graphs = "auto" uses graphs for */

/* The caller sets all fields of the first group; pointers are borrowed. */
struct step_graph {
    struct pipeline *pipeline;
    struct fsdp *fsdp;
    struct queue *queue;
    bool is_enabled;

    float *scales;             /* of each microbatch, in device memory; step_graph_alloc */
    float *host_scales;        /* the same in shared memory, initially 0 */
    int tokens, head_tokens;   /* of a microbatch; the largest head_tokens below `tokens` so far */
    struct microbatch *before; /* of the last eager or captured step; owned */
    int num_before;            /* 0: none */
    size_t arena_mark;         /* of its step arena */
    struct queue_graph *graph; /* of that step; NULL: not captured */
    bool was_captured;         /* any; it was logged */
};

/* Why steps of this configuration cannot be replayed; NULL: they can.  A device without graphs,
 * several ranks, whose transfers are not captured, document masks, whose launches depend on the
 * documents, activation offloading, FP8 and bfloat16 gradients, whose arguments change in each
 * step. */
const char *step_graph_obstacle(const struct config *c, const struct mesh *mesh,
                                const struct queue *queue);
/* Whether device.graphs requests graphs: "auto" only with fewer parameters than
 * STEP_GRAPH_MAX_PARAMETERS, on a device with graphs_by_default (device.h). */
bool step_graph_is_requested(const struct config *c, const struct queue *queue, double parameters);
/* Logs the obstacle, if there is one and step_graph_is_requested. */
void step_graph_log(const struct config *c, const struct mesh *mesh, const struct queue *queue,
                    double parameters);

/* Allocates both for that many microbatches, if is_enabled. */
void step_graph_alloc(struct step_graph *g, int max_microbatches, struct arena *run,
                      struct arena *shared);
void step_graph_release(struct step_graph *g);

/* Makes the microbatches read their scales from device memory, copies them there if they have
 * changed, and raises head_tokens as above; nothing if graphs are not enabled. */
enum status step_graph_upload(struct step_graph *g, struct microbatch *microbatches, int count);
/* As pipeline_run, eagerly, captured or replayed.  Eagerly where something observes single
 * operations: a trace, or a replay of guard.replay_every.  If a capture fails, logs why, runs
 * eagerly and disables graphs.  Call after fsdp_begin_step. */
enum status step_graph_run(struct step_graph *g, const struct microbatch *microbatches, int count,
                           struct arena *step);
