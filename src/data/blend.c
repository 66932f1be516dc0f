// SPDX-License-Identifier: Apache-2.0
#include "data/blend.h"

#include "base/text.h"
#include "data/numpy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum status parse_split(const char *split, double parts[BLEND_PARTS])
{
    static const char digits[] = ".0123456789";
    const char *at = split + strcspn(split, digits);
    memset(parts, 0, BLEND_PARTS * sizeof *parts);
    for (int n = 0; *at; n++) {
        char *end;
        size_t len = strspn(at, digits);
        if (n == BLEND_PARTS)
            FAIL(CONFIG,
                 "data.split = \"%s\": expected at most three numbers, such as \"969, 30, 1\"",
                 split);
        char *number = heap_string(at, len);
        parts[n] = strtod(number, &end);
        bool whole = !*end && end != number && isfinite(parts[n]);
        free(number);
        if (!whole) FAIL(CONFIG, "data.split = \"%s\": %.*s is not a number", split, (int)len, at);
        at += len;
        at += strcspn(at, digits);
    }
    return STATUS_OK;
}

enum status blend_split_range(const char *split, enum blend_part part, uint64_t count,
                              uint64_t *begin, uint64_t *end)
{
    static const char *const names[] = {"training", "validation", "test"};
    double parts[BLEND_PARTS], bounds[BLEND_PARTS + 1] = {0};
    TRY(parse_split(split, parts));
    if (!(numpy_sum(parts, BLEND_PARTS) > 0))
        FAIL(CONFIG, "data.split = \"%s\": all parts are 0; at least one must be greater than 0",
             split);
    blend_normalize(parts, BLEND_PARTS);
    for (int i = 0; i < BLEND_PARTS; i++) bounds[i + 1] = bounds[i] + parts[i];
    if (bounds[part + 1] <= bounds[part])
        FAIL(CONFIG, "data.split = \"%s\" leaves no data for %s", split, names[part]);
    *begin = (uint64_t)nearbyint(bounds[part] * (double)count); /* half to even */
    *end = (uint64_t)nearbyint(bounds[part + 1] * (double)count);
    if (*end > count) *end = count; /* rounding can make the parts sum to more than 1 */
    return STATUS_OK;
}

void blend_normalize(double *weights, size_t count)
{
    double sum = numpy_sum(weights, count);
    for (size_t i = 0; i < count; i++) weights[i] /= sum;
}

uint64_t blend_target(uint64_t samples, double weight)
{
    return (uint64_t)ceil((double)samples * weight);
}

uint64_t blend_add_margin(uint64_t target) { return (uint64_t)ceil((double)target * 1.005); }

static enum status blend_init(struct blend *b, uint64_t size, const char *remedy)
{
    *b = (struct blend){.size = size};
    if (size > UINT32_MAX)
        FAIL(UNSUPPORTED, "a blend of %llu samples exceeds 32-bit indices; %s",
             (unsigned long long)size, remedy);
    b->source = calloc(size + 1, sizeof *b->source);
    b->sample = calloc(size + 1, sizeof *b->sample);
    if (b->source && b->sample) return STATUS_OK;
    blend_release(b);
    FAIL(MEMORY, "not enough memory to blend %llu samples", (unsigned long long)size);
}

/* Gives each row to the source that is furthest behind its weight, the first one of a tie; with
 * `sizes`, only to sources that have samples left. */
static void assign_rows(struct blend *b, const double *weights, const uint64_t *sizes, size_t count)
{
    uint64_t *taken = heap(count * sizeof *taken);
    for (uint64_t g = 0; g < b->size; g++) {
        double scale = g ? (double)g : 1, largest = -INFINITY;
        size_t best = 0;
        for (size_t i = 0; i < count; i++) {
            if (sizes && taken[i] == sizes[i]) continue;
            /* volatile: round the product, as Megatron does; a fused multiply-add would not */
            volatile double target = weights[i] * scale;
            double deficit = target - (double)taken[i];
            if (deficit > largest) largest = deficit, best = i;
        }
        b->source[g] = (uint16_t)best;
        b->sample[g] = (uint32_t)taken[best]++;
    }
    free(taken);
}

enum status blend_weighted(struct blend *b, const double *weights, size_t count, uint64_t size)
{
    TRY(blend_init(b, size, "lower data.samples or training.steps"));
    assign_rows(b, weights, NULL, count);
    return STATUS_OK;
}

enum status blend_exhaustive(struct blend *b, const uint64_t *sizes, size_t count)
{
    uint64_t size = 0;
    for (size_t i = 0; i < count; i++) size += sizes[i];
    TRY(blend_init(b, size, "use fewer sources"));
    double *weights = heap(count * sizeof *weights);
    for (size_t i = 0; i < count; i++) weights[i] = (double)sizes[i] / (double)size;
    assign_rows(b, weights, sizes, count);
    free(weights);
    return STATUS_OK;
}

void blend_release(struct blend *b)
{
    free(b->source), free(b->sample);
    *b = (struct blend){0};
}
