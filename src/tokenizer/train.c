// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/train.h"

#include "tokenizer/kinds.h"
#include "tokenizer/text/split.h"

#include <stdlib.h>
#include <string.h>

/* A distinct word: its bytes while counting, its symbols while merging. */
struct word {
    size_t at; /* in `bytes`, and in `symbols` */
    uint32_t len, num_symbols;
    int64_t count;
};

/* A pair that occurs, how often, and in which words (some may have lost it again). */
struct seen_pair {
    int32_t left, right; /* left -1: a free slot */
    int64_t count;
    int32_t *words;
    size_t num_words, capacity;
};

/* A pair in the queue with the count it had when it was put there. */
struct queued {
    int64_t count;
    int32_t left, right;
};

struct bpe_trainer {
    unsigned char *bytes;
    size_t num_bytes, bytes_room;
    struct word *words;
    size_t num_words;
    int64_t *slots; /* hash of bytes to word, -1: free */
    size_t num_slots;
    int32_t *symbols; /* of word w from words[w].at on */
    struct seen_pair *pairs;
    size_t num_pair_slots, num_pairs;
    struct queued *queue;
    size_t num_queued, queue_room;
};

void bpe_trainer_make(struct bpe_trainer **out) { *out = heap(sizeof **out); }

void bpe_trainer_free(struct bpe_trainer *t)
{
    if (!t) return;
    for (size_t i = 0; i < t->num_pair_slots; i++) free(t->pairs[i].words);
    free(t->pairs), free(t->queue), free(t->symbols);
    free(t->slots), free(t->words), free(t->bytes);
    free(t);
}

static size_t word_slot(const struct bpe_trainer *t, const unsigned char *bytes, size_t len)
{
    size_t slot = vocabulary_hash(bytes, len) & (t->num_slots - 1);
    for (; t->slots[slot] >= 0; slot = (slot + 1) & (t->num_slots - 1)) {
        const struct word *w = &t->words[t->slots[slot]];
        if (w->len == len && !memcmp(t->bytes + w->at, bytes, len)) break;
    }
    return slot;
}

static void grow_words(struct bpe_trainer *t)
{
    if (t->num_slots > 2 * t->num_words + 2) return;
    t->num_slots = t->num_slots ? 2 * t->num_slots : 4096;
    t->slots = heap_grow(t->slots, t->num_slots, sizeof *t->slots);
    t->words = heap_grow(t->words, t->num_slots, sizeof *t->words);
    for (size_t i = 0; i < t->num_slots; i++) t->slots[i] = -1;
    for (size_t i = 0; i < t->num_words; i++)
        t->slots[word_slot(t, t->bytes + t->words[i].at, t->words[i].len)] = (int64_t)i;
}

static void count_word(struct bpe_trainer *t, const unsigned char *bytes, size_t len)
{
    grow_words(t);
    size_t slot = word_slot(t, bytes, len);
    if (t->slots[slot] < 0) {
        if (t->num_bytes + len > t->bytes_room) {
            t->bytes_room = 2 * (t->num_bytes + len) + 4096;
            t->bytes = heap_grow(t->bytes, t->bytes_room, 1);
        }
        memcpy(t->bytes + t->num_bytes, bytes, len);
        t->words[t->num_words] = (struct word){t->num_bytes, (uint32_t)len, (uint32_t)len, 0};
        t->num_bytes += len;
        t->slots[slot] = (int64_t)t->num_words++;
    }
    t->words[t->slots[slot]].count++;
}

void bpe_trainer_add(struct bpe_trainer *t, const char *bytes, size_t len)
{
    enum { LONGEST = 4096 }; /* what is longer is no word; it is counted in parts */
    const unsigned char *text = (const unsigned char *)bytes;
    for (size_t at = 0; at < len;) {
        size_t n = split_llama3(text + at, len - at);
        for (size_t end = at + n; at < end; at += n) {
            n = end - at < LONGEST ? end - at : LONGEST;
            count_word(t, text + at, n);
        }
    }
}

