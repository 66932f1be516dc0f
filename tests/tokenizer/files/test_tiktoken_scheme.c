// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tokenizer/files/tiktoken_scheme.h"
#include "tokenizer/text/regex.h"
#include "tokenizer/tokenizer_impl.h"

static const char *const names[] = {"llama3", "llama4", "gpt2", "p50k", "cl100k", "o200k", "qwen"};
enum { COUNT = sizeof names / sizeof *names };

TEST(each_scheme_has_its_name_a_pattern_that_compiles_and_an_eos)
{
    struct text list = {0};
    for (size_t i = 0; i < COUNT; i++) {
        const struct tiktoken_scheme *s = tiktoken_scheme_find(names[i]);
        struct tokenizer t = {0};
        struct regex *r;
        CHECK(s && !strcmp(s->name, names[i]));
        CHECK_STATUS(OK, regex_compile(&r, s->pattern));
        tiktoken_scheme_add_specials(s, &t, 1000);
        CHECK(t.eos >= 0 && t.eos < t.vocab_size && (t.bos < 0) == !s->bos);
        for (size_t k = 1; k < t.special_tokens.count; k++)
            CHECK(t.special_tokens.all[k].id >= t.special_tokens.all[k - 1].id);
        special_tokens_release(&t.special_tokens);
        regex_free(r);
        text_addf(&list, "%s%s", i ? ", " : "", names[i]);
    }
    struct text got = {0};
    tiktoken_scheme_list(&got);
    CHECK(!strcmp(got.data, list.data));
    CHECK(!tiktoken_scheme_find("llama") && !tiktoken_scheme_find(""));
    text_release(&got), text_release(&list);
}

TEST(vocabularies_have_the_published_sizes)
{
    static const struct {
        const char *name;
        int32_t num_ranks, size, eos;
    } rows[] = {
        {"llama3", 128000, 128256, 128001}, {"llama4", 200000, 202048, 200001},
        {"gpt2", 50256, 50257, 50256},      {"p50k", 50281, 50281, 50256},
        {"cl100k", 100256, 100277, 100257}, {"o200k", 199998, 200019, 199999},
        {"qwen", 151643, 151851, 151643},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tokenizer t = {0};
        tiktoken_scheme_add_specials(tiktoken_scheme_find(rows[i].name), &t, rows[i].num_ranks);
        if (t.vocab_size != rows[i].size || t.eos != rows[i].eos)
            fail_msg("%s: %d tokens, EOS %d", rows[i].name, t.vocab_size, t.eos);
        special_tokens_release(&t.special_tokens);
    }
}

/* tests/oracle/public_tokenizers.py recognizes the files themselves. */
TEST(files_of_the_right_size_and_other_content_are_not_public)
{
    static char bytes[2183982];
    CHECK(!tiktoken_scheme_of_file(bytes, sizeof bytes) && !tiktoken_scheme_of_file(bytes, 0));
}
