// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "formats/gguf.h"
#include "test.h"

#include <math.h>
#include <string.h>

TEST(gguf_header_has_magic_version_counts_metadata_and_aligned_offsets)
{
    static const unsigned char want[] = {
        'G', 'G', 'U', 'F', 3,  0, 0, 0, 2,   0,   0,   0, 0, 0, 0, 0, /* tensors */
        1,   0,   0,   0,   0,  0, 0, 0,                               /* keys */
        3,   0,   0,   0,   0,  0, 0, 0, 'k', 'e', 'y',                /* metadata key */
        4,   0,   0,   0,   7,  1, 0, 0,                               /* u32 263 */
        1,   0,   0,   0,   0,  0, 0, 0, 'a', 1,   0,   0, 0,          /* a: 3 elements */
        3,   0,   0,   0,   0,  0, 0, 0, 0,   0,   0,   0,             /* f32 */
        0,   0,   0,   0,   0,  0, 0, 0,                               /* offset 0 */
        1,   0,   0,   0,   0,  0, 0, 0, 'b', 2,   0,   0, 0,          /* b: 2 rows of 32 */
        32,  0,   0,   0,   0,  0, 0, 0, 2,   0,   0,   0, 0, 0, 0, 0, /* columns first */
        8,   0,   0,   0,   32, 0, 0, 0, 0,   0,   0,   0,             /* q8_0, offset 32 */
    };
    struct gguf_metadata keys = {0};
    struct gguf_tensor t[] = {{.name = "a", .type = GGUF_F32, .num_dims = 1, .dims = {3}},
                              {.name = "b", .type = GGUF_Q8_0, .num_dims = 2, .dims = {32, 2}}};
    struct text head = {0};
    uint64_t total;
    gguf_add_u32(&keys, "key", 263);
    gguf_build_header(&keys, t, 2, &head, &total);
    CHECK(head.len % GGUF_ALIGNMENT == 0 && head.len >= sizeof want &&
          head.len < sizeof want + GGUF_ALIGNMENT);
    CHECK(!memcmp(head.data, want, sizeof want));
    CHECK(t[0].bytes == 12 && t[1].bytes == 68 && t[1].offset == 32 && total == 32 + 96);
    text_release(&head);
    gguf_metadata_release(&keys);
}

TEST(gguf_values_and_arrays_begin_with_their_types)
{
    static const unsigned char want[] = {
        1, 0, 0, 0, 0, 0, 0, 0,   's', 8, 0, 0, 0, 2, 0, 0,    0, 0, 0, 0, 0, 'h', 'i', 1,
        0, 0, 0, 0, 0, 0, 0, 'f', 6,   0, 0, 0, 0, 0, 0, 0x3F, /* 0.5 */
        1, 0, 0, 0, 0, 0, 0, 0,   'b', 7, 0, 0, 0, 1, 1, 0,    0, 0, 0, 0, 0, 0,   'l', 9,
        0, 0, 0, 8, 0, 0, 0, 1,   0,   0, 0, 0, 0, 0, 0, 1,    0, 0, 0, 0, 0, 0,   0,   'x',
    };
    struct gguf_metadata k = {0};
    gguf_add_string(&k, "s", "hi");
    gguf_add_f32(&k, "f", 0.5);
    gguf_add_bool(&k, "b", true);
    gguf_begin_array(&k, "l", GGUF_VALUE_STRING, 1);
    gguf_add_item_string(&k, "x", 1);
    CHECK(k.count == 4 && k.bytes.len == sizeof want && !memcmp(k.bytes.data, want, sizeof want));
    gguf_metadata_release(&k);
}

TEST(q8_0_has_an_f16_scale_and_rounds_halves_away_from_zero)
{
    float x[2 * GGUF_BLOCK] = {127, 0.5F, -0.5F, 1.5F, -126.5F, 0.49F};
    unsigned char out[2 * GGUF_BLOCK_BYTES];
    CHECK_STATUS(OK, gguf_convert(GGUF_Q8_0, x, 2 * GGUF_BLOCK, out));
    CHECK(out[0] == 0 && out[1] == 0x3C); /* 1 */
    const signed char want[] = {127, 1, -1, 2, -127, 0, 0};
    CHECK(!memcmp(out + 2, want, sizeof want));
    for (int i = 0; i < GGUF_BLOCK_BYTES; i++) CHECK(out[GGUF_BLOCK_BYTES + i] == 0);
    x[40] = 1e-44F; /* its inverse is not finite */
    CHECK_STATUS(OK, gguf_convert(GGUF_Q8_0, x, 2 * GGUF_BLOCK, out));
    for (int i = 0; i < GGUF_BLOCK_BYTES; i++) CHECK(out[GGUF_BLOCK_BYTES + i] == 0);
    x[41] = INFINITY;
    CHECK_STATUS(DATA, gguf_convert(GGUF_Q8_0, x, 2 * GGUF_BLOCK, out));
    CHECK_MESSAGE("cannot quantize inf to q8_0");
}

TEST(gguf_float_types_are_contiguous)
{
    const float x[] = {1.5F, -2};
    unsigned char out[8];
    CHECK(gguf_bytes(GGUF_F32, 2) == 8 && gguf_bytes(GGUF_BF16, 2) == 4);
    CHECK_STATUS(OK, gguf_convert(GGUF_F32, x, 2, out));
    CHECK(!memcmp(out, x, 8));
    CHECK_STATUS(OK, gguf_convert(GGUF_BF16, x, 2, out));
    CHECK(!memcmp(out, "\xC0\x3F\x00\xC0", 4));
    CHECK_STATUS(OK, gguf_convert(GGUF_F16, x, 2, out));
    CHECK(!memcmp(out, "\x00\x3E\x00\xC0", 4));
}
