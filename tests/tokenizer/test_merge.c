// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/rng.h"
#include "tokenizer/merge.h"

static uint64_t below(uint64_t most, uint64_t stream, uint64_t position)
{
    return rng_below(most, 11, RNG_TEST, stream, position);
}

/* Tokens of the letters a to d, each the concatenation of two earlier ones.  Either all their
 * splits are merges, or only the one into these two. */
static void make_vocabulary(struct vocabulary *v, bool all_cuts, uint64_t stream)
{
    *v = (struct vocabulary){0};
    for (int i = 0; i < 256; i++)
        CHECK_STATUS(OK, vocabulary_add(v, &(unsigned char){(unsigned char)i}, 1, i));
    int32_t made[200] = {'a', 'b', 'c', 'd'}, count = 4;
    for (uint64_t i = 0; i < 2000 && count < 200; i++) {
        int32_t left = made[below((uint64_t)count, stream, 2 * i)];
        int32_t right = made[below((uint64_t)count, stream, 2 * i + 1)];
        const struct token_bytes *x = vocabulary_token(v, left), *y = vocabulary_token(v, right);
        unsigned char joined[16];
        int32_t id = 252 + count;
        if (x->len + y->len > sizeof joined) continue;
        memcpy(joined, v->bytes + x->at, x->len);
        memcpy(joined + x->len, v->bytes + y->at, y->len);
        if (vocabulary_find(v, joined, x->len + y->len) >= 0) continue;
        CHECK_STATUS(OK, vocabulary_add(v, joined, x->len + y->len, id));
        if (!all_cuts) vocabulary_add_pair(v, left, right, id, id);
        made[count++] = id;
    }
    CHECK_STATUS(OK, vocabulary_finish(v));
    if (all_cuts) vocabulary_add_all_splits(v);
}

/* The reference: quadratic time. */
static size_t merge_naively(const struct vocabulary *v, int32_t *ids, size_t n)
{
    for (;;) {
        const struct merge_pair *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            const struct merge_pair *p = vocabulary_find_pair(v, ids[i], ids[i + 1]);
            if (p && (!best || p->rank < best->rank)) best = p, at = i;
        }
        if (!best) return n;
        ids[at] = best->merged;
        n--;
        memmove(ids + at + 1, ids + at + 2, (n - at - 1) * sizeof *ids);
    }
}

static void check_piece(struct merger *m, const struct vocabulary *v, const unsigned char *piece,
                        size_t len)
{
    struct token_list got = {0};
    int32_t want[600];
    for (size_t i = 0; i < len; i++) want[i] = piece[i];
    size_t count = merge_naively(v, want, len);
    merger_encode(m, v, piece, len, &got);
    CHECK(got.count == count && !memcmp(got.ids, want, count * sizeof *want));
    token_list_release(&got);
}

TEST(merger_equals_the_quadratic_algorithm_on_random_pieces)
{
    struct merger m = {0};
    for (uint64_t k = 0; k < 24; k++) {
        struct vocabulary v;
        make_vocabulary(&v, k % 2, k);
        for (uint64_t i = 0; i < 60; i++) {
            unsigned char piece[600];
            size_t len = 1 + below(i % 4 ? 40 : sizeof piece, 100 + k, i);
            uint64_t letters = 1 + below(5, 200 + k, i); /* no longer token has the fifth */
            for (size_t j = 0; j < len; j++)
                piece[j] = (unsigned char)('a' + below(letters, 300 + k, 1000 * i + j));
            check_piece(&m, &v, piece, len);
        }
        vocabulary_release(&v);
    }
    merger_release(&m);
}

TEST(merger_scan_and_heap_agree_around_the_threshold)
{
    struct merger m = {0};
    struct vocabulary v;
    unsigned char piece[200];
    make_vocabulary(&v, true, 50);
    for (size_t i = 0; i < sizeof piece; i++) piece[i] = (unsigned char)('a' + below(3, 51, i));
    for (size_t len = 1; len <= sizeof piece; len++) check_piece(&m, &v, piece, len);
    vocabulary_release(&v);
    merger_release(&m);
}

TEST(merger_merges_the_leftmost_of_equal_pairs_first)
{
    static const size_t lengths[] = {2, 3, 95, 96, 97, 1001};
    struct merger m = {0};
    struct vocabulary v = {0};
    struct token_list got = {0};
    unsigned char piece[1001];
    memset(piece, 'a', sizeof piece);
    for (int i = 0; i < 256; i++)
        CHECK_STATUS(OK, vocabulary_add(&v, &(unsigned char){(unsigned char)i}, 1, i));
    CHECK_STATUS(OK, vocabulary_add(&v, "aa", 2, 256));
    CHECK_STATUS(OK, vocabulary_finish(&v));
    vocabulary_add_all_splits(&v);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        got.count = 0;
        merger_encode(&m, &v, piece, lengths[i], &got);
        CHECK(got.count == (lengths[i] + 1) / 2);
        for (size_t k = 0; k < lengths[i] / 2; k++) CHECK(got.ids[k] == 256);
        CHECK(lengths[i] % 2 == 0 || got.ids[got.count - 1] == 'a');
    }
    token_list_release(&got);
    vocabulary_release(&v);
    merger_release(&m);
}
