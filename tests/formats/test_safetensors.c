// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "formats/safetensors.h"

/* The bytes of a file: length, header, and `data` zeros after it. */
static struct text file_of(const char *header, size_t data)
{
    struct text t = {0};
    size_t len = strlen(header);
    for (int i = 0; i < 8; i++) text_add(&t, &(char){(char)(len >> (8 * i) & 255)}, 1);
    text_adds(&t, header);
    for (size_t i = 0; i < data; i++) text_add(&t, "", 1);
    return t;
}

static enum status parse_bytes(const struct text *t, struct safetensors *s)
{
    *s = (struct safetensors){.path = heap_string("x.st", 4)};
    return safetensors_parse(s, (const unsigned char *)t->data, t->len);
}

static enum status parse(const char *header, size_t data)
{
    struct text t = file_of(header, data);
    struct safetensors s;
    enum status st = parse_bytes(&t, &s);
    safetensors_close(&s);
    text_release(&t);
    return st;
}

/* Refused as DATA, and the message names the file and says `why`. */
static void check_refused(const char *header, size_t data, const char *why)
{
    CHECK_STATUS(DATA, parse(header, data));
    CHECK_MESSAGE("x.st");
    CHECK_MESSAGE(why);
}

#define F32_AT(name, shape, begin, end)                                                            \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

TEST(safetensors_without_tensors_or_with_empty_ones_are_files_too)
{
    CHECK_STATUS(OK, parse("{}", 0));
    CHECK_STATUS(OK, parse("{}      ", 0));
    CHECK_STATUS(OK, parse("{\"__metadata__\":{\"format\":\"pt\"}}", 0));
    CHECK_STATUS(OK, parse("{" F32_AT("a", "[0,7]", 0, 0) "," F32_AT("b", "[]", 0, 4) "}", 4));
    CHECK_STATUS(OK, parse("{" F32_AT("b", "[1]", 0, 4) "," F32_AT("a", "[0]", 4, 4) "}", 4));
}

TEST(safetensors_tensors_are_found_by_their_names_in_any_order)
{
    struct text t = file_of("{" F32_AT("m", "[2,1]", 4, 12) "," F32_AT("z", "[1]", 0, 4) "," F32_AT(
                                "a/\\u00e9", "[1]", 12, 16) "}",
                            16);
    struct safetensors s;
    CHECK_STATUS(OK, parse_bytes(&t, &s));
    const struct safetensors_tensor *m = safetensors_find(&s, "m");
    CHECK(s.count == 3 && !strcmp(s.tensors[0].name, "z"));
    CHECK(m && m->num_dims == 2 && m->shape[0] == 2 && m->elements == 2 && m->begin == 4);
    CHECK(safetensors_find(&s, "a/\xc3\xa9") == &s.tensors[2]);
    CHECK(safetensors_find(&s, "z") == &s.tensors[0]);
    CHECK(!safetensors_find(&s, "") && !safetensors_find(&s, "zz") && !safetensors_find(&s, "b"));
    safetensors_close(&s);
    text_release(&t);
}

TEST(safetensors_whose_header_is_longer_than_the_file_are_refused)
{
    static const unsigned char lengths[][8] = {{9, 0, 0, 0, 0, 0, 0, 0},
                                               {255, 255, 255, 255, 255, 255, 255, 255},
                                               {0, 0, 0, 0, 0, 0, 0, 128},
                                               {1, 225, 245, 5, 0, 0, 0, 0}};
    for (size_t i = 0; i < 4; i++) {
        struct text t = file_of("{}      ", 0);
        struct safetensors s;
        memcpy(t.data, lengths[i], 8);
        CHECK_STATUS(DATA, parse_bytes(&t, &s));
        CHECK_MESSAGE("x.st");
        safetensors_close(&s);
        text_release(&t);
    }
    CHECK_STATUS(DATA, parse("", 0));
    struct text small = {0};
    struct safetensors s;
    text_add(&small, "\2\0\0\0\0\0\0", 7);
    CHECK_STATUS(DATA, parse_bytes(&small, &s));
    CHECK_MESSAGE("the header's length");
    safetensors_close(&s);
    text_release(&small);
}

TEST(safetensors_whose_header_is_no_object_are_refused)
{
    check_refused("[]", 0, "does not begin with {");
    check_refused(" {}", 0, "does not begin with {");
    check_refused("{", 0, "not valid JSON");
    check_refused("{}x", 0, "trailing data");
    check_refused("{\"a\":[1,2]}", 0, "tensor a: not described by an object");
    check_refused("{\"\xff\":{}}", 0, "not UTF-8");
    check_refused("{\"a\":null}", 0, "not described by an object");
}

