// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/closest.h"

static const char *closest(const char *word, const char *const *names)
{
    struct closest c = closest_to(word);
    for (; *names; names++) closest_offer(&c, *names);
    return c.name;
}
#define CLOSEST(word, ...) closest(word, (const char *const[]){__VA_ARGS__, NULL})

TEST(closest_finds_misspelled_and_shortened_names)
{
    CHECK(!strcmp(CLOSEST("stpes", "stages", "steps"), "steps"));
    CHECK(!strcmp(CLOSEST("trian", "plan", "train"), "train")); /* a swap is one edit */
    CHECK(!strcmp(CLOSEST("Top_K", "top-p", "top-k"), "top-k"));
    CHECK(!strcmp(CLOSEST("temp", "top-p", "temperature"), "temperature"));
    CHECK(!strcmp(CLOSEST("bf16", "float32", "bfloat16"), "bfloat16"));
}

TEST(closest_suggests_nothing_for_unrelated_names)
{
    CHECK(!CLOSEST("foo", "name", "steps", "lr"));
    CHECK(!CLOSEST("abcdef", "name", "dim"));
    CHECK(!CLOSEST("xyzzy", "name", "lr"));
    CHECK(!CLOSEST("float8", "z_loss", "steps"));
    CHECK(!CLOSEST("run", "plan", "train"));
    CHECK(!CLOSEST("", "a", "") && !CLOSEST("x", "lr"));
    char longer[300];
    memset(longer, 'a', sizeof longer);
    longer[sizeof longer - 1] = 0;
    CHECK(!closest(longer, (const char *const[]){"aaa", longer, NULL}));
}

TEST(closest_reads_lists_of_words)
{
    struct closest c = closest_to("cosin");
    size_t len = closest_offer_list(&c, "linear|sqrt|cosine");
    CHECK(len == 6 && !strncmp(c.name, "cosine", len));
    c = closest_to("decay");
    CHECK(!closest_offer_list(&c, "linear|sqrt|cosine") && !c.name);
}

TEST(closest_synonyms_ignore_case_and_dashes)
{
    static const struct closest_synonym synonyms[] = {{"max-new-tokens", "max-tokens"}};
    CHECK(!strcmp(closest_find_synonym(synonyms, 1, "Max_New_Tokens"), "max-tokens"));
    CHECK(!closest_find_synonym(synonyms, 1, "max-new"));
    CHECK(!closest_find_synonym(synonyms, 1, "max-new-tokens-x"));
}
