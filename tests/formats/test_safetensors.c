// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "formats/safetensors.h"

/* A file image: length, header, and `data` zero bytes. */
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

/* The file must be rejected as DATA, with a message that has the file name and `why`. */
static void check_rejected(const char *header, size_t data, const char *why)
{
    CHECK_STATUS(DATA, parse(header, data));
    CHECK_MESSAGE("x.st");
    CHECK_MESSAGE(why);
}

#define F32_AT(name, shape, begin, end)                                                            \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

TEST(safetensors_may_have_no_tensors_or_empty_ones)
{
    CHECK_STATUS(OK, parse("{}", 0));
    CHECK_STATUS(OK, parse("{}      ", 0));
    CHECK_STATUS(OK, parse("{\"__metadata__\":{\"format\":\"pt\"}}", 0));
    CHECK_STATUS(OK, parse("{" F32_AT("a", "[0,7]", 0, 0) "," F32_AT("b", "[]", 0, 4) "}", 4));
    CHECK_STATUS(OK, parse("{" F32_AT("b", "[1]", 0, 4) "," F32_AT("a", "[0]", 4, 4) "}", 4));
}

TEST(safetensors_tensors_are_found_by_name_in_any_order)
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

TEST(safetensors_reject_a_header_longer_than_the_file)
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

TEST(safetensors_reject_a_header_that_is_not_an_object)
{
    check_rejected("[]", 0, "must begin with {");
    check_rejected(" {}", 0, "must begin with {");
    check_rejected("{", 0, "not valid JSON");
    check_rejected("{}x", 0, "trailing data");
    check_rejected("{\"a\":[1,2]}", 0, "tensor a: expected an object");
    check_rejected("{\"\xff\":{}}", 0, "not UTF-8");
    check_rejected("{\"a\":null}", 0, "expected an object");
}

TEST(safetensors_reject_a_deeply_nested_header)
{
    struct text deep = {0};
    text_adds(&deep, "{\"a\":");
    for (int i = 0; i < 200000; i++) text_adds(&deep, "[");
    CHECK_STATUS(DATA, parse(deep.data, 0));
    text_release(&deep);
}

TEST(safetensors_reject_holes_overlaps_and_trailing_bytes)
{
    check_rejected("{" F32_AT("a", "[1]", 4, 8) "}", 8, "tensor a starts at byte 4 of the data");
    check_rejected("{" F32_AT("a", "[1]", 0, 4) "," F32_AT("b", "[1]", 8, 12) "}", 12,
                   "tensor b starts at byte 8 of the data: expected 4");
    check_rejected("{" F32_AT("a", "[2]", 0, 8) "," F32_AT("b", "[1]", 4, 8) "}", 8,
                   "tensor b starts at byte 4 of the data: expected 8");
    check_rejected("{" F32_AT("a", "[2]", 0, 8) "," F32_AT("b", "[2]", 0, 8) "}", 8, "expected 8");
    check_rejected("{" F32_AT("a", "[1]", 0, 4) "}", 5, "5 bytes of data");
    check_rejected("{" F32_AT("a", "[1]", 0, 4) "}", 3, "3 bytes of data");
    check_rejected("{}", 1, "1 bytes of data");
}

TEST(safetensors_reject_offsets_that_are_not_two_ascending_integers)
{
    const char *const bad[] = {"[4,0]",     "[-4,0]",   "[0]",       "[0,4,4]",
                               "{\"a\":0}", "4",        "[0,\"4\"]", "[0,4.5]",
                               "[0,1e300]", "[null,4]", "null",      "[0,9007199254740994]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct text t = {0};
        text_addf(&t, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":%s}}", bad[i]);
        check_rejected(t.data, 4, "tensor a: \"data_offsets\" must be two ascending integers");
        text_release(&t);
    }
    check_rejected("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets");
}

