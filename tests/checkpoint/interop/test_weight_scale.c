// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/weight_scale.h"

#include "checkpoint/interop/model_files.h"
#include "checkpoint/rig.h"

#include <math.h>

enum { ROWS = 131, COLUMNS = 257, BLOCK = 128 };
#define WEIGHT "model.layers.0.self_attn.q_proj.weight"

static float scale_at(size_t k) { return 0.25f + 0.5f * (float)(k % 7); }
static unsigned char byte_at(size_t i) { return (unsigned char)(i * 37 % 0x7F + (i & 1) * 0x80); }

/* Writes a folder with one weight in FP8 and its scales. */
static const char *write_model(const char *suffix, enum safetensors_dtype dtype, int num_dims,
                               int64_t rows, int64_t columns)
{
    struct safetensors_tensor t[2] = {
        {.name = (char *)(uintptr_t)WEIGHT,
         .dtype = dtype,
         .num_dims = 2,
         .shape = {ROWS, COLUMNS}},
        {.dtype = SAFETENSORS_F32, .num_dims = num_dims, .shape = {rows, columns}},
    };
    struct text bytes = {0}, name = {0};
    const char *folder = test_folder();
    uint64_t total;
    text_addf(&name, WEIGHT "%s", suffix);
    t[1].name = name.data;
    safetensors_build_header(t, 2, &bytes, &total);
    for (size_t i = 0; i < (size_t)ROWS * COLUMNS; i++)
        text_add(&bytes, &(unsigned char){byte_at(i)}, 1);
    for (uint64_t k = 0; k < t[1].elements; k++)
        text_add(&bytes, &(float){scale_at((size_t)k)}, sizeof(float));
    CHECK_STATUS(OK, file_write(test_path(folder, "model.safetensors"), bytes.data, bytes.len));
    text_release(&bytes), text_release(&name);
    return folder;
}

/* The definition of E4M3: exponent's bias 7, and no infinity. */
static float e4m3(unsigned char x)
{
    int exponent = x >> 3 & 15, mantissa = x & 7;
    double value = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
    return (float)(x & 0x80 ? -value : value);
}

/* Compares every element, read in runs that do not end at blocks, as f32 and as bf16. */
static void check_weight(const char *folder, size_t block_rows, size_t block_columns)
{
    enum { RUN = 613 };
    static float got[RUN];
    static bf16 half[RUN];
    struct model_files m;
    struct model_tensor t;
    size_t blocks = (COLUMNS + block_columns - 1) / block_columns, total = (size_t)ROWS * COLUMNS;
    CHECK_STATUS(OK, model_files_open(&m, folder));
    CHECK(model_files_named(&m, WEIGHT, &t));
    for (size_t at = 0, n; at < total; at += n) {
        n = total - at < RUN ? total - at : RUN;
        CHECK_STATUS(OK, tensor_reader_read(&t.reader, at, n, F32, got));
        CHECK_STATUS(OK, tensor_reader_read(&t.reader, at, n, BF16, half));
        for (size_t i = 0; i < n; i++) {
            size_t row = (at + i) / COLUMNS, column = (at + i) % COLUMNS;
            float scale = scale_at(row / block_rows * blocks + column / block_columns);
            float expected = e4m3(byte_at(at + i)) * scale;
            CHECK(!memcmp(&got[i], &expected, sizeof expected));
            CHECK(half[i] == bf16_from_f32(expected));
        }
    }
    tensor_reader_close(&t.reader);
    model_files_close(&m);
}

TEST(weights_in_fp8_are_multiplied_by_the_scale_of_their_tensor_row_or_block)
{
    const enum safetensors_dtype d = SAFETENSORS_F8_E4M3;
    check_weight(write_model("_scale", d, 0, 1, 1), ROWS, COLUMNS);
    check_weight(write_model("_scale", d, 1, 1, 1), ROWS, COLUMNS);
    check_weight(write_model("_scale", d, 1, ROWS, 1), 1, COLUMNS);
    check_weight(write_model("_scale", d, 2, ROWS, 1), 1, COLUMNS);
    check_weight(write_model("_scale", d, 2, 2, 3), BLOCK, BLOCK);
    check_weight(write_model("_scale_inv", d, 2, 2, 3), BLOCK, BLOCK);
}

