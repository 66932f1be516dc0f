// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "config/config.h"

struct search {
    const char *man, *page;
    int rows;
};

static void check_row(void *context, const char *section, const struct option *row)
{
    struct search *s = context;
    struct text heading = {0}, key = {0}, entry = {0};
    bool is_array = strchr(section, '.');
    s->rows++;
    text_addf(&heading, ".SS %s%s%s\n", is_array ? "[[" : "[", section, is_array ? "]]" : "]");
    text_addf(&entry, ".TP\n\\fB%s\\fR\n", row->name);
    text_addf(&key, "| `%s` | ", row->name);
    const char *from = strstr(s->man, heading.data);
    CHECK(from && strstr(from, entry.data) && strstr(s->page, key.data));
    text_release(&heading), text_release(&key), text_release(&entry);
}

TEST(llamero_toml_5_and_options_md_have_every_row_of_the_tables)
{
    struct text man = {0}, page = {0};
    config_write_man(&man);
    config_document(&page);
    struct search s = {man.data, page.data, 0};
    config_for_each_option(check_row, &s);
    CHECK(s.rows > 100);
    int entries = 0;
    for (const char *at = man.data; (at = strstr(at, "\n.TP\n")); at++) entries++;
    CHECK(entries == s.rows);
    text_release(&man), text_release(&page);
}
