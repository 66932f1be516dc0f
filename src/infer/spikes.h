/* spikes.h -- the likelihood of spike counts under neurons that fire at constant rates.
 *
 * The homogeneous Poisson baseline: each neuron of a session is a Poisson process whose rate is its
 * own mean count per bin, over all bins of the session (as the null model of Pei et al. 2021,
 * Neural Latents Benchmark, eq. 1, uses the mean of the evaluated spikes):
 *
 *     log p(c) = sum of  c log(rate) - rate - log(c!)    over neurons and bins, in nats
 *
 * log(c!) is kept because the model's softmax over 0..255 is a probability of the count as well.
 * Bits per spike (Pillow et al. 2008) are
 *
 *     (log p_model - log p_homogeneous) / (spikes log 2)
 *
 * Both leave out the separators of 255, and counts of 255, which look the same.  Neither
 * distribution is renormalized: the model loses the mass it gives to the separator, the Poisson
 * process that of counts above 254; both are negligible. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/corpus.h"

struct spikes {
    double loss_sum; /* -log p, nats */
    int64_t counts, spikes;
};

/* Mean count per bin of each neuron of a session: `ids` are bins of a separator and one count per
 * neuron.  Counts of 255 are left out. */
void spikes_rates(const int32_t *ids, size_t bins, size_t neurons, double *rates);
/* -log p of a count below 255 under a Poisson process with that mean, in nats. */
double spikes_poisson_loss(double rate, int32_t count);

/* Over the first d->max_ids IDs of d->sources, which must hold spike counts. */
enum status spikes_homogeneous(const struct corpus *d, struct spikes *out);
