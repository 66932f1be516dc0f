// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/text.h"

TEST(text_grows_and_stays_terminated)
{
    struct text t = {0};
    for (int i = 0; i < 1000; i++) {
        text_addf(&t, "%d,", i);
        CHECK(strlen(t.data) == t.len && t.len < t.capacity);
    }
    CHECK(!strncmp(t.data, "0,1,2,3,", 8) && !strcmp(t.data + t.len - 8, "998,999,"));
    size_t capacity = t.capacity;
    text_clear(&t);
    CHECK(t.len == 0 && t.capacity == capacity && !*t.data);
    text_release(&t);
    CHECK(!t.data && !t.len && !t.capacity);
}

TEST(text_takes_bytes_of_any_value)
{
    struct text t = {0};
    text_add(&t, "a\0b", 3);
    text_add(&t, NULL, 0);
    text_adds(&t, "");
    CHECK(t.len == 3 && !memcmp(t.data, "a\0b", 4));
    text_release(&t);
}

TEST(text_reserve_leaves_room_for_the_bytes_and_their_end)
{
    struct text t = {0};
    text_reserve(&t, 0);
    CHECK(t.data && t.capacity >= 1);
    text_reserve(&t, 5000);
    CHECK(t.capacity >= 5001 && t.len == 0);
    text_release(&t);
}

TEST(text_distance_counts_edits)
{
    CHECK(text_distance("", "") == 0 && text_distance("", "abc") == 3);
    CHECK(text_distance("steps", "steps") == 0 && text_distance("steps", "step") == 1);
    CHECK(text_distance("kitten", "sitting") == 3 && text_distance("sitting", "kitten") == 3);
    CHECK(text_distance("ab", "ba") == 2);
    char endless[4096];
    memset(endless, 'x', sizeof endless - 1);
    endless[sizeof endless - 1] = 0;
    CHECK(text_distance(endless, "x") > 100);
}

TEST(text_is_nearer_says_what_the_distance_does)
{
    const char *const words[] = {"",     "a",     "steps",  "step",        "stpes",
                                 "sets", "lr",    "kitten", "sitting",     "training.steps",
                                 "data", "model", "mode",   "trainin.step"};
    enum { WORDS = sizeof words / sizeof *words };
    for (size_t i = 0; i < WORDS * WORDS * 16; i++) {
        const char *name = words[i % WORDS], *word = words[i / WORDS % WORDS];
        size_t distance = text_distance(name, word), before = i / WORDS / WORDS, best = before;
        CHECK(text_is_nearer(name, word, &best) == (distance < before));
        CHECK(best == (distance < before ? distance : before));
    }
}

TEST(heap_memory_is_zeroed_and_strings_are_cut_where_asked)
{
    unsigned char *p = heap(300);
    for (int i = 0; i < 300; i++) CHECK(p[i] == 0);
    free(p);
    char *word = heap_string("train CONFIG", 5);
    CHECK(!strcmp(word, "train"));
    word = heap_grow(word, 100, 1);
    CHECK(!strcmp(word, "train"));
    free(word);
}
