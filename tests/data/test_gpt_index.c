// SPDX-License-Identifier: Apache-2.0
#include "data/gpt_index.h"

#include "test.h"

enum { L = 4, SEED = 1234 };
static const int32_t lengths[10] = {5, 3, 8, 2, 7, 4, 6, 9, 1, 10}; /* 55 */

/* Results of megatron-core and NumPy; sample_index is pairs of (document, offset). */
struct golden {
    uint64_t wanted, epochs, num_samples;
    bool separate_final_epoch;
    uint32_t document_index[30], sample_index[2 * 42], shuffle_index[41];
};
static const struct golden goldens[] = {
    {13,
     1,
     13,
     false,
     {7, 2, 9, 1, 0, 8, 4, 5, 6, 3},
     {0, 0, 0, 4, 0, 8, 1, 3, 1, 7, 2, 3, 2, 7, 3, 1, 4, 2, 6, 0, 6, 4, 7, 1, 8, 1, 8, 5},
     {3, 12, 2, 1, 7, 5, 4, 0, 8, 6, 11, 10, 9}},
    {0,
     1,
     13,
     false,
     {7, 2, 9, 1, 0, 8, 4, 5, 6, 3},
     {0, 0, 0, 4, 0, 8, 1, 3, 1, 7, 2, 3, 2, 7, 3, 1, 4, 2, 6, 0, 6, 4, 7, 1, 8, 1, 8, 5},
     {3, 12, 2, 1, 7, 5, 4, 0, 8, 6, 11, 10, 9}},
    {26,
     2,
     27,
     false,
     {3, 3, 2, 6, 4, 5, 4, 0, 8, 8, 7, 1, 0, 9, 7, 1, 9, 2, 6, 5},
     {0},
     {22, 20, 13, 4,  25, 26, 14, 8, 10, 1,  23, 21, 19, 24,
      17, 9,  0,  11, 7,  3,  6,  2, 5,  12, 16, 18, 15}},
    {30,
     3,
     41,
     true,
     {3, 3, 2, 6, 4, 5, 4, 0, 8, 8, 7, 1, 0, 9, 7, 1, 9, 2, 6, 5, 8, 1, 7, 6, 9, 5, 4, 3, 0, 2},
     {0,  0,  2,  0,  2,  4,  3,  0,  3,  4,  4,  2,  4,  6,  5,  3,  6,  3,  7,  0,  7,
      4,  10, 1,  10, 5,  11, 0,  12, 1,  13, 0,  13, 4,  13, 8,  14, 2,  14, 6,  15, 1,
      16, 2,  16, 6,  17, 0,  17, 4,  18, 0,  18, 4,  19, 2,  21, 1,  22, 2,  22, 6,  23,
      1,  23, 5,  24, 3,  24, 7,  25, 1,  26, 1,  26, 5,  28, 0,  28, 4,  29, 3,  29, 7},
     {8,  19, 14, 23, 6,  24, 4,  5,  13, 18, 26, 15, 17, 10, 21, 20, 22, 1,  12, 2, 3,
      16, 25, 9,  0,  11, 7,  30, 40, 28, 29, 33, 34, 37, 38, 35, 27, 31, 39, 36, 32}},
    {40,
     3,
     41,
     false,
     {7, 0, 4, 1, 8, 8, 3, 3, 4, 3, 2, 4, 0, 2, 7, 6, 8, 5, 6, 5, 1, 9, 7, 9, 0, 2, 1, 6, 9, 5},
     {0},
     {33, 27, 21, 36, 4, 15, 39, 34, 30, 40, 37, 3,  10, 24, 22, 18, 6, 26, 8,  9, 16,
      29, 32, 25, 31, 5, 38, 0,  20, 13, 23, 35, 28, 7,  14, 17, 11, 1, 12, 19, 2}},
};