TEST(safetensors_with_a_header_of_great_depth_are_refused)
{
    struct text deep = {0};
    text_adds(&deep, "{\"a\":");
    for (int i = 0; i < 200000; i++) text_adds(&deep, "[");
    CHECK_STATUS(DATA, parse(deep.data, 0));
    text_release(&deep);
}

TEST(safetensors_with_holes_overlaps_or_bytes_to_spare_are_refused)
{
    check_refused("{" F32_AT("a", "[1]", 4, 8) "}", 8, "tensor a begins at byte 4 of the data");
    check_refused("{" F32_AT("a", "[1]", 0, 4) "," F32_AT("b", "[1]", 8, 12) "}", 12,
                  "tensor b begins at byte 8 of the data, not at 4");
    check_refused("{" F32_AT("a", "[2]", 0, 8) "," F32_AT("b", "[1]", 4, 8) "}", 8,
                  "tensor b begins at byte 4 of the data, not at 8");
    check_refused("{" F32_AT("a", "[2]", 0, 8) "," F32_AT("b", "[2]", 0, 8) "}", 8, "not at 8");
    check_refused("{" F32_AT("a", "[1]", 0, 4) "}", 5, "5 bytes of data");
    check_refused("{" F32_AT("a", "[1]", 0, 4) "}", 3, "3 bytes of data");
    check_refused("{}", 1, "1 bytes of data");
}

TEST(safetensors_whose_offsets_are_no_two_rising_numbers_are_refused)
{
    const char *const bad[] = {"[4,0]",     "[-4,0]",   "[0]",       "[0,4,4]",
                               "{\"a\":0}", "4",        "[0,\"4\"]", "[0,4.5]",
                               "[0,1e300]", "[null,4]", "null",      "[0,9007199254740994]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct text t = {0};
        text_addf(&t, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":%s}}", bad[i]);
        check_refused(t.data, 4, "tensor a: \"data_offsets\" are not two rising numbers");
        text_release(&t);
    }
    check_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets");
}

