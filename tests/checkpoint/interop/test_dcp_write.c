// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/convert.h"
#include "checkpoint/interop/dcp.h"
#include "checkpoint/interop/dcp_write.h"
#include "checkpoint/rig.h"

/* Starts from `c`, which is to have what differs. */
static enum status convert_with(struct conversion c)
{
    static const struct optimizer_config adamw = {.lr = 1e-3,
                                                  .beta1 = 0.9,
                                                  .beta2 = 0.95,
                                                  .eps = 1e-8,
                                                  .weight_decay = 0.1,
                                                  .implementation = IMPLEMENTATION_fused};
    static const struct lr_scheduler_config schedule = {.decay_ratio = -1};
    struct converted done;
    c.keep_dtype = true, c.optimizer = &adamw, c.lr_scheduler = &schedule;
    c.schedule_steps = 100, c.rows = 1, c.dcp.seq_len = 8;
    TRY(convert_checkpoint(&c, &done));
    CHECK((done.step == 4) == (!c.model_only && c.target != CONVERT_HF));
    return STATUS_OK;
}

static enum status convert_run(const char *from, const char *to, enum conversion_target target,
                               uint64_t shard_bytes, bool model_only)
{
    return convert_with((struct conversion){.from = from,
                                            .to = to,
                                            .target = target,
                                            .shard_bytes = shard_bytes,
                                            .model_only = model_only,
                                            .dcp = {.generation = DCP_NEW}});
}

static enum status convert(const char *from, const char *to, enum conversion_target target,
                           uint64_t shard_bytes)
{
    return convert_run(from, to, target, shard_bytes, true);
}

static const char *step_of(struct saved *s)
{
    return test_path(saved_folder(s, STEPS(4)), "step-4");
}

