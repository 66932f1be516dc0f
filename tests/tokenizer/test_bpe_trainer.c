// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/rig.h"

#include "base/file.h"
#include "base/json.h"
#include "tokenizer/bpe_trainer.h"
#include "tokenizer/text/split.h"
#include "tokenizer/vocabulary.h"

enum { MOST_WORDS = 4000, MOST_TOKENS = 400 };

/* The textbook algorithm: recounts all pairs for each merge. */
struct naive {
    int32_t *words[MOST_WORDS];
    size_t lengths[MOST_WORDS], num_words;
    struct text tokens[MOST_TOKENS];
    int32_t left[MOST_TOKENS], right[MOST_TOKENS], num_tokens;
    bool skipped[MOST_TOKENS][MOST_TOKENS];
};

static void naive_add(struct naive *n, const char *string, size_t len)
{
    const unsigned char *bytes = (const unsigned char *)string;
    for (size_t at = 0; at < len; n->num_words++) {
        size_t size = split_llama3(bytes + at, len - at);
        CHECK(n->num_words < MOST_WORDS);
        n->words[n->num_words] = heap(size * sizeof(int32_t));
        n->lengths[n->num_words] = size;
        for (size_t i = 0; i < size; i++) n->words[n->num_words][i] = bytes[at + i];
        at += size;
    }
}

static bool is_token(const struct naive *n, const struct text *bytes)
{
    for (int32_t i = 0; i < n->num_tokens; i++)
        if (n->tokens[i].len == bytes->len && !memcmp(n->tokens[i].data, bytes->data, bytes->len))
            return true;
    return false;
}

/* Finds the most frequent pair, ties by lowest IDs; returns its count. */
static int naive_best(const struct naive *n, int32_t *left, int32_t *right)
{
    static int counts[MOST_TOKENS][MOST_TOKENS];
    int best = 0;
    memset(counts, 0, sizeof counts);
    for (size_t w = 0; w < n->num_words; w++)
        for (size_t i = 0; i + 1 < n->lengths[w]; i++) counts[n->words[w][i]][n->words[w][i + 1]]++;
    for (int32_t a = 0; a < n->num_tokens; a++)
        for (int32_t b = 0; b < n->num_tokens; b++)
            if (counts[a][b] > best && !n->skipped[a][b])
                best = counts[a][b], *left = a, *right = b;
    return best;
}

static void naive_join(struct naive *n, int32_t left, int32_t right, int32_t id)
{
    for (size_t w = 0; w < n->num_words; w++) {
        size_t to = 0;
        int32_t *s = n->words[w];
        for (size_t i = 0; i < n->lengths[w]; i++) {
            bool joins = i + 1 < n->lengths[w] && s[i] == left && s[i + 1] == right;
            s[to++] = joins ? id : s[i];
            i += joins;
        }
        n->lengths[w] = to;
    }
}

static void naive_learn(struct naive *n, int32_t most)
{
    for (int b = 0; b < 256; b++) text_add(&n->tokens[b], &(char){(char)b}, 1);
    n->num_tokens = 256;
    while (n->num_tokens < most) {
        int32_t left = 0, right = 0, id = n->num_tokens;
        if (naive_best(n, &left, &right) < 2) return;
        struct text *t = &n->tokens[id];
        text_clear(t);
        text_add(t, n->tokens[left].data, n->tokens[left].len);
        text_add(t, n->tokens[right].data, n->tokens[right].len);
        n->skipped[left][right] = true;
        if (is_token(n, t)) continue;
        n->left[id] = left, n->right[id] = right;
        n->num_tokens++;
        naive_join(n, left, right, id);
    }
}

static void naive_free(struct naive *n)
{
    for (size_t i = 0; i < n->num_words; i++) free(n->words[i]);
    for (int i = 0; i < MOST_TOKENS; i++) text_release(&n->tokens[i]);
    free(n);
}

