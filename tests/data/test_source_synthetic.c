// SPDX-License-Identifier: Apache-2.0
#include "data/source_rig.h"

TEST(source_synthetic_has_a_tenth_of_the_neurons_active)
{
    struct source_config c = source_rig_config("synthetic-spikes");
    struct source s = source_rig_open(&c);
    struct source_tokens t = {.vocab_size = 256};
    struct source_document d = {0};
    struct token_list ids = {0};
    struct source_range range = source_part(&s, 1, 2);
    bool none = false;
    uint64_t lengths = 0;
    CHECK(s.holds_ids && s.num_positions == 1000000);
    for (int session = 0; session < 20; session++) {
        size_t width = 1, active = 0;
        CHECK_STATUS(OK, source_find(&s, NULL, &range, &d, &none));
        CHECK(!none && d.at == 500000 + (uint64_t)session);
        ids.count = 0;
        CHECK_STATUS(OK, source_read(&s, &d, &t, &ids));
        CHECK(ids.count == d.len && ids.ids[0] == 255);
        while (ids.ids[width] != 255) active += ids.ids[width++] == 1;
        CHECK(width > 10 && width <= 1000 && active == (width - 1) / 10);
        CHECK(ids.count % width == 0 && ids.count / width >= 100 && ids.count / width < 2000);
        for (size_t i = width; i < ids.count; i++) CHECK(ids.ids[i] == ids.ids[i - width]);
        lengths += d.len != lengths;
    }
    CHECK(lengths > 15);
    t.vocab_size = 255;
    CHECK_STATUS(CONFIG, source_read(&s, &d, &t, &ids));
    CHECK_MESSAGE("requires model.vocab_size = 256");
    token_list_release(&ids);
    source_close(&s);
}
