// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tokenizer/text/unicode_letters.h"

TEST(unicode_lower_maps_upper_case_only)
{
    uint32_t lower[2];
    CHECK(unicode_letters_lower('A', lower) == 1 && lower[0] == 'a');
    CHECK(unicode_letters_lower('a', lower) == 1 && lower[0] == 'a');
    CHECK(unicode_letters_lower(0x416, lower) == 1 && lower[0] == 0x436);
    CHECK(unicode_letters_lower(0x130, lower) == 2 && lower[0] == 'i' && lower[1] == 0x307);
    CHECK(unicode_letters_lower(0x10FFFF, lower) == 1 && lower[0] == 0x10FFFF);
}

TEST(unicode_accents_are_combining_marks)
{
    CHECK(unicode_letters_is_accent(0x300) && unicode_letters_is_accent(0x36F) &&
          unicode_letters_is_accent(0x903));
    CHECK(!unicode_letters_is_accent(0x2FF) && !unicode_letters_is_accent(0x370) &&
          !unicode_letters_is_accent('a'));
    CHECK(!unicode_letters_is_accent(0) && !unicode_letters_is_accent(0x10FFFF));
}
