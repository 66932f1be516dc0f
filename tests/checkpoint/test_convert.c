// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/convert.h"

#include "checkpoint/interop/model_files.h"
#include "checkpoint/rig.h"
#include "model/init_weights.h"

/* Saves a model as a checkpoint of ours. */
static char *write_model(const char *folder, bool tied, float **weights)
{
    struct model_shape shape = {.V = 50, .D = 16, .L = 2, .H = 4, .G = 2, .K = 4, .F = 24};
    shape.rope_theta = 10000, shape.norm_eps = 1e-5, shape.max_context = 64, shape.tied = tied;
    struct layout layout;
    layout_init(&layout, &shape, 1);
    *weights = heap(layout.elements * sizeof **weights);
    const struct store to = store_f32(*weights, NULL);
    struct shard all;
    shard_init(&all, &layout, 0, 1);
    CHECK_STATUS(OK, init_weights_store(&layout, &all, &shape, 7, &to));
    struct checkpointer_options o = {.folder = folder, .world = comm_self()};
    struct checkpointer *c;
    CHECK_STATUS(OK, checkpointer_open(&c, &o));
    struct checkpoint_state s = {.shape = &shape,
                                 .world = comm_self(),
                                 .layout = &layout,
                                 .shard = &all,
                                 .weights = *weights,
                                 .step = 3};
    s.dtype = SAFETENSORS_F32;
    CHECK_STATUS(OK, checkpointer_save(c, &s));
    CHECK_STATUS(OK, checkpointer_close(c, false));
    shard_release(&all);
    layout_release(&layout);
    return file_join(folder, "step-3");
}

static void check_weights(const char *folder, bool tied, const float *want, float tolerance)
{
    struct model_shape shape;
    struct layout layout;
    CHECK_STATUS(OK, checkpoint_read_shape(folder, &shape));
    CHECK(shape.tied == tied && shape.F == 24 && shape.G == 2);
    layout_init(&layout, &shape, 1);
    float *got = heap(layout.elements * sizeof *got);
    struct shard all;
    shard_init(&all, &layout, 0, 1);
    struct checkpoint_state s = {
        .shape = &shape, .world = comm_self(), .layout = &layout, .shard = &all, .weights = got};
    struct checkpoint_found found;
    CHECK_STATUS(OK, checkpoint_load(folder, &s, &(struct load_rules){0}, &found));
    for (size_t i = 0; i < layout.elements; i++)
        CHECK(fabsf(got[i] - want[i]) <= tolerance * fabsf(want[i]));
    json_free(found.state);
    shard_release(&all);
    layout_release(&layout);
    free(got);
}

TEST(convert_keeps_every_weight_of_tied_and_untied_models)
{
    for (int tied = 0; tied < 2; tied++) {
        const char *folder = test_folder();
        float *weights;
        char *from = write_model(folder, tied, &weights);
        const char *plain = test_path(folder, "plain"), *half = test_path(folder, "half");
        struct converted done;
        struct conversion c = {.from = from, .to = plain, .keep_dtype = true, .shard_bytes = 3000};
        CHECK_STATUS(OK, convert_checkpoint(&c, &done));
        CHECK(done.dtype == SAFETENSORS_F32 && done.num_tensors == (tied ? 20 : 21));
        check_weights(plain, tied, weights, 0);
        c = (struct conversion){.from = plain, .to = half, .dtype = SAFETENSORS_BF16};
        CHECK_STATUS(OK, convert_checkpoint(&c, &done));
        check_weights(half, tied, weights, 1.0f / 256);
        c = (struct conversion){.from = half, .to = test_path(folder, "same"), .keep_dtype = true};
        CHECK_STATUS(OK, convert_checkpoint(&c, &done));
        CHECK(done.dtype == SAFETENSORS_BF16);
        free(from), free(weights);
    }
}