TEST(weights_in_fp8_without_fitting_scales_are_rejected)
{
    static const struct {
        const char *suffix, *message;
        int num_dims;
        int64_t rows, columns;
    } rows[] = {
        {"_scale", "tensor " WEIGHT "_scale has shape [2, 2], which does not fit the weight's", 2,
         2, 2},
        {"_scale", "_scale has shape [257, 1]", 1, COLUMNS, 1},
        {"_scale_inv", "_scale_inv has shape [131, 257]", 2, ROWS, COLUMNS},
        {"_amax", "is F8_E4M3, but neither " WEIGHT "_scale nor " WEIGHT "_scale_inv exists", 1, 1,
         1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model_files m;
        struct model_tensor t;
        float x;
        CHECK_STATUS(
            OK, model_files_open(&m, write_model(rows[i].suffix, SAFETENSORS_F8_E4M3,
                                                 rows[i].num_dims, rows[i].rows, rows[i].columns)));
        CHECK(model_files_named(&m, WEIGHT, &t));
        CHECK_STATUS(DATA, model_files_open_scale(&m, &t.reader));
        CHECK_MESSAGE(rows[i].message);
        t.reader.scale.tensor = NULL;
        CHECK_STATUS(DATA, tensor_reader_read(&t.reader, 0, 1, F32, &x));
        CHECK_MESSAGE("its scales are missing or of another shape");
        model_files_close(&m);
    }
}

TEST(weights_in_fp8_have_at_most_two_dimensions)
{
    char name[] = "w", scale_name[] = "w_scale";
    const struct safetensors file = {.path = "model.safetensors"};
    const struct safetensors_tensor scale = {
        .name = scale_name, .dtype = SAFETENSORS_F32, .num_dims = 1, .shape = {1}, .elements = 1};
    const struct safetensors_tensor weight = {
        .name = name, .dtype = SAFETENSORS_F8_E4M3, .num_dims = 3, .shape = {1, 2, 3}};
    struct weight_scale s;
    CHECK_STATUS(UNSUPPORTED, weight_scale_open(&s, &weight, &file, &scale));
    CHECK_MESSAGE("tensor w: FP8 weights of 3 dimensions are not supported");
}

TEST(scales_are_recognized_by_their_names)
{
    size_t len;
    CHECK(weight_scale_is_name("a.weight_scale", &len) && len == 8);
    CHECK(weight_scale_is_name("a.weight_scale_inv", &len) && len == 8);
    CHECK(weight_scale_is_name("a.k_proj.input_scale", &len) && len == 0);
    CHECK(weight_scale_is_name("model.layers.0.self_attn.k_scale", &len) && len == 0);
    CHECK(!weight_scale_is_name("a.weight", &len) && !weight_scale_is_name("_scale", &len));
    CHECK(weight_scale_is_needed(SAFETENSORS_F8_E5M2) && !weight_scale_is_needed(SAFETENSORS_U8));
}

TEST(scales_are_not_weights_that_the_model_lacks)
{
    const struct model_shape shape = {.V = 9, .D = 8, .L = 1, .H = 2, .G = 2, .K = 4, .F = 12};
    struct layout layout;
    struct model_files m;
    layout_init(&layout, &shape, 1);
    CHECK_STATUS(OK, model_files_open(&m, write_model("_scale", SAFETENSORS_F8_E4M3, 1, 1, 1)));
    CHECK_STATUS(OK, model_files_check(&m, &layout, false));
    model_files_close(&m);
    /* the weight is not in FP8 */
    CHECK_STATUS(OK, model_files_open(&m, write_model("_scale", SAFETENSORS_U8, 1, 1, 1)));
    CHECK_STATUS(CONFIG, model_files_check(&m, &layout, false));
    CHECK_MESSAGE("the model has no tensor " WEIGHT "_scale");
    model_files_close(&m);
    CHECK_STATUS(OK, model_files_open(&m, write_model("_amax", SAFETENSORS_F8_E4M3, 1, 1, 1)));
    CHECK_STATUS(CONFIG, model_files_check(&m, &layout, false));
    model_files_close(&m);
    layout_release(&layout);
}
