/* ring.h -- ring attention: context-parallel ranks pass their keys and values around a ring, until
 * every query has attended to all keys.
 *
 * Rank r attends to its own keys, then to those of r - 1, r - 2, ...; in backward its own come
 * last. While it computes with one rank's keys, the next ones are being received; so are the
 * gradients of the keys it has passed on, which follow their keys around the ring and arrive at
 * their owner last.
 *
 * Axes     R ranks; N = B T tokens of a rank, divided as in context.h: zigzag if attention is
 *          causal; P = G K; dtypes of e bytes.
 * Memory   The queue's scratch.  Forward 4 N P e + 8 N bytes and, unless out is f32, 4 N H K;
 *          backward 4 N P e + 8 N, 24 N P and 4 N H K; and what the op needs.
 * Bytes    A rank receives (R - 1) 2 N P e in forward, (R - 1) 2 N P (e + 4) in backward.
 * Order    Partial results are summed in f32, in the order above, whatever the timing.
 * Ranks    Collective.
 * Sources  Liu et al. 2023 (ring attention); Llama Team 2024, section 3.3.2 (zigzag) */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "ops/attention.h"

/* attention_forward and attention_backward for S == T local tokens of each row, of rows that the
 * group holds as a whole; causal, start and end are by position in the row.  For groups of two or
 * more.  Errors: those of the ops, and COMM. */
enum status ring_forward(const struct comm *group, const struct ops *, const struct attention *,
                         const struct attention_fwd *, struct queue *);
enum status ring_backward(const struct comm *group, const struct ops *, const struct attention *,
                          const struct attention_bwd *, struct queue *);