/* As Muon's have them; another run's checkpoint has all. */
TEST(conversion_to_a_run_keeps_second_moments_of_some_weights)
{
    static char train[] = "{\"optimizer\": \"Muon\"}", other[] = "{}";
    const char *folder = test_path(test_folder(), "checkpoint");
    const char *name = "optimizer-00001-of-00001.safetensors";
    struct conversion c = {.to = test_path(test_folder(), "converted"), .target = CONVERT_NATIVE};
    struct saved s;
    struct shard some;
    struct converted done;
    struct text want = {0}, got = {0};
    saved_open(&s, false);
    struct checkpoint_state state = saved_state(&s, 3);
    state.first_moment_only = param_set_of(PARAM_attn_q) | param_set_of(PARAM_mlp_down);
    shard_init_without(&some, &s.shard, &s.layout, state.first_moment_only);
    state.exp_avg_sq_shard = &some;
    for (int i = 0; i < 2; i++) {
        struct checkpointer *writer = checkpointer_of(folder, 0);
        state.train = i ? (struct text){other, sizeof other - 1, 0}
                        : (struct text){train, sizeof train - 1, 0};
        CHECK_STATUS(OK, checkpointer_save(writer, &state));
        CHECK_STATUS(OK, checkpointer_close(writer, false));
        c.from = test_path(folder, "step-3");
        enum status st = convert_checkpoint(&c, &done);
        if (i) CHECK_MESSAGE("down_proj.weight.exp_avg_sq is missing");
        if (i) break;
        CHECK_STATUS(OK, st);
        const char *to = test_path(test_path(c.to, "checkpoint"), "step-3");
        CHECK_STATUS(OK, checkpoint_verify(to));
        CHECK_STATUS(OK, file_read(test_path(c.from, name), 1 << 24, &want));
        CHECK_STATUS(OK, file_read(test_path(to, name), 1 << 24, &got));
        CHECK(want.len == got.len && !memcmp(want.data, got.data, want.len));
        CHECK_STATUS(OK, file_remove_tree(c.to));
    }
    text_release(&want), text_release(&got);
    shard_release(&some);
    saved_close(&s);
}

/* Muon omits second moments of a kind of weight, not of one tensor. */
TEST(conversion_to_a_run_names_a_second_moment_that_one_layer_lacks)
{
    static char train[] = "{\"optimizer\": \"Muon\"}";
    static const char name[] = "layers.1.mlp.down_proj.weight.exp_avg_sq";
    const char *folder = test_path(test_folder(), "checkpoint");
    struct conversion c = {.to = test_path(test_folder(), "converted"), .target = CONVERT_NATIVE};
    struct saved s;
    struct converted done;
    struct text bytes = {0};
    saved_open(&s, false);
    struct checkpoint_state state = saved_state(&s, 3);
    struct checkpointer *writer = checkpointer_of(folder, 0);
    state.train = (struct text){train, sizeof train - 1, 0};
    CHECK_STATUS(OK, checkpointer_save(writer, &state));
    CHECK_STATUS(OK, checkpointer_close(writer, false));
    c.from = test_path(folder, "step-3");
    const char *path = test_path(c.from, "optimizer-00001-of-00001.safetensors");
    CHECK_STATUS(OK, file_read(path, 1 << 24, &bytes));
    char *at = memmem(bytes.data, bytes.len, name, sizeof name - 1);
    CHECK(at);
    at[sizeof name - 2] = 'x'; /* another tensor's */
    CHECK_STATUS(OK, file_write(path, bytes.data, bytes.len));
    list_again(c.from, 3);
    CHECK(convert_checkpoint(&c, &done) != STATUS_OK);
    CHECK_MESSAGE("layers.1.mlp.down_proj.weight.exp_avg_sq is missing");
    text_release(&bytes);
    saved_close(&s);
}

TEST(converting_a_damaged_checkpoint_fails_and_leaves_nothing)
{
    const char *folder = test_folder(), *to = test_path(folder, "to");
    float *weights;
    char *from = write_model(folder, false, &weights);
    char *path = file_join(from, "model-00001-of-00001.safetensors");
    struct text bytes = {0};
    struct converted done;
    CHECK_STATUS(OK, file_read(path, 1 << 30, &bytes));
    bytes.data[bytes.len - 1] ^= 1;
    CHECK_STATUS(OK, file_write(path, bytes.data, bytes.len));
    struct conversion c = {.from = from, .to = to, .keep_dtype = true};
    CHECK_STATUS(DATA, convert_checkpoint(&c, &done));
    CHECK(!file_exists(to) && !file_exists(test_path(folder, "to.llamero-tmp")));
    text_release(&bytes);
    free(from), free(path), free(weights);
}