static size_t pair_slot(const struct bpe_trainer *t, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    key *= 0x9E3779B97F4A7C15u;
    size_t slot = (key ^ key >> 29) & (t->num_pair_slots - 1);
    while (t->pairs[slot].left >= 0 &&
           (t->pairs[slot].left != left || t->pairs[slot].right != right))
        slot = (slot + 1) & (t->num_pair_slots - 1);
    return slot;
}

static void grow_pairs(struct bpe_trainer *t)
{
    if (t->num_pair_slots > 2 * t->num_pairs + 2) return;
    struct seen_pair *old = t->pairs;
    size_t had = t->num_pair_slots;
    t->num_pair_slots = had ? 2 * had : 4096;
    t->pairs = heap(t->num_pair_slots * sizeof *t->pairs);
    for (size_t i = 0; i < t->num_pair_slots; i++) t->pairs[i].left = -1;
    for (size_t i = 0; i < had; i++)
        if (old[i].left >= 0) t->pairs[pair_slot(t, old[i].left, old[i].right)] = old[i];
    free(old);
}

static struct seen_pair *pair_at(struct bpe_trainer *t, int32_t left, int32_t right)
{
    grow_pairs(t);
    struct seen_pair *p = &t->pairs[pair_slot(t, left, right)];
    if (p->left < 0) {
        *p = (struct seen_pair){.left = left, .right = right};
        t->num_pairs++;
    }
    return p;
}

static void add_to_pair(struct bpe_trainer *t, int32_t left, int32_t right, int32_t word,
                        int64_t count)
{
    struct seen_pair *p = pair_at(t, left, right);
    p->count += count;
    if (count < 0 || (p->num_words && p->words[p->num_words - 1] == word)) return;
    if (p->num_words == p->capacity) {
        p->capacity = p->capacity ? 2 * p->capacity : 4;
        p->words = heap_grow(p->words, p->capacity, sizeof *p->words);
    }
    p->words[p->num_words++] = word;
}

static bool before(const struct queued *a, const struct queued *b)
{
    if (a->count != b->count) return a->count > b->count;
    return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static void push(struct bpe_trainer *t, struct queued x)
{
    if (t->num_queued == t->queue_room) {
        t->queue_room = t->queue_room ? 2 * t->queue_room : 4096;
        t->queue = heap_grow(t->queue, t->queue_room, sizeof *t->queue);
    }
    size_t i = t->num_queued++;
    for (; i > 0 && before(&x, &t->queue[(i - 1) / 2]); i = (i - 1) / 2)
        t->queue[i] = t->queue[(i - 1) / 2];
    t->queue[i] = x;
}

static struct queued pop(struct bpe_trainer *t)
{
    struct queued top = t->queue[0], x = t->queue[--t->num_queued];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= t->num_queued) break;
        if (child + 1 < t->num_queued && before(&t->queue[child + 1], &t->queue[child])) child++;
        if (!before(&t->queue[child], &x)) break;
        t->queue[i] = t->queue[child];
        i = child;
    }
    t->queue[i] = x;
    return top;
}

static void begin(struct bpe_trainer *t)
{
    t->symbols = heap_grow(NULL, t->num_bytes, sizeof *t->symbols);
    for (size_t i = 0; i < t->num_bytes; i++) t->symbols[i] = t->bytes[i];
    for (size_t w = 0; w < t->num_words; w++) {
        const int32_t *s = t->symbols + t->words[w].at;
        for (uint32_t i = 0; i + 1 < t->words[w].num_symbols; i++)
            add_to_pair(t, s[i], s[i + 1], (int32_t)w, t->words[w].count);
    }
    for (size_t i = 0; i < t->num_pair_slots; i++)
        if (t->pairs[i].left >= 0)
            push(t, (struct queued){t->pairs[i].count, t->pairs[i].left, t->pairs[i].right});
}

