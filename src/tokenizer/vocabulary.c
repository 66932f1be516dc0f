// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/vocabulary.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

uint64_t vocabulary_hash(const void *bytes, size_t len)
{
    const unsigned char *at = bytes;
    uint64_t hash = len * 0x9E3779B97F4A7C15u, word;
    for (; len >= 8; at += 8, len -= 8) {
        memcpy(&word, at, 8);
        hash = (hash ^ word) * 0xFF51AFD7ED558CCDu;
        hash ^= hash >> 32;
    }
    word = 0;
    for (size_t i = 0; i < len; i++) word |= (uint64_t)at[i] << (8 * i);
    hash = (hash ^ word) * 0xFF51AFD7ED558CCDu;
    hash ^= hash >> 29;
    hash *= 0xC4CEB9FE1A85EC53u;
    return hash ^ hash >> 32;
}

void vocabulary_init(struct vocabulary *v) { *v = (struct vocabulary){0}; }

void vocabulary_release(struct vocabulary *v)
{
    free(v->bytes);
    free(v->tokens);
    free(v->by_id);
    free(v->slots);
    free(v->pairs);
    for (int i = 0; v->num_pairs && i < 256; i++) free(v->low[i]);
    *v = (struct vocabulary){0};
}

/* The slot of these bytes, or the free one where they belong, and their tag. */
static struct token_slot *slot_of(const struct vocabulary *v, const void *bytes, size_t len,
                                  uint32_t *tag)
{
    uint64_t hash = vocabulary_hash(bytes, len);
    size_t at = hash & (v->num_slots - 1);
    *tag = (uint32_t)(hash >> 32);
    for (; v->slots[at].index >= 0; at = (at + 1) & (v->num_slots - 1)) {
        if (v->slots[at].tag != *tag) continue;
        const struct token_bytes *t = &v->tokens[v->slots[at].index];
        if (t->len == len && !memcmp(v->bytes + t->at, bytes, len)) break;
    }
    return &v->slots[at];
}

static void grow_slots(struct vocabulary *v)
{
    uint32_t tag;
    if (v->num_slots > 2 * (size_t)v->count + 2) return;
    v->num_slots = v->num_slots ? 2 * v->num_slots : 64;
    v->slots = heap_grow(v->slots, v->num_slots, sizeof *v->slots);
    for (size_t i = 0; i < v->num_slots; i++) v->slots[i].index = -1;
    for (int32_t i = 0; i < v->count; i++) {
        struct token_slot *s = slot_of(v, v->bytes + v->tokens[i].at, v->tokens[i].len, &tag);
        *s = (struct token_slot){tag, i};
    }
}

/* Arrays double, so adding stays linear. */
static void *room(void *array, size_t count, size_t more, size_t each)
{
    size_t had = 64, need = count + more;
    if (array && (count & (count - 1)) && more == 1) return array;
    while (had < need) had *= 2;
    return heap_grow(array, had, each);
}

enum status vocabulary_add(struct vocabulary *v, const void *bytes, size_t len, int32_t id)
{
    if (len == 0 || len > 1 << 20) FAIL(DATA, "token %d has %zu bytes", id, len);
    if (id < 0 || id > VOCABULARY_MOST_ID)
        FAIL(DATA, "token id %d is not between 0 and %d", id, VOCABULARY_MOST_ID);
    grow_slots(v);
    uint32_t tag;
    struct token_slot *slot = slot_of(v, bytes, len, &tag);
    if (slot->index >= 0)
        FAIL(DATA, "tokens %d and %d have the same bytes", v->tokens[slot->index].id, id);
    if (id >= v->most) {
        int32_t grown = id + 1 > 2 * v->most ? id + 1 : 2 * v->most;
        v->by_id = heap_grow(v->by_id, (size_t)grown, sizeof *v->by_id);
        for (int32_t i = v->most; i < grown; i++) v->by_id[i] = -1;
        v->most = grown;
    }
    if (v->by_id[id] >= 0) FAIL(DATA, "token id %d is given twice", id);
    if (v->num_bytes + len > v->bytes_room) {
        v->bytes_room = 2 * (v->num_bytes + len);
        v->bytes = heap_grow(v->bytes, v->bytes_room, 1);
    }
    v->tokens = room(v->tokens, (size_t)v->count, 1, sizeof *v->tokens);
    memcpy(v->bytes + v->num_bytes, bytes, len);
    v->tokens[v->count] = (struct token_bytes){v->num_bytes, (uint32_t)len, id};
    v->num_bytes += len;
    v->by_id[id] = v->count;
    *slot = (struct token_slot){tag, v->count++};
    return STATUS_OK;
}

