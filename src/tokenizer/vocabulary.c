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

void vocabulary_release(struct vocabulary *v)
{
    free(v->bytes);
    free(v->tokens);
    free(v->by_id);
    free(v->slots);
    free(v->pairs);
    free(v->pair_filter);
    for (int i = 0; v->num_pairs && i < 256; i++) free(v->low_pairs[i]);
    *v = (struct vocabulary){0};
}

/* The slot that holds these bytes, or the empty one where they belong; and their hash tag. */
static struct token_slot *find_slot(const struct vocabulary *v, const void *bytes, size_t len,
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
        struct token_slot *s = find_slot(v, v->bytes + v->tokens[i].at, v->tokens[i].len, &tag);
        *s = (struct token_slot){tag, i};
    }
}

/* Doubles the capacity at powers of two, so appending is amortized O(1). */
static void *grow_array(void *array, size_t count, size_t more, size_t each)
{
    size_t capacity = 64, need = count + more;
    if (array && (count & (count - 1)) && more == 1) return array;
    while (capacity < need) capacity *= 2;
    return heap_grow(array, capacity, each);
}

enum status vocabulary_add(struct vocabulary *v, const void *bytes, size_t len, int32_t id)
{
    if (len == 0 || len > 1 << 20)
        FAIL(DATA, "token %d has %zu bytes; expected 1 to %d", id, len, 1 << 20);
    if (id < 0 || id > VOCABULARY_MAX_ID)
        FAIL(DATA, "token ID %d must be between 0 and %d", id, VOCABULARY_MAX_ID);
    grow_slots(v);
    uint32_t tag;
    struct token_slot *slot = find_slot(v, bytes, len, &tag);
    if (slot->index >= 0)
        FAIL(DATA, "tokens %d and %d have the same bytes", v->tokens[slot->index].id, id);
    if (id >= v->id_limit) {
        int32_t grown = id + 1 > 2 * v->id_limit ? id + 1 : 2 * v->id_limit;
        v->by_id = heap_grow(v->by_id, (size_t)grown, sizeof *v->by_id);
        for (int32_t i = v->id_limit; i < grown; i++) v->by_id[i] = -1;
        v->id_limit = grown;
    }
    if (v->by_id[id] >= 0) FAIL(DATA, "token ID %d occurs twice", id);
    if (v->num_bytes + len > v->bytes_capacity) {
        v->bytes_capacity = 2 * (v->num_bytes + len);
        v->bytes = heap_grow(v->bytes, v->bytes_capacity, 1);
    }
    v->tokens = grow_array(v->tokens, (size_t)v->count, 1, sizeof *v->tokens);
    memcpy(v->bytes + v->num_bytes, bytes, len);
    v->tokens[v->count] = (struct token_bytes){v->num_bytes, (uint32_t)len, id};
    v->num_bytes += len;
    v->by_id[id] = v->count;
    *slot = (struct token_slot){tag, v->count++};
    return STATUS_OK;
}

void vocabulary_trim(struct vocabulary *v)
{
    while (v->id_limit && v->by_id[v->id_limit - 1] < 0) v->id_limit--;
}

int vocabulary_finish_partial(struct vocabulary *v)
{
    int missing = 0;
    vocabulary_trim(v);
    for (int i = 0; i < 256; i++) {
        unsigned char byte = (unsigned char)i;
        v->byte_ids[i] = vocabulary_find(v, &byte, 1);
        missing += v->byte_ids[i] < 0;
    }
    v->lacks_bytes = missing > 0;
    return missing;
}

enum status vocabulary_finish(struct vocabulary *v)
{
    if (!vocabulary_finish_partial(v)) return STATUS_OK;
    int byte = 0;
    while (v->byte_ids[byte] >= 0) byte++;
    FAIL(DATA, "no token for the single byte 0x%02X", byte);
}

int32_t vocabulary_find(const struct vocabulary *v, const void *bytes, size_t len)
{
    if (!v->num_slots) return -1;
    uint32_t tag;
    int32_t index = find_slot(v, bytes, len, &tag)->index;
    return index < 0 ? -1 : v->tokens[index].id;
}

const struct token_bytes *vocabulary_token(const struct vocabulary *v, int32_t id)
{
    if (id < 0 || id >= v->id_limit || v->by_id[id] < 0) return NULL;
    return &v->tokens[v->by_id[id]];
}

static uint64_t pair_hash(int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    key *= 0x9E3779B97F4A7C15u;
    return key ^ key >> 29;
}

static size_t pair_slot(const struct vocabulary *v, int32_t left, int32_t right)
{
    size_t slot = pair_hash(left, right) & (v->num_pair_slots - 1);
    while (v->pairs[slot].left >= 0 &&
           (v->pairs[slot].left != left || v->pairs[slot].right != right))
        slot = (slot + 1) & (v->num_pair_slots - 1);
    return slot;
}

