// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "formats/event_file.h"

#include <unistd.h>

static bool is_hex(const struct text *t, const char *hex)
{
    if (strlen(hex) != 2 * t->len) return false;
    for (size_t i = 0; i < t->len; i++) {
        char pair[3];
        snprintf(pair, sizeof pair, "%02x", (unsigned char)t->data[i]);
        if (memcmp(pair, hex + 2 * i, 2)) return false;
    }
    return true;
}

/* TensorBoard 2.21's own RecordWriter and protocol buffers wrote the expected bytes. */
TEST(event_file_begins_with_the_version_record)
{
    struct text t = {0};
    event_file_add_version(&t, 1.5);
    CHECK(is_hex(&t, "1800000000000000a37f4b22"
                     "09000000000000f83f1a0d627261696e2e4576656e743a32"
                     "2a28646c"));
    text_release(&t);
}

TEST(event_file_marks_a_session_start)
{
    struct text t = {0};
    event_file_add_session_start(&t, 300, 1.5);
    CHECK(is_hex(&t, "100000000000000095fbfe18"
                     "09000000000000f83f10ac023a020801"
                     "713b788a"));
    text_release(&t);
}

TEST(event_file_stores_several_scalars_in_a_record)
{
    struct text t = {0};
    struct event_scalar s[] = {{"lr", 0.5}, {"loss_metrics/global_avg_loss", -8.25}};
    event_file_add_scalars(&t, 300, 1.5, s, 2);
    CHECK(is_hex(&t, "3e00000000000000d9d240e7"
                     "09000000000000f83f10ac022a300a090a026c72150000003f"
                     "0a230a1c6c6f73735f6d6574726963732f676c6f62616c5f6176675f6c6f7373"
                     "15000004c1"
                     "72e117c6"));
    text_release(&t);
}

TEST(event_file_records_are_contiguous)
{
    struct text one = {0}, both = {0};
    struct event_scalar s = {"grad_norm", 1};
    event_file_add_version(&both, 2);
    size_t first = both.len;
    event_file_add_scalars(&both, 7, 3, &s, 1);
    event_file_add_scalars(&one, 7, 3, &s, 1);
    CHECK(both.len == first + one.len && !memcmp(both.data + first, one.data, one.len));
    text_release(&one);
    text_release(&both);
}

/* With tags of 200 bytes, lengths at three nesting levels take two bytes. */
TEST(event_file_nested_lengths_add_up_for_long_messages)
{
    struct text t = {0};
    char tag[201];
    memset(tag, 'a', 200);
    tag[200] = 0;
    struct event_scalar s[3] = {{tag, 1}, {tag, 2}, {tag, 3}};
    event_file_add_scalars(&t, 1, 0, s, 3);
    const unsigned char *at = (const unsigned char *)t.data;
    size_t len = (size_t)at[0] + (size_t)at[1] * 256;
    CHECK(t.len == 12 + len + 4);
    at += 12 + 9 + 2; /* record header, wall time, step */
    CHECK(at[0] == 0x2a);
    size_t summary = (size_t)(at[1] & 127) + (size_t)at[2] * 128;
    CHECK(9 + 2 + 3 + summary == len);
    for (at += 3; summary;) {
        CHECK(at[0] == 0x0a);
        size_t value = (size_t)(at[1] & 127) + (size_t)at[2] * 128;
        CHECK(value == 1 + 2 + 200 + 5 && at[3] == 0x0a && at[3 + 1 + 2 + 200] == 0x15);
        at += 3 + value;
        summary -= 3 + value;
    }
    text_release(&t);
}

TEST(event_file_names_match_what_tensorboard_globs)
{
    struct text t = {0};
    char end[32];
    event_file_name(&t, 1700000000.9, 3);
    CHECK(!strncmp(t.data, "events.out.tfevents.1700000000.", 31));
    snprintf(end, sizeof end, ".%ld.3", (long)getpid());
    CHECK(t.len > strlen(end) && !strcmp(t.data + t.len - strlen(end), end));
    CHECK(!strchr(t.data, '/'));
    text_release(&t);
}
