/* ring.h -- attention of ranks that share out a row's tokens: each rank's keys and values pass from
 * rank to rank, until all queries have met all keys.
 *
 * Rank r meets its own keys, then those of r - 1, r - 2, ...; backward its own come last.  While it
 * computes on one rank's keys the next ones are on their way, and so are the gradients of those it
 * has passed on: they follow their keys from rank to rank and come home last.
 *
 * Axes     R ranks; N = B T tokens of a rank, as context.h cuts rows: zigzag where attention is
 *          causal; P = G K; dtypes of e bytes.
 * Memory   The queue's scratch.  Forward 4 N P e + 8 N bytes and, where out is not f32, 4 N H K;
 *          backward 4 N P e + 8 N, 24 N P and 4 N H K; and what the op takes.
 * Bytes    A rank receives (R - 1) 2 N P e in forward, (R - 1) 2 N P (e + 4) in backward.
 * Order    What was computed apart is summed in f32, in the order above, which no timing changes.
 * Speed    Processor time of all ranks beside attention to whole rows on one, Zen 5, causal, K=64,
 *          T=8192, bf16: two ranks 1.05, four 1.11; T=2048: 1.19 and 1.27.
 * Ranks    Collective.
 * Sources  Liu et al. 2023 (ring attention); Llama Team 2024, section 3.3.2 (zigzag) */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "ops/attention.h"

/* Tells the group which messages the ring passes on. */
enum status ring_expect(const struct comm *group);

/* attention_forward and attention_backward, where S == T tokens of each row are here and the group
 * has all of them; causal by their positions, start and end are positions too.  Groups of two or
 * more.  Errors: theirs, and COMM. */
enum status ring_forward(const struct comm *group, const struct ops *, const struct attention *,
                         const struct attention_fwd *, struct queue *);
enum status ring_backward(const struct comm *group, const struct ops *, const struct attention *,
                          const struct attention_bwd *, struct queue *);
