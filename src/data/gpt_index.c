// SPDX-License-Identifier: Apache-2.0
#include "data/gpt_index.h"

#include "data/numpy.h"

#include <stdlib.h>

/* How many epochs give min_samples, and whether the last one is shuffled separately. */
static enum status count_epochs(struct gpt_index *x, uint64_t tokens, uint64_t min_samples,
                                uint64_t L)
{
    uint64_t needed, all;
    if (__builtin_mul_overflow(min_samples, L, &needed) || needed > INT64_MAX - 1 ||
        __builtin_mul_overflow(needed / tokens + 1, tokens, &all) || all > INT64_MAX)
        FAIL(UNSUPPORTED, "%llu samples of %llu tokens overflow Megatron's 64-bit counters",
             (unsigned long long)min_samples, (unsigned long long)L);
    x->epochs = min_samples ? (needed + tokens) / tokens : 1; /* ceil((needed + 1) / tokens) */
    x->num_samples = (x->epochs * tokens - 1) / L;
    x->separate_final_epoch = false;
    if (x->epochs > 1) {
        uint64_t before = ((x->epochs - 1) * tokens - 1) / L, each = (tokens - 1) / L;
        x->separate_final_epoch = min_samples - before < (uint64_t)(0.80 * (double)each);
    }
    return STATUS_OK;
}

/* Repeats the sequences for each epoch; a separate final epoch is shuffled on its own. */
static void build_document_index(struct gpt_index *x, uint64_t count, uint64_t first,
                                 struct numpy_random *random)
{
    uint64_t first_part = (x->separate_final_epoch ? x->epochs - 1 : x->epochs) * count;
    for (uint64_t i = 0, n = 0; i < x->num_documents; i++) {
        x->document_index[i] = (uint32_t)(first + n);
        if (++n == count) n = 0;
    }
    numpy_shuffle(random, x->document_index, first_part);
    numpy_shuffle(random, x->document_index + first_part, x->num_documents - first_part);
}

/* Consecutive samples share one token: the last label is the next sample's first input. */
static void build_sample_index(struct gpt_index *x, const int32_t *lengths, uint64_t first,
                               uint64_t L)
{
    uint64_t at = 0, offset = 0;
    x->sample_index[0] = (struct gpt_sample){0};
    for (uint64_t i = 1; i <= x->num_samples; i++) {
        for (uint64_t left = L + 1;;) {
            uint64_t length = (uint64_t)lengths[x->document_index[at] - first] - offset;
            if (length >= left) {
                offset += left - 1;
                break;
            }
            left -= length;
            offset = 0, at++;
        }
        x->sample_index[i] = (struct gpt_sample){(uint32_t)at, (uint32_t)offset};
    }
}

static void build_shuffle_index(struct gpt_index *x, uint64_t tokens, uint64_t L,
                                struct numpy_random *random)
{
    uint64_t first_part =
        x->separate_final_epoch ? ((x->epochs - 1) * tokens - 1) / L : x->num_samples;
    for (uint64_t i = 0; i < x->num_samples; i++) x->shuffle_index[i] = (uint32_t)i;
    numpy_shuffle(random, x->shuffle_index, first_part);
    numpy_shuffle(random, x->shuffle_index + first_part, x->num_samples - first_part);
}

enum status gpt_index_build(struct gpt_index *x, const struct gpt_index_spec *spec)
{
    uint64_t tokens = 0, count = spec->count, first = spec->first, L = spec->seq_len;
    struct numpy_random random;
    *x = (struct gpt_index){0};
    for (uint64_t i = 0; i < count; i++) tokens += (uint64_t)spec->lengths[i];
    if (tokens < 2 || (!spec->min_samples && tokens <= L))
        FAIL(DATA, "%llu tokens in %llu sequences are fewer than one sample of %llu + 1 tokens",
             (unsigned long long)tokens, (unsigned long long)count, (unsigned long long)L);
    x->tokens = tokens, x->seq_len = L;
    TRY(count_epochs(x, tokens, spec->min_samples, L));
    if (__builtin_mul_overflow(x->epochs, count, &x->num_documents) ||
        x->num_documents > INT32_MAX || x->num_samples >= UINT32_MAX - 1)
        FAIL(UNSUPPORTED,
             "%llu epochs of %llu sequences with %llu samples exceed 32-bit indices; lower "
             "data.samples or training.steps, or add data",
             (unsigned long long)x->epochs, (unsigned long long)count,
             (unsigned long long)x->num_samples);
    x->document_index = calloc(x->num_documents, sizeof *x->document_index);
    x->sample_index = calloc(x->num_samples + 1, sizeof *x->sample_index);
    x->shuffle_index = calloc(x->num_samples, sizeof *x->shuffle_index);
    if (!x->document_index || !x->sample_index || !x->shuffle_index) {
        uint64_t bytes = gpt_index_bytes(x);
        gpt_index_release(x);
        FAIL(MEMORY, "not enough memory for the data order: %llu bytes required",
             (unsigned long long)bytes);
    }
    numpy_random_init(&random, spec->seed);
    build_document_index(x, count, first, &random);
    build_sample_index(x, spec->lengths, first, L);
    build_shuffle_index(x, tokens, L, &random);
    return STATUS_OK;
}

bool gpt_index_serves(const struct gpt_index *x, uint64_t min_samples)
{
    struct gpt_index other = {0};
    return !count_epochs(&other, x->tokens, min_samples, x->seq_len) && other.epochs == x->epochs &&
           other.separate_final_epoch == x->separate_final_epoch;
}

void gpt_index_release(struct gpt_index *x)
{
    free(x->document_index), free(x->sample_index), free(x->shuffle_index);
    *x = (struct gpt_index){0};
}

uint64_t gpt_index_bytes(const struct gpt_index *x)
{
    return x->num_documents * sizeof *x->document_index +
           x->num_samples * sizeof *x->shuffle_index +
           (x->num_samples + 1) * sizeof *x->sample_index;
}
