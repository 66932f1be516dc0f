// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/interop/dcp.h"
#include "test.h"

#include <unistd.h>

/* Saved by torch itself on two ranks: a model (tests/oracle/dcp_folder.py), and a smaller one with
 * its AdamW (tests/oracle/dcp_state.py). */
#define DCP "tests/checkpoint/data/dcp"
#define RUN "tests/checkpoint/data/dcp-state"

static const char *copy_of(const char *from)
{
    static const char *const names[] = {".metadata", "__0_0.distcp", "__1_0.distcp"};
    const char *folder = test_folder();
    struct text t = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK_STATUS(OK, file_read(test_path(from, names[i]), 1 << 20, &t));
        CHECK_STATUS(OK, file_write(test_path(folder, names[i]), t.data, t.len));
    }
    text_release(&t);
    return folder;
}

static const char *copy_dcp(void) { return copy_of(DCP); }

/* Without fsync: called often. */
static void write_file(const char *path, const char *bytes, size_t len)
{
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, len, f) == len && !fclose(f));
}

TEST(dcp_directory_has_the_tensors_its_ranks_saved)
{
    const struct tensor_name q = {PARAM_attn_q, 1, TENSOR_WEIGHT}, no = {PARAM_attn_q, 2, 0};
    struct tensor_slices p;
    CHECK(dcp_detect(DCP) && !dcp_detect("tests/checkpoint/data/tied"));
    CHECK_STATUS(OK, dcp_open(&p, DCP, NULL));
    const struct sliced_tensor *t = tensor_slices_find(&p, &q);
    CHECK(p.count == 21 && p.num_maps == 2 && t && t->rows == 16 && t->columns == 16);
    CHECK(t->count == 2 && t->all[0].dtype == SAFETENSORS_BF16 && !tensor_slices_find(&p, &no));
    tensor_slices_release(&p);
}

TEST(dcp_metadata_truncated_at_any_byte_is_rejected)
{
    const char *folder = copy_dcp(), *path = test_path(folder, ".metadata");
    struct text t = {0};
    struct tensor_slices p;
    CHECK_STATUS(OK, file_read(path, 1 << 20, &t));
    for (size_t len = t.len; len-- > 0;) {
        CHECK(!truncate(path, (off_t)len));
        CHECK_STATUS(DATA, dcp_open(&p, folder, NULL));
        CHECK_MESSAGE(".metadata");
    }
    text_release(&t);
}

TEST(corrupt_dcp_metadata_never_reads_outside_the_files)
{
    const char *folder = copy_dcp(), *path = test_path(folder, ".metadata");
    struct text t = {0};
    CHECK_STATUS(OK, file_read(path, 1 << 20, &t));
    for (size_t i = 0; i < t.len; i += 5) {
        struct tensor_slices p;
        t.data[i] ^= 1;
        write_file(path, t.data, t.len);
        t.data[i] ^= 1;
        if (dcp_open(&p, folder, NULL)) continue;
        for (size_t k = 0; k < p.count; k++) {
            const struct sliced_tensor *one = &p.tensors[k];
            size_t elements = (size_t)(one->rows * one->columns);
            float *room = heap((elements ? elements : 1) * sizeof *room);
            enum status st = tensor_slices_read(&p, one, 0, elements, room);
            CHECK(!st || st == STATUS_DATA);
            free(room);
        }
        tensor_slices_release(&p);
    }
    text_release(&t);
}

TEST(truncated_or_missing_distcp_files_are_rejected)
{
    const char *folder = copy_dcp(), *path = test_path(folder, "__1_0.distcp");
    struct text t = {0};
    struct tensor_slices p;
    CHECK_STATUS(OK, file_read(path, 1 << 20, &t));
    for (size_t len = 0; len < t.len; len += 499) {
        CHECK_STATUS(OK, file_write(path, t.data, len));
        CHECK_STATUS(DATA, dcp_open(&p, folder, NULL));
    }
    CHECK_STATUS(OK, file_remove_tree(path));
    CHECK_STATUS(MISSING, dcp_open(&p, folder, NULL));
    CHECK_MESSAGE("__1_0.distcp");
    text_release(&t);
}

TEST(dcp_metadata_with_a_path_or_a_function_is_rejected)
{
    const char *folder = copy_dcp(), *path = test_path(folder, ".metadata");
    struct text t = {0};
    struct tensor_slices p;
    CHECK_STATUS(OK, file_read(path, 1 << 20, &t));
    char *name = memmem(t.data, t.len, "__0_0.distcp", 12);
    CHECK(name);
    memcpy(name, "../__0.distc", 12);
    CHECK_STATUS(OK, file_write(path, t.data, t.len));
    CHECK_STATUS(DATA, dcp_open(&p, folder, NULL));
    CHECK_MESSAGE("names a file outside the folder");
    CHECK_STATUS(OK, file_write(path, "\x80\2cos\nsystem\n.", 14));
    CHECK_STATUS(DATA, dcp_open(&p, folder, NULL));
    CHECK_MESSAGE("global os.system");
    text_release(&t);
}