static struct text trained(const char *const *texts, const size_t *lengths, size_t count,
                           int32_t vocab_size, int32_t *made)
{
    struct bpe_trainer *trainer;
    struct text json = {0};
    bpe_trainer_make(&trainer);
    for (size_t i = 0; i < count; i++) bpe_trainer_add(trainer, texts[i], lengths[i]);
    CHECK_STATUS(OK, bpe_trainer_finish(trainer, vocab_size, &json, made));
    bpe_trainer_free(trainer);
    return json;
}

static void check_token(const struct tokenizer *t, int32_t id, const struct text *want)
{
    struct text got = {0};
    CHECK_STATUS(OK, tokenizer_decode(t, &id, 1, &got));
    if (got.len != want->len || memcmp(got.data, want->data, got.len))
        fail_msg("token %d is \"%s\", wanted \"%s\"", id, got.data, want->data);
    text_release(&got);
}

static void check_against_naive(const char *string, size_t len, int32_t vocab_size)
{
    struct naive *n = heap(sizeof *n);
    struct tokenizer *t;
    int32_t made;
    naive_add(n, string, len);
    naive_learn(n, vocab_size - 3);
    struct text json = trained(&string, &len, 1, vocab_size, &made);
    CHECK(made == n->num_tokens + 3);
    CHECK_STATUS(OK, open_bytes(&t, "tokenizer.json", &json));
    CHECK(tokenizer_vocab_size(t) == made);
    for (int32_t id = 0; id < n->num_tokens; id++) check_token(t, id, &n->tokens[id]);
    /* encoding the text gives the symbols that training ended with */
    struct token_list ids = encoded(t, string, len);
    size_t at = 0;
    for (size_t w = 0; w < n->num_words; w++)
        for (size_t i = 0; i < n->lengths[w]; i++, at++)
            CHECK(at < ids.count && ids.ids[at] == n->words[w][i]);
    CHECK(at == ids.count);
    token_list_release(&ids);
    tokenizer_close(t);
    text_release(&json);
    naive_free(n);
}

TEST(training_equals_recounting_all_pairs_for_each_merge)
{
    struct text page = {0};
    CHECK_STATUS(OK, file_read("CONTRIBUTING.md", 1 << 20, &page));
    size_t len = page.len < 3000 ? page.len : 3000;
    check_against_naive(page.data, len, 360);
    text_release(&page);
}

TEST(training_counts_repeated_letters_correctly)
{
    const char *runs =
        "aaaa aaa aa aaaaaaa baaab aaaabaaaa abab ababab bbbb bbb aabb aabbaabb abba";
    check_against_naive(runs, strlen(runs), 300);
    const char *bytes = "\xFF\xFE\xFF\xFE\xFF\xFE \xC3\xA4\xC3\xA4\xC3 \xFF\xFE\xFF\xFE";
    check_against_naive(bytes, strlen(bytes), 300);
}

TEST(training_does_not_depend_on_the_order_of_texts)
{
    static const char *const texts[] = {"the cat sat on the mat", " and then the rat\n",
                                        "it's that hat, it's that\n"};
    static const char *const reordered[] = {"it's that hat, it's that\n", "the cat sat on the mat",
                                            " and then the rat\n"};
    size_t lengths[3], reordered_lengths[3];
    int32_t made, again;
    for (int i = 0; i < 3; i++)
        lengths[i] = strlen(texts[i]), reordered_lengths[i] = strlen(reordered[i]);
    struct text a = trained(texts, lengths, 3, 280, &made);
    struct text b = trained(reordered, reordered_lengths, 3, 280, &again);
    CHECK(made == again && a.len == b.len && !memcmp(a.data, b.data, a.len));
    text_release(&a), text_release(&b);
}

