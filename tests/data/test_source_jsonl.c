// SPDX-License-Identifier: Apache-2.0
#include "data/source_rig.h"

static const char lines_text[] =
    "{\"text\": \"one\"}\r\n\r\n  \n\n{\"text\": \"\"}\n{\"text\": \"two\"}";

TEST(source_reads_the_non_blank_lines_of_jsonl)
{
    const char *folder = test_folder();
    source_rig_check(rig_text(folder, "a.jsonl", lines_text), "<one>||<two>|");
    source_rig_check(rig_text(folder, "b.jsonl", "\xEF\xBB\xBF{\"text\": \"one\"}\n"), "<one>|");
}
