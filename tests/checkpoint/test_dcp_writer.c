// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/convert.h"
#include "checkpoint/dcp.h"
#include "checkpoint/dcp_writer.h"
#include "checkpoint/rig.h"

static enum status convert(const char *from, const char *to, enum conversion_target target,
                           uint64_t shard_bytes)
{
    struct converted done;
    struct conversion c = {
        .from = from, .to = to, .target = target, .keep_dtype = true, .shard_bytes = shard_bytes};
    return checkpoint_convert(&c, &done);
}

static const char *step_of(struct saved *s)
{
    return test_path(saved_folder(s, STEPS(4)), "step-4");
}

TEST(a_run_goes_to_a_directory_of_torch_and_back_without_a_bit_changed)
{
    for (int tied = 0; tied < 2; tied++) {
        struct saved s;
        const char *folder = test_folder(), *dcp = test_path(folder, "dcp");
        saved_open(&s, tied);
        CHECK_STATUS(OK, convert(step_of(&s), dcp, CONVERT_DCP, 0));
        CHECK(dcp_is_here(dcp) && file_exists(test_path(dcp, "config.json")));
        CHECK(!file_exists(test_path(dcp, "__0_1.distcp")));
        CHECK_STATUS(OK, convert(dcp, test_path(folder, "run"), CONVERT_NATIVE, 0));
        CHECK_STATUS(OK, convert(dcp, test_path(folder, "hf"), CONVERT_HF, 0));
        CHECK_STATUS(OK, convert(dcp, test_path(folder, "again"), CONVERT_DCP, 2000));
        const char *back[] = {dcp, test_path(folder, "run/checkpoint/step-0"),
                              test_path(folder, "hf"), test_path(folder, "again")};
        for (size_t i = 0; i < sizeof back / sizeof *back; i++) {
            struct loaded_state l;
            CHECK_STATUS(OK, load_into(&l, &s, back[i]));
            CHECK(same_tensors(&s.layout, l.buffers[0], s.weights) && !l.found.has_moments);
            loaded_release(&l);
        }
        saved_close(&s);
    }
}

static bool says(const struct text *t, const char *name)
{
    return memmem(t->data, t->len, name, strlen(name)) != NULL;
}

TEST(a_directory_of_torch_has_todays_names_and_files_of_the_size_that_is_asked_for)
{
    enum { MOST = 5000 };
    struct saved s;
    struct patches p;
    struct text t = {0};
    const char *dcp = test_path(test_folder(), "dcp");
    saved_open(&s, false);
    CHECK_STATUS(OK, convert(step_of(&s), dcp, CONVERT_DCP, MOST));
    CHECK_STATUS(OK, file_read(test_path(dcp, ".metadata"), 1 << 20, &t));
    CHECK(says(&t, "layers.1.attention.qkv_linear.wk.weight") && says(&t, "lm_head.weight"));
    CHECK(says(&t, "layers.0.attention.wo.weight") && says(&t, "tok_embeddings.weight"));
    CHECK(!says(&t, "attention.wq.weight") && !says(&t, "output.weight"));
    CHECK_STATUS(OK, dcp_open(&p, dcp, &s.shape));
    CHECK(p.count == (size_t)s.layout.num_tensors && p.num_maps > 1);
    for (size_t i = 0; i < p.count; i++) {
        const struct patch *one = p.tensors[i].all;
        uint64_t bytes = (uint64_t)(p.tensors[i].rows * p.tensors[i].columns) * 4;
        CHECK(p.tensors[i].count == 1 && one->dtype == SAFETENSORS_F32);
        /* its archive and the headers of that are more than the numbers alone */
        CHECK(one->map->size <= MOST + 2000 || one->map->size <= bytes + 2000);
    }
    patches_release(&p);
    text_release(&t);
    saved_close(&s);
}

TEST(a_directory_of_torch_is_not_written_over_another_or_where_no_folder_is)
{
    struct saved s;
    const char *folder = test_folder(), *dcp = test_path(folder, "dcp");
    saved_open(&s, true);
    CHECK_STATUS(OK, convert(step_of(&s), dcp, CONVERT_DCP, 0));
    CHECK_STATUS(CONFIG, convert(dcp, dcp, CONVERT_DCP, 0));
    CHECK_MESSAGE("not empty");
    struct pieces pieces;
    pieces_init(&pieces, &s.layout, 0, 1);
    const struct torch_model m = {
        .shape = &s.shape, .layout = &s.layout, .pieces = &pieces, .dtype = SAFETENSORS_F32};
    CHECK_STATUS(IO, dcp_write(&m, 0, test_path(folder, "nowhere")));
    CHECK_MESSAGE("nowhere/__0_0.distcp");
    CHECK_STATUS(IO, dcp_write(&m, 0, dcp));
    pieces_release(&pieces);
    saved_close(&s);
}
