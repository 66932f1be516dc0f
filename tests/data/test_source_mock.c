// SPDX-License-Identifier: Apache-2.0
#include "data/source_rig.h"

/* A document of Megatron's mock data is 1, 2, 3, ... and the end-of-text token. */
TEST(source_mock_documents_count_up_to_end_of_text)
{
    struct source_config c = source_rig_config("mock");
    struct source s = source_rig_open(&c);
    struct source_rig_tokens r;
    struct source_document f = {0};
    bool none = false;
    int documents = 0;
    source_rig_tokens_init(&r);
    CHECK(s.num_positions == 100000 && source_num_sequences(&s) == 100000);
    struct source_range cursor = source_part(&s, 0, 1);
    cursor.position = 99990;
    for (; !none; documents += !none) {
        CHECK_STATUS(OK, source_find(&s, NULL, &cursor, &f, &none));
        if (none) break;
        uint64_t length = source_sequence_length(&s, f.at);
        CHECK(f.at == 99990 + (uint64_t)documents && f.len == length && length < 4096);
        r.ids.count = 0;
        CHECK_STATUS(OK, source_read(&s, &f, &r.tokens, &r.ids));
        CHECK(r.ids.count == length && r.ids.ids[length - 1] == 257);
        for (uint64_t i = 0; i + 1 < length; i++)
            CHECK(r.ids.ids[i] == (int)(i + 1) % tokenizer_vocab_size(r.tokenizer));
        int32_t part[2];
        if (length > 5)
            CHECK_STATUS(
                OK, source_read_sequence(&s, &(struct source_span){f.at, 3, 2}, &r.tokens, part));
        if (length > 5) CHECK(part[0] == 4 && part[1] == 5);
    }
    CHECK(documents == 10);
    struct source_tokens unknown = {0};
    CHECK_STATUS(CONFIG,
                 source_read_sequence(&s, &(struct source_span){0, 0, 1}, &unknown, r.ids.ids));
    CHECK_MESSAGE("mock data requires a tokenizer or model.vocab_size");
    source_rig_tokens_release(&r);
    source_close(&s);
}
