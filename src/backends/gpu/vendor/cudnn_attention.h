/* cudnn_attention.h -- attention by cuDNN, for shapes that have an engine with the required
 * determinism and bounded memory.
 *
 * Shapes   bf16, as many keys as queries; T a multiple of CUDNN_ATTENTION_TILE
 *          (cudnn_attention_plans.h), K a multiple of 8 up to 256.  A document mask must be
 *          contiguous documents, at most VARLEN_MAX_SEQUENCES, on a GPU of compute capability 9.x
 *          to 11.x.  Parts of the keys need a rectangle (attention_part.h), whose queries and keys
 *          are multiples of CUDNN_ATTENTION_TILE, too.
 * Memory   The plan's workspace and our own buffers come from the queue's scratch.  Forward needs
 *          almost none.  That of a deterministic backward is at most the limit: a call covers as
 *          many rows or key/value heads as fit, and a shape of which not even one head fits has no
 *          plan.  Except on Blackwell it holds dS, T x S bf16 per head; there, dk and dv of every
 *          query head in f32 (with documents in our own buffers, which then count).
 * Order    Sizing passes build the plans, which takes about half a second each; later calls only
 *          look them up. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/attention_check.h"
#include "base/text.h"
#include "ops/attention.h"
#include "tensor/queue.h"

/* The initial limit of a deterministic backward: 2.25 GiB, as device.attention_bytes. */
static const size_t CUDNN_ATTENTION_MAX_BYTES = (size_t)9 << 28;

struct cudnn_attention;

/* Appends "cuDNN 9.19.0".  UNSUPPORTED: cuDNN is not installed, or this version has known bugs. */
enum status cudnn_attention_library(struct text *out);

/* For the current device and a stream of it.  UNSUPPORTED: as above, this version has no plans for
 * the device, or cuDNN cannot create a handle.  DEVICE: the device cannot be queried. */
enum status cudnn_attention_open(struct cudnn_attention **out, void *stream, bool deterministic);
/* For a device that need not be present, described by its properties in cuDNN's JSON format: builds
 * plans but cannot run them.  UNSUPPORTED: as above, or the description is not valid. */
enum status cudnn_attention_open_described(struct cudnn_attention **out, const char *json,
                                           size_t length, bool deterministic);
void cudnn_attention_close(struct cudnn_attention *c);
/* Call before the first plan is built. */
void cudnn_attention_limit(struct cudnn_attention *c, size_t max_bytes);
/* Compares its results for heads of head_size elements with those of our own kernels
 * (attention_check.h), in about a second; for heads of 64 elements if cuDNN has no forward plan for
 * that size, or it is 0.  UNSUPPORTED: cuDNN compiles no graph, for example because it does not
 * find NVRTC, or the results differ. */
enum status cudnn_attention_check(struct cudnn_attention *c, int head_size, struct queue *queue);
/* The first time compares such attention, too, if cuDNN has it for this device; if that fails,
 * logs a warning and leaves it to our own kernels from then on.  DEVICE: the device fails. */
enum status cudnn_attention_check_case(struct cudnn_attention *c, struct attention_case what,
                                       struct queue *queue);
/* Appends the kinds of attention that have failed their check, or had no memory for it, such as
 * "documents; ring parts". */
void cudnn_attention_add_rejected(const struct cudnn_attention *c, struct text *out);

/* *done: whether cuDNN computes it.  During a sizing pass: builds the plan and reserves scratch;
 * bounds that are not NULL announce a document mask. */
enum status cudnn_attention_forward(struct cudnn_attention *c, const struct attention *a,
                                    const struct attention_fwd *io, struct queue *queue,
                                    bool *done);
enum status cudnn_attention_backward(struct cudnn_attention *c, const struct attention *a,
                                     const struct attention_bwd *io, struct queue *queue,
                                     bool *done);

/* Describes plan i, the newest first. */
struct cudnn_attention_plan {
    struct attention shape;
    bool backward, varlen;
    bool found;                /* an engine supports it; the rest is only set then */
    int engine;                /* cuDNN's global index */
    int rows, kv_heads;        /* per call: rows or sequences, key/value heads */
    size_t workspace, scratch; /* bytes: of cuDNN, of our own buffers */
};
/* False: there are at most i plans. */
bool cudnn_attention_plan(const struct cudnn_attention *c, int i, struct cudnn_attention_plan *out);
