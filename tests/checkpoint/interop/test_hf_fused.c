// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/hf_fused.h"

#include "checkpoint/interop/model_files.h"
#include "checkpoint/interop/pytorch_bin.h"
#include "checkpoint/rig.h"
#include "formats/torch_writer.h"

#include <fcntl.h>
#include <unistd.h>

/* 512 rows of q, 128 of k and of v; 256 of gate and of up. */
static const struct model_shape shape = {.H = 8, .G = 2, .K = 64, .F = 256};

#define LAYER "model.layers.7."

static bool is_part(const struct hf_fused_split *s, int i, const char *name, int64_t row,
                    int64_t rows)
{
    return !strcmp(s->parts[i].name, name) && s->parts[i].row == row && s->parts[i].rows == rows;
}

TEST(fused_matrices_are_split_into_their_parts)
{
    struct hf_fused_split s;
    CHECK_STATUS(OK, hf_fused_split(&s, LAYER "self_attn.qkv_proj.weight", 768, &shape));
    CHECK(s.count == 3 && is_part(&s, 0, LAYER "self_attn.q_proj.weight", 0, 512));
    CHECK(is_part(&s, 1, LAYER "self_attn.k_proj.weight", 512, 128));
    CHECK(is_part(&s, 2, LAYER "self_attn.v_proj.weight", 640, 128));
    hf_fused_split_release(&s);
    CHECK_STATUS(OK, hf_fused_split(&s, LAYER "mlp.gate_up_proj.weight", 512, &shape));
    CHECK(s.count == 2 && is_part(&s, 0, LAYER "mlp.gate_proj.weight", 0, 256));
    CHECK(is_part(&s, 1, LAYER "mlp.up_proj.weight", 256, 256));
    hf_fused_split_release(&s);
    CHECK_STATUS(OK, hf_fused_split(&s, LAYER "self_attn.q_proj.weight", 512, &shape));
    CHECK(s.count == 0);
    CHECK_STATUS(CONFIG, hf_fused_split(&s, LAYER "mlp.gate_up_proj.weight", 511, &shape));
    CHECK_MESSAGE("gate_up_proj.weight has 511 rows, expected 512: set model.ffn_hidden to fit");
    hf_fused_split_release(&s);
}

TEST(scales_of_fused_matrices_are_split_with_them)
{
    const char *name = LAYER "self_attn.qkv_proj.weight_scale";
    static const int64_t rows[] = {0, 1, 6, 768}; /* of the tensor, of blocks, of each row */
    static const int64_t parts[][3] = {{0, 0, 0}, {1, 1, 1}, {4, 1, 1}, {512, 128, 128}};
    struct hf_fused_split s;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK_STATUS(OK, hf_fused_split(&s, name, rows[i], &shape));
        for (int k = 0; k < 3; k++) CHECK(s.parts[k].rows == parts[i][k]);
        CHECK(s.parts[2].row == (rows[i] < 2 ? 0 : rows[i] - parts[i][2]));
        hf_fused_split_release(&s);
    }
    CHECK_STATUS(DATA, hf_fused_split(&s, name, 3, &shape));
    CHECK_MESSAGE("has 3 rows, which cannot be divided");
    hf_fused_split_release(&s);
    const struct model_shape odd = {.H = 9, .G = 3, .K = 64, .F = 256}; /* 576, 192, 192 rows */
    CHECK_STATUS(DATA, hf_fused_split(&s, LAYER "mlp.gate_up_proj.weight_scale", 7, &odd));
    hf_fused_split_release(&s);
}

TEST(fused_matrices_have_the_names_of_phi3)
{
    char name[96] = LAYER "self_attn.q_proj.weight", other[96] = LAYER "mlp.down_proj.weight";
    hf_fused_rename(PARAM_attn_q, name, sizeof name);
    CHECK(!strcmp(name, LAYER "self_attn.qkv_proj.weight"));
    hf_fused_rename(PARAM_mlp_down, other, sizeof other);
    CHECK(!strcmp(other, LAYER "mlp.down_proj.weight"));
    CHECK(hf_fused_count(PARAM_attn_q) == 3 && hf_fused_count(PARAM_mlp_gate) == 2);
    CHECK(hf_fused_count(PARAM_attn_k) == 1 && hf_fused_count(PARAM_mlp_down) == 1);
}

enum { COLUMNS = 5, ROWS = 8 + 4 + 4 };
static const struct model_shape small = {.H = 4, .G = 2, .K = 2, .F = 3};
static char fused_name[] = "model.layers.0.self_attn.qkv_proj.weight";

/* A fused matrix of the numbers 0, 1, ... */
static void fill_numbers(float *x)
{
    for (int i = 0; i < ROWS * COLUMNS; i++) x[i] = (float)i;
}

