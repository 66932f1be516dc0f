// SPDX-License-Identifier: Apache-2.0
#include "data/motifs.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/file_map.h"
#include "base/rng.h"
#include "formats/pickle.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 30, MAX_COUNTS = 256, MAX_IDS = 1 << 28 };

/* Patches stored contiguously, and an open-addressing hash table of their indices, at most half
 * full. */
struct motifs {
    size_t neurons, bins, counts; /* of a patch; counts: neurons * bins */
    size_t count, num_slots;
    unsigned char *patches;
    int32_t *ids;
    uint32_t *slots; /* index + 1; 0: empty */
    int32_t separator;
    uint32_t checksum;
};

static uint32_t *find_slot(const struct motifs *m, const unsigned char *patch)
{
    size_t at = checksum_crc32c(0, patch, m->counts) & (m->num_slots - 1);
    while (m->slots[at] &&
           memcmp(m->patches + (m->slots[at] - 1) * m->counts, patch, m->counts) != 0)
        at = (at + 1) & (m->num_slots - 1);
    return &m->slots[at];
}

static enum status add_motif(struct motifs *m, const struct pickle_value *patch,
                             const struct pickle_value *id, const char *name)
{
    if (patch->kind != PICKLE_IS_STRING || patch->len != m->counts)
        FAIL(DATA, "%s: index_map, entry %zu: the key is not %zu bytes", name, m->count, m->counts);
    if (id->kind != PICKLE_IS_INT || id->integer < 0 || id->integer >= m->separator)
        FAIL(DATA, "%s: index_map, entry %zu: the value is not an ID from 0 to %d", name, m->count,
             m->separator - 1);
    memcpy(m->patches + m->count * m->counts, patch->text, m->counts);
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
    if (pickle_int_tuple(pickle_get(root, "patch_size"), 2, size) != 2 || size[0] < 1 ||
        size[0] > MAX_COUNTS || size[1] < 1 || size[1] > MAX_COUNTS / size[0])
        FAIL(DATA, "%s: patch_size must be (neurons, bins) of at most %d counts", name, MAX_COUNTS);
    if (!limit || limit->kind != PICKLE_IS_INT || limit->integer < 0 || limit->integer > MAX_IDS)
        FAIL(DATA, "%s: k_limit must be an integer from 0 to %d", name, MAX_IDS);
    m->neurons = (size_t)size[0], m->bins = (size_t)size[1];
    m->counts = m->neurons * m->bins;
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
    m->patches = heap_grow(NULL, patches, m->counts);
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
    TRY_OUT(file_map_check_after(&map, st));
out:
    if (st) motifs_close(*out), *out = NULL;
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
uint32_t motifs_checksum(const struct motifs *m) { return m->checksum; }

uint64_t motifs_first_neuron(size_t neurons, size_t width, uint64_t session)
{
    return neurons > width ? rng_below(neurons - width + 1, 0, RNG_NEURONS, session, 0) : 0;
}

static size_t num_steps(const struct motifs *m, const struct motif_session *s)
{
    return (s->bins + m->bins - 1) / m->bins;
}

/* Patches of a time step. */
static size_t num_patches(const struct motifs *m, const struct motif_session *s)
{
    return (s->width + m->neurons - 1) / m->neurons;
}

size_t motifs_length(const struct motifs *m, const struct motif_session *s)
{
    return num_steps(m, s) * (num_patches(m, s) + 1);
}

/* The session, of which neurons are drawn from `first` on, and the position of a patch in it. */
struct patch_place {
    const struct motif_session *session;
    size_t first, neuron, bin;
};

/* Copies a patch, padded with zeros. */
static void copy_patch(const struct motifs *m, const struct patch_place *p, unsigned char *patch)
{
    const struct motif_session *s = p->session;
    size_t left = s->bins - p->bin, bins = left < m->bins ? left : m->bins;
    memset(patch, 0, m->counts);
    for (size_t i = 0; i < m->neurons && p->neuron + i < s->width; i++) {
        size_t neuron = p->first + (p->neuron + i) % s->neurons;
        memcpy(patch + i * m->bins, s->counts + neuron * s->bins + p->bin, bins);
    }
}

void motifs_encode(const struct motifs *m, const struct motif_session *s, struct text *out)
{
    unsigned char patch[MAX_COUNTS];
    size_t num_time_steps = num_steps(m, s), patches = num_patches(m, s);
    struct patch_place p = {.session = s,
                            .first = motifs_first_neuron(s->neurons, s->width, s->number)};
    text_reserve(out, motifs_length(m, s) * sizeof(int32_t));
    for (size_t t = 0; t < num_time_steps; t++) {
        text_add(out, &m->separator, sizeof m->separator);
        for (size_t n = 0; n < patches; n++) {
            p.neuron = n * m->neurons, p.bin = t * m->bins;
            copy_patch(m, &p, patch);
            uint32_t slot = *find_slot(m, patch);
            int32_t id = slot ? m->ids[slot - 1] : 0;
            text_add(out, &id, sizeof id);
        }
    }
}
