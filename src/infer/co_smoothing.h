/* co_smoothing.h -- bits per spike of held-out neurons: how well a model of spike counts predicts
 * neurons whose activity it does not see from the neurons that it does see.
 *
 * Co-smoothing (Pei et al. 2021, Neural Latents Benchmark), for a model that reads bins as text: a
 * window of bins has the length of a training row.  In its first half all neurons are visible, so
 * that the model can identify them; in the second half some neurons, which are moved to the end
 * of every bin, are hidden: instead of their counts the model sees counts that it samples itself.
 * It predicts a hidden count from all visible neurons up to and including the same bin.  Windows
 * overlap by half, so that each bin after a session's first half window is predicted once.
 *
 *     co-bps = (log p_model - log p_constant) / (spikes log 2)      over hidden counts
 *
 * where log p_constant is that of spikes.h: a Poisson process with the neuron's mean rate.  One
 * sample of the hidden past replaces the expectation over it.
 * Ranks    Collective: all ranks shard the model; rank 0 samples. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/corpus.h"
#include "infer/loaded_model.h"

struct co_smoothing {
    double held_out; /* fraction of the neurons, at least one of each session; 0: do nothing */
    int64_t windows; /* evaluate at most this many, from the beginning of the data */
    uint64_t seed;   /* which neurons are held out, and of the sampler */
    int64_t row;     /* tokens per window */
    /* results, of hidden counts below 255 */
    double loss_sum, constant_loss_sum; /* nats */
    int64_t counts, spikes, used;       /* `used`: windows */
};

/* On this rank alone.  CONFIG: the model is masked, its vocabulary has fewer than 256 tokens, or
 * the source holds no spike counts. */
enum status co_smoothing_check(const struct loaded_model *l, const struct source_config *source);
/* Over the sessions of `d`.  DATA: no window fits into a session, or no session has two neurons.
 * Also the errors of co_smoothing_check. */
enum status co_smoothing_measure(struct co_smoothing *c, struct loaded_model *l,
                                 const struct corpus *d);
/* NAN without a spike. */
double co_smoothing_bits_per_spike(const struct co_smoothing *c);
