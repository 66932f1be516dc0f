/* source_synthetic.c -- gpt-neuro-arch's synthetic spike counts, the path "synthetic-spikes": a
 * million sessions of 10 to 999 neurons and 100 to 1999 bins, in which a tenth of the neurons have
 * a spike in every bin and the others have none.  A session depends on its number alone;
 * gpt-neuro-arch draws it without a seed. */
// SPDX-License-Identifier: Apache-2.0
#include "base/rng.h"
#include "data/source.h"
#include "data/source_kind.h"

#include <stdlib.h>

enum { SYNTHETIC_SESSIONS = 1000000, MIN_NEURONS = 10, MAX_NEURONS = 999 };
enum { MIN_BINS = 100, MAX_BINS = 1999 };
enum { DRAW_NEURONS, DRAW_BINS, DRAW_ACTIVE }; /* positions of a session's random numbers */

static size_t draw(uint64_t session, uint64_t position, size_t least, size_t most)
{
    return least + rng_below(most - least + 1, 0, RNG_SYNTHETIC, session, position);
}

/* There is no file: f is NULL. */
static enum status synthetic_open(struct source *s, struct source_file *f, uint64_t *size)
{
    (void)f;
    s->holds_ids = true;
    s->num_positions = SYNTHETIC_SESSIONS;
    *size = 0;
    return STATUS_OK;
}

static enum status synthetic_find(const struct source *s, struct source_reader *r,
                                  struct source_range *c, struct source_document *d, bool *none)
{
    (void)s, (void)r;
    *none = c->position >= c->end;
    if (*none) return STATUS_OK;
    size_t neurons = draw(c->position, DRAW_NEURONS, MIN_NEURONS, MAX_NEURONS);
    size_t bins = draw(c->position, DRAW_BINS, MIN_BINS, MAX_BINS);
    *d =
        (struct source_document){c->position, 0, c->position, (neurons + 1) * bins, d->text, false};
    ++c->position;
    return STATUS_OK;
}

/* Marks a tenth of the neurons, drawn without replacement. */
static void draw_active(uint64_t session, size_t neurons, bool active[MAX_NEURONS])
{
    size_t order[MAX_NEURONS];
    for (size_t i = 0; i < neurons; i++) order[i] = i, active[i] = false;
    for (size_t i = 0; i < neurons / 10; i++) {
        size_t j = draw(session, DRAW_ACTIVE + i, i, neurons - 1), drawn = order[j];
        order[j] = order[i], order[i] = drawn;
        active[drawn] = true;
    }
}

static enum status synthetic_ids(const struct source *s, const struct source_document *d,
                                 const struct source_tokens *t, int32_t *ids)
{
    size_t neurons = draw(d->at, DRAW_NEURONS, MIN_NEURONS, MAX_NEURONS);
    bool active[MAX_NEURONS];
    if (t->vocab_size && t->vocab_size <= TABLE_BIN_SEPARATOR)
        FAIL(CONFIG, "%s: requires model.vocab_size = 256, got %lld", s->config->path,
             (long long)t->vocab_size);
    draw_active(d->at, neurons, active);
    for (uint64_t i = 0; i < d->len; i++) {
        size_t n = i % (neurons + 1);
        ids[i] = n ? active[n - 1] : TABLE_BIN_SEPARATOR;
    }
    return STATUS_OK;
}

const struct source_kind source_synthetic = {
    .seeks = true,
    .open = synthetic_open,
    .find = synthetic_find,
    .ids = synthetic_ids,
};
