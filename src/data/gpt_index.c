// SPDX-License-Identifier: Apache-2.0
#include "data/gpt_index.h"

#include "data/numpy.h"

#include <stdlib.h>

/* How many epochs give the samples that are wanted, and is the last one apart? */
static enum status count_epochs(struct gpt_index *x, uint64_t tokens, uint64_t wanted, uint64_t L)
{
    uint64_t needed, all;
    if (__builtin_mul_overflow(wanted, L, &needed) || needed > INT64_MAX - 1 ||
        __builtin_mul_overflow(needed / tokens + 1, tokens, &all) || all > INT64_MAX)
        FAIL(UNSUPPORTED, "%llu samples of %llu tokens are beyond Megatron's counters",
             (unsigned long long)wanted, (unsigned long long)L);
    x->epochs = wanted ? (needed + tokens) / tokens : 1; /* of needed + 1 tokens, rounded up */
    x->num_samples = (x->epochs * tokens - 1) / L;
    x->apart = false;
    if (x->epochs > 1) {
        uint64_t before = ((x->epochs - 1) * tokens - 1) / L, each = (tokens - 1) / L;
        x->apart = wanted - before < (uint64_t)(0.80 * (double)each);
    }
    return STATUS_OK;
}

/* The sequences of the first `epochs` epochs, then those of the rest, each part shuffled. */
static void order_documents(struct gpt_index *x, uint64_t count, uint64_t first,
                            struct numpy_random *random)
{
    uint64_t together = (x->apart ? x->epochs - 1 : x->epochs) * count;
    for (uint64_t i = 0, n = 0; i < x->num_documents; i++) {
        x->documents[i] = (uint32_t)(first + n);
        if (++n == count) n = 0;
    }
    numpy_shuffle(random, x->documents, together);
    numpy_shuffle(random, x->documents + together, x->num_documents - together);
}

/* Sample after sample, each beginning with the last token of the one before. */
static void cut_samples(struct gpt_index *x, const int32_t *lengths, uint64_t first, uint64_t L)
{
    uint64_t at = 0, offset = 0;
    x->samples[0] = (struct gpt_place){0};
    for (uint64_t i = 1; i <= x->num_samples; i++) {
        for (uint64_t left = L + 1;;) {
            uint64_t length = (uint64_t)lengths[x->documents[at] - first] - offset;
            if (length >= left) {
                offset += left - 1;
                break;
            }
            left -= length;
            offset = 0, at++;
        }
        x->samples[i] = (struct gpt_place){(uint32_t)at, (uint32_t)offset};
    }
}

static void order_samples(struct gpt_index *x, uint64_t tokens, uint64_t L,
                          struct numpy_random *random)
{
    uint64_t together = x->apart ? ((x->epochs - 1) * tokens - 1) / L : x->num_samples;
    for (uint64_t i = 0; i < x->num_samples; i++) x->shuffle[i] = (uint32_t)i;
    numpy_shuffle(random, x->shuffle, together);
    numpy_shuffle(random, x->shuffle + together, x->num_samples - together);
}

enum status gpt_index_build(struct gpt_index *x, const int32_t *lengths, uint64_t count,
                            uint64_t first, uint64_t wanted, uint64_t L, uint32_t seed)
{
    uint64_t tokens = 0;
    struct numpy_random random;
    *x = (struct gpt_index){0};
    for (uint64_t i = 0; i < count; i++) tokens += (uint64_t)lengths[i];
    if (tokens < 2 || (!wanted && tokens <= L))
        FAIL(DATA, "%llu tokens in %llu sequences are less than one sample of %llu + 1",
             (unsigned long long)tokens, (unsigned long long)count, (unsigned long long)L);
    TRY(count_epochs(x, tokens, wanted, L));
    if (__builtin_mul_overflow(x->epochs, count, &x->num_documents) ||
        x->num_documents > INT32_MAX || x->num_samples >= UINT32_MAX - 1)
        FAIL(UNSUPPORTED,
             "%llu epochs of %llu sequences with %llu samples: more than 32-bit"
             " indices hold",
             (unsigned long long)x->epochs, (unsigned long long)count,
             (unsigned long long)x->num_samples);
    x->documents = calloc(x->num_documents, sizeof *x->documents);
    x->samples = calloc(x->num_samples + 1, sizeof *x->samples);
    x->shuffle = calloc(x->num_samples, sizeof *x->shuffle);
    if (!x->documents || !x->samples || !x->shuffle) {
        uint64_t bytes = gpt_index_bytes(x);
        gpt_index_release(x);
        FAIL(MEMORY, "the data order needs %llu bytes", (unsigned long long)bytes);
    }
    numpy_random_init(&random, seed);
    order_documents(x, count, first, &random);
    cut_samples(x, lengths, first, L);
    order_samples(x, tokens, L, &random);
    return STATUS_OK;
}

void gpt_index_release(struct gpt_index *x)
{
    free(x->documents), free(x->samples), free(x->shuffle);
    *x = (struct gpt_index){0};
}

uint64_t gpt_index_bytes(const struct gpt_index *x)
{
    return x->num_documents * sizeof *x->documents + x->num_samples * sizeof *x->shuffle +
           (x->num_samples + 1) * sizeof *x->samples;
}