TEST(safetensors_with_impossible_shapes_are_refused)
{
    const char *const bad[] = {"[4294967296,4294967296]", "[-1]",       "[1.5]", "[\"1\"]",
                               "[9007199254740994]",      "[1e400]",    "[[1]]", "[null]",
                               "[4611686018427387904,4]", "[1e15,1e15]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct text t = {0};
        text_addf(&t, "{\"a\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[0,4]}}", bad[i]);
        check_refused(t.data, 4, "tensor a: its shape is impossible");
        text_release(&t);
    }
    check_refused("{" F32_AT("a", "3", 0, 4) "}", 4, "\"shape\" is not an array");
    check_refused("{" F32_AT("a", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "more than 8 dimensions");
    check_refused("{" F32_AT("a", "[2]", 0, 4) "}", 4, "4 bytes are not those of its shape");
    /* 2^62 elements of 8 bytes are 2^65 bytes: nothing, if they were not counted with care. */
    check_refused("{\"a\":{\"dtype\":\"F64\",\"shape\":[2147483648,2147483648],"
                  "\"data_offsets\":[0,0]}}",
                  0, "not those of its shape");
}

TEST(safetensors_of_unknown_dtypes_are_refused_by_name)
{
    CHECK_STATUS(UNSUPPORTED,
                 parse("{\"a\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1));
    CHECK_MESSAGE("x.st: tensor a: unknown dtype \"F4\"");
    check_refused("{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "no \"dtype\"");
    check_refused("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor a: it has no");
}

TEST(safetensors_naming_a_tensor_twice_are_refused)
{
    check_refused("{" F32_AT("a", "[1]", 0, 4) "," F32_AT("a", "[1]", 4, 8) "}", 8,
                  "duplicate key \"a\"");
    check_refused("{" F32_AT("a", "[1]", 0, 4) "," F32_AT("\\u0061", "[1]", 4, 8) "}", 8,
                  "duplicate key \"a\"");
}

TEST(safetensors_metadata_holds_strings_only)
{
    check_refused("{\"__metadata__\":[]}", 0, "__metadata__ is not an object");
    check_refused("{\"__metadata__\":{\"a\":1}}", 0, "more than strings");
    check_refused("{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0, "more than strings");
}

TEST(safetensors_dtypes_have_their_names_and_sizes)
{
    enum safetensors_dtype d;
    CHECK(safetensors_dtype_find("BF16", &d) && d == SAFETENSORS_BF16);
    CHECK(safetensors_dtype_bytes(d) == 2 && !strcmp(safetensors_dtype_name(d), "BF16"));
    CHECK(safetensors_dtype_find("I64", &d) && safetensors_dtype_bytes(d) == 8);
    CHECK(safetensors_dtype_find("F8_E4M3", &d) && safetensors_dtype_bytes(d) == 1);
    CHECK(!safetensors_dtype_find("f32", &d) && !safetensors_dtype_find("", &d));
}

/* One tensor of these bits as a file, read back as f32, and as bf16. */
static void read_back_both(enum safetensors_dtype dtype, const void *bytes, size_t n, float *out,
                           uint16_t *brain)
{
    struct safetensors_tensor t = {.name = (char *)(uintptr_t) "w", .dtype = dtype, .num_dims = 1};
    struct text file = {0};
    struct safetensors s;
    const char *path = test_path(test_folder(), "one.safetensors");
    uint64_t total;
    t.shape[0] = (int64_t)n;
    safetensors_header(&t, 1, &file, &total);
    CHECK(file.len % 8 == 0 && total == n * safetensors_dtype_bytes(dtype));
    text_add(&file, bytes, total);
    CHECK_STATUS(OK, file_write(path, file.data, file.len));
    CHECK_STATUS(OK, safetensors_open(&s, path));
    CHECK(s.count == 1 && s.tensors[0].dtype == dtype && s.data % 8 == 0);
    if (out) CHECK_STATUS(OK, safetensors_read_f32(&s, &s.tensors[0], out));
    if (brain) CHECK_STATUS(OK, safetensors_read_bf16(&s, &s.tensors[0], brain));
    safetensors_close(&s);
    text_release(&file);
}

static void read_back(enum safetensors_dtype dtype, const void *bytes, size_t n, float *out)
{
    read_back_both(dtype, bytes, n, out, NULL);
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

TEST(safetensors_numbers_of_each_width_come_back_as_f32)
{
    static const float single[] = {0.1f, -3e38f, 1e-45f};
    static const double wide[] = {0.1, -2.5, 1e300};
    static const uint16_t brain[] = {0x3f80, 0xc020, 0x0001};
    static const uint16_t half[] = {0x3c00, 0x0001, 0xfbff, 0x7c00, 0x83ff, 0x7e00};
    float got[6];
    read_back(SAFETENSORS_F32, single, 3, got);
    CHECK(!memcmp(got, single, sizeof single));
    read_back(SAFETENSORS_F64, wide, 3, got);
    CHECK(got[0] == 0.1f && got[1] == -2.5f && isinf(got[2]));
    read_back(SAFETENSORS_BF16, brain, 3, got);
    CHECK(got[0] == 1 && got[1] == -2.5f && bits_of(got[2]) == 0x10000);
    read_back(SAFETENSORS_F16, half, 6, got);
    CHECK(got[0] == 1 && got[1] == 0x1p-24f && got[2] == -65504 && isinf(got[3]));
    CHECK(got[4] == -1023 * 0x1p-24f && isnan(got[5]));
}

TEST(safetensors_numbers_come_back_as_bf16_rounded_or_as_they_are)
{
    enum { N = 10001 }; /* more than is converted at a time */
    static const uint16_t brain[] = {0x3f80, 0xc020, 0x0001, 0x7f81}, half[] = {0x3c00, 0xc100};
    float *x = heap(N * sizeof *x);
    uint16_t *got = heap(N * sizeof *got), want;
    for (int i = 0; i < N; i++) x[i] = (float)(i - 5000) * 0.37f;
    read_back_both(SAFETENSORS_F32, x, N, NULL, got);
    for (int i = 0; i < N; i++) {
        safetensors_convert(&x[i], 1, SAFETENSORS_BF16, &want);
        CHECK(got[i] == want);
    }
    read_back_both(SAFETENSORS_BF16, brain, 4, NULL, got);
    CHECK(!memcmp(got, brain, sizeof brain)); /* a NaN's bits, too */
    read_back_both(SAFETENSORS_F16, half, 2, NULL, got);
    CHECK(got[0] == 0x3f80 && got[1] == 0xc020);
    free(x), free(got);
}

TEST(safetensors_are_read_in_parts_as_well)
{
    static const uint16_t half[] = {0x3c00, 0x4000, 0x4200, 0x4400};
    struct text t = file_of("{\"n\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]}}", 8);
    struct safetensors s;
    float out[3] = {0, 0, -7};
    memcpy(t.data + t.len - sizeof half, half, sizeof half);
    CHECK_STATUS(OK, parse_bytes(&t, &s));
    s.map = (struct file_map){(const unsigned char *)t.data, t.len};
    CHECK_STATUS(OK, safetensors_read_part(&s, &s.tensors[0], 1, 2, out));
    CHECK(out[0] == 2 && out[1] == 3 && out[2] == -7);
    uint16_t brain[3] = {0, 0, 9};
    CHECK_STATUS(OK, safetensors_read_part_bf16(&s, &s.tensors[0], 2, 2, brain));
    CHECK(brain[0] == 0x4040 && brain[1] == 0x4080 && brain[2] == 9);
    CHECK_STATUS(OK, safetensors_read_part(&s, &s.tensors[0], 4, 0, out));
    CHECK(out[0] == 2);
    s.map = (struct file_map){0}; /* not a mapping */
    safetensors_close(&s);
    text_release(&t);
}

TEST(safetensors_of_whole_numbers_are_not_read_as_weights)
{
    struct text t = file_of("{\"n\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8);
    struct safetensors s;
    float out;
    CHECK_STATUS(OK, parse_bytes(&t, &s));
    CHECK_STATUS(UNSUPPORTED, safetensors_read_f32(&s, &s.tensors[0], &out));
    CHECK_MESSAGE("tensor n has dtype I64");
    CHECK_STATUS(UNSUPPORTED, safetensors_read_bf16(&s, &s.tensors[0], (uint16_t[]){0}));
    safetensors_close(&s);
    text_release(&t);
}

TEST(safetensors_bfloat16_rounds_to_nearest_and_ties_to_even)
{
    static const struct {
        uint32_t from;
        uint16_t to;
    } cases[] = {{0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81},
                 {0x3f818000, 0x3f82}, {0x3f817fff, 0x3f81}, {0xbf818000, 0xbf82},
                 {0x7f7fffff, 0x7f80}, {0x7f800001, 0x7fc0}, {0x80000000, 0x8000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float x;
        uint16_t got;
        memcpy(&x, &cases[i].from, sizeof x);
        safetensors_convert(&x, 1, SAFETENSORS_BF16, &got);
        CHECK(got == cases[i].to);
    }
}

TEST(safetensors_float16_rounds_to_nearest_and_ties_to_even)
{
    static const struct {
        float from;
        uint16_t to;
    } cases[] = {{1, 0x3c00},
                 {-2, 0xc000},
                 {65504, 0x7bff},
                 {65519, 0x7bff},
                 {65520, 0x7c00},
                 {1e9f, 0x7c00},
                 {0x1p-24f, 0x0001},
                 {0x1p-25f, 0x0000},
                 {0x1.8p-24f, 0x0002},
                 {0x1.8p-25f, 0x0001},
                 {-0x1p-14f, 0x8400},
                 {1 + 0x1p-11f, 0x3c00},
                 {1 + 0x3p-11f, 0x3c02},
                 {0x1.ffcp-15f, 0x0400},
                 {2 - 0x1p-12f, 0x4000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint16_t got;
        safetensors_convert(&cases[i].from, 1, SAFETENSORS_F16, &got);
        if (got != cases[i].to) print_error("case %zu: %04x\n", i, got);
        CHECK(got == cases[i].to);
    }
}

TEST(safetensors_that_are_not_there_are_missing)
{
    struct safetensors s;
    CHECK_STATUS(MISSING, safetensors_open(&s, test_path(test_folder(), "none.safetensors")));
    CHECK_STATUS(DATA, safetensors_open(&s, test_folder()));
}

TEST(safetensors_cut_off_at_any_byte_are_refused)
{
    struct text t = file_of("{" F32_AT("a", "[2]", 0, 8) "," F32_AT("b", "[1,1]", 8, 12) "}", 12);
    struct safetensors s;
    CHECK_STATUS(OK, parse_bytes(&t, &s));
    safetensors_close(&s);
    for (size_t len = 0; len < t.len; len++) {
        unsigned char *cut = heap(len); /* exactly so long, for the sanitizer */
        memcpy(cut, t.data, len);
        s = (struct safetensors){.path = heap_string("x.st", 4)};
        CHECK_STATUS(DATA, safetensors_parse(&s, cut, len));
        CHECK_MESSAGE("x.st: ");
        safetensors_close(&s);
        free(cut);
    }
    text_release(&t);
}