TEST(model_to_dcp_and_back_is_bit_identical)
{
    for (int tied = 0; tied < 2; tied++) {
        struct saved s;
        const char *folder = test_folder(), *dcp = test_path(folder, "dcp");
        saved_open(&s, tied);
        CHECK_STATUS(OK, convert(step_of(&s), dcp, CONVERT_DCP, 0));
        CHECK(dcp_detect(dcp) && file_exists(test_path(dcp, "config.json")));
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

static bool contains(const struct text *t, const char *name)
{
    return memmem(t->data, t->len, name, strlen(name)) != NULL;
}

TEST(dcp_write_uses_current_names_and_the_requested_file_size)
{
    enum { MOST = 5000 };
    struct saved s;
    struct tensor_slices p;
    struct text t = {0};
    const char *dcp = test_path(test_folder(), "dcp");
    saved_open(&s, false);
    CHECK_STATUS(OK, convert(step_of(&s), dcp, CONVERT_DCP, MOST));
    CHECK_STATUS(OK, file_read(test_path(dcp, ".metadata"), 1 << 20, &t));
    CHECK(contains(&t, "layers.1.attention.qkv_linear.wk.weight") &&
          contains(&t, "lm_head.weight"));
    CHECK(contains(&t, "layers.0.attention.wo.weight") && contains(&t, "tok_embeddings.weight"));
    CHECK(!contains(&t, "attention.wq.weight") && !contains(&t, "output.weight"));
    CHECK_STATUS(OK, dcp_open(&p, dcp, &s.shape));
    CHECK(p.count == (size_t)s.layout.num_tensors && p.num_maps > 1);
    for (size_t i = 0; i < p.count; i++) {
        const struct tensor_slice *one = p.tensors[i].all;
        uint64_t bytes = (uint64_t)(p.tensors[i].rows * p.tensors[i].columns) * 4;
        CHECK(p.tensors[i].count == 1 && one->dtype == SAFETENSORS_F32);
        /* the archive and its headers take more than the elements */
        CHECK(one->map->size <= MOST + 2000 || one->map->size <= bytes + 2000);
    }
    tensor_slices_release(&p);
    text_release(&t);
    saved_close(&s);
}

TEST(dcp_write_requires_an_existing_empty_folder)
{
    struct saved s;
    const char *folder = test_folder(), *dcp = test_path(folder, "dcp");
    saved_open(&s, true);
    CHECK_STATUS(OK, convert(step_of(&s), dcp, CONVERT_DCP, 0));
    CHECK_STATUS(CONFIG, convert(dcp, dcp, CONVERT_DCP, 0));
    CHECK_MESSAGE("not empty");
    struct shard pieces;
    shard_init(&pieces, &s.layout, 0, 1);
    const struct torch_model m = {
        .shape = &s.shape, .layout = &s.layout, .shard = &pieces, .dtype = SAFETENSORS_F32};
    const struct dcp_target target = {.generation = DCP_V0_2};
    CHECK_STATUS(IO, dcp_write(&m, &target, NULL, 0, test_path(folder, "nowhere")));
    CHECK_MESSAGE("nowhere/__0_0.distcp");
    CHECK_STATUS(IO, dcp_write(&m, &target, NULL, 0, dcp));
    shard_release(&pieces);
    saved_close(&s);
}

static void check_same_file(const char *a, const char *b, const char *name)
{
    struct text x = {0}, y = {0};
    CHECK_STATUS(OK, file_read(test_path(a, name), 1 << 20, &x));
    CHECK_STATUS(OK, file_read(test_path(b, name), 1 << 20, &y));
    CHECK(x.len == y.len && !memcmp(x.data, y.data, x.len));
    text_release(&x), text_release(&y);
}

TEST(run_with_optimizer_to_dcp_and_back_is_bit_identical)
{
    static const char *const names[] = {"model-00001-of-00001.safetensors",
                                        "optimizer-00001-of-00001.safetensors", "state.json",
                                        "config.toml"};
    for (int tied = 0; tied < 2; tied++) {
        struct saved s;
        const char *folder = test_folder(), *dcp = test_path(folder, "dcp");
        const char *again = test_path(folder, "again"), *run = test_path(folder, "run");
        saved_open(&s, tied);
        const char *step = step_of(&s), *back = test_path(run, "checkpoint/step-4");
        CHECK_STATUS(OK, convert_run(step, dcp, CONVERT_DCP, 0, false));
        CHECK_STATUS(OK, convert_run(dcp, again, CONVERT_DCP, 3000, false));
        CHECK_STATUS(OK, convert_run(tied ? again : dcp, run, CONVERT_NATIVE, 0, false));
        CHECK_STATUS(OK, checkpoint_verify(back));
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            check_same_file(step, back, names[i]);
        check_holds(&s, back, 4);
        check_holds(&s, dcp, 4); /* as training resumes from it, without a conversion */
        CHECK_STATUS(OK, convert_run(dcp, test_path(folder, "bare"), CONVERT_NATIVE, 0, true));
        CHECK(has_file(test_path(folder, "bare/checkpoint/step-0"), "state.json"));
        CHECK(!has_file(test_path(folder, "bare/checkpoint/step-0"),
                        "optimizer-00001-of-00001.safetensors"));
        CHECK_STATUS(OK, convert_run(dcp, test_path(folder, "hf"), CONVERT_HF, 0, false));
        CHECK(!has_file(test_path(folder, "hf"), "state.json"));
        saved_close(&s);
    }
}

TEST(dcp_keeps_the_steps_of_the_optimizers_moments)
{
    static char train[] = "{\"tokens_seen\": 99, \"moment_steps\": 3}";
    struct saved s;
    struct tensor_slices moments;
    struct torch_state torch;
    const char *folder = test_folder(), *dcp = test_path(folder, "dcp");
    saved_open(&s, false);
    struct checkpoint_state state = saved_state(&s, 4);
    struct checkpointer *c = checkpointer_of(folder, 0);
    state.train = (struct text){train, sizeof train - 1, 0};
    CHECK_STATUS(OK, checkpointer_save(c, &state));
    CHECK_STATUS(OK, checkpointer_close(c, false));
    CHECK_STATUS(OK, convert_run(test_path(folder, "step-4"), dcp, CONVERT_DCP, 0, false));
    CHECK_STATUS(OK, dcp_open_moments(&moments, dcp, &s.shape, &torch));
    CHECK(torch.step == 4 && torch.schedule_step == 4 && torch.optimizer_step == 3);
    torch_state_release(&torch);
    tensor_slices_release(&moments);
    saved_close(&s);
}

TEST(run_in_each_generation_and_back_is_bit_identical)
{
    static const char *const names[] = {"model-00001-of-00001.safetensors",
                                        "optimizer-00001-of-00001.safetensors", "state.json",
                                        "config.toml"};
    for (int g = 0; g < 2 * DCP_GENERATIONS; g++) {
        struct saved s;
        const char *folder = test_folder(), *dcp = test_path(folder, "dcp");
        const char *run = test_path(folder, "run");
        saved_open(&s, g % 2);
        const char *step = step_of(&s), *back = test_path(run, "checkpoint/step-4");
        CHECK_STATUS(OK, convert_with((struct conversion){
                             .from = step,
                             .to = dcp,
                             .target = CONVERT_DCP,
                             .dcp = {.generation = (enum dcp_generation)(g / 2), .dp_size = 2}}));
        CHECK_STATUS(OK, convert_run(dcp, run, CONVERT_NATIVE, 0, false));
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            check_same_file(step, back, names[i]);
        check_holds(&s, dcp, 4);
        saved_close(&s);
    }
}

TEST(rope_table_of_v0_1_is_cos_and_sin_of_each_position)
{
    struct saved s;
    const char *folder = test_folder(), *dcp = test_path(folder, "dcp");
    const float second[] = {0.540302277f, 0.841470957f, 0.999949992f, 0.00999983307f};
    struct text t = {0};
    saved_open(&s, false);
    CHECK_STATUS(OK, convert_with((struct conversion){.from = step_of(&s),
                                                      .to = dcp,
                                                      .target = CONVERT_DCP,
                                                      .dcp = {.generation = DCP_V0_1}}));
    CHECK_STATUS(OK, file_read(test_path(dcp, "__0_0.distcp"), 1 << 20, &t));
    /* positions 0 and 1: pairs (cos, sin) of angles 1 and 0.01 */
    const float table[] = {1, 0, 1, 0, second[0], second[1], second[2], second[3]};
    CHECK(memmem(t.data, t.len, table, sizeof table));
    text_release(&t);
    saved_close(&s);
}
