// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/bpe_trainer.h"

#include "base/progress.h"
#include "tokenizer/files/hf_write.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/text/split.h"
#include "tokenizer/vocabulary.h"

#include <stdlib.h>
#include <string.h>

/* A distinct word: bytes while counting, symbols while merging. */
struct counted_word {
    size_t at; /* offset into `bytes` and into `symbols` */
    uint32_t len, num_symbols;
    int64_t count;
};

/* An adjacent pair, its count, and the words it occurs in (merges may have removed it from
 * some). */
struct counted_pair {
    int32_t left, right; /* left -1: empty slot */
    int64_t count;
    int32_t *words;
    size_t num_words, capacity;
};

/* A pair in the priority queue with its count when queued, which may be outdated. */
struct queued_pair {
    int64_t count;
    int32_t left, right;
};

struct bpe_trainer {
    unsigned char *bytes;
    size_t num_bytes, bytes_capacity;
    struct counted_word *words;
    size_t num_words;
    int64_t *slots; /* hash table: bytes to index into words; -1: empty */
    size_t num_slots;
    int32_t *symbols; /* those of word w start at words[w].at */
    struct counted_pair *pairs;
    size_t num_pair_slots, num_pairs;
    struct queued_pair *queue;
    size_t num_queued, queue_capacity;
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
        const struct counted_word *w = &t->words[t->slots[slot]];
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
        if (t->num_bytes + len > t->bytes_capacity) {
            t->bytes_capacity = 2 * (t->num_bytes + len) + 4096;
            t->bytes = heap_grow(t->bytes, t->bytes_capacity, 1);
        }
        memcpy(t->bytes + t->num_bytes, bytes, len);
        t->words[t->num_words] =
            (struct counted_word){t->num_bytes, (uint32_t)len, (uint32_t)len, 0};
        t->num_bytes += len;
        t->slots[slot] = (int64_t)t->num_words++;
    }
    t->words[t->slots[slot]].count++;
}

void bpe_trainer_add(struct bpe_trainer *t, const char *bytes, size_t len)
{
    enum { MAX_WORD_BYTES = 4096 /* longer words are counted in parts */, REPORT = 1 << 20 };
    size_t reported = 0;
    const unsigned char *text = (const unsigned char *)bytes;
    for (size_t at = 0; at < len;) {
        size_t n = split_llama3(text + at, len - at);
        for (size_t end = at + n; at < end; at += n) {
            n = end - at < MAX_WORD_BYTES ? end - at : MAX_WORD_BYTES;
            count_word(t, text + at, n);
        }
        if (at - reported < REPORT && at < len) continue;
        progress_add((double)(at - reported));
        reported = at;
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
    struct counted_pair *old = t->pairs;
    size_t old_slots = t->num_pair_slots;
    t->num_pair_slots = old_slots ? 2 * old_slots : 4096;
    t->pairs = heap(t->num_pair_slots * sizeof *t->pairs);
    for (size_t i = 0; i < t->num_pair_slots; i++) t->pairs[i].left = -1;
    for (size_t i = 0; i < old_slots; i++)
        if (old[i].left >= 0) t->pairs[pair_slot(t, old[i].left, old[i].right)] = old[i];
    free(old);
}

static struct counted_pair *find_or_add_pair(struct bpe_trainer *t, int32_t left, int32_t right)
{
    grow_pairs(t);
    struct counted_pair *p = &t->pairs[pair_slot(t, left, right)];
    if (p->left < 0) {
        *p = (struct counted_pair){.left = left, .right = right};
        t->num_pairs++;
    }
    return p;
}

static void count_pair(struct bpe_trainer *t, int32_t left, int32_t right, int32_t word,
                       int64_t count)
{
    struct counted_pair *p = find_or_add_pair(t, left, right);
    p->count += count;
    if (count < 0 || (p->num_words && p->words[p->num_words - 1] == word)) return;
    if (p->num_words == p->capacity) {
        p->capacity = p->capacity ? 2 * p->capacity : 4;
        p->words = heap_grow(p->words, p->capacity, sizeof *p->words);
    }
    p->words[p->num_words++] = word;
}

static bool has_priority(const struct queued_pair *a, const struct queued_pair *b)
{
    if (a->count != b->count) return a->count > b->count;
    return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static void queue_push(struct bpe_trainer *t, struct queued_pair x)
{
    if (t->num_queued == t->queue_capacity) {
        t->queue_capacity = t->queue_capacity ? 2 * t->queue_capacity : 4096;
        t->queue = heap_grow(t->queue, t->queue_capacity, sizeof *t->queue);
    }
    size_t i = t->num_queued++;
    for (; i > 0 && has_priority(&x, &t->queue[(i - 1) / 2]); i = (i - 1) / 2)
        t->queue[i] = t->queue[(i - 1) / 2];
    t->queue[i] = x;
}

static struct queued_pair queue_pop(struct bpe_trainer *t)
{
    struct queued_pair top = t->queue[0], x = t->queue[--t->num_queued];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= t->num_queued) break;
        if (child + 1 < t->num_queued && has_priority(&t->queue[child + 1], &t->queue[child]))
            child++;
        if (!has_priority(&t->queue[child], &x)) break;
        t->queue[i] = t->queue[child];
        i = child;
    }
    t->queue[i] = x;
    return top;
}