/* Several threads count the parts of a long text. */
TEST(training_on_a_long_text_equals_training_on_its_parts)
{
    enum { BYTES = 5 << 20, MAX_PARTS = 1 << 18 };
    struct text page = {0}, long_text = {0};
    CHECK_STATUS(OK, file_read("CONTRIBUTING.md", 1 << 20, &page));
    while (long_text.len < BYTES) {
        text_addf(&long_text, "%zu ", long_text.len);
        text_add(&long_text, page.data, page.len);
    }
    const char **parts = heap(MAX_PARTS * sizeof *parts);
    size_t *lengths = heap(MAX_PARTS * sizeof *lengths), count = 0;
    const unsigned char *bytes = (const unsigned char *)long_text.data;
    for (size_t at = 0, end; at < long_text.len; at = end, count++) {
        CHECK(count < MAX_PARTS);
        end = split_llama3_boundary(bytes, long_text.len, at + 1000);
        parts[count] = long_text.data + at, lengths[count] = end - at;
    }
    int32_t made, again;
    struct text a = trained((const char *const *)&long_text.data, &long_text.len, 1, 600, &made);
    struct text b = trained(parts, lengths, count, 600, &again);
    CHECK(count > 1000 && made == again && a.len == b.len && !memcmp(a.data, b.data, a.len));
    free(parts), free(lengths);
    text_release(&a), text_release(&b);
    text_release(&page), text_release(&long_text);
}

TEST(training_stops_when_no_pair_occurs_twice)
{
    int32_t made;
    struct tokenizer *t;
    const char *string = "ab cd";
    struct text json = trained(&string, &(size_t){5}, 1, 1000, &made);
    CHECK(made == 259);
    CHECK_STATUS(OK, open_bytes(&t, "tokenizer.json", &json));
    CHECK(tokenizer_bos(t) == 256 && tokenizer_eos(t) == 257);
    CHECK(tokenizer_special(t, "<|mask|>") == 258 && tokenizer_vocab_size(t) == 259);
    CHECK_IDS(t, "ab", 'a', 'b');
    tokenizer_close(t);
    text_release(&json);
}

TEST(training_accepts_words_of_any_length)
{
    enum { LONG = 100000 };
    struct text string = {0};
    int32_t made;
    struct tokenizer *t;
    for (int i = 0; i < LONG; i++) text_adds(&string, "a");
    struct text json = trained((const char *const *)&string.data, &string.len, 1, 262, &made);
    CHECK(made == 262);
    CHECK_STATUS(OK, open_bytes(&t, "tokenizer.json", &json));
    CHECK_IDS(t, "aaaaaaaaaaaaaaa", 258, 257, 256, 'a');
    tokenizer_close(t);
    text_release(&json), text_release(&string);
}

TEST(training_requires_text_and_a_valid_vocab_size)
{
    struct bpe_trainer *trainer;
    struct text json = {0};
    int32_t made;
    bpe_trainer_make(&trainer);
    CHECK_STATUS(DATA, bpe_trainer_finish(trainer, 300, &json, &made));
    bpe_trainer_add(trainer, "", 0);
    CHECK_STATUS(DATA, bpe_trainer_finish(trainer, 300, &json, &made));
    bpe_trainer_add(trainer, "abab", 4);
    CHECK_STATUS(CONFIG, bpe_trainer_finish(trainer, 259, &json, &made));
    CHECK_MESSAGE("259");
    CHECK_STATUS(CONFIG, bpe_trainer_finish(trainer, -1, &json, &made));
    CHECK_STATUS(CONFIG, bpe_trainer_finish(trainer, INT32_MAX, &json, &made));
    CHECK_STATUS(CONFIG, bpe_trainer_finish(trainer, VOCABULARY_MAX_ID + 2, &json, &made));
    CHECK(json.len == 0);
    CHECK_STATUS(OK, bpe_trainer_finish(trainer, 260, &json, &made));
    CHECK(made == 260);
    text_release(&json);
    bpe_trainer_free(trainer);
    bpe_trainer_free(NULL);
}