TEST(safetensors_reject_invalid_shapes)
{
    const char *const bad[] = {"[4294967296,4294967296]", "[-1]",       "[1.5]", "[\"1\"]",
                               "[9007199254740994]",      "[1e400]",    "[[1]]", "[null]",
                               "[4611686018427387904,4]", "[1e15,1e15]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct text t = {0};
        text_addf(&t, "{\"a\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[0,4]}}", bad[i]);
        check_rejected(t.data, 4, "tensor a: invalid shape");
        text_release(&t);
    }
    check_rejected("{" F32_AT("a", "3", 0, 4) "}", 4, "\"shape\" must be an array");
    check_rejected("{" F32_AT("a", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "more than 8 dimensions");
    check_rejected("{" F32_AT("a", "[2]", 0, 4) "}", 4, "4 bytes do not match its shape");
    /* 2^62 elements of 8 bytes: the product overflows to 0. */
    check_rejected("{\"a\":{\"dtype\":\"F64\",\"shape\":[2147483648,2147483648],"
                   "\"data_offsets\":[0,0]}}",
                   0, "do not match its shape");
}

TEST(safetensors_reject_unknown_dtypes_by_name)
{
    CHECK_STATUS(UNSUPPORTED,
                 parse("{\"a\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1));
    CHECK_MESSAGE("x.st: tensor a: unknown dtype \"F4\"");
    check_rejected("{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
                   "\"dtype\" must be a string");
    check_rejected("{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor a: \"dtype\" must");
}

TEST(safetensors_reject_duplicate_names)
{
    check_rejected("{" F32_AT("a", "[1]", 0, 4) "," F32_AT("a", "[1]", 4, 8) "}", 8,
                   "duplicate key \"a\"");
    check_rejected("{" F32_AT("a", "[1]", 0, 4) "," F32_AT("\\u0061", "[1]", 4, 8) "}", 8,
                   "duplicate key \"a\"");
}

TEST(safetensors_metadata_values_must_be_strings)
{
    check_rejected("{\"__metadata__\":[]}", 0, "__metadata__ must be an object");
    check_rejected("{\"__metadata__\":{\"a\":1}}", 0, "values must be strings");
    check_rejected("{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0, "values must be strings");
}

TEST(safetensors_dtypes_have_names_and_sizes)
{
    enum safetensors_dtype d;
    CHECK(safetensors_dtype_find("BF16", &d) && d == SAFETENSORS_BF16);
    CHECK(safetensors_dtype_bytes(d) == 2 && !strcmp(safetensors_dtype_name(d), "BF16"));
    CHECK(safetensors_dtype_find("I64", &d) && safetensors_dtype_bytes(d) == 8);
    CHECK(safetensors_dtype_find("F8_E4M3", &d) && safetensors_dtype_bytes(d) == 1);
    CHECK(!safetensors_dtype_find("f32", &d) && !safetensors_dtype_find("", &d));
}

TEST(safetensors_decode_every_fp8_value)
{
    for (int i = 0; i < 128; i++) {
        unsigned char bytes[2] = {(unsigned char)i, (unsigned char)(i | 0x80)};
        float got[2];
        int exponent = i >> 3, mantissa = i & 7;
        double value = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
        safetensors_to_f32(SAFETENSORS_F8_E4M3, bytes, 2, got);
        if (i == 0x7F)
            CHECK(isnan(got[0]) && isnan(got[1]));
        else
            CHECK(got[0] == value && got[1] == -value && signbit(got[1]));
        exponent = i >> 2, mantissa = i & 3;
        value = exponent ? ldexp(4 + mantissa, exponent - 17) : ldexp(mantissa, -16);
        if (exponent == 31) value = mantissa ? (double)NAN : (double)INFINITY;
        safetensors_to_f32(SAFETENSORS_F8_E5M2, bytes, 2, got);
        if (exponent == 31 && mantissa)
            CHECK(isnan(got[0]) && isnan(got[1]));
        else
            CHECK(got[0] == value && got[1] == -value && signbit(got[1]));
    }
}

/* Writes a file with one tensor, and reads it back as f32 and as bf16. */
static void read_back_both(enum safetensors_dtype dtype, const void *bytes, size_t n, float *out,
                           uint16_t *brain)
{
    struct safetensors_tensor t = {.name = (char *)(uintptr_t) "w", .dtype = dtype, .num_dims = 1};
    struct text file = {0};
    struct safetensors s;
    const char *path = test_path(test_folder(), "one.safetensors");
    uint64_t total;
    t.shape[0] = (int64_t)n;
    safetensors_build_header(&t, 1, &file, &total);
    CHECK(file.len % 8 == 0 && total == n * safetensors_dtype_bytes(dtype));
    text_add(&file, bytes, total);
    CHECK_STATUS(OK, file_write(path, file.data, file.len));
    CHECK_STATUS(OK, safetensors_open(&s, path));
    CHECK(s.count == 1 && s.tensors[0].dtype == dtype && s.data % 8 == 0);
    if (out) CHECK_STATUS(OK, safetensors_read_part(&s, &s.tensors[0], 0, n, out));
    if (brain) CHECK_STATUS(OK, safetensors_read_part_bf16(&s, &s.tensors[0], 0, n, brain));
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

TEST(safetensors_read_every_float_dtype_as_f32)
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

TEST(safetensors_read_part_bf16_rounds_f32_and_copies_bf16)
{
    enum { N = 10001 }; /* more than one batch of the conversion */
    static const uint16_t brain[] = {0x3f80, 0xc020, 0x0001, 0x7f81}, half[] = {0x3c00, 0xc100};
    float *x = heap(N * sizeof *x);
    uint16_t *got = heap(N * sizeof *got), want;
    for (int i = 0; i < N; i++) x[i] = (float)(i - 5000) * 0.37f;
    read_back_both(SAFETENSORS_F32, x, N, NULL, got);
    for (int i = 0; i < N; i++) {
        safetensors_from_f32(&x[i], 1, SAFETENSORS_BF16, &want);
        CHECK(got[i] == want);
    }
    read_back_both(SAFETENSORS_BF16, brain, 4, NULL, got);
    CHECK(!memcmp(got, brain, sizeof brain)); /* including a NaN's payload */
    read_back_both(SAFETENSORS_F16, half, 2, NULL, got);
    CHECK(got[0] == 0x3f80 && got[1] == 0xc020);
    free(x), free(got);
}

TEST(safetensors_split_a_tensor_into_rows)
{
    struct text t = file_of("{" F32_AT("m", "[3,2]", 0, 24) "," F32_AT("s", "[]", 24, 28) "}", 28);
    static const struct safetensors_part m[] = {{"z", 0, 2}, {"a", 2, 1}};
    static const struct safetensors_part twice[] = {{"s1", 0, 0}, {"s2", 0, 0}};
    static const struct safetensors_part same[] = {{"b", 0, 1}, {"b", 1, 1}};
    struct safetensors s;
    CHECK_STATUS(OK, parse_bytes(&t, &s));
    safetensors_split(&s, 0, m, 2);
    safetensors_split(&s, 1, twice, 2);
    CHECK_STATUS(OK, safetensors_index(&s));
    const struct safetensors_tensor *a = safetensors_find(&s, "a"), *z = safetensors_find(&s, "z");
    CHECK(s.count == 4 && !safetensors_find(&s, "m") && !safetensors_find(&s, "s"));
    CHECK(z && z->begin == 0 && z->end == 16 && z->elements == 4 && z->shape[0] == 2);
    CHECK(a && a->begin == 16 && a->end == 24 && a->elements == 2 && a->shape[1] == 2);
    CHECK(safetensors_find(&s, "s1")->begin == 24 && safetensors_find(&s, "s2")->elements == 1);
    safetensors_split(&s, 0, same, 2);
    CHECK_STATUS(DATA, safetensors_index(&s));
    CHECK_MESSAGE("duplicate tensor b");
    safetensors_close(&s);
    text_release(&t);
}

TEST(safetensors_read_part_of_a_tensor)
{
    static const uint16_t half[] = {0x3c00, 0x4000, 0x4200, 0x4400};
    struct text t = file_of("{\"n\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]}}", 8);
    struct safetensors s;
    float out[3] = {0, 0, -7};
    memcpy(t.data + t.len - sizeof half, half, sizeof half);
    CHECK_STATUS(OK, parse_bytes(&t, &s));
    s.map = (struct file_map){.data = (const unsigned char *)t.data, .size = t.len};
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

TEST(safetensors_do_not_read_integers_as_weights)
{
    struct text t = file_of("{\"n\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8);
    struct safetensors s;
    float out;
    CHECK_STATUS(OK, parse_bytes(&t, &s));
    CHECK_STATUS(UNSUPPORTED, safetensors_read_part(&s, &s.tensors[0], 0, 1, &out));
    CHECK_MESSAGE("tensor n: dtype I64 is not supported");
    CHECK_STATUS(UNSUPPORTED, safetensors_read_part_bf16(&s, &s.tensors[0], 0, 1, (uint16_t[]){0}));
    safetensors_close(&s);
    text_release(&t);
}

TEST(safetensors_bf16_rounds_to_nearest_even)
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
        safetensors_from_f32(&x, 1, SAFETENSORS_BF16, &got);
        CHECK(got == cases[i].to);
    }
}

TEST(safetensors_f16_rounds_to_nearest_even)
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
        safetensors_from_f32(&cases[i].from, 1, SAFETENSORS_F16, &got);
        if (got != cases[i].to) print_error("case %zu: %04x\n", i, got);
        CHECK(got == cases[i].to);
    }
}

TEST(a_safetensors_file_that_does_not_exist_is_missing)
{
    struct safetensors s;
    CHECK_STATUS(MISSING, safetensors_open(&s, test_path(test_folder(), "none.safetensors")));
    CHECK_STATUS(DATA, safetensors_open(&s, test_folder()));
}

TEST(truncated_safetensors_are_rejected)
{
    struct text t = file_of("{" F32_AT("a", "[2]", 0, 8) "," F32_AT("b", "[1,1]", 8, 12) "}", 12);
    struct safetensors s;
    CHECK_STATUS(OK, parse_bytes(&t, &s));
    safetensors_close(&s);
    for (size_t len = 0; len < t.len; len++) {
        unsigned char *cut =
            heap(len); /* an exact allocation, so that ASan detects reads past the end */
        memcpy(cut, t.data, len);
        s = (struct safetensors){.path = heap_string("x.st", 4)};
        CHECK_STATUS(DATA, safetensors_parse(&s, cut, len));
        CHECK_MESSAGE("x.st: ");
        safetensors_close(&s);
        free(cut);
    }
    text_release(&t);
}

TEST(safetensors_reject_more_tensors_than_any_model_has)
{
    struct text many = {0};
    text_adds(&many, "{");
    for (int i = 0; i < 140000; i++) text_addf(&many, "%s\"%d\":{}", i ? "," : "", i);
    text_adds(&many, "}");
    check_rejected(many.data, 0, "140001 objects: at most 131072 tensors");
    text_release(&many);
}
