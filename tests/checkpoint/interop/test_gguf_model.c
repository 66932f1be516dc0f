// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/convert.h"
#include "checkpoint/interop/gguf_model.h"
#include "checkpoint/rig.h"

static enum status convert(const char *from, const char *to, enum safetensors_dtype dtype,
                           bool quantized)
{
    struct converted done;
    struct conversion c = {
        .from = from, .to = to, .target = CONVERT_GGUF, .dtype = dtype, .quantized = quantized};
    return convert_checkpoint(&c, &done);
}

/* A minimal GGUF reader: finds metadata and tensors by name. */
struct gguf_file {
    struct text file;
    uint64_t num_tensors, num_keys;
};
struct gguf_info {
    uint32_t num_dims, type;
    uint64_t dims[2], offset;
};

static uint64_t read_uint(struct reader *r, int bytes)
{
    const unsigned char *at = NULL;
    uint64_t value = 0;
    CHECK_STATUS(OK, reader_bytes(r, (size_t)bytes, &at, "a number"));
    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static bool string_is(struct reader *r, const char *want)
{
    const unsigned char *at = NULL;
    size_t len = (size_t)read_uint(r, 8);
    CHECK_STATUS(OK, reader_bytes(r, len, &at, "a string"));
    return len == strlen(want) && !memcmp(at, want, len);
}

static void skip_value(struct reader *r, uint64_t kind)
{
    if (kind == GGUF_VALUE_STRING) {
        string_is(r, "");
    } else if (kind == GGUF_VALUE_ARRAY) {
        uint64_t of = read_uint(r, 4), count = read_uint(r, 8);
        while (count--) skip_value(r, of);
    } else {
        read_uint(r, kind == GGUF_VALUE_BOOL ? 1 : 4);
    }
}

static struct reader reader_of(const struct gguf_file *s)
{
    const unsigned char *begin = (const unsigned char *)s->file.data;
    return (struct reader){begin, begin + s->file.len, "gguf"};
}

/* Returns a reader at the key's value, and its type; -1: no such key. */
static struct reader find_key(const struct gguf_file *s, const char *key, int *kind)
{
    struct reader r = reader_of(s);
    r.at += 24;
    *kind = -1;
    for (uint64_t i = 0; i < s->num_keys; i++) {
        bool found = string_is(&r, key);
        uint64_t its = read_uint(&r, 4);
        if (found) {
            *kind = (int)its;
            return r;
        }
        skip_value(&r, its);
    }
    return r; /* at the tensor descriptions */
}

static uint64_t get_number(const struct gguf_file *s, const char *key)
{
    int kind;
    struct reader r = find_key(s, key, &kind);
    CHECK(kind == GGUF_VALUE_U32 || kind == GGUF_VALUE_F32 || kind == GGUF_VALUE_BOOL);
    return read_uint(&r, kind == GGUF_VALUE_BOOL ? 1 : 4);
}

static bool key_equals(const struct gguf_file *s, const char *key, const char *want)
{
    int kind;
    struct reader r = find_key(s, key, &kind);
    return kind == GGUF_VALUE_STRING && string_is(&r, want);
}

static const unsigned char *find_tensor(const struct gguf_file *s, const char *name,
                                        struct gguf_info *out)
{
    int kind;
    bool found = false;
    struct reader r = find_key(s, "", &kind);
    for (uint64_t i = 0; i < s->num_tensors; i++) {
        struct gguf_info t = {0};
        bool it = string_is(&r, name);
        t.num_dims = (uint32_t)read_uint(&r, 4);
        for (uint32_t d = 0; d < t.num_dims; d++) t.dims[d] = read_uint(&r, 8);
        t.type = (uint32_t)read_uint(&r, 4);
        t.offset = read_uint(&r, 8);
        if (it) *out = t, found = true;
    }
    size_t head = (size_t)((const char *)r.at - s->file.data);
    return found ? (const unsigned char *)s->file.data + head + gguf_padding(head) + out->offset
                 : NULL;
}

static void read_gguf(struct gguf_file *s, const char *path)
{
    *s = (struct gguf_file){0};
    CHECK_STATUS(OK, file_read(path, 1 << 20, &s->file));
    CHECK(s->file.len > 24 && !memcmp(s->file.data, "GGUF\3\0\0\0", 8));
    struct reader r = reader_of(s);
    r.at += 8;
    s->num_tensors = read_uint(&r, 8), s->num_keys = read_uint(&r, 8);
}

/* A Hugging Face folder without a tokenizer, since the test tokenizer has more tokens than the
 * model. */
static const char *plain_folder(struct saved *s)
{
    struct converted done;
    const char *to = test_path(test_folder(), "hf");
    struct conversion c = {
        .from = test_path(saved_folder(s, STEPS(4)), "step-4"), .to = to, .keep_dtype = true};
    CHECK_STATUS(OK, convert_checkpoint(&c, &done));
    CHECK_STATUS(OK, file_remove_tree(test_path(to, "tokenizer.json")));
    return to;
}

/* The saved checkpoint as name.gguf, in f32. */
static void convert_saved(struct saved *s, struct gguf_file *g)
{
    const char *path = test_path(test_folder(), "name.gguf");
    CHECK_STATUS(OK, convert(plain_folder(s), path, SAFETENSORS_F32, false));
    read_gguf(g, path);
}

static const float *weights_of(const struct saved *s, enum param_id id, int layer)
{
    return s->weights + layout_find(&s->layout, id, layer)->offset;
}

TEST(gguf_has_llama_cpp_names_and_the_models_shape)
{
    struct saved s;
    struct gguf_file g;
    struct gguf_info t = {0};
    saved_open(&s, false);
    convert_saved(&s, &g);
    CHECK(key_equals(&g, "general.architecture", "llama") &&
          key_equals(&g, "general.name", "name"));
    CHECK(key_equals(&g, "tokenizer.ggml.model", "no_vocab"));
    CHECK(get_number(&g, "llama.context_length") == 64 && get_number(&g, "llama.vocab_size") == 37);
    CHECK(get_number(&g, "llama.embedding_length") == 16 &&
          get_number(&g, "llama.block_count") == 2);
    CHECK(get_number(&g, "llama.feed_forward_length") == 24);
    CHECK(get_number(&g, "llama.attention.head_count") == 4);
    CHECK(get_number(&g, "llama.attention.head_count_kv") == 2);
    CHECK(get_number(&g, "llama.rope.dimension_count") == 4);
    CHECK(get_number(&g, "llama.rope.freq_base") == 0x461C4000); /* 10000.0f */
    CHECK(get_number(&g, "general.file_type") == 0);
    CHECK(g.num_tensors == 21 && !find_tensor(&g, "rope_freqs.weight", &t));
    const unsigned char *down = find_tensor(&g, "blk.1.ffn_down.weight", &t);
    CHECK(down && t.type == GGUF_F32 && t.num_dims == 2 && t.dims[0] == 24 && t.dims[1] == 16);
    CHECK(!memcmp(down, weights_of(&s, PARAM_mlp_down, 1), 24 * 16 * sizeof(float)));
    const unsigned char *q = find_tensor(&g, "blk.0.attn_q.weight", &t);
    const float *ours = weights_of(&s, PARAM_attn_q, 0);
    static const int rows[] = {0, 2, 1, 3, 4, 6, 5, 7}; /* rotary pairs are adjacent */
    CHECK(q != NULL);
    for (int i = 0; i < 8; i++)
        CHECK(!memcmp(q + (size_t)i * 16 * 4, ours + rows[i] * 16, 16 * sizeof(float)));
    CHECK(find_tensor(&g, "output.weight", &t) && find_tensor(&g, "output_norm.weight", &t));
    text_release(&g.file);
    saved_close(&s);
}

TEST(gguf_of_a_model_with_qk_norm_is_llama_cpps_qwen3)
{
    struct model_shape shape = small_shape();
    struct saved s;
    struct gguf_file g;
    struct gguf_info t = {0};
    shape.qk_norm = true;
    saved_open_shape(&s, &shape);
    convert_saved(&s, &g);
    CHECK(key_equals(&g, "general.architecture", "qwen3") && g.num_tensors == 25);
    CHECK(get_number(&g, "qwen3.attention.key_length") == 4);
    CHECK(get_number(&g, "qwen3.block_count") == 2);
    const unsigned char *norm = find_tensor(&g, "blk.1.attn_k_norm.weight", &t);
    CHECK(norm && t.type == GGUF_F32 && t.num_dims == 1 && t.dims[0] == 4);
    CHECK(!memcmp(norm, weights_of(&s, PARAM_k_norm, 1), 4 * sizeof(float)));
    const unsigned char *q = find_tensor(&g, "blk.0.attn_q.weight", &t); /* in our order of rows */
    CHECK(q && !memcmp(q, weights_of(&s, PARAM_attn_q, 0), 16 * 16 * sizeof(float)));
    text_release(&g.file);
    saved_close(&s);
}

TEST(gguf_of_a_model_with_norms_behind_is_llama_cpps_olmo2)
{
    struct model_shape shape = small_shape();
    struct saved s;
    struct gguf_file g;
    struct gguf_info t = {0};
    shape.qk_norm = shape.post_norm = true;
    saved_open_shape(&s, &shape);
    convert_saved(&s, &g);
    CHECK(key_equals(&g, "general.architecture", "olmo2") && g.num_tensors == 25);
    const unsigned char *norm = find_tensor(&g, "blk.1.post_ffw_norm.weight", &t);
    CHECK(norm && !memcmp(norm, weights_of(&s, PARAM_post_mlp_norm, 1), 16 * sizeof(float)));
    CHECK(find_tensor(&g, "blk.0.post_attention_norm.weight", &t));
    CHECK(!find_tensor(&g, "blk.0.attn_norm.weight", &t));
    norm = find_tensor(&g, "blk.1.attn_q_norm.weight", &t);
    CHECK(norm && t.num_dims == 1 && t.dims[0] == 16);
    CHECK(!memcmp(norm, weights_of(&s, PARAM_wide_q_norm, 1), 16 * sizeof(float)));
    const unsigned char *q = find_tensor(&g, "blk.0.attn_q.weight", &t); /* in our order of rows */
    CHECK(q && !memcmp(q, weights_of(&s, PARAM_attn_q, 0), 16 * 16 * sizeof(float)));
    text_release(&g.file);
    saved_close(&s);
}

TEST(gguf_of_a_tied_olmo2_has_the_embedding_as_its_head_too)
{
    struct model_shape shape = small_shape();
    struct saved s;
    struct gguf_file g;
    struct gguf_info t = {0}, head = {0};
    shape.qk_norm = shape.post_norm = shape.tied = true;
    saved_open_shape(&s, &shape);
    convert_saved(&s, &g);
    const unsigned char *embed = find_tensor(&g, "token_embd.weight", &t);
    const unsigned char *copy = find_tensor(&g, "output.weight", &head);
    CHECK(g.num_tensors == 25 && embed && copy && copy != embed);
    CHECK(head.num_dims == 2 && head.dims[0] == 16 && head.dims[1] == 37 && head.type == t.type);
    CHECK(!memcmp(copy, embed, 37 * 16 * sizeof(float)));
    text_release(&g.file);
    saved_close(&s);
}

TEST(gguf_of_a_model_that_rotates_a_part_of_each_head_is_llama_cpps_phi3)
{
    struct model_shape shape = small_shape();
    struct saved s;
    struct gguf_file g;
    struct gguf_info t = {0};
    shape.partial_rotary_factor = 0.5;
    saved_open_shape(&s, &shape);
    const char *path = test_path(test_folder(), "name.gguf");
    CHECK_STATUS(OK, convert(plain_folder(&s), path, SAFETENSORS_F32, false));
    read_gguf(&g, path);
    CHECK(key_equals(&g, "general.architecture", "phi3") && g.num_tensors == 15);
    CHECK(get_number(&g, "phi3.rope.dimension_count") == 2);
    const unsigned char *qkv = find_tensor(&g, "blk.1.attn_qkv.weight", &t);
    CHECK(qkv && t.dims[0] == 16 && t.dims[1] == 32); /* in our order of rows */
    CHECK(!memcmp(qkv, weights_of(&s, PARAM_attn_q, 1), 16 * 16 * sizeof(float)));
    CHECK(!memcmp(qkv + 24 * 16 * 4, weights_of(&s, PARAM_attn_v, 1), 8 * 16 * sizeof(float)));
    const unsigned char *up = find_tensor(&g, "blk.1.ffn_up.weight", &t);
    CHECK(up && t.dims[1] == 48);
    CHECK(!memcmp(up + 24 * 16 * 4, weights_of(&s, PARAM_mlp_up, 1), 24 * 16 * sizeof(float)));
    CHECK(!find_tensor(&g, "blk.0.ffn_gate.weight", &t));
    text_release(&g.file);
    saved_close(&s);
}

static double get_real(const struct gguf_file *g, const char *key)
{
    int kind;
    float value;
    struct reader r = find_key(g, key, &kind);
    uint32_t bits = (uint32_t)read_uint(&r, 4);
    CHECK(kind == GGUF_VALUE_F32);
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

TEST(gguf_of_a_model_with_longrope_has_both_tensors_of_factors)
{
    struct model_shape shape = small_shape();
    struct saved s;
    struct gguf_file g;
    struct gguf_info t = {0};
    shape.scaling = (struct rope_scaling){.factor = 4,
                                          .original_context = 16,
                                          .method = ROPE_longrope,
                                          .attention_factor = 1.5,
                                          .num_factors = 2,
                                          .short_factors = {1, 1.5},
                                          .long_factors = {2, 3.5}};
    saved_open_shape(&s, &shape);
    convert_saved(&s, &g);
    CHECK(key_equals(&g, "general.architecture", "phi3") && g.num_tensors == 17);
    CHECK(get_number(&g, "phi3.rope.scaling.original_context_length") == 16);
    CHECK(get_real(&g, "phi3.rope.scaling.attn_factor") == 1.5);
    const unsigned char *factors = find_tensor(&g, "rope_factors_short.weight", &t);
    CHECK(factors && t.dims[0] == 2 && !memcmp(factors, (const float[]){1, 1.5}, 8));
    factors = find_tensor(&g, "rope_factors_long.weight", &t);
    CHECK(factors && !memcmp(factors, (const float[]){2, 3.5}, 8));
    text_release(&g.file);
    saved_close(&s);
}

TEST(gguf_of_a_model_with_multipliers_is_llama_cpps_granite)
{
    struct model_shape shape = small_shape();
    struct saved s;
    struct gguf_file g;
    model_shape_set_multipliers(&shape, 12, 0.25, 0.125, 8);
    saved_open_shape(&s, &shape);
    convert_saved(&s, &g);
    CHECK(key_equals(&g, "general.architecture", "granite"));
    CHECK(get_real(&g, "granite.embedding_scale") == 12);
    CHECK(get_real(&g, "granite.residual_scale") == 0.25);
    CHECK(get_real(&g, "granite.attention.scale") == 0.125);
    CHECK(get_real(&g, "granite.logit_scale") == 8);
    text_release(&g.file);
    saved_close(&s);
}

TEST(gguf_of_a_model_with_yarn_has_its_keys)
{
    struct model_shape shape = small_shape();
    struct saved s;
    struct gguf_file g;
    shape.qk_norm = true;
    shape.scaling = (struct rope_scaling){
        .factor = 4, .original_context = 32, .method = ROPE_yarn, .beta_fast = 32, .beta_slow = 1};
    saved_open_shape(&s, &shape);
    convert_saved(&s, &g);
    CHECK(key_equals(&g, "qwen3.rope.scaling.type", "yarn") && g.num_tensors == 25);
    CHECK(get_number(&g, "qwen3.rope.scaling.original_context_length") == 32);
    CHECK(get_real(&g, "qwen3.rope.scaling.factor") == 4);
    text_release(&g.file);
    saved_close(&s);
}

TEST(gguf_permutes_the_biases_of_a_llama_and_not_those_of_qwen2)
{
    static const int rows[] = {0, 2, 1, 3, 4, 6, 5, 7}; /* rotary pairs are adjacent */
    for (int i = 0; i < 2; i++) {
        struct model_shape shape = small_shape();
        struct saved s;
        struct gguf_file g;
        struct gguf_info t = {0};
        shape.qkv_bias = true, shape.out_bias = shape.mlp_bias = !i;
        saved_open_shape(&s, &shape);
        convert_saved(&s, &g);
        CHECK(key_equals(&g, "general.architecture", i ? "qwen2" : "llama"));
        CHECK(g.num_tensors == 21 + 2 * (i ? 3 : 7));
        const float *ours = weights_of(&s, PARAM_q_bias, 1), *v = weights_of(&s, PARAM_v_bias, 1);
        const unsigned char *q = find_tensor(&g, "blk.1.attn_q.bias", &t);
        CHECK(q && t.type == GGUF_F32 && t.num_dims == 1 && t.dims[0] == 16);
        for (int k = 0; k < 8; k++)
            CHECK(!memcmp(q + (size_t)k * 4, ours + (i ? k : rows[k]), sizeof(float)));
        const unsigned char *values = find_tensor(&g, "blk.1.attn_v.bias", &t);
        CHECK(values && !memcmp(values, v, (size_t)t.dims[0] * sizeof(float)));
        CHECK((find_tensor(&g, "blk.1.attn_output.bias", &t) != NULL) == !i);
        CHECK((find_tensor(&g, "blk.0.ffn_down.bias", &t) != NULL) == !i);
        text_release(&g.file);
        saved_close(&s);
    }
}

TEST(gguf_norms_are_f32_and_short_rows_fall_back_from_q8_0_to_f16)
{
    static const struct {
        enum safetensors_dtype dtype;
        bool quantized;
        uint32_t type, file_type;
    } types[] = {{SAFETENSORS_F32, false, GGUF_F32, 0},
                 {SAFETENSORS_F16, false, GGUF_F16, 1},
                 {SAFETENSORS_BF16, false, GGUF_BF16, 32},
                 {SAFETENSORS_F32, true, GGUF_F16, 7}};
    struct saved s;
    saved_open(&s, true);
    const char *from = plain_folder(&s);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct gguf_file g;
        struct gguf_info t = {0};
        unsigned char want[37 * 16 * 4];
        const char *path = test_path(test_folder(), "model.gguf");
        CHECK_STATUS(OK, convert(from, path, types[i].dtype, types[i].quantized));
        read_gguf(&g, path);
        CHECK(get_number(&g, "general.file_type") == types[i].file_type && g.num_tensors == 20);
        const unsigned char *at = find_tensor(&g, "token_embd.weight", &t);
        CHECK(at && t.type == types[i].type && t.dims[0] == 16 && t.dims[1] == 37);
        CHECK_STATUS(OK, gguf_convert((enum gguf_type)types[i].type,
                                      weights_of(&s, PARAM_embed, -1), 37 * 16, want));
        CHECK(!memcmp(at, want, gguf_bytes((enum gguf_type)types[i].type, 37 * 16)));
        at = find_tensor(&g, "blk.1.attn_norm.weight", &t);
        CHECK(at && t.type == GGUF_F32 && t.num_dims == 1 && t.dims[0] == 16 && t.offset % 32 == 0);
        CHECK(!memcmp(at, weights_of(&s, PARAM_attn_norm, 1), 16 * sizeof(float)));
        CHECK(!find_tensor(&g, "output.weight", &t));
        text_release(&g.file);
    }
    saved_close(&s);
}

/* Generates the elements of a model whose rows are whole q8_0 blocks. */
static enum status read_generated(void *context, const struct shard_run *p, size_t first,
                                  size_t count, const float **values)
{
    float *room = context;
    for (size_t i = 0; i < count; i++)
        room[i] = (float)rng_normal(3, RNG_TEST, (uint64_t)p->tensor, first + i);
    *values = room;
    return STATUS_OK;
}

TEST(gguf_has_q8_0_rows_tokenizer_and_rope_freqs)
{
    struct model_shape shape = small_shape();
    shape.V = 1003, shape.D = 32, shape.H = 2, shape.K = 16, shape.F = 64, shape.L = shape.G = 1;
    shape.scaling = (struct rope_scaling){
        .factor = 8, .low_frequency_factor = 1, .high_frequency_factor = 4, .original_context = 32};
    struct layout layout;
    struct shard pieces;
    struct gguf_file g;
    struct gguf_info t = {0};
    struct text json = {0};
    int kind;
    layout_init(&layout, &shape, 1);
    shard_init(&pieces, &layout, 0, 1);
    float *room = heap(TENSOR_SOURCE_ELEMENTS * sizeof *room);
    const char *folder = test_folder(), *path = test_path(folder, "model.gguf");
    struct gguf_model m = {
        .model = {&shape, &layout, &pieces, {read_generated, room}, SAFETENSORS_F32},
        .type = GGUF_Q8_0,
        .name = "generated",
        .tokenizer = folder,
        .bos = -1,
        .eos = 5};
    CHECK_STATUS(OK, file_read("tests/tokenizer/data/small.json", 1 << 20, &json));
    CHECK_STATUS(OK, file_write(test_path(folder, "tokenizer.json"), json.data, json.len));
    CHECK_STATUS(OK, gguf_model_write(&m, path));
    read_gguf(&g, path);
    const unsigned char *at = find_tensor(&g, "token_embd.weight", &t);
    CHECK(at && t.type == GGUF_Q8_0 && t.dims[0] == 32 && t.dims[1] == 1003);
    const float *x;
    unsigned char want[2 * GGUF_BLOCK_BYTES];
    CHECK_STATUS(OK, read_generated(room, &pieces.runs[0], 0, 64, &x));
    CHECK_STATUS(OK, gguf_convert(GGUF_Q8_0, x, 64, want));
    CHECK(!memcmp(at, want, sizeof want));
    at = find_tensor(&g, "rope_freqs.weight", &t);
    float divisors[8];
    CHECK(at && t.num_dims == 1 && t.dims[0] == 8 && t.type == GGUF_F32);
    memcpy(divisors, at, sizeof divisors);
    CHECK_NEAR(divisors[0], 1, 1e-6);
    CHECK_NEAR(divisors[7], 8, 1e-6);
    CHECK(key_equals(&g, "tokenizer.ggml.model", "gpt2") &&
          key_equals(&g, "tokenizer.ggml.pre", "dbrx"));
    CHECK(get_number(&g, "tokenizer.ggml.bos_token_id") == 997);
    CHECK(get_number(&g, "tokenizer.ggml.eos_token_id") == 5);
    struct reader r = find_key(&g, "tokenizer.ggml.tokens", &kind);
    CHECK(kind == GGUF_VALUE_ARRAY && read_uint(&r, 4) == GGUF_VALUE_STRING &&
          read_uint(&r, 8) == 1003);
    for (int i = 0; i < 997; i++) string_is(&r, "");
    CHECK(string_is(&r, "<|begin_of_text|>"));
    string_is(&r, ""), string_is(&r, "");
    CHECK(string_is(&r, "[PAD1000]"));
    find_key(&g, "tokenizer.ggml.merges", &kind);
    CHECK(kind == GGUF_VALUE_ARRAY);
    shape.V = 900;
    CHECK_STATUS(DATA, gguf_model_write(&m, path));
    CHECK_MESSAGE("the tokenizer has 1000 tokens, the model only 900");
    text_release(&g.file), text_release(&json);
    shard_release(&pieces);
    layout_release(&layout);
    free(room);
}

TEST(gguf_keeps_existing_files_and_removes_its_own_after_a_failure)
{
    struct saved s;
    saved_open(&s, false);
    const char *from = plain_folder(&s), *folder = test_folder();
    const char *path = test_path(folder, "model.gguf");
    CHECK_STATUS(OK, file_write(path, "x", 1));
    CHECK_STATUS(CONFIG, convert(from, path, SAFETENSORS_F32, false));
    CHECK_MESSAGE("already exists");
    CHECK_STATUS(OK, file_write(test_path(from, "tokenizer.json"), "{", 1));
    CHECK(convert(from, test_path(folder, "other.gguf"), SAFETENSORS_F32, false) != STATUS_OK);
    struct file_list left;
    CHECK_STATUS(OK, file_list_dir(&left, folder));
    CHECK(left.count == 1);
    file_list_release(&left);
    saved_close(&s);
}