/* A file of the tokenizer that cannot be copied: a folder. */
TEST(a_conversion_to_a_run_that_fails_leaves_no_half_written_checkpoint)
{
    const char *folder = test_folder(), *plain = test_path(folder, "plain");
    const char *run = test_path(folder, "run"), *checkpoint = test_path(run, "checkpoint");
    float *weights;
    char *from = write_model(folder, false, &weights);
    struct converted done;
    struct conversion c = {.from = from, .to = plain, .keep_dtype = true};
    CHECK_STATUS(OK, convert_checkpoint(&c, &done));
    const char *bad = test_path(plain, "tokenizer.json");
    CHECK_STATUS(OK, file_make_dirs(bad));
    c = (struct conversion){.from = plain, .to = run, .target = CONVERT_NATIVE};
    CHECK_STATUS(DATA, convert_checkpoint(&c, &done));
    CHECK_MESSAGE("tokenizer.json");
    CHECK(!file_exists_in(checkpoint, "step-0.tmp") && !file_exists_in(checkpoint, "step-0"));
    CHECK_STATUS(OK, file_remove_tree(bad));
    CHECK_STATUS(OK, convert_checkpoint(&c, &done));
    CHECK(file_exists_in(checkpoint, "step-0"));
    free(from), free(weights);
}

/* Checks that the blocks and the last norm load, and the rest stays unchanged. */
static void check_blocks(const char *folder, bool tied, const float *want)
{
    const char *items[] = {"model.embed_tokens.weight", "lm_head.weight"};
    const struct option_list exclude = {.items = items, .count = 2};
    struct model_shape shape;
    struct layout all, other;
    struct shard pieces;
    struct checkpoint_found found;
    CHECK_STATUS(OK, checkpoint_read_shape(folder, &shape));
    CHECK(shape.V == 50 && shape.tied == tied);
    layout_init(&all, &shape, 1);
    shape.V = 70; /* another vocabulary */
    layout_init(&other, &shape, 1);
    shard_init(&pieces, &other, 0, 1);
    float *got = heap(other.elements * sizeof *got);
    struct checkpoint_state s = {
        .shape = &shape, .world = comm_self(), .layout = &other, .shard = &pieces, .weights = got};
    CHECK_STATUS(CONFIG, checkpoint_load(folder, &s, NULL, &found));
    CHECK_MESSAGE("model.embed_tokens.weight");
    for (size_t i = 0; i < other.elements; i++) got[i] = -77;
    CHECK_STATUS(OK,
                 checkpoint_load(folder, &s, &(struct load_rules){.exclude = &exclude}, &found));
    for (int i = 0; i < other.num_tensors; i++) {
        const struct tensor_slot *to = &other.tensors[i];
        const struct tensor_slot *from = layout_find(&all, to->id, to->layer);
        bool out = to->id == PARAM_embed || to->id == PARAM_head;
        for (size_t k = 0; k < to->elements; k++) {
            float w = got[to->offset + k], is = out ? -77 : want[from->offset + k];
            CHECK(memcmp(&w, &is, sizeof w) == 0);
        }
    }
    free(got);
    shard_release(&pieces);
    layout_release(&all), layout_release(&other);
}

TEST(model_without_io_provides_blocks_for_another_vocabulary)
{
    static const enum conversion_target targets[] = {CONVERT_HF, CONVERT_META, CONVERT_DCP};
    for (int tied = 0; tied < 2; tied++)
        for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
            const char *folder = test_folder(), *to = test_path(folder, "blocks");
            float *weights;
            char *from = write_model(folder, tied, &weights);
            struct converted done;
            struct conversion c = {.from = from, .to = to, .target = targets[i]};
            c.keep_dtype = c.without_io = true;
            CHECK_STATUS(OK, file_write(test_path(from, "tokenizer_config.json"), "{}", 2));
            CHECK_STATUS(OK, convert_checkpoint(&c, &done));
            CHECK(done.num_tensors == 2 * 9 + 1);
            CHECK(done.parameters == 2 * (16 * 16 * 2 + 8 * 16 * 2 + 3 * 24 * 16 + 2 * 16) + 16);
            CHECK(!file_exists(test_path(to, "tokenizer_config.json")));
            check_blocks(to, tied, weights);
            free(from), free(weights);
        }
}

