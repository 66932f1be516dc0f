// SPDX-License-Identifier: Apache-2.0
#include "data/source_rig.h"

TEST(source_reports_where_a_document_is_damaged)
{
    const char *folder = test_folder();
    source_rig_check_fails(rig_text(folder, "a.jsonl", "{\"text\": \"one\"}\n{\"text\": 2}\n"),
                           "from byte 16: the value of \"text\" is not a string");
    source_rig_check_fails(
        source_rig_compressed(folder, "a.jsonl.gz", "\n{\"text\": \"one\"}\n\n{\"txt\": \"2\"}\n"),
        "line 4: the line has no key \"text\"");
    source_rig_check_fails(rig_text(folder, "a.txt", "abc\xFF"),
                           "from byte 0: the text is not UTF-8");
    source_rig_check_fails(source_rig_compressed(folder, "a.txt.zst", "abc\n\xC3\n"),
                           "line 2: the text is not UTF-8");
}
