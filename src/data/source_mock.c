/* source_mock.c -- Megatron-LM's mock data, the path "mock": 100,000 documents of random lengths,
 * each 1, 2, 3, ... (modulo the vocabulary) and the end-of-text token. */
// SPDX-License-Identifier: Apache-2.0
#include "data/numpy.h"
#include "data/source.h"
#include "data/source_kind.h"

enum { MOCK_DOCUMENTS = 100000 };

/* There is no file: f is NULL. */
static enum status mock_open(struct source *s, struct source_file *f, uint64_t *size)
{
    (void)f;
    s->holds_ids = true;
    s->num_positions = MOCK_DOCUMENTS;
    s->mock_lengths = heap(MOCK_DOCUMENTS * sizeof *s->mock_lengths);
    numpy_mock_lengths(s->mock_lengths, MOCK_DOCUMENTS);
    *size = 0;
    return STATUS_OK;
}

static enum status mock_find(const struct source *s, struct source_reader *r,
                             struct source_range *c, struct source_document *d, bool *none)
{
    (void)r;
    *none = c->position >= c->end;
    if (*none) return STATUS_OK;
    uint64_t len = (uint64_t)s->mock_lengths[c->position];
    *d = (struct source_document){c->position, 0, c->position, len, d->text, false};
    ++c->position;
    return STATUS_OK;
}

static enum status mock_read_sequence(const struct source *s, const struct source_span *span,
                                      const struct source_tokens *t, int32_t *ids)
{
    int64_t vocab = t->tokenizer ? tokenizer_vocab_size(t->tokenizer) : t->vocab_size;
    int64_t eos = t->tokenizer ? tokenizer_eos(t->tokenizer) : -1;
    uint64_t last = (uint64_t)s->mock_lengths[span->sequence] - 1;
    if (vocab < 1) FAIL(CONFIG, "mock data requires a tokenizer or model.vocab_size");
    if (eos < 0) eos = vocab - 1;
    for (uint64_t i = span->from; i < span->from + span->count; i++)
        *ids++ = (int32_t)(i == last ? eos : (int64_t)(i + 1) % vocab);
    return STATUS_OK;
}

static enum status mock_ids(const struct source *s, const struct source_document *d,
                            const struct source_tokens *t, int32_t *ids)
{
    return mock_read_sequence(s, &(struct source_span){d->at, 0, d->len}, t, ids);
}

static uint64_t mock_num_sequences(const struct source *s) { return s->num_positions; }

static uint64_t mock_sequence_length(const struct source *s, uint64_t sequence)
{
    return (uint64_t)s->mock_lengths[sequence];
}

const struct source_kind source_mock = {
    .seeks = true,
    .open = mock_open,
    .find = mock_find,
    .ids = mock_ids,
    .num_sequences = mock_num_sequences,
    .sequence_length = mock_sequence_length,
    .read_sequence = mock_read_sequence,
};
