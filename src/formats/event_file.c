// SPDX-License-Identifier: Apache-2.0
#include "formats/event_file.h"

#include "base/checksum.h"
#include "base/host.h"
#include "base/status.h"
#include "formats/protobuf.h"

#include <string.h>
#include <unistd.h>

/* Protocol buffer tags: field number << 3 | wire type (0 VARINT, 1 I64, 2 LEN, 5 I32). */
enum {
    EVENT_WALL_TIME = 1 << 3 | 1,
    EVENT_STEP = 2 << 3 | 0,
    EVENT_FILE_VERSION = 3 << 3 | 2,
    EVENT_SUMMARY = 5 << 3 | 2,
    EVENT_SESSION_LOG = 7 << 3 | 2,
    SESSION_STATUS = 1 << 3 | 0,
    SESSION_START = 1,
    SUMMARY_VALUE = 1 << 3 | 2,
    VALUE_TAG = 1 << 3 | 2,
    VALUE_SIMPLE = 2 << 3 | 5,
    RECORD_HEADER = 12, /* the length and its CRC */
};

static void add_byte(struct text *t, int byte) { text_add_le(t, (uint64_t)byte, 1); }

static uint32_t masked_crc(const void *bytes, size_t len)
{
    uint32_t crc = checksum_crc32c(0, bytes, len);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* Reserves space for the record header, which end_record fills in. */
static size_t begin_record(struct text *t, double wall_s, int64_t step)
{
    static const char header[RECORD_HEADER];
    uint64_t bits;
    memcpy(&bits, &wall_s, sizeof bits);
    size_t start = t->len;
    text_add(t, header, sizeof header);
    add_byte(t, EVENT_WALL_TIME);
    text_add_le(t, bits, 8);
    if (step) {
        add_byte(t, EVENT_STEP);
        protobuf_add_varint(t, (uint64_t)step);
    }
    return start;
}

static void end_record(struct text *t, size_t start)
{
    char *header = t->data + start;
    size_t len = t->len - start - RECORD_HEADER;
    text_encode_le(len, 8, header);
    text_encode_le(masked_crc(header, 8), 4, header + 8);
    text_add_le(t, masked_crc(header + RECORD_HEADER, len), 4);
}

void event_file_add_version(struct text *t, double wall_s)
{
    static const char version[] = "brain.Event:2";
    size_t start = begin_record(t, wall_s, 0);
    add_byte(t, EVENT_FILE_VERSION);
    protobuf_add_varint(t, sizeof version - 1);
    text_adds(t, version);
    end_record(t, start);
}

void event_file_add_session_start(struct text *t, int64_t step, double wall_s)
{
    size_t start = begin_record(t, wall_s, step);
    add_byte(t, EVENT_SESSION_LOG);
    protobuf_add_varint(t, 2);
    add_byte(t, SESSION_STATUS);
    add_byte(t, SESSION_START);
    end_record(t, start);
}

/* The serialized size of a Summary.Value with a tag and a simple_value. */
static size_t value_bytes(const struct event_scalar *s)
{
    size_t len = strlen(s->tag);
    return 1 + protobuf_varint_bytes(len) + len + 1 + 4;
}

void event_file_add_scalars(struct text *t, int64_t step, double wall_s,
                            const struct event_scalar *s, int count)
{
    BUG_IF(count <= 0);
    size_t summary = 0, start = begin_record(t, wall_s, step);
    for (int i = 0; i < count; i++)
        summary += 1 + protobuf_varint_bytes(value_bytes(&s[i])) + value_bytes(&s[i]);
    add_byte(t, EVENT_SUMMARY);
    protobuf_add_varint(t, summary);
    for (int i = 0; i < count; i++) {
        float value = (float)s[i].value;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        add_byte(t, SUMMARY_VALUE);
        protobuf_add_varint(t, value_bytes(&s[i]));
        add_byte(t, VALUE_TAG);
        protobuf_add_varint(t, strlen(s[i].tag));
        text_adds(t, s[i].tag);
        add_byte(t, VALUE_SIMPLE);
        text_add_le(t, bits, 4);
    }
    end_record(t, start);
}

void event_file_name(struct text *t, double wall_s, int number)
{
    char host[256];
    host_name(host, sizeof host);
    if (!host[0] || strchr(host, '/')) memcpy(host, "localhost", sizeof "localhost");
    text_addf(t, "events.out.tfevents.%010lld.%s.%ld.%d", (long long)wall_s, host, (long)getpid(),
              number);
}
