// SPDX-License-Identifier: Apache-2.0
#include "data/source_rig.h"

#include "base/file.h"

TEST(source_reads_rows_of_a_2d_array_or_16384_tokens_of_a_1d_array)
{
    const char *folder = test_folder();
    struct source_config c = source_rig_config(rig_array(folder, "a.npy", 3, 5));
    struct source s = source_rig_open(&c);
    struct source_tokens t = {.vocab_size = 250};
    struct token_list ids = {0};
    struct source_document f = {0};
    struct source_range cursor;
    bool none;
    CHECK(s.holds_ids && s.num_positions == 3);
    cursor = source_part(&s, 0, 1), cursor.position = 1;
    CHECK_STATUS(OK, source_find(&s, NULL, &cursor, &f, &none));
    CHECK_STATUS(OK, source_read(&s, &f, &t, &ids));
    CHECK(!none && cursor.position == 2 && ids.count == 5 && ids.ids[0] == 5 && ids.ids[4] == 9);
    source_close(&s);
    c = source_rig_config(rig_array(folder, "b.npy", 0, 2 * 16384 + 3));
    rig_array(folder, "c.npy", 0, 1);
    rig_array(folder, "d.npy", 9, 0);
    c.path = test_path(folder, "[b-d].npy");
    s = source_rig_open(&c);
    static const uint64_t lengths[] = {16384, 16384, 3, 1};
    CHECK(s.num_positions == 4);
    cursor = source_part(&s, 0, 1);
    for (uint64_t i = 0; i < 4; i++) {
        CHECK_STATUS(OK, source_find(&s, NULL, &cursor, &f, &none));
        ids.count = 0;
        CHECK_STATUS(OK, source_read(&s, &f, &t, &ids));
        CHECK(!none && ids.count == lengths[i]);
        for (uint64_t k = 0; k < ids.count; k++)
            CHECK(ids.ids[k] == (int32_t)((i == 3 ? k : i * 16384 + k) % 250));
    }
    CHECK_STATUS(OK, source_find(&s, NULL, &cursor, &f, &none));
    CHECK(none);
    t.vocab_size = 249, cursor.position = 0, ids.count = 0;
    CHECK_STATUS(OK, source_find(&s, NULL, &cursor, &f, &none));
    CHECK_STATUS(RECORD, source_read(&s, &f, &t, &ids));
    CHECK_MESSAGE("element 249 is 249: token IDs must be between 0 and 248");
    source_close(&s);
    token_list_release(&ids);
}

TEST(source_reads_a_bin_file_without_an_index_in_chunks_of_16384_tokens)
{
    enum { COUNT = 16384 + 5 };
    uint16_t tokens[COUNT];
    for (int i = 0; i < COUNT; i++) tokens[i] = (uint16_t)(i * 3 + 1);
    const char *folder = test_folder(), *path = test_path(folder, "train.bin");
    CHECK_STATUS(OK, file_write(path, (const char *)tokens, sizeof tokens));
    struct source_config c = source_rig_config(path);
    struct source s = source_rig_open(&c);
    struct source_tokens t = {.vocab_size = 1 << 16};
    struct source_document d = {0};
    struct token_list ids = {0};
    bool none;
    CHECK(s.holds_ids && s.num_positions == 2);
    struct source_range all = source_part(&s, 0, 1);
    for (uint64_t i = 0; i < 2; i++) {
        CHECK_STATUS(OK, source_find(&s, NULL, &all, &d, &none));
        CHECK_STATUS(OK, source_read(&s, &d, &t, &ids));
    }
    CHECK(ids.count == COUNT && ids.ids[0] == 1 && ids.ids[COUNT - 1] == tokens[COUNT - 1]);
    source_close(&s);
    CHECK_STATUS(OK, file_write(test_path(folder, "train.idx"), "", 0));
    CHECK(source_open(&s, &c)); /* now it is one of Megatron's */
    CHECK_MESSAGE("train.idx: ");
    token_list_release(&ids);
}
