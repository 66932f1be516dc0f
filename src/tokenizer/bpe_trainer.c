// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/bpe_trainer.h"

#include "base/progress.h"
#include "tokenizer/files/hf_write.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/text/split.h"
#include "tokenizer/vocabulary.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_COUNT = 2 }; /* rarer pairs are not merged */

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

/* Distinct words and how often they occur. */
struct word_counts {
    unsigned char *bytes;
    size_t num_bytes, bytes_capacity;
    struct counted_word *words;
    size_t num_words;
    int64_t *slots; /* hash table: bytes to index into words; -1: empty */
    size_t num_slots;
};

struct bpe_trainer {
    struct word_counts *counts; /* of each thread; those of the others are added to the first's */
    int num_threads;
    int32_t *symbols; /* those of word w start at words[w].at */
    struct counted_pair *pairs;
    size_t num_pair_slots, num_pairs;
    struct queued_pair *queue;
    size_t num_queued, queue_capacity;
    struct queued_pair *added; /* pairs that the current merge has added */
    size_t num_added, added_capacity;
};

void bpe_trainer_make(struct bpe_trainer **out)
{
    struct bpe_trainer *t = heap(sizeof *t);
    t->num_threads = omp_get_max_threads();
    t->counts = heap((size_t)t->num_threads * sizeof *t->counts);
    *out = t;
}

static void release_counts(struct word_counts *c)
{
    free(c->slots), free(c->words), free(c->bytes);
    *c = (struct word_counts){0};
}

void bpe_trainer_free(struct bpe_trainer *t)
{
    if (!t) return;
    for (size_t i = 0; i < t->num_pair_slots; i++) free(t->pairs[i].words);
    for (int i = 0; i < t->num_threads; i++) release_counts(&t->counts[i]);
    free(t->pairs), free(t->queue), free(t->added), free(t->symbols), free(t->counts);
    free(t);
}

static size_t word_slot(const struct word_counts *c, const unsigned char *bytes, size_t len)
{
    size_t slot = vocabulary_hash(bytes, len) & (c->num_slots - 1);
    for (; c->slots[slot] >= 0; slot = (slot + 1) & (c->num_slots - 1)) {
        const struct counted_word *w = &c->words[c->slots[slot]];
        if (w->len == len && !memcmp(c->bytes + w->at, bytes, len)) break;
    }
    return slot;
}

static void grow_words(struct word_counts *c)
{
    if (c->num_slots > 2 * c->num_words + 2) return;
    c->num_slots = c->num_slots ? 2 * c->num_slots : 4096;
    c->slots = heap_grow(c->slots, c->num_slots, sizeof *c->slots);
    c->words = heap_grow(c->words, c->num_slots, sizeof *c->words);
    for (size_t i = 0; i < c->num_slots; i++) c->slots[i] = -1;
    for (size_t i = 0; i < c->num_words; i++)
        c->slots[word_slot(c, c->bytes + c->words[i].at, c->words[i].len)] = (int64_t)i;
}

static void count_word(struct word_counts *c, const unsigned char *bytes, size_t len, int64_t count)
{
    grow_words(c);
    size_t slot = word_slot(c, bytes, len);
    if (c->slots[slot] < 0) {
        if (c->num_bytes + len > c->bytes_capacity) {
            c->bytes_capacity = 2 * (c->num_bytes + len) + 4096;
            c->bytes = heap_grow(c->bytes, c->bytes_capacity, 1);
        }
        memcpy(c->bytes + c->num_bytes, bytes, len);
        c->words[c->num_words] =
            (struct counted_word){c->num_bytes, (uint32_t)len, (uint32_t)len, 0};
        c->num_bytes += len;
        c->slots[slot] = (int64_t)c->num_words++;
    }
    c->words[c->slots[slot]].count += count;
}

static void count_words(struct word_counts *c, const unsigned char *text, size_t len)
{
    enum { MAX_WORD_BYTES = 4096 /* longer words are counted in parts */ };
    for (size_t at = 0; at < len;) {
        size_t n = split_llama3(text + at, len - at);
        for (size_t end = at + n; at < end; at += n) {
            n = end - at < MAX_WORD_BYTES ? end - at : MAX_WORD_BYTES;
            count_word(c, text + at, n, 1);
        }
    }
}