TEST(gpt_index_matches_megatron)
{
    for (size_t c = 0; c < sizeof goldens / sizeof *goldens; c++) {
        const struct golden *g = &goldens[c];
        struct gpt_index x;
        CHECK_STATUS(
            OK, gpt_index_build(&x, &(struct gpt_index_spec){lengths, 10, 0, g->wanted, L, SEED}));
        CHECK(x.epochs == g->epochs && x.num_samples == g->num_samples &&
              x.separate_final_epoch == g->separate_final_epoch);
        CHECK(x.num_documents == 10 * g->epochs);
        for (uint64_t i = 0; i < x.num_documents; i++)
            CHECK(x.document_index[i] == g->document_index[i]);
        for (uint64_t i = 0; i < x.num_samples; i++)
            CHECK(x.shuffle_index[i] == g->shuffle_index[i]);
        for (uint64_t i = 0; g->sample_index[2] + g->sample_index[3] && i <= x.num_samples; i++) {
            CHECK(x.sample_index[i].document == g->sample_index[2 * i]);
            CHECK(x.sample_index[i].offset == g->sample_index[2 * i + 1]);
        }
        CHECK(gpt_index_bytes(&x) == 40 * g->epochs + 12 * g->num_samples + 8);
        gpt_index_release(&x);
    }
}

TEST(gpt_index_offsets_sequence_numbers_by_the_first)
{
    struct gpt_index whole, part;
    CHECK_STATUS(OK,
                 gpt_index_build(&whole, &(struct gpt_index_spec){lengths, 10, 0, 40, L, SEED}));
    CHECK_STATUS(OK,
                 gpt_index_build(&part, &(struct gpt_index_spec){lengths, 10, 700, 40, L, SEED}));
    for (uint64_t i = 0; i < whole.num_documents; i++)
        CHECK(part.document_index[i] == 700 + whole.document_index[i]);
    for (uint64_t k = 0; k < whole.num_samples; k++) {
        struct gpt_sample a = gpt_index_at(&whole, k), b = gpt_index_at(&part, k);
        CHECK(a.document == b.document && a.offset == b.offset);
    }
    gpt_index_release(&whole), gpt_index_release(&part);
}

/* With empty sequences as well, each token except the first is predicted at most once per epoch. */
TEST(gpt_index_packs_sequences_end_to_end)
{
    static const int32_t with_empty[7] = {0, 3, 0, 0, 9, 1, 0};
    struct gpt_index x;
    CHECK_STATUS(OK, gpt_index_build(&x, &(struct gpt_index_spec){with_empty, 7, 0, 0, 3, 5}));
    CHECK(x.num_samples == 4);
    uint64_t at = 0, document = 0;
    for (uint64_t i = 0; i <= x.num_samples; i++) {
        for (; document < x.sample_index[i].document; document++)
            at += (uint64_t)with_empty[x.document_index[document]];
        CHECK(at + x.sample_index[i].offset == 3 * i);
    }
    gpt_index_release(&x);
}

TEST(gpt_index_repeats_data_that_is_shorter_than_a_sample)
{
    struct gpt_index x;
    CHECK_STATUS(OK,
                 gpt_index_build(&x, &(struct gpt_index_spec){(int32_t[]){2, 1}, 2, 0, 2, 8, 5}));
    CHECK(x.epochs == 6 && x.num_samples == 2 && x.num_documents == 12);
    gpt_index_release(&x);
}

TEST(gpt_index_rejects_what_it_cannot_index)
{
    struct gpt_index x;
    CHECK_STATUS(DATA, gpt_index_build(&x, &(struct gpt_index_spec){lengths, 10, 0, 0, 55, SEED}));
    CHECK_MESSAGE("55 tokens in 10 sequences are fewer than one sample of 55 + 1");
    CHECK_STATUS(DATA, gpt_index_build(&x, &(struct gpt_index_spec){lengths, 0, 0, 3, L, SEED}));
    CHECK_STATUS(UNSUPPORTED, gpt_index_build(&x, &(struct gpt_index_spec){
                                                      lengths, 10, 0, UINT64_C(1) << 62, L, SEED}));
    CHECK_STATUS(UNSUPPORTED, gpt_index_build(&x, &(struct gpt_index_spec){
                                                      lengths, 10, 0, UINT64_C(1) << 33, 1, SEED}));
    CHECK_MESSAGE("exceed 32-bit indices; lower data.samples");
    CHECK(!x.document_index && !x.sample_index && !x.shuffle_index);
}
