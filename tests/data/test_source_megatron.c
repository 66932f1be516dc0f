// SPDX-License-Identifier: Apache-2.0
#include "data/source_rig.h"

TEST(source_reads_each_pair_of_token_files_once)
{
    const char *folder = test_folder();
    rig_tokens(folder, "a", (int[]){1}, 1, 'a');
    rig_tokens(folder, "a.b", (int[]){2}, 1, 'b');
    rig_tokens(folder, "a_c", (int[]){0, 1}, 2, 'd');
    source_rig_check(test_path(folder, "*"), "bc|a|d|");
    source_rig_check(test_path(folder, "*.bin"), "bc|a|d|");
    source_rig_check(test_path(folder, "*.idx"), "bc|a|d|");
    source_rig_check(test_path(folder, "a"), "a|");
    source_rig_check(test_path(folder, "a.bin"), "a|");
}

TEST(source_has_sequences_for_a_single_token_file_pair_only)
{
    const char *folder = test_folder();
    rig_tokens(folder, "t", (int[]){3, 0, 4}, 3, 20);
    rig_tokens(folder, "u", (int[]){1}, 1, 0);
    rig_text(folder, "a.txt", "text");
    const char *pair = test_path(folder, "t");
    struct source_config c = source_rig_config(pair);
    struct source s = source_rig_open(&c);
    int32_t ids[2];
    CHECK(source_num_sequences(&s) == 3 && source_sequence_length(&s, 2) == 4);
    struct source_tokens tokens = {.vocab_size = 26};
    CHECK_STATUS(OK, source_read_sequence(&s, &(struct source_span){2, 1, 2}, &tokens, ids));
    CHECK(ids[0] == 24 && ids[1] == 25);
    CHECK_STATUS(RECORD, source_read_sequence(&s, &(struct source_span){2, 2, 2}, &tokens, ids));
    CHECK_MESSAGE("sequence 2 has token ID 26");
    source_close(&s);
    for (int i = 0; i < 2; i++) { /* none for two pairs, none for text */
        c = source_rig_config(test_path(folder, i ? "a.txt" : "*.idx"));
        s = source_rig_open(&c);
        CHECK(source_num_sequences(&s) == 0);
        source_close(&s);
    }
}
