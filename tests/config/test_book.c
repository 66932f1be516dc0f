// SPDX-License-Identifier: Apache-2.0
#include "config/book.h"

#include "test.h"

static const struct option *row_of(const char *key)
{
    const struct config_section *section;
    return config_find(key, &section);
}

TEST(origin_of_a_value_is_the_last_place_that_set_it)
{
    struct config_book b = {0};
    const struct option *row = row_of("training.steps");
    CHECK(!strcmp(book_origin(&b, row), "default"));
    book_note_origin(&b, row, "run.toml", 3);
    CHECK(!strcmp(book_origin(&b, row), "run.toml:3"));
    book_note_origin(&b, row, "command line", 0);
    CHECK(!strcmp(book_origin(&b, row), "command line"));
    CHECK(b.num_origins == 1);
    book_release(&b);
}

TEST(a_value_is_default_until_its_own_key_is_set)
{
    struct config_book b = {0};
    book_note_origin(&b, row_of("training.steps"), "run.toml", 3);
    CHECK(!book_is_default(&b, "training.steps"));
    CHECK(book_is_default(&b, "training.seq_len"));
    book_release(&b);
}
