// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/sharding.h"

#include "formats/safetensors.h"

static const char embed[] = "model.embed_tokens.weight";

/* Makes an element of the embedding NaN, and lists the new checksums in the manifest. */
static void set_nan(const char *step, size_t element)
{
    static const char name[] = "model-00001-of-00001.safetensors";
    const char *path = test_path(step, name);
    struct manifest m = {.folder = step, .step = 1};
    struct safetensors s;
    struct file_list names;
    struct text bytes = {0};
    CHECK_STATUS(OK, safetensors_open(&s, path));
    const struct safetensors_tensor *t = safetensors_find(&s, embed);
    size_t each = safetensors_dtype_bytes(t->dtype), at = s.data + t->begin + element * each;
    safetensors_close(&s);
    CHECK_STATUS(OK, file_read(path, UINT64_MAX, &bytes));
    memset(bytes.data + at, 0xff, each);
    CHECK_STATUS(OK, file_write(path, bytes.data, bytes.len));
    text_release(&bytes);
    CHECK_STATUS(OK, manifest_list(step, &names));
    for (size_t i = 0; i < names.count; i++)
        CHECK_STATUS(OK, manifest_add_existing(&m, names.paths[i]));
    CHECK_STATUS(OK, manifest_finish(&m));
    manifest_release(&m);
    file_list_release(&names);
}

/* F16 is converted before it is checked. */
TEST(verify_names_the_first_bad_value_of_a_tensor_in_any_dtype)
{
    static const enum safetensors_dtype dtypes[] = {SAFETENSORS_F32, SAFETENSORS_BF16,
                                                    SAFETENSORS_F16};
    const struct model_shape shape = sharding_shape(true);
    struct saved s;
    saved_open_shape(&s, &shape);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        const char *folder = test_path(test_folder(), "checkpoint");
        const char *step = test_path(folder, "step-1");
        struct checkpointer *c = checkpointer_of(folder, 0);
        struct checkpoint_state state = saved_state(&s, 1);
        state.exp_avg = state.exp_avg_sq = NULL, state.dtype = dtypes[i];
        CHECK_STATUS(OK, checkpointer_save(c, &state));
        CHECK_STATUS(OK, checkpointer_close(c, false));
        CHECK_STATUS(OK, checkpoint_verify(step));
        CHECK_STATUS(OK, checkpoint_check_values(step, false));
        set_nan(step, 190000);
        CHECK_STATUS(DATA, checkpoint_verify(step));
        CHECK_MESSAGE("tensor model.embed_tokens.weight: element 190000 is nan");
        set_nan(step, 7001);
        CHECK_STATUS(DATA, checkpoint_verify(step));
        CHECK_MESSAGE("tensor model.embed_tokens.weight: element 7001 is nan");
        CHECK_STATUS(DATA, checkpoint_check_values(step, false));
        CHECK_MESSAGE("tensor model.embed_tokens.weight: element 7001 is nan");
        CHECK_STATUS(OK, file_remove_tree(folder));
    }
    saved_close(&s);
}

TEST(verify_reports_a_checksum_before_a_bad_value)
{
    const struct model_shape shape = sharding_shape(false);
    struct saved s;
    saved_open_shape(&s, &shape);
    const char *step = test_path(saved_folder(&s, STEPS(1)), "step-1");
    set_nan(step, 7001);
    flip(test_path(step, "optimizer-00001-of-00001.safetensors"), 2 * MANIFEST_CHUNK + 99, 1);
    CHECK_STATUS(DATA, checkpoint_verify(step));
    CHECK_MESSAGE("checksum mismatch in bytes 2097152 to 3145728");
    saved_close(&s);
}
