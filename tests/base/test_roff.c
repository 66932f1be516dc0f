// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/roff.h"

TEST(roff_escapes_requests_hyphens_and_quotes)
{
    struct text out = {0};
    roff_add(&out, ".TH is 'a' \\ request, --x is not; `b` ~^");
    CHECK(!strcmp(out.data, "\\&.TH is \\(aqa\\(aq \\e request, \\-\\-x is not; "
                            "\\fBb\\fR \\(ti\\(ha\n"));
    text_clear(&out);
    roff_entry(&out, "--steps", "N");
    CHECK(!strcmp(out.data, ".TP\n\\fB\\-\\-steps\\fR \\fIN\\fR\n"));
    text_clear(&out);
    roff_begin(&out, "llamero-x", 1, "Manual");
    CHECK(!strncmp(out.data, ".TH LLAMERO-X 1 ", 16));
    text_release(&out);
}

TEST(roff_keeps_the_lines_of_tables_only)
{
    struct text out = {0};
    roff_paragraphs(&out, "Words in\na line.  More.\n\nshow   one\nlist   all\n\n    indented");
    CHECK(!strcmp(out.data, "Words in\na line.  More.\n.PP\n.nf\nshow   one\nlist   all\n.fi\n"
                            ".PP\n.nf\n    indented\n.fi\n"));
    text_release(&out);
}
