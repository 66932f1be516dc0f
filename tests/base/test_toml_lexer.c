// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/toml_lexer.h"

TEST(the_lexer_counts_lines_and_columns)
{
    const char *bytes = "  # one\n\n\t# two\r\n  x";
    struct toml_lexer l = {bytes, bytes + strlen(bytes), bytes, "f", 1};
    CHECK_STATUS(OK, toml_skip_lines(&l));
    CHECK(l.line == 4 && toml_column(&l) == 3 && toml_peek(&l, 0) == 'x' && toml_peek(&l, 1) == -1);
    CHECK_STATUS(DATA, toml_wrong(&l, "bad %s", "thing"));
    CHECK_MESSAGE("f:4:3: bad thing");
}

TEST(quotes_may_stand_at_the_end_of_a_long_string)
{
    const char *bytes = "\"\"\"a\"\"\"\"\" ";
    struct toml_lexer l = {bytes, bytes + strlen(bytes), bytes, "f", 1};
    struct text t = {0};
    CHECK_STATUS(OK, toml_read_string(&l, true, &t));
    CHECK(!strcmp(t.data, "a\"\"") && *l.at == ' ');
    text_release(&t);
}
