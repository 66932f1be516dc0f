// SPDX-License-Identifier: Apache-2.0
#include "data/motifs.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/rng.h"
#include "formats/pickle.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 30, MAX_BINS = 256, MAX_IDS = 1 << 28 };

/* Patches stored contiguously, and an open-addressing hash table of their indices, at most half
 * full. */
struct motifs {
    size_t bins, count, num_slots;
    unsigned char *patches;
    int32_t *ids;
    uint32_t *slots; /* index + 1; 0: empty */
    int32_t separator;
    uint32_t checksum;
};

static uint32_t *find_slot(const struct motifs *m, const unsigned char *patch)
{
    size_t at = checksum_crc32c(0, patch, m->bins) & (m->num_slots - 1);
    while (m->slots[at] && memcmp(m->patches + (m->slots[at] - 1) * m->bins, patch, m->bins) != 0)
        at = (at + 1) & (m->num_slots - 1);
    return &m->slots[at];
}

static enum status add_motif(struct motifs *m, const struct pickle_value *patch,
                             const struct pickle_value *id, const char *name)
{
    if (patch->kind != PICKLE_IS_STRING || patch->len != m->bins)
        FAIL(DATA, "%s: index_map, entry %zu: the key is not %zu bytes", name, m->count, m->bins);
    if (id->kind != PICKLE_IS_INT || id->integer < 0 || id->integer >= m->separator)
        FAIL(DATA, "%s: index_map, entry %zu: the value is not an ID from 0 to %d", name, m->count,
             m->separator - 1);
    memcpy(m->patches + m->count * m->bins, patch->text, m->bins);
    uint32_t *slot = find_slot(m, (const unsigned char *)patch->text);
    if (*slot) { /* a duplicate key: the last value wins, as in Python */
        m->ids[*slot - 1] = (int32_t)id->integer;
        return STATUS_OK;
    }
    m->ids[m->count++] = (int32_t)id->integer;
    *slot = (uint32_t)m->count;
    return STATUS_OK;
}

static enum status read_sizes(struct motifs *m, const struct pickle_value *root, const char *name)
{
    const struct pickle_value *limit = pickle_get(root, "k_limit");
    int64_t size[2];
    if (!root || root->kind != PICKLE_IS_DICT)
        FAIL(DATA, "%s: expected a dictionary with index_map, patch_size and k_limit", name);
    if (pickle_int_tuple(pickle_get(root, "patch_size"), 2, size) != 2 || size[0] != 1 ||
        size[1] < 1 || size[1] > MAX_BINS)
        FAIL(DATA, "%s: patch_size must be (1, bins) with 1 to %d bins", name, MAX_BINS);
    if (!limit || limit->kind != PICKLE_IS_INT || limit->integer < 0 || limit->integer > MAX_IDS)
        FAIL(DATA, "%s: k_limit must be an integer from 0 to %d", name, MAX_IDS);
    m->bins = (size_t)size[1];
    m->separator = (int32_t)limit->integer + 1;
    return STATUS_OK;
}

static enum status read_map(struct motifs *m, const struct pickle_value *root, const char *name)
{
    TRY(read_sizes(m, root, name));
    const struct pickle_value *map = pickle_get(root, "index_map");
    if (!map || map->kind != PICKLE_IS_DICT || map->count < 2 || map->count / 2 > UINT32_MAX / 4)
        FAIL(DATA, "%s: index_map must be a non-empty dictionary", name);
    size_t patches = map->count / 2;
    for (m->num_slots = 16; m->num_slots < 2 * patches;) m->num_slots *= 2;
    m->patches = heap_grow(NULL, patches, m->bins);
    m->ids = heap_grow(NULL, patches, sizeof *m->ids);
    m->slots = heap(m->num_slots * sizeof *m->slots);
    for (size_t i = 0; i < patches; i++)
        TRY(add_motif(m, map->items[2 * i], map->items[2 * i + 1], name));
    return STATUS_OK;
}

enum status motifs_parse(struct motifs **out, const unsigned char *bytes, size_t len,
                         const char *name)
{
    struct motifs *m = heap(sizeof *m);
    struct pickle p;
    size_t used;
    m->checksum = checksum_crc32c(0, bytes, len);
    enum status st = pickle_parse(&p, bytes, len, name, &used);
    if (!st) st = read_map(m, p.root, name);
    pickle_release(&p);
    if (st) motifs_close(m);
    *out = st ? NULL : m;
    return st;
}

enum status motifs_open(struct motifs **out, const char *path)
{
    struct file_map map;
    *out = NULL;
    TRY(file_map_open(&map, path));
    enum status st = STATUS_OK;
    if (map.size > MAX_BYTES)
        FAIL_OUT(DATA, "%s: %llu bytes exceed the limit of 1 GiB", path,
                 (unsigned long long)map.size);
    st = motifs_parse(out, map.data, map.size, path);
out:
    file_map_close(&map);
    return st;
}

void motifs_close(struct motifs *m)
{
    if (!m) return;
    free(m->patches), free(m->ids), free(m->slots);
    free(m);
}

int32_t motifs_separator(const struct motifs *m) { return m->separator; }
size_t motifs_bins(const struct motifs *m) { return m->bins; }
uint32_t motifs_checksum(const struct motifs *m) { return m->checksum; }

static size_t num_steps(const struct motifs *m, const struct motif_session *s)
{
    return (s->bins + m->bins - 1) / m->bins;
}

size_t motifs_length(const struct motifs *m, const struct motif_session *s)
{
    return num_steps(m, s) * (s->width + 1);
}

void motifs_encode(const struct motifs *m, const struct motif_session *s, struct text *out)
{
    unsigned char patch[MAX_BINS];
    size_t first = 0, num_time_steps = num_steps(m, s);
    if (s->neurons > s->width)
        first = rng_below(s->neurons - s->width + 1, 0, RNG_NEURONS, s->number, 0);
    text_reserve(out, motifs_length(m, s) * sizeof(int32_t));
    for (size_t t = 0; t < num_time_steps; t++) {
        size_t at = t * m->bins, left = s->bins - at, here = left < m->bins ? left : m->bins;
        text_add(out, &m->separator, sizeof m->separator);
        for (size_t n = 0; n < s->width; n++) {
            size_t neuron = first + n % s->neurons;
            memset(patch, 0, m->bins);
            memcpy(patch, s->counts + neuron * s->bins + at, here);
            uint32_t slot = *find_slot(m, patch);
            int32_t id = slot ? m->ids[slot - 1] : 0;
            text_add(out, &id, sizeof id);
        }
    }
}