void vocabulary_trim(struct vocabulary *v)
{
    while (v->most && v->by_id[v->most - 1] < 0) v->most--;
}

enum status vocabulary_finish(struct vocabulary *v)
{
    vocabulary_trim(v);
    for (int i = 0; i < 256; i++) {
        unsigned char byte = (unsigned char)i;
        v->of_byte[i] = vocabulary_find(v, &byte, 1);
        if (v->of_byte[i] < 0) FAIL(DATA, "there is no token for the single byte 0x%02X", i);
    }
    return STATUS_OK;
}

int32_t vocabulary_find(const struct vocabulary *v, const void *bytes, size_t len)
{
    if (!v->num_slots) return -1;
    uint32_t tag;
    int32_t index = slot_of(v, bytes, len, &tag)->index;
    return index < 0 ? -1 : v->tokens[index].id;
}

const struct token_bytes *vocabulary_token(const struct vocabulary *v, int32_t id)
{
    if (id < 0 || id >= v->most || v->by_id[id] < 0) return NULL;
    return &v->tokens[v->by_id[id]];
}

static size_t pair_slot(const struct vocabulary *v, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    key *= 0x9E3779B97F4A7C15u;
    size_t slot = (key ^ key >> 29) & (v->num_pair_slots - 1);
    while (v->pairs[slot].left >= 0 &&
           (v->pairs[slot].left != left || v->pairs[slot].right != right))
        slot = (slot + 1) & (v->num_pair_slots - 1);
    return slot;
}

static bool is_low(int32_t left, int32_t right) { return (uint32_t)(left | right) < 256; }

const struct pair *vocabulary_pair(const struct vocabulary *v, int32_t left, int32_t right)
{
    const struct pair *p;
    if (is_low(left, right))
        p = v->low[left] ? &v->low[left][right] : NULL;
    else
        p = v->num_pair_slots ? &v->pairs[pair_slot(v, left, right)] : NULL;
    return !p || p->left < 0 ? NULL : p;
}

static struct pair *make_free(size_t count)
{
    struct pair *pairs = heap(count * sizeof *pairs);
    for (size_t i = 0; i < count; i++) pairs[i].left = -1;
    return pairs;
}

static void grow_pairs(struct vocabulary *v)
{
    if (v->num_pair_slots > 2 * v->num_pairs + 2) return;
    struct pair *old = v->pairs;
    size_t had = v->num_pair_slots;
    v->num_pair_slots = had ? 2 * had : 64;
    v->pairs = make_free(v->num_pair_slots);
    for (size_t i = 0; i < had; i++)
        if (old[i].left >= 0) v->pairs[pair_slot(v, old[i].left, old[i].right)] = old[i];
    free(old);
}

void vocabulary_add_pair(struct vocabulary *v, int32_t left, int32_t right, int32_t rank,
                         int32_t joined)
{
    struct pair *p;
    if (is_low(left, right)) {
        if (!v->low[left]) v->low[left] = make_free(256);
        p = &v->low[left][right];
    } else {
        grow_pairs(v);
        p = &v->pairs[pair_slot(v, left, right)];
    }
    v->num_pairs += p->left < 0;
    *p = (struct pair){left, right, rank, joined};
}

void vocabulary_add_cuts(struct vocabulary *v)
{
    for (int32_t i = 0; i < v->count; i++) {
        const struct token_bytes *t = &v->tokens[i];
        for (size_t cut = 1; cut < t->len; cut++) {
            int32_t left = vocabulary_find(v, v->bytes + t->at, cut);
            int32_t right = vocabulary_find(v, v->bytes + t->at + cut, t->len - cut);
            if (left >= 0 && right >= 0) vocabulary_add_pair(v, left, right, t->id, t->id);
        }
    }
}