void bpe_trainer_add(struct bpe_trainer *t, const char *bytes, size_t len)
{
    enum { PART = 1 << 20, PARTS = 64 /* in a round, after which progress is reported */ };
    const unsigned char *text = (const unsigned char *)bytes;
    for (size_t at = 0, begin = 0; at < len; begin = at) {
        size_t ends[PARTS];
        int n = 0;
        for (; n < PARTS && at < len; n++)
            ends[n] = at = len - at > PART ? split_llama3_boundary(text, len, at + PART) : len;
#pragma omp parallel for schedule(dynamic, 1) num_threads(t->num_threads) if (n > 1)
        for (int i = 0; i < n; i++) {
            size_t from = i ? ends[i - 1] : begin;
            count_words(&t->counts[omp_get_thread_num()], text + from, ends[i] - from);
        }
        progress_add((double)(at - begin));
    }
}

static void combine_counts(struct bpe_trainer *t)
{
    for (int i = 1; i < t->num_threads; i++) {
        struct word_counts *c = &t->counts[i];
        for (size_t w = 0; w < c->num_words; w++)
            count_word(&t->counts[0], c->bytes + c->words[w].at, c->words[w].len,
                       c->words[w].count);
        release_counts(c);
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

static void note_added(struct bpe_trainer *t, int32_t left, int32_t right)
{
    if (t->num_added == t->added_capacity) {
        t->added_capacity = 2 * t->added_capacity + 4096;
        t->added = heap_grow(t->added, t->added_capacity, sizeof *t->added);
    }
    t->added[t->num_added++] = (struct queued_pair){0, left, right};
}

static void count_pair(struct bpe_trainer *t, int32_t left, int32_t right, int32_t word,
                       int64_t count)
{
    struct counted_pair *p = find_or_add_pair(t, left, right);
    p->count += count;
    if (count < 0 || (p->num_words && p->words[p->num_words - 1] == word)) return;
    if (!p->num_words) note_added(t, left, right);
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

/* Queues the pairs that were added since, once each: their counts are final, as later merges only
 * lower them. */
static void queue_added(struct bpe_trainer *t)
{
    for (size_t i = 0; i < t->num_added; i++) {
        struct queued_pair x = t->added[i];
        x.count = find_or_add_pair(t, x.left, x.right)->count;
        if (x.count >= MIN_COUNT) queue_push(t, x);
    }
    t->num_added = 0;
}

static void init_merging(struct bpe_trainer *t)
{
    const struct word_counts *c = &t->counts[0];
    t->symbols = heap_grow(NULL, c->num_bytes, sizeof *t->symbols);
    for (size_t i = 0; i < c->num_bytes; i++) t->symbols[i] = c->bytes[i];
    for (size_t w = 0; w < c->num_words; w++) {
        const int32_t *s = t->symbols + c->words[w].at;
        for (uint32_t i = 0; i + 1 < c->words[w].num_symbols; i++)
            count_pair(t, s[i], s[i + 1], (int32_t)w, c->words[w].count);
    }
    queue_added(t);
}

/* Merges a pair in one word, and updates the counts of the neighboring pairs. */
static void merge_word(struct bpe_trainer *t, int32_t w, struct queued_pair pair, int32_t merged)
{
    struct counted_word *word = &t->counts[0].words[w];
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
        }
        if (i + 2 < n) {
            count_pair(t, pair.right, s[i + 2], w, -word->count);
            count_pair(t, merged, s[i + 2], w, word->count);
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
        if (p->count < MIN_COUNT) continue;
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
            queue_added(t);
        }
        free(words);
    }
    return STATUS_OK;
}

enum status bpe_trainer_finish(struct bpe_trainer *t, int32_t vocab_size, struct text *json,
                               int32_t *num_tokens)
{
    if (vocab_size < BPE_TRAINER_MIN_SIZE || vocab_size > BPE_TRAINER_MAX_SIZE)
        FAIL(CONFIG, "vocabulary size %d: must be between %d and %d", vocab_size,
             BPE_TRAINER_MIN_SIZE, BPE_TRAINER_MAX_SIZE);
    combine_counts(t);
    if (!t->counts[0].num_words) FAIL(DATA, "no text to train on: all input files are empty");
    struct vocabulary v = {0};
    struct special_tokens specials = {0};
    size_t max_merges = (size_t)(vocab_size - 256 - SPECIAL_TOKENS_DEFAULT), num_merges = 0;
    struct hf_merge *merges = heap(max_merges * sizeof *merges);
    enum status st = STATUS_OK;
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
