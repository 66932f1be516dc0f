// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "formats/wandb_log.h"

enum { BLOCK_BYTES = 32768, HEADER_BYTES = 7 };

/* The DataStore of wandb 0.19.11 writes these bytes for the record "hello". */
TEST(wandb_log_has_the_bytes_of_wandb)
{
    static const unsigned char want[] = {0x3a, 0x57, 0x26, 0x42, 0xe1, 0xbe, 0,   0x9d, 0x23, 0xac,
                                         0x8a, 5,    0,    1,    'h',  'e',  'l', 'l',  'o'};
    struct text t = {0};
    wandb_log_begin(&t);
    wandb_log_add(&t, t.len, "hello", 5);
    CHECK(t.len == sizeof want && !memcmp(t.data, want, t.len));
    text_release(&t);
}

static void fill(char *record, size_t len, int seed)
{
    for (size_t i = 0; i < len; i++) record[i] = (char)((int)(i * 31) + seed);
}

/* Records that end at every distance from the end of a block, and some longer than blocks. */
TEST(wandb_log_records_cross_blocks)
{
    static char record[3 * BLOCK_BYTES], other[3 * BLOCK_BYTES];
    for (int room = 0; room <= 20; room++) {
        const size_t lens[] = {(size_t)(BLOCK_BYTES - 2 * HEADER_BYTES - room), 12, 0,
                               2 * BLOCK_BYTES + 5, 100};
        struct text t = {0};
        struct wandb_log_reader r;
        wandb_log_begin(&t);
        for (int i = 0; i < 5; i++) {
            fill(record, lens[i], i);
            wandb_log_add(&t, t.len, record, lens[i]);
        }
        CHECK(wandb_log_open(&r, t.data, t.len));
        for (int i = 0; i < 5; i++) {
            fill(other, lens[i], i);
            CHECK(wandb_log_next(&r) && r.record.len == lens[i]);
            CHECK(!lens[i] || !memcmp(r.record.data, other, lens[i]));
        }
        CHECK(!wandb_log_next(&r) && r.at == t.len);
        wandb_log_close(&r);
        text_release(&t);
    }
}

TEST(wandb_log_reader_stops_where_a_file_is_cut_or_corrupt)
{
    struct text t = {0};
    wandb_log_begin(&t);
    wandb_log_add(&t, t.len, "first", 5);
    size_t first = t.len;
    wandb_log_add(&t, t.len, "second", 6);
    for (size_t len = 0; len < t.len; len++) {
        struct wandb_log_reader r;
        bool is_log = wandb_log_open(&r, t.data, len);
        CHECK(is_log == (len >= HEADER_BYTES));
        if (!is_log) continue;
        CHECK(wandb_log_next(&r) == (len >= first));
        CHECK(!wandb_log_next(&r) && r.at == (len >= first ? first : HEADER_BYTES));
        wandb_log_close(&r);
    }
    for (size_t at = 0; at < t.len; at++) {
        struct wandb_log_reader r;
        t.data[at] = (char)(t.data[at] ^ 64);
        bool is_log = wandb_log_open(&r, t.data, t.len);
        CHECK(is_log == (at >= HEADER_BYTES));
        int records = 0;
        while (is_log && wandb_log_next(&r)) records++;
        CHECK(records == (is_log && at >= first ? 1 : 0));
        wandb_log_close(&r);
        t.data[at] = (char)(t.data[at] ^ 64);
    }
    text_release(&t);
}
