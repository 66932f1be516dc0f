// SPDX-License-Identifier: Apache-2.0
#include "data/source_rig.h"

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