/* Compares rows [row, row + rows) of the matrix with the tensor. */
static void check_rows(const struct model_files *m, const char *name, int row, int rows)
{
    float got[ROWS * COLUMNS];
    struct model_tensor t;
    CHECK(model_files_named(m, name, &t) && t.is.shape[0] == rows && t.is.shape[1] == COLUMNS);
    CHECK_STATUS(OK, tensor_reader_read(&t.reader, 0, (size_t)(rows * COLUMNS), F32, got));
    for (int i = 0; i < rows * COLUMNS; i++) CHECK(got[i] == (float)(row * COLUMNS + i));
    tensor_reader_close(&t.reader);
}

static void check_parts(const char *folder)
{
    struct model_files m;
    struct model_shape other = small;
    CHECK_STATUS(OK, model_files_open_any(&m, folder, &small));
    CHECK(model_files_num_tensors(&m) == 3);
    check_rows(&m, "model.layers.0.self_attn.q_proj.weight", 0, 8);
    check_rows(&m, "model.layers.0.self_attn.k_proj.weight", 8, 4);
    check_rows(&m, "model.layers.0.self_attn.v_proj.weight", 12, 4);
    model_files_close(&m);
    other.G = 1;
    CHECK_STATUS(CONFIG, model_files_open_any(&m, folder, &other));
    CHECK_MESSAGE("qkv_proj.weight has 16 rows, expected 12: set model.n_heads, model.n_kv_heads");
}

TEST(fused_matrices_of_safetensors_are_read_as_their_parts)
{
    const char *folder = test_folder();
    struct safetensors_tensor t = {
        .name = fused_name, .dtype = SAFETENSORS_F32, .num_dims = 2, .shape = {ROWS, COLUMNS}};
    struct text bytes = {0};
    uint64_t total;
    float x[ROWS * COLUMNS];
    fill_numbers(x);
    safetensors_build_header(&t, 1, &bytes, &total);
    text_add(&bytes, (const char *)x, sizeof x);
    CHECK_STATUS(OK, file_write(test_path(folder, "model.safetensors"), bytes.data, bytes.len));
    text_release(&bytes);
    check_parts(folder);
}

TEST(fused_matrices_of_pytorch_bin_are_read_as_their_parts)
{
    const char *folder = test_folder(), *path = test_path(folder, "pytorch_model.bin");
    const struct torch_tensor t = {.name = fused_name,
                                   .dtype = SAFETENSORS_F32,
                                   .num_dims = 2,
                                   .shape = {ROWS, COLUMNS},
                                   .strides = {COLUMNS, 1}};
    struct torch_writer w;
    uint64_t size;
    float x[ROWS * COLUMNS];
    int fd = open(path, O_WRONLY | O_CREAT, 0666);
    fill_numbers(x);
    CHECK_STATUS(OK, torch_writer_open(&w, fd, path, 0, &t, 1));
    CHECK_STATUS(OK, torch_writer_put(&w, x, sizeof x));
    CHECK_STATUS(OK, torch_writer_close(&w, &size));
    torch_writer_release(&w);
    close(fd);
    check_parts(folder);
}

/* Of a scale for each row, each part reads its own. */
TEST(fused_matrices_in_fp8_are_multiplied_by_the_scales_of_their_rows)
{
    const char *folder = test_folder();
    char scale_name[] = "model.layers.0.self_attn.qkv_proj.weight_scale";
    struct safetensors_tensor t[] = {
        {.name = fused_name, .dtype = SAFETENSORS_F8_E4M3, .num_dims = 2, .shape = {ROWS, COLUMNS}},
        {.name = scale_name, .dtype = SAFETENSORS_F32, .num_dims = 2, .shape = {ROWS, 1}}};
    struct text bytes = {0};
    struct model_files m;
    struct model_tensor k;
    uint64_t total;
    float got[4 * COLUMNS];
    safetensors_build_header(t, 2, &bytes, &total);
    for (int i = 0; i < ROWS * COLUMNS; i++) text_add(&bytes, "\x38", 1); /* 1 */
    for (int i = 0; i < ROWS; i++) text_add(&bytes, (const char *)&(float){(float)i}, 4);
    CHECK_STATUS(OK, file_write(test_path(folder, "model.safetensors"), bytes.data, bytes.len));
    text_release(&bytes);
    CHECK_STATUS(OK, model_files_open_any(&m, folder, &small));
    CHECK(model_files_named(&m, "model.layers.0.self_attn.k_proj.weight", &k));
    CHECK_STATUS(OK, tensor_reader_read(&k.reader, 0, 4 * COLUMNS, F32, got));
    for (int i = 0; i < 4 * COLUMNS; i++) CHECK(got[i] == (float)(8 + i / COLUMNS));
    tensor_reader_close(&k.reader);
    model_files_close(&m);
}
