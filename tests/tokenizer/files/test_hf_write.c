// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/rig.h"

#include "tokenizer/files/hf_write.h"
#include "tokenizer/text/split.h"
#include "tokenizer/tokenizer_impl.h"

TEST(written_byte_level_tokenizer_json_reads_back)
{
    struct vocabulary v = {0};
    static const char *const words[] = {"\"\\", " \n", "\xC3\xA4", "\xFF\x80"};
    struct hf_merge list[4];
    struct special_token two[] = {{(char[]){"<|begin_of_text|>"}, 260},
                                  {(char[]){"<|end_of_text|>"}, 261}};
    struct special_tokens specials = {.all = two, .count = 2};
    struct text json = {0}, again = {0};
    struct tokenizer *t = NULL;
    for (int i = 0; i < 256; i++)
        CHECK_STATUS(OK, vocabulary_add(&v, &(unsigned char){(unsigned char)i}, 1, i));
    for (int32_t i = 0; i < 4; i++) {
        CHECK_STATUS(OK, vocabulary_add(&v, words[i], 2, 256 + i));
        list[i] = (struct hf_merge){(unsigned char)words[i][0], (unsigned char)words[i][1]};
    }
    hf_write_json(&(struct hf_write){.vocabulary = &v,
                                     .pattern = split_llama3_pattern,
                                     .merges = list,
                                     .num_merges = 4,
                                     .specials = &specials,
                                     .bos = 260},
                  &json);
    CHECK(strstr(json.data, "\n      \"\\\"\\\\\": 256,\n"));    /* escaped */
    CHECK(strstr(json.data, "\n      [\"\\\"\", \"\\\\\"],\n")); /* its merge */
    CHECK_STATUS(OK, open_bytes(&t, "tokenizer.json", &json));
    CHECK(tokenizer_vocab_size(t) == 262 && tokenizer_bos(t) == 260 && tokenizer_eos(t) == 261);
    for (int32_t id = 0; id < 260; id++) {
        text_clear(&again);
        CHECK_STATUS(OK, tokenizer_decode(t, &id, 1, &again));
        CHECK(vocabulary_find(&v, again.data, again.len) == id);
    }
    CHECK_IDS(t, "\"\\a", 256, 'a');
    CHECK_IDS(t, "\xC3\xA4\xFF\x80", 258, 259);
    CHECK_IDS(t, "a \n", 'a', 257);
    tokenizer_close(t);
    vocabulary_release(&v);
    text_release(&json), text_release(&again);
}
