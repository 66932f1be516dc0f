// SPDX-License-Identifier: Apache-2.0
#include "data/source_rig.h"

static const char lines_text[] =
    "{\"text\": \"one\"}\r\n\r\n  \n\n{\"text\": \"\"}\n{\"text\": \"two\"}";

TEST(source_reads_the_non_blank_lines_of_compressed_jsonl)
{
    const char *folder = test_folder();
    source_rig_check(source_rig_compressed(folder, "a.jsonl.gz", lines_text), "<one>||<two>|");
    source_rig_check(source_rig_compressed(folder, "a.json.gz", lines_text), "<one>||<two>|");
    source_rig_check(source_rig_compressed(folder, "a.jsonl.zst", lines_text), "<one>||<two>|");
}

TEST(source_reads_the_lines_of_compressed_text)
{
    const char *folder = test_folder();
    source_rig_check(source_rig_compressed(folder, "a.txt.gz", "one\n\ntwo\n"), "<one>|<two>|");
    source_rig_check(source_rig_compressed(folder, "a.txt.zst", "one\n\ntwo"), "<one>|<two>|");
}

TEST(source_rejects_a_mix_of_compressed_json_and_compressed_text)
{
    const char *folder = test_folder();
    struct source s;
    source_rig_compressed(folder, "a.jsonl.gz", "{\"text\": \"one\"}\n");
    source_rig_compressed(folder, "b.txt.gz", "two\n");
    struct source_config c = source_rig_config(test_path(folder, "*.gz"));
    CHECK_STATUS(CONFIG, source_open(&s, &c));
    CHECK_MESSAGE("b.txt.gz: all files of a source must have the same type");
}