/* The filter has FILTER_BITS bits for each slot, so that it has a bit set for at most one in eight
 * pairs that have no merge. */
enum { FILTER_BITS = 4 };

static size_t filter_bit(const struct vocabulary *v, int32_t left, int32_t right)
{
    uint64_t hash = pair_hash(left, right);
    return (hash ^ hash >> 32) & (FILTER_BITS * v->num_pair_slots - 1);
}

/* False: the pair has no merge. */
static bool filter_may_find(const struct vocabulary *v, int32_t left, int32_t right)
{
    size_t bit = filter_bit(v, left, right);
    return v->pair_filter[bit / 64] >> bit % 64 & 1;
}

static void insert_pair(struct vocabulary *v, struct merge_pair pair)
{
    size_t bit = filter_bit(v, pair.left, pair.right);
    v->pair_filter[bit / 64] |= (uint64_t)1 << bit % 64;
    v->pairs[pair_slot(v, pair.left, pair.right)] = pair;
}

static bool is_low(int32_t left, int32_t right) { return (uint32_t)(left | right) < 256; }

const struct merge_pair *vocabulary_find_pair(const struct vocabulary *v, int32_t left,
                                              int32_t right)
{
    const struct merge_pair *p = NULL;
    if (is_low(left, right))
        p = v->low_pairs[left] ? &v->low_pairs[left][right] : NULL;
    else if (v->num_pair_slots && filter_may_find(v, left, right))
        p = &v->pairs[pair_slot(v, left, right)];
    return !p || p->left < 0 ? NULL : p;
}

static struct merge_pair *make_empty_pairs(size_t count)
{
    struct merge_pair *pairs = heap(count * sizeof *pairs);
    for (size_t i = 0; i < count; i++) pairs[i].left = -1;
    return pairs;
}

static void grow_pairs(struct vocabulary *v)
{
    if (v->num_pair_slots > 2 * v->num_pairs + 2) return;
    struct merge_pair *old = v->pairs;
    size_t capacity = v->num_pair_slots;
    v->num_pair_slots = capacity ? 2 * capacity : 64;
    v->pairs = make_empty_pairs(v->num_pair_slots);
    free(v->pair_filter);
    v->pair_filter = heap(FILTER_BITS * v->num_pair_slots / 8);
    for (size_t i = 0; i < capacity; i++)
        if (old[i].left >= 0) insert_pair(v, old[i]);
    free(old);
}

void vocabulary_add_pair(struct vocabulary *v, int32_t left, int32_t right, int32_t rank,
                         int32_t joined)
{
    const struct merge_pair pair = {left, right, rank, joined};
    v->num_pairs += !vocabulary_find_pair(v, left, right);
    if (is_low(left, right)) {
        if (!v->low_pairs[left]) v->low_pairs[left] = make_empty_pairs(256);
        v->low_pairs[left][right] = pair;
    } else {
        grow_pairs(v);
        insert_pair(v, pair);
    }
}

void vocabulary_add_all_splits(struct vocabulary *v)
{
    for (int32_t i = 0; i < v->count; i++) {
        const struct token_bytes *t = &v->tokens[i];
        for (size_t split = 1; split < t->len; split++) {
            int32_t left = vocabulary_find(v, v->bytes + t->at, split);
            int32_t right = vocabulary_find(v, v->bytes + t->at + split, t->len - split);
            if (left >= 0 && right >= 0) vocabulary_add_pair(v, left, right, t->id, t->id);
        }
    }
}

static int compare_ranks(const void *a, const void *b)
{
    const struct merge_pair *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->left != y->left) return x->left < y->left ? -1 : 1;
    return (x->right > y->right) - (x->right < y->right);
}

struct merge_pair *vocabulary_sorted_pairs(const struct vocabulary *v, size_t *count)
{
    enum { LOW_IDS = 256 };
    struct merge_pair *pairs = heap((v->num_pairs + 1) * sizeof *pairs);
    size_t n = 0;
    for (int i = 0; i < LOW_IDS * LOW_IDS; i++) {
        const struct merge_pair *row = v->low_pairs[i / LOW_IDS];
        if (row && row[i % LOW_IDS].left >= 0) pairs[n++] = row[i % LOW_IDS];
    }
    for (size_t i = 0; i < v->num_pair_slots; i++)
        if (v->pairs[i].left >= 0) pairs[n++] = v->pairs[i];
    qsort(pairs, n, sizeof *pairs, compare_ranks);
    *count = n;
    return pairs;
}
