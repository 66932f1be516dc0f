/* spikes.h -- how likely neurons of constant rates make the spike counts of sessions.
 *
 * The homogeneous-rate baseline: each neuron of a session is a Poisson process whose rate is its
 * own mean count a bin, over all bins of the session (as the null model of Pei et al. 2021, Neural
 * Latents Benchmark, eq. 1, takes the mean of the spikes that are evaluated):
 *
 *     log p(c) = sum of  c log(rate) - rate - log(c!)    over neurons and bins, in nats
 *
 * log(c!) stays, since what it is compared with is a probability of the count, too: a model's
 * softmax over 0..255.  Bits/spike (Pillow et al. 2008) are
 *
 *     (log p_model - log p_homogeneous) / (spikes log 2)
 *
 * Marks of 255 are no counts and are left out of both; so are counts of 255, which look the same.
 * A model pays at counts for what it gives to the mark, and the process for what it gives to counts
 * beyond 254: next to nothing. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/documents.h"

struct spikes {
    double loss_sum; /* -log p, nats */
    int64_t counts, spikes;
};

/* Of the ids of d->sources among the first d->most: all are spike counts. */
enum status spikes_homogeneous(const struct documents *d, struct spikes *out);
