// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tokenizer/files/hf_merges.h"
#include "tokenizer/tokenizer_impl.h"

/* Halves are the bytes themselves; "?" is not one. */
static enum status decode_plain(const struct tokenizer *t, const char *text, size_t len,
                                struct text *out)
{
    text_clear(out);
    text_add(out, text, len);
    if (memchr(text, '?', len)) FAIL(DATA, "%s: ?", t->path);
    return STATUS_OK;
}

static enum status read_merges(struct tokenizer *t, const char *merges)
{
    static const char *const tokens[] = {"a", "b", "ab", "abb"};
    struct json *v;
    *t = (struct tokenizer){.path = (char[]){"tokenizer.json"}};
    for (int32_t i = 0; i < 4; i++)
        CHECK_STATUS(OK, vocabulary_add(&t->vocabulary, tokens[i], strlen(tokens[i]), i));
    CHECK_STATUS(OK, json_parse(merges, strlen(merges), "merges", &v));
    enum status st = hf_merges_read(t, v, decode_plain);
    json_free(v);
    return st;
}

TEST(hf_merges_are_ranked_in_list_order_in_either_form)
{
    struct tokenizer t;
    CHECK_STATUS(OK, read_merges(&t, "[\"a b\", [\"ab\", \"b\"]]"));
    const struct merge_pair *first = vocabulary_find_pair(&t.vocabulary, 0, 1);
    const struct merge_pair *second = vocabulary_find_pair(&t.vocabulary, 2, 1);
    CHECK(first && first->rank == 0 && first->merged == 2);
    CHECK(second && second->rank == 1 && second->merged == 3);
    CHECK(t.vocabulary.num_pairs == 2);
    vocabulary_release(&t.vocabulary);
}

TEST(hf_merges_name_the_merge_that_is_wrong)
{
    static const char *const rows[][2] = {
        {"null", "model.merges is not an array"},
        {"[\"ab\"]", "merge 0: expected a pair of tokens"},
        {"[\"a b\", \"a b b\"]", "merge 1: expected a pair of tokens"},
        {"[[\"a\", \"b\", \"b\"]]", "merge 0: expected a pair of tokens"},
        {"[\"a ?\"]", "merge 0: expected a pair of tokens"},
        {"[\"a c\"]", "merge 0: a token is not in the vocabulary"},
        {"[\"b a\"]", "merge 0: a token is not in the vocabulary"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tokenizer t;
        CHECK_STATUS(DATA, read_merges(&t, rows[i][0]));
        CHECK_MESSAGE(rows[i][1]);
        CHECK_MESSAGE("tokenizer.json: ");
        vocabulary_release(&t.vocabulary);
    }
}