/* Formats that can be written and read; GGUF is write-only. */
static const struct {
    const char *name;
    enum conversion_target target;
    uint64_t shard_bytes;
    const char *file; /* of the folder, to convert back from */
} formats[] = {{"hf", CONVERT_HF, 0, ""},        {"hf-many", CONVERT_HF, 3000, ""},
               {"meta", CONVERT_META, 0, ""},    {"pth", CONVERT_META, 0, "consolidated.00.pth"},
               {"dcp", CONVERT_DCP, 0, ""},      {"dcp-many", CONVERT_DCP, 3000, ""},
               {"native", CONVERT_NATIVE, 0, ""}};
enum { FORMATS = sizeof formats / sizeof *formats };

/* Converts a checkpoint to that format, model only, and returns its path. */
static const char *in_format(const char *step, size_t format, const char *folder)
{
    const char *to = test_path(folder, formats[format].name);
    struct converted done;
    struct conversion c = {.from = step,
                           .to = to,
                           .target = formats[format].target,
                           .keep_dtype = true,
                           .model_only = true,
                           .dcp = {.generation = DCP_V0_2},
                           .shard_bytes = formats[format].shard_bytes};
    CHECK_STATUS(OK, convert_checkpoint(&c, &done));
    CHECK(done.dtype == SAFETENSORS_F32);
    if (formats[format].target == CONVERT_NATIVE) return test_path(to, "checkpoint/step-0");
    return formats[format].file[0] ? test_path(to, formats[format].file) : to;
}

static void check_same_file(const char *a, const char *b)
{
    struct text x = {0}, y = {0};
    CHECK_STATUS(OK, file_read(a, 1 << 20, &x));
    CHECK_STATUS(OK, file_read(b, 1 << 20, &y));
    CHECK(x.len == y.len && x.len > 1000 && !memcmp(x.data, y.data, x.len));
    text_release(&x), text_release(&y);
}

/* Formats without names for the weights of QK norm. */
static bool lacks_qk_norm(size_t format) { return formats[format].target == CONVERT_META; }

/* Formats of models that rotate a part of each head. */
static bool has_phi3(size_t format)
{
    return formats[format].target == CONVERT_HF || formats[format].target == CONVERT_NATIVE;
}

TEST(weights_are_bit_identical_after_any_format)
{
    for (int kind = 0; kind < 5; kind++) {
        struct model_shape shape = small_shape();
        struct saved s;
        const char *folder = test_folder(), *name = "model-00001-of-00001.safetensors";
        shape.tied = kind & 1, shape.qk_norm = kind & 2;
        shape.partial_rotary_factor = kind == 4 ? 0.5 : 0;
        saved_open_shape(&s, &shape);
        const char *step = test_path(saved_folder(&s, STEPS(4)), "step-4");
        for (size_t i = 0; i < FORMATS; i++) {
            struct converted done;
            if (shape.qk_norm && lacks_qk_norm(i)) continue;
            if (kind == 4 && !has_phi3(i)) continue;
            const char *from = in_format(step, i, folder), *to = test_path(from, "../back");
            if (formats[i].file[0]) to = test_path(folder, "back-of-pth");
            struct conversion c = {.from = from, .to = to, .target = CONVERT_NATIVE};
            CHECK_STATUS(OK, convert_checkpoint(&c, &done));
            check_same_file(test_path(step, name),
                            test_path(test_path(to, "checkpoint/step-0"), name));
            CHECK_STATUS(OK, file_remove_tree(to));
        }
        saved_close(&s);
    }
}