/* Compares with torch's values, in Hugging Face's row order. */
static void check_values(const struct tensor_slices *p, const struct json *root, const char *key,
                         struct tensor_name name)
{
    const struct sliced_tensor *t = tensor_slices_find(p, &name);
    const struct json *want = json_get(root, key), *v = json_first(want);
    float got[128];
    CHECK(t && json_count(want) == (size_t)(t->rows * t->columns) && json_count(want) <= 128);
    CHECK_STATUS(OK, tensor_slices_read(p, t, 0, json_count(want), got));
    for (size_t i = 0; v; v = json_next(v), i++) CHECK(got[i] == (float)json_number(v));
}

TEST(dcp_moments_and_steps_match_torch)
{
    const struct model_shape shape = {.V = 11, .D = 8, .L = 1, .H = 2, .G = 1, .K = 4, .F = 8};
    struct tensor_slices weights, moments;
    struct torch_state state;
    struct json *root;
    CHECK_STATUS(OK, json_read(RUN "/expected.json", 1 << 20, &root));
    CHECK_STATUS(OK, dcp_open(&weights, RUN, &shape));
    CHECK_STATUS(OK, dcp_open_moments(&moments, RUN, &shape, &state));
    CHECK(weights.count == 12 && moments.count == 24);
    CHECK(state.step == 3 && state.optimizer_step == 3 && state.schedule_step == 3);
    CHECK(state.tokens_seen == (int64_t)json_number(json_get(root, "tokens_seen")));
    CHECK(state.has_data && !state.has_losses && !state.train.len);
    check_values(&weights, root, "model.layers.0.self_attn.q_proj.weight",
                 (struct tensor_name){PARAM_attn_q, 0, TENSOR_WEIGHT});
    check_values(&moments, root, "model.layers.0.self_attn.q_proj.weight.exp_avg",
                 (struct tensor_name){PARAM_attn_q, 0, TENSOR_EXP_AVG});
    check_values(&moments, root, "model.layers.0.self_attn.k_proj.weight.exp_avg_sq",
                 (struct tensor_name){PARAM_attn_k, 0, TENSOR_EXP_AVG_SQ});
    check_values(&moments, root, "model.norm.weight.exp_avg",
                 (struct tensor_name){PARAM_last_norm, -1, TENSOR_EXP_AVG});
    check_values(&moments, root, "lm_head.weight.exp_avg_sq",
                 (struct tensor_name){PARAM_head, -1, TENSOR_EXP_AVG_SQ});
    tensor_slices_release(&weights), tensor_slices_release(&moments);
    torch_state_release(&state);
    json_free(root);
}

TEST(dcp_of_only_a_model_has_no_moments)
{
    struct tensor_slices p;
    struct torch_state state;
    CHECK_STATUS(OK, dcp_open_moments(&p, DCP, NULL, &state));
    CHECK(p.count == 0 && state.step == -1 && state.tokens_seen == -1);
    tensor_slices_release(&p);
    torch_state_release(&state);
}

TEST(corrupt_dcp_metadata_of_moments_is_rejected_or_stays_in_bounds)
{
    const char *folder = copy_of(RUN), *path = test_path(folder, ".metadata");
    struct text t = {0};
    struct tensor_slices p;
    struct torch_state state;
    CHECK_STATUS(OK, file_read(path, 1 << 20, &t));
    for (size_t len = 0; len < t.len; len += len < 64 || len + 64 > t.len ? 1 : 37) {
        write_file(path, t.data, len);
        CHECK_STATUS(DATA, dcp_open_moments(&p, folder, NULL, &state));
        CHECK_MESSAGE(".metadata");
        torch_state_release(&state);
    }
    for (size_t i = 0; i < t.len; i += 53) {
        t.data[i] ^= 1;
        write_file(path, t.data, t.len);
        t.data[i] ^= 1;
        if (!dcp_open_moments(&p, folder, NULL, &state)) {
            for (size_t k = 0; k < p.count; k++) {
                size_t elements = (size_t)(p.tensors[k].rows * p.tensors[k].columns);
                float *room = heap((elements + 1) * sizeof *room);
                tensor_slices_read(&p, &p.tensors[k], 0, elements, room);
                free(room);
            }
            tensor_slices_release(&p);
        }
        torch_state_release(&state);
    }
    text_release(&t);
}
