// SPDX-License-Identifier: Apache-2.0
#include "data/motifs.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/rng.h"
#include "formats/pickle.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 30, MOST_BINS = 256, MOST_IDS = 1 << 28 };

/* Patches one behind the other, and a table of their numbers, at most half full. */
struct motifs {
    size_t bins, count, room;
    unsigned char *patches;
    int32_t *ids;
    uint32_t *places; /* number + 1; 0: none */
    int32_t mark;
    uint32_t checksum;
};

static uint32_t *place_of(const struct motifs *m, const unsigned char *patch)
{
    size_t at = checksum_crc32c(0, patch, m->bins) & (m->room - 1);
    while (m->places[at] && memcmp(m->patches + (m->places[at] - 1) * m->bins, patch, m->bins) != 0)
        at = (at + 1) & (m->room - 1);
    return &m->places[at];
}

static enum status add_patch(struct motifs *m, const struct pickle_value *patch,
                             const struct pickle_value *id, const char *name)
{
    if (patch->kind != PICKLE_IS_TEXT || patch->len != m->bins)
        FAIL(DATA, "%s: index_map, entry %zu: the key is not %zu bytes", name, m->count, m->bins);
    if (id->kind != PICKLE_IS_INT || id->integer < 0 || id->integer >= m->mark)
        FAIL(DATA, "%s: index_map, entry %zu: the value is not an id of 0..%d", name, m->count,
             m->mark - 1);
    memcpy(m->patches + m->count * m->bins, patch->text, m->bins);
    uint32_t *place = place_of(m, (const unsigned char *)patch->text);
    if (*place) { /* the later one counts, as in Python */
        m->ids[*place - 1] = (int32_t)id->integer;
        return STATUS_OK;
    }
    m->ids[m->count++] = (int32_t)id->integer;
    *place = (uint32_t)m->count;
    return STATUS_OK;
}

static enum status read_sizes(struct motifs *m, const struct pickle_value *root, const char *name)
{
    const struct pickle_value *limit = pickle_get(root, "k_limit");
    int64_t size[2];
    if (!root || root->kind != PICKLE_IS_DICT)
        FAIL(DATA, "%s: not a dictionary of index_map, patch_size and k_limit", name);
    if (pickle_integers(pickle_get(root, "patch_size"), 2, size) != 2 || size[0] != 1 ||
        size[1] < 1 || size[1] > MOST_BINS)
        FAIL(DATA, "%s: patch_size is not (1, bins), with 1..%d bins", name, MOST_BINS);
    if (!limit || limit->kind != PICKLE_IS_INT || limit->integer < 0 || limit->integer > MOST_IDS)
        FAIL(DATA, "%s: k_limit is not a number of 0..%d", name, MOST_IDS);
    m->bins = (size_t)size[1];
    m->mark = (int32_t)limit->integer + 1;
    return STATUS_OK;
}

static enum status read_map(struct motifs *m, const struct pickle_value *root, const char *name)
{
    TRY(read_sizes(m, root, name));
    const struct pickle_value *map = pickle_get(root, "index_map");
    if (!map || map->kind != PICKLE_IS_DICT || map->count < 2 || map->count / 2 > UINT32_MAX / 4)
        FAIL(DATA, "%s: index_map is not a dictionary with patches in it", name);
    size_t patches = map->count / 2;
    for (m->room = 16; m->room < 2 * patches;) m->room *= 2;
    m->patches = heap_grow(NULL, patches, m->bins);
    m->ids = heap_grow(NULL, patches, sizeof *m->ids);
    m->places = heap(m->room * sizeof *m->places);
    for (size_t i = 0; i < patches; i++)
        TRY(add_patch(m, map->items[2 * i], map->items[2 * i + 1], name));
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
    if (map.size > MOST_BYTES)
        FAIL_OUT(DATA, "%s: %llu bytes; motifs are 1 GiB at most", path,
                 (unsigned long long)map.size);
    st = motifs_parse(out, map.data, map.size, path);
out:
    file_map_close(&map);
    return st;
}

void motifs_close(struct motifs *m)
{
    if (!m) return;
    free(m->patches), free(m->ids), free(m->places);
    free(m);
}

int32_t motifs_mark(const struct motifs *m) { return m->mark; }
size_t motifs_bins(const struct motifs *m) { return m->bins; }
uint32_t motifs_checksum(const struct motifs *m) { return m->checksum; }

static size_t times_of(const struct motifs *m, const struct motif_session *s)
{
    return (s->bins + m->bins - 1) / m->bins;
}

size_t motifs_length(const struct motifs *m, const struct motif_session *s)
{
    return times_of(m, s) * (s->width + 1);
}

void motifs_encode(const struct motifs *m, const struct motif_session *s, struct text *out)
{
    unsigned char patch[MOST_BINS];
    size_t first = 0, times = times_of(m, s);
    if (s->neurons > s->width)
        first = rng_below(s->neurons - s->width + 1, 0, RNG_NEURONS, s->number, 0);
    text_reserve(out, motifs_length(m, s) * sizeof(int32_t));
    for (size_t t = 0; t < times; t++) {
        size_t at = t * m->bins, left = s->bins - at, here = left < m->bins ? left : m->bins;
        text_add(out, &m->mark, sizeof m->mark);
        for (size_t n = 0; n < s->width; n++) {
            size_t neuron = first + n % s->neurons;
            memset(patch, 0, m->bins);
            memcpy(patch, s->counts + neuron * s->bins + at, here);
            uint32_t place = *place_of(m, patch);
            int32_t id = place ? m->ids[place - 1] : 0;
            text_add(out, &id, sizeof id);
        }
    }
}
