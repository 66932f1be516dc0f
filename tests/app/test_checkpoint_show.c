// SPDX-License-Identifier: Apache-2.0
#include "app/checkpoint_answer.h"

#include <unistd.h>

TEST(checkpoint_show_prints_dimensions_step_and_files)
{
    struct saved s;
    struct answer a = {0};
    struct json *root;
    saved_open(&s, false);
    const char *dump = dump_folder(&s);
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "show", dump) == 0);
    CHECK(strstr(a.out.data, "step        3\n") && strstr(a.out.data, "tokens seen 99\n"));
    CHECK(strstr(a.out.data, "16 wide, 2 layers, 4 heads of 4 (2 for keys and values)"));
    CHECK(strstr(a.out.data, "optimizer-00001-of-00001.safetensors"));
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "show", dump, "--tensors") == 0);
    CHECK(strstr(a.out.data, "model.layers.1.mlp.down_proj.weight"));
    CHECK(strstr(a.out.data, "[16, 24]"));
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "show", dump, "--tensors", "--json") == 0);
    CHECK_STATUS(OK, json_parse(a.out.data, a.out.len, "stdout", &root));
    CHECK(json_number(json_get(root, "parameters")) == (double)s.layout.parameters);
    CHECK(json_count(json_get(root, "tensors")) == (size_t)s.layout.num_tensors);
    CHECK(json_number(json_get(root, "step")) == 3 && json_true(json_get(root, "moments")));
    CHECK(json_count(json_get(root, "files")) == 2);
    json_free(root);
    answer_release(&a);
    saved_close(&s);
}

TEST(checkpoint_show_lists_files_of_a_moving_average)
{
    struct saved s;
    struct answer a = {0};
    saved_open(&s, false);
    const char *folder = test_path(test_folder(), "checkpoint");
    struct checkpointer *to = checkpointer_of(folder, 0);
    struct checkpoint_state state = saved_state(&s, 1);
    state.ema = s.weights;
    CHECK_STATUS(OK, checkpointer_save(to, &state));
    CHECK_STATUS(OK, checkpointer_close(to, false));
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "show", folder) == 0);
    CHECK(strstr(a.out.data, "  ema-00001-of-00001.safetensors "));
    answer_release(&a);
    saved_close(&s);
}

TEST(checkpoint_show_accepts_a_plain_hugging_face_folder)
{
    static const char *const extra[] = {"manifest.json", "state.json"};
    struct saved s;
    struct answer a = {0};
    saved_open(&s, true);
    const char *step = test_path(saved_folder(&s, STEPS(1)), "step-1");
    for (int i = 0; i < 2; i++) CHECK_STATUS(OK, file_remove_tree(test_path(step, extra[i])));
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "show", step) == 0);
    CHECK(strstr(a.out.data, "a Hugging Face folder") && strstr(a.out.data, "head tied"));
    CHECK(!strstr(a.out.data, "step "));
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "show", step, "--json") == 0);
    CHECK(strstr(a.out.data, "\"step\": null") && strstr(a.out.data, "\"kind\": \"hf\""));
    answer_release(&a);
    saved_close(&s);
}

/* Renames the only file of weights to FILE_NAME, and adds a tensor of such a name. */
#define FILE_NAME "model-\033[31m.safetensors"
static void add_control_characters(const char *folder)
{
    static const char member[] = "\"x\\u001b[2Jrotary_emb.inv_freq\":{\"dtype\":\"F32\","
                                 "\"shape\":[0],\"data_offsets\":[0,0]},";
    const char *index = test_path(folder, "model.safetensors.index.json");
    const char *old = test_path(folder, "model-00001-of-00001.safetensors");
    struct text all = {0}, out = {0};
    uint64_t len;
    CHECK_STATUS(OK, file_read(old, 1 << 20, &all));
    memcpy(&len, all.data, sizeof len);
    size_t pad = 8 - (sizeof member - 1) % 8;
    len += sizeof member - 1 + pad;
    text_add(&out, &len, sizeof len);
    text_addf(&out, "{%s%*s", member, (int)pad, "");
    text_add(&out, all.data + 9, all.len - 9);
    CHECK_STATUS(OK, file_write(test_path(folder, FILE_NAME), out.data, out.len));
    CHECK(!unlink(old));
    CHECK_STATUS(OK, file_read(index, 1 << 20, &all));
    text_clear(&out);
    for (const char *at = all.data, *name; *at; at = name + strlen("00001-of-00001")) {
        name = strstr(at, "00001-of-00001");
        text_add(&out, at, name ? (size_t)(name - at) : strlen(at));
        if (!name) break;
        text_adds(&out, "\\u001b[31m");
    }
    CHECK_STATUS(OK, file_write(index, out.data, out.len));
    text_release(&all), text_release(&out);
}