/* As Phi3ForCausalLM reads them. */
TEST(a_checkpoint_of_a_phi3_has_fused_matrices)
{
    struct model_shape shape = small_shape();
    struct saved s;
    struct model_files m;
    struct model_tensor t;
    float got[48 * 16];
    shape.partial_rotary_factor = 0.5;
    saved_open_shape(&s, &shape);
    const char *step = test_path(saved_folder(&s, STEPS(4)), "step-4");
    const struct tensor_slot *q = layout_find(&s.layout, PARAM_attn_q, 1);
    const struct tensor_slot *gate = layout_find(&s.layout, PARAM_mlp_gate, 1);
    CHECK_STATUS(OK, model_files_open(&m, step)); /* checks the index, too */
    CHECK(model_files_num_tensors(&m) == 2 * 6 + 3);
    CHECK(model_files_named(&m, "model.layers.1.self_attn.qkv_proj.weight", &t));
    CHECK(t.is.num_dims == 2 && t.is.shape[0] == 32 && t.is.shape[1] == 16);
    CHECK_STATUS(OK, tensor_reader_read(&t.reader, 0, 32 * 16, F32, got));
    CHECK(!memcmp(got, s.weights + q->offset, 16 * 16 * sizeof *got));
    CHECK(!memcmp(got + 16 * 16, s.weights + q[1].offset, 8 * 16 * sizeof *got));
    CHECK(!memcmp(got + 24 * 16, s.weights + q[2].offset, 8 * 16 * sizeof *got));
    CHECK(model_files_named(&m, "model.layers.1.mlp.gate_up_proj.weight", &t));
    CHECK_STATUS(OK, tensor_reader_read(&t.reader, 0, 48 * 16, F32, got));
    CHECK(!memcmp(got, s.weights + gate->offset, 24 * 16 * sizeof *got));
    CHECK(!memcmp(got + 24 * 16, s.weights + gate[1].offset, 24 * 16 * sizeof *got));
    model_files_close(&m);
    saved_close(&s);
}

/* Tensors of the blocks, and a vector outside them. */
static bool is_left_out(const struct tensor_slot *t)
{
    return t->layer >= 0 || t->id == PARAM_last_norm;
}

static void check_loaded(const struct saved *s, const char *from, const struct option_list *exclude)
{
    size_t n = s->layout.elements;
    float *got = heap(n * sizeof *got);
    struct checkpoint_found found;
    struct checkpoint_state state = {.shape = &s->shape,
                                     .world = comm_self(),
                                     .layout = &s->layout,
                                     .shard = &s->shard,
                                     .weights = got};
    for (size_t i = 0; i < n; i++) got[i] = -77;
    CHECK_STATUS(OK,
                 checkpoint_load(from, &state, &(struct load_rules){.exclude = exclude}, &found));
    for (int i = 0; i < s->layout.num_tensors; i++) {
        const struct tensor_slot *t = &s->layout.tensors[i];
        bool out = exclude && is_left_out(t);
        for (size_t k = 0; k < t->elements; k++) {
            float is = got[t->offset + k], want = out ? -77 : s->weights[t->offset + k];
            CHECK(!memcmp(&is, &want, sizeof is));
        }
    }
    json_free(found.state);
    free(got);
}

TEST(any_format_loads_whole_or_with_exclusions)
{
    const char *items[] = {"model.layers.*", "model.norm.weight"};
    const struct option_list exclude = {.items = items, .count = 2};
    for (int tied = 0; tied < 2; tied++) {
        struct saved s;
        const char *folder = test_folder();
        saved_open(&s, tied);
        const char *step = test_path(saved_folder(&s, STEPS(4)), "step-4");
        for (size_t i = 0; i < FORMATS; i++) {
            const char *from = in_format(step, i, folder);
            check_loaded(&s, from, NULL);
            check_loaded(&s, from, &exclude);
            if (formats[i].file[0]) CHECK_STATUS(OK, file_remove_tree(test_path(folder, "pth")));
        }
        check_loaded(&s, step, NULL); /* moments exist, but are not requested */
        check_loaded(&s, step, &exclude);
        saved_close(&s);
    }
}
