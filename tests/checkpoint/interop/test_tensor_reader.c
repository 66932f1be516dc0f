// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/tensor_reader.h"

#include "checkpoint/interop/model_files.h"
#include "checkpoint/rig.h"

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