/* Joins a pair in one word; the counts of its neighbours change, and new pairs are queued. */
static void merge_word(struct bpe_trainer *t, int32_t w, struct queued pair, int32_t joined)
{
    struct word *word = &t->words[w];
    int32_t *s = t->symbols + word->at;
    uint32_t n = word->num_symbols, to = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (i + 1 >= n || s[i] != pair.left || s[i + 1] != pair.right) {
            s[to++] = s[i];
            continue;
        }
        if (to > 0) {
            add_to_pair(t, s[to - 1], pair.left, w, -word->count);
            add_to_pair(t, s[to - 1], joined, w, word->count);
            push(t, (struct queued){pair_at(t, s[to - 1], joined)->count, s[to - 1], joined});
        }
        if (i + 2 < n) {
            add_to_pair(t, pair.right, s[i + 2], w, -word->count);
            add_to_pair(t, joined, s[i + 2], w, word->count);
            push(t, (struct queued){pair_at(t, joined, s[i + 2])->count, joined, s[i + 2]});
        }
        s[to++] = joined;
        i++;
    }
    word->num_symbols = to;
}

static enum status learn(struct bpe_trainer *t, struct vocabulary *v, struct merge *merges,
                         size_t most, size_t *num_merges)
{
    while (t->num_queued && *num_merges < most) {
        struct queued top = pop(t);
        struct seen_pair *p = pair_at(t, top.left, top.right);
        if (p->count < 2) continue;
        if (p->count != top.count) { /* it has changed since; put it where it belongs now */
            if (p->count < top.count) push(t, (struct queued){p->count, top.left, top.right});
            continue;
        }
        const struct token_bytes *a = vocabulary_token(v, top.left);
        const struct token_bytes *b = vocabulary_token(v, top.right);
        struct text joined = {0};
        int32_t id = 256 + (int32_t)*num_merges;
        text_add(&joined, v->bytes + a->at, a->len);
        text_add(&joined, v->bytes + b->at, b->len);
        bool known = vocabulary_find(v, joined.data, joined.len) >= 0;
        enum status st = known ? STATUS_OK : vocabulary_add(v, joined.data, joined.len, id);
        text_release(&joined);
        TRY(st);
        int32_t *words = p->words;
        size_t count = p->num_words;
        *p = (struct seen_pair){.left = top.left, .right = top.right};
        if (!known) {
            merges[(*num_merges)++] = (struct merge){top.left, top.right};
            for (size_t i = 0; i < count; i++) merge_word(t, words[i], top, id);
        }
        free(words);
    }
    return STATUS_OK;
}

enum status bpe_trainer_finish(struct bpe_trainer *t, int32_t vocab_size, struct text *json,
                               int32_t *made)
{
    enum { LEAST = 256 + SPECIALS_OWN + 1, MOST = 1 << 24 };
    if (vocab_size < LEAST || vocab_size > MOST)
        FAIL(CONFIG, "a vocabulary of %d tokens: between %d and %d", vocab_size, LEAST, MOST);
    if (!t->num_words) FAIL(DATA, "there is no text to learn from");
    struct vocabulary v;
    struct specials specials = {0};
    size_t most = (size_t)(vocab_size - 256 - SPECIALS_OWN), num_merges = 0;
    struct merge *merges = heap(most * sizeof *merges);
    enum status st = STATUS_OK;
    vocabulary_init(&v);
    for (int i = 0; i < 256 && !st; i++) {
        unsigned char byte = (unsigned char)i;
        st = vocabulary_add(&v, &byte, 1, i);
    }
    if (!st) begin(t);
    if (!st) st = learn(t, &v, merges, most, &num_merges);
    specials_add_own(&specials, 256 + (int32_t)num_merges);
    if (!st) hf_json_write(&v, merges, num_merges, &specials, json);
    *made = 256 + (int32_t)num_merges + SPECIALS_OWN;
    specials_release(&specials);
    vocabulary_release(&v);
    free(merges);
    return st;
}