TEST(names_from_files_do_not_control_the_terminal)
{
    struct saved s;
    struct answer a = {0};
    saved_open(&s, true);
    const char *step = test_path(saved_folder(&s, STEPS(1)), "step-1");
    CHECK(!unlink(test_path(step, "manifest.json")) && !unlink(test_path(step, "state.json")));
    add_control_characters(step);
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "show", step) == 0);
    CHECK(strstr(a.out.data, "  model-\\x1b[31m.safetensors ") && !strchr(a.out.data, '\033'));
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "show", step, "--tensors") == 0);
    CHECK(strstr(a.out.data, "  x\\x1b[2Jrotary_emb.inv_freq ") && !strchr(a.out.data, '\033'));
    answer_release(&a);
    saved_close(&s);
}

/* Granite's multipliers, SmolLM3's layers without RoPE, Phi-3's RoPE and Mistral's window. */
TEST(checkpoint_show_prints_what_differs_from_a_plain_llama)
{
    struct model_shape granite = small_shape(), smollm3 = small_shape(), phi3 = small_shape();
    model_shape_set_multipliers(&granite, 12, 0.22, 0.0625, 8);
    smollm3.no_rope_interval = 2;
    phi3.window = 3, phi3.partial_rotary_factor = 0.5;
    phi3.scaling = (struct rope_scaling){.method = ROPE_longrope,
                                         .factor = 4,
                                         .original_context = 16,
                                         .num_factors = 1,
                                         .short_factors = {1},
                                         .long_factors = {2}};
    const struct {
        const struct model_shape *shape;
        const char *text[2], *json[2];
    } cases[] = {
        {&granite,
         {"\nmultipliers embedding 12, residual 0.22, attention 0.0625, logits 1/8\n"},
         {"\"attention_multiplier\": 0.0625", "\"logits_scaling\": 8"}},
        {&smollm3, {"RoPE theta 10000, in 1 of 2 layers\n"}, {"\"no_rope_layer_interval\": 2"}},
        {&phi3,
         {"RoPE theta 10000, of 2 of each head's 4, scaled RoPE (longrope, 4 times)\n",
          "(2 for keys and values; a sliding window of 3 tokens)"},
         {"\"partial_rotary_factor\": 0.5", "\"original_max_position_embeddings\": 16"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct saved s;
        struct answer a = {0};
        saved_open_shape(&s, cases[i].shape);
        const char *dump = dump_folder(&s);
        CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "show", dump) == 0);
        for (int k = 0; k < 2 && cases[i].text[k]; k++) CHECK(strstr(a.out.data, cases[i].text[k]));
        CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "show", dump, "--json") == 0);
        for (int k = 0; k < 2 && cases[i].json[k]; k++) CHECK(strstr(a.out.data, cases[i].json[k]));
        answer_release(&a);
        saved_close(&s);
    }
}

TEST(checkpoint_show_accepts_torch_files)
{
    struct answer a = {0};
    struct json *root;
    const char *torch = "tests/checkpoint/data/dcp-state";
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "show", torch) == 0);
    CHECK(strstr(a.out.data, "a directory of torch.distributed.checkpoint"));
    CHECK(strstr(a.out.data, "step        3\n") && strstr(a.out.data, "tokens seen 192\n"));
    CHECK(strstr(a.out.data, "with the optimizer's moments"));
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "show", torch, "--tensors", "--json") == 0);
    CHECK_STATUS(OK, json_parse(a.out.data, a.out.len, "stdout", &root));
    CHECK(!strcmp(json_string(json_get(root, "kind")), "dcp"));
    CHECK(json_count(json_get(root, "tensors")) == 12 && json_count(json_get(root, "files")) == 2);
    const struct json *file = json_first(json_get(root, "files"));
    CHECK(json_number(json_get(file, "tensors")) == 36);
    json_free(root);
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "show", "tests/checkpoint/data/meta-llama2") == 0);
    CHECK(strstr(a.out.data, "Meta's .pth files") && !strstr(a.out.data, "moments"));
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "show", "tests/checkpoint/data/nxdt/xser") == 0);
    CHECK(strstr(a.out.data, "kind        a checkpoint of NxD Training\n"));
    const char *megatron = "tests/checkpoint/data/megatron";
    CHECK(LLAMERO(&a.out, &a.err, "checkpoint", "show", megatron) == 0);
    CHECK(strstr(a.out.data, "\nkind        a checkpoint of Megatron-LM\nstep        3\n"));
    answer_release(&a);
}
