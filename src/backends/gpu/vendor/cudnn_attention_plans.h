/* cudnn_attention_plans.h -- cuDNN's plans for attention: which shapes they support, and how much
 * of a shape one call covers.
 *
 * Memory   A deterministic backward's workspace is at most max_bytes: its calls cover as many rows,
 *          or key/value heads of one row, as fit.  With documents a call covers everything, and dk
 *          and dv of every query head count, too.
 * Order    Plans are built once per shape, direction and kind of mask, and looked up later. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/attention_check.h"
#include "backends/gpu/vendor/cudnn_attention_graph.h"
#include "base/text.h"
#include "ops/attention.h"

enum { CUDNN_ATTENTION_TILE = 128 }; /* queries and keys are multiples of it */

/* What a plan is looked up by. */
struct sdpa_key {
    struct attention shape;
    bool varlen, backward;
};

struct sdpa_plan {
    struct sdpa_key key;
    struct cudnn_attention_graph graph; /* what one call covers */
    struct cudnn_plan plan;             /* plan.plan NULL: our own kernel takes over */
    struct sdpa_plan *next;
};

/* The caller sets all fields but the last. */
struct cudnn_attention_plans {
    struct cudnn_target target;
    int capability; /* compute capability, 90 for 9.0 */
    size_t version; /* of cuDNN */
    bool deterministic;
    size_t max_bytes;   /* of a deterministic backward */
    bool is_quiet;      /* log no plans */
    bool rejects[2][2]; /* have no plans for masks [with documents][with a window] */
    bool rejects_parts; /* nor for rectangles */
    struct sdpa_plan *newest;
};

void cudnn_attention_plans_release(struct cudnn_attention_plans *c);

/* Whether heads of this size can have plans: a multiple of 8 up to 256. */
bool cudnn_attention_plans_has_head_size(int head_size);
/* UNSUPPORTED: no shape has plans for a GPU of this capability in this version. */
enum status cudnn_attention_plans_check_gpu(const struct cudnn_attention_plans *c);
/* Whether attention with documents, for cuDNN sequences of variable lengths, can have plans. */
bool cudnn_attention_plans_has_varlen(const struct cudnn_attention_plans *c);
/* A kind of attention in messages. */
const char *cudnn_attention_plans_case_name(struct attention_case what);
/* Appends the names of all kinds that are rejected, with "; " between them. */
void cudnn_attention_plans_add_rejected(const struct cudnn_attention_plans *c, struct text *out);
/* NULL: cuDNN does not compute it, or `builds` is false and no plan has been built. */
const struct sdpa_plan *cudnn_attention_plans_find(struct cudnn_attention_plans *c,
                                                   const struct sdpa_key *key, bool builds);
/* Queries of all rows, or sequences, of one call. */
size_t cudnn_attention_plans_tokens(const struct sdpa_plan *p);
