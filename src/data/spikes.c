// SPDX-License-Identifier: Apache-2.0
#include "data/spikes.h"

#include <math.h>
#include <stdlib.h>

/* lgamma writes the global signgam, so it is not thread-safe; a table of 255 entries suffices. */
static void fill_factorials(double log_factorial[TABLE_BIN_SEPARATOR])
{
    log_factorial[0] = 0;
    for (int c = 1; c < TABLE_BIN_SEPARATOR; c++)
        log_factorial[c] = log_factorial[c - 1] + log((double)c);
}

static enum status add_session(void *context, const struct document *d)
{
    struct spikes *s = context;
    double log_factorial[TABLE_BIN_SEPARATOR];
    size_t width = d->neurons + 1, bins = d->count / width;
    BUG_IF(!d->neurons);
    fill_factorials(log_factorial);
    double *rates = heap(d->neurons * sizeof *rates);
    for (size_t n = 0; n < d->neurons; n++) {
        int64_t sum = 0, known = 0;
        for (size_t b = 0; b < bins; b++) {
            int32_t c = d->ids[b * width + 1 + n];
            if (c == TABLE_BIN_SEPARATOR) continue;
            sum += c, known++;
        }
        rates[n] = known ? (double)sum / (double)known : 0;
    }
    for (size_t i = 0; i < d->within; i++) {
        size_t n = i % width;
        int32_t c = d->ids[i];
        if (!n || c == TABLE_BIN_SEPARATOR) continue;
        double rate = rates[n - 1];
        s->loss_sum += rate - (c ? (double)c * log(rate) : 0) + log_factorial[c];
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