static void init_merging(struct bpe_trainer *t)
{
    t->symbols = heap_grow(NULL, t->num_bytes, sizeof *t->symbols);
    for (size_t i = 0; i < t->num_bytes; i++) t->symbols[i] = t->bytes[i];
    for (size_t w = 0; w < t->num_words; w++) {
        const int32_t *s = t->symbols + t->words[w].at;
        for (uint32_t i = 0; i + 1 < t->words[w].num_symbols; i++)
            count_pair(t, s[i], s[i + 1], (int32_t)w, t->words[w].count);
    }
    for (size_t i = 0; i < t->num_pair_slots; i++)
        if (t->pairs[i].left >= 0)
            queue_push(
                t, (struct queued_pair){t->pairs[i].count, t->pairs[i].left, t->pairs[i].right});
}

/* Merges a pair in one word: updates the counts of the neighboring pairs and queues the new
 * ones. */
static void merge_word(struct bpe_trainer *t, int32_t w, struct queued_pair pair, int32_t merged)
{
    struct counted_word *word = &t->words[w];
    int32_t *s = t->symbols + word->at;
    uint32_t n = word->num_symbols, to = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (i + 1 >= n || s[i] != pair.left || s[i + 1] != pair.right) {
            s[to++] = s[i];
            continue;
        }
        if (to > 0) {
            count_pair(t, s[to - 1], pair.left, w, -word->count);
            count_pair(t, s[to - 1], merged, w, word->count);
            queue_push(t, (struct queued_pair){find_or_add_pair(t, s[to - 1], merged)->count,
                                               s[to - 1], merged});
        }
        if (i + 2 < n) {
            count_pair(t, pair.right, s[i + 2], w, -word->count);
            count_pair(t, merged, s[i + 2], w, word->count);
            queue_push(t, (struct queued_pair){find_or_add_pair(t, merged, s[i + 2])->count, merged,
                                               s[i + 2]});
        }
        s[to++] = merged;
        i++;
    }
    word->num_symbols = to;
}

static enum status run_merges(struct bpe_trainer *t, struct vocabulary *v, struct hf_merge *merges,
                              size_t max_merges, size_t *num_merges)
{
    while (t->num_queued && *num_merges < max_merges) {
        struct queued_pair top = queue_pop(t);
        struct counted_pair *p = find_or_add_pair(t, top.left, top.right);
        if (p->count < 2) continue;
        if (p->count != top.count) { /* outdated: queue it again with the lower count */
            if (p->count < top.count)
                queue_push(t, (struct queued_pair){p->count, top.left, top.right});
            continue;
        }
        const struct token_bytes *a = vocabulary_token(v, top.left);
        const struct token_bytes *b = vocabulary_token(v, top.right);
        struct text merged = {0};
        int32_t id = 256 + (int32_t)*num_merges;
        text_add(&merged, v->bytes + a->at, a->len);
        text_add(&merged, v->bytes + b->at, b->len);
        bool is_token = vocabulary_find(v, merged.data, merged.len) >= 0;
        enum status st = is_token ? STATUS_OK : vocabulary_add(v, merged.data, merged.len, id);
        text_release(&merged);
        TRY(st);
        int32_t *words = p->words;
        size_t count = p->num_words;
        *p = (struct counted_pair){.left = top.left, .right = top.right};
        if (!is_token) {
            merges[(*num_merges)++] = (struct hf_merge){top.left, top.right};
            progress_add(1);
            for (size_t i = 0; i < count; i++) merge_word(t, words[i], top, id);
        }
        free(words);
    }
    return STATUS_OK;
}

enum status bpe_trainer_finish(struct bpe_trainer *t, int32_t vocab_size, struct text *json,
                               int32_t *num_tokens)
{
    enum { MIN_SIZE = 256 + SPECIAL_TOKENS_DEFAULT + 1, MAX_SIZE = 1 << 24 };
    if (vocab_size < MIN_SIZE || vocab_size > MAX_SIZE)
        FAIL(CONFIG, "vocabulary size %d: must be between %d and %d", vocab_size, MIN_SIZE,
             MAX_SIZE);
    if (!t->num_words) FAIL(DATA, "no text to train on: all input files are empty");
    struct vocabulary v;
    struct special_tokens specials = {0};
    size_t max_merges = (size_t)(vocab_size - 256 - SPECIAL_TOKENS_DEFAULT), num_merges = 0;
    struct hf_merge *merges = heap(max_merges * sizeof *merges);
    enum status st = STATUS_OK;
    vocabulary_init(&v);
    for (int i = 0; i < 256 && !st; i++) {
        unsigned char byte = (unsigned char)i;
        st = vocabulary_add(&v, &byte, 1, i);
    }
    if (!st) init_merging(t);
    if (!st) st = run_merges(t, &v, merges, max_merges, &num_merges);
    special_tokens_add_default(&specials, 256 + (int32_t)num_merges);
    if (!st)
        hf_write_json(&(struct hf_write){.vocabulary = &v,
                                         .pattern = split_llama3_pattern,
                                         .merges = merges,
                                         .num_merges = num_merges,
                                         .specials = &specials,
                                         .bos = specials.all[0].id},
                      json);
    *num_tokens = 256 + (int32_t)num_merges + SPECIAL_TOKENS_DEFAULT;
    special_tokens_release(&specials);
    vocabulary_release(&v);
    free(merges);
    return st;
}
