// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/toml_lexer.h"

TEST(lexer_counts_lines_and_columns)
{
    const char *bytes = "  # one\n\n\t# two\r\n  x";
    struct toml_lexer l = {bytes, bytes + strlen(bytes), bytes, "f", 1};
    CHECK_STATUS(OK, toml_lexer_skip_lines(&l));
    CHECK(l.line == 4 && toml_lexer_column(&l) == 3 && toml_lexer_peek(&l, 0) == 'x' &&
          toml_lexer_peek(&l, 1) == -1);
    CHECK_STATUS(DATA, toml_lexer_fail(&l, "bad %s", "thing"));
    CHECK_MESSAGE("f:4:3: bad thing");
}

TEST(multi_line_string_may_end_in_quotes)
{
    const char *bytes = "\"\"\"a\"\"\"\"\" ";
    struct toml_lexer l = {bytes, bytes + strlen(bytes), bytes, "f", 1};
    struct text t = {0};
    CHECK_STATUS(OK, toml_lexer_read_string(&l, true, &t));
    CHECK(!strcmp(t.data, "a\"\"") && *l.at == ' ');
    text_release(&t);
}
