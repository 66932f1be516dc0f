// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/tensor_reader.h"

#include "checkpoint/interop/model_files.h"
#include "checkpoint/rig.h"

#include <unistd.h>

TEST(tensor_reader_reads_any_run_in_either_dtype)
{
    struct saved s;
    struct model_files m;
    struct tensor_reader r;
    float got[7];
    bf16 half[7];
    saved_open(&s, false);
    const char *step = test_path(saved_folder(&s, STEPS(1)), "step-1");
    const struct tensor_slot *t = &s.layout.tensors[0];
    CHECK_STATUS(OK, model_files_open(&m, step));
    CHECK_STATUS(OK, model_files_open_tensor(&m, t, "model.embed_tokens.weight", &r));
    for (size_t first = t->elements - 7; first > 7; first -= 5) {
        CHECK_STATUS(OK, tensor_reader_read(&r, first, 7, F32, got));
        CHECK_STATUS(OK, tensor_reader_read(&r, first, 7, BF16, half));
        CHECK(!memcmp(got, s.weights + t->offset + first, sizeof got));
        for (int i = 0; i < 7; i++) CHECK(half[i] == bf16_from_f32(got[i]));
        if (first % 2) tensor_reader_close(&r);
    }
    tensor_reader_close(&r);
    model_files_close(&m);
    saved_close(&s);
}

TEST(a_checkpoint_truncated_while_it_is_read_fails_with_its_name)
{
    struct saved s;
    struct model_files m;
    struct tensor_reader r;
    float got[7];
    bf16 half[7];
    saved_open(&s, false);
    const char *step = test_path(saved_folder(&s, STEPS(1)), "step-1");
    const char *file = test_path(step, "model-00001-of-00001.safetensors");
    CHECK_STATUS(OK, model_files_open(&m, step));
    CHECK_STATUS(
        OK, model_files_open_tensor(&m, &s.layout.tensors[0], "model.embed_tokens.weight", &r));
    CHECK_STATUS(OK, tensor_reader_read(&r, 0, 7, F32, got));
    CHECK(!truncate(file, 0));
    CHECK_STATUS(DATA, tensor_reader_read(&r, 0, 7, F32, got));
    CHECK_MESSAGE("safetensors: the file was truncated from ");
    CHECK_STATUS(DATA, tensor_reader_read(&r, 0, 7, BF16, half));
    tensor_reader_close(&r);
    model_files_close(&m);
    saved_close(&s);
}
