// SPDX-License-Identifier: Apache-2.0
#include "infer/spikes.h"

#include <math.h>
#include <stdlib.h>

void spikes_rates(const int32_t *ids, size_t bins, size_t neurons, double *rates)
{
    for (size_t n = 0; n < neurons; n++) {
        int64_t sum = 0, known = 0;
        for (size_t b = 0; b < bins; b++) {
            int32_t c = ids[b * (neurons + 1) + 1 + n];
            if (c == TABLE_BIN_SEPARATOR) continue;
            sum += c, known++;
        }
        rates[n] = known ? (double)sum / (double)known : 0;
    }
}

/* lgamma writes the global signgam, so it is not thread-safe; counts are small. */
double spikes_poisson_loss(double rate, int32_t count)
{
    double log_factorial = 0;
    for (int32_t c = 1; c <= count; c++) log_factorial += log((double)c);
    return rate - (count ? (double)count * log(rate) : 0) + log_factorial;
}

static enum status add_session(void *context, const struct document *d)
{
    struct spikes *s = context;
    size_t width = d->neurons + 1;
    BUG_IF(!d->neurons);
    double *rates = heap(d->neurons * sizeof *rates);
    spikes_rates(d->ids, d->count / width, d->neurons, rates);
    for (size_t i = 0; i < d->within; i++) {
        size_t n = i % width;
        int32_t c = d->ids[i];
        if (!n || c == TABLE_BIN_SEPARATOR) continue;
        s->loss_sum += spikes_poisson_loss(rates[n - 1], c);
        s->counts++;
        s->spikes += c;
    }
    free(rates);
    return STATUS_OK;
}

enum status spikes_homogeneous(const struct corpus *d, struct spikes *out)
{
    *out = (struct spikes){0};
    TRY(corpus_each(d, add_session, out));
    return STATUS_OK;
}
