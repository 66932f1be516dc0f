// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/files/tiktoken_scheme.h"

#include "hub/digest.h"
#include "tokenizer/text/split.h"
#include "tokenizer/tokenizer_impl.h"

#include <stdio.h>
#include <string.h>

/* Special tokens with consecutive IDs.  With `count`, `name` is a prefix that a number and "|>"
 * follow.  Runs are in ascending order of ID; of two names with one ID the first is displayed. */
struct special_run {
    int at; /* ID of the first, relative to the number of ranks */
    const char *name;
    int first, count; /* the numbers */
};

static const char reserved[] = "<|reserved_special_token_";

/* Later models named four of the reserved tokens: there both names map to the ID.  (Later models
 * also renumber the reserved ones; the numbers here are those of Llama 3.) */
static const struct special_run llama3_specials[] = {
    {0, "<|begin_of_text|>", 0, 0},
    {1, "<|end_of_text|>", 0, 0},
    {2, reserved, 0, 2},
    {4, "<|finetune_right_pad_id|>", 0, 0},
    {4, reserved, 2, 1},
    {5, "<|step_id|>", 0, 0},
    {5, reserved, 3, 1},
    {6, "<|start_header_id|>", 0, 0},
    {7, "<|end_header_id|>", 0, 0},
    {8, "<|eom_id|>", 0, 0},
    {8, reserved, 4, 1},
    {9, "<|eot_id|>", 0, 0},
    {10, "<|python_tag|>", 0, 0},
    {10, reserved, 5, 1},
    {11, reserved, 6, 245},
    {0},
};

static const char post_train[] = "<|text_post_train_reserved_special_token_";
static const char vision[] = "<|vision_reserved_special_token_";
static const struct special_run llama4_specials[] = {
    {0, "<|begin_of_text|>", 0, 0},
    {1, "<|end_of_text|>", 0, 0},
    {2, "<|fim_prefix|>", 0, 0},
    {3, "<|fim_middle|>", 0, 0},
    {4, "<|fim_suffix|>", 0, 0},
    {5, "<|header_start|>", 0, 0},
    {6, "<|header_end|>", 0, 0},
    {7, "<|eom|>", 0, 0},
    {8, "<|eot|>", 0, 0},
    {9, "<|step|>", 0, 0},
    {10, post_train, 0, 6},
    {16, "<|python_start|>", 0, 0},
    {17, "<|python_end|>", 0, 0},
    {18, "<|finetune_right_pad|>", 0, 0},
    {19, post_train, 8, 61},
    {80, "<|image_start|>", 0, 0},
    {81, "<|image_end|>", 0, 0},
    {82, vision, 0, 2},
    {84, "<|tile_x_separator|>", 0, 0},
    {85, "<|tile_y_separator|>", 0, 0},
    {86, vision, 2, 4},
    {90, "<|image|>", 0, 0},
    {91, vision, 6, 1},
    {92, "<|patch|>", 0, 0},
    {93, vision, 7, 1041},
    {1134, "<|reasoning_reserved_special_token_", 0, 8},
    {1142, "<|reasoning_thinking_start|>", 0, 0},
    {1143, "<|reasoning_thinking_end|>", 0, 0},
    {1144, reserved, 0, 904},
    {0},
};

static const struct special_run gpt2_specials[] = {{0, "<|endoftext|>", 0, 0}, {0}};
/* p50k_base: 24 runs of spaces follow <|endoftext|>. */
static const struct special_run p50k_specials[] = {{-25, "<|endoftext|>", 0, 0}, {0}};
static const struct special_run cl100k_specials[] = {
    {1, "<|endoftext|>", 0, 0},  {2, "<|fim_prefix|>", 0, 0},   {3, "<|fim_middle|>", 0, 0},
    {4, "<|fim_suffix|>", 0, 0}, {20, "<|endofprompt|>", 0, 0}, {0},
};
static const struct special_run o200k_specials[] = {
    {1, "<|endoftext|>", 0, 0}, {20, "<|endofprompt|>", 0, 0}, {0}};
static const struct special_run qwen_specials[] = {
    {0, "<|endoftext|>", 0, 0},
    {1, "<|im_start|>", 0, 0},
    {2, "<|im_end|>", 0, 0},
    {3, "<|extra_", 0, 205},
    {0},
};

static const char begin_of_text[] = "<|begin_of_text|>", end_of_text[] = "<|end_of_text|>";
static const char endoftext[] = "<|endoftext|>";

enum { LLAMA3, LLAMA4, GPT2, P50K, CL100K, O200K, QWEN, NUM_SCHEMES };
static const struct tiktoken_scheme schemes[NUM_SCHEMES] = {
    [LLAMA3] = {"llama3", split_llama3_pattern, FORM_NONE, llama3_specials, begin_of_text,
                end_of_text},
    [LLAMA4] = {"llama4", split_o200k_pattern, FORM_NONE, llama4_specials, begin_of_text,
                end_of_text},
    [GPT2] = {"gpt2", split_gpt2_pattern, FORM_NONE, gpt2_specials, NULL, endoftext},
    [P50K] = {"p50k", split_gpt2_pattern, FORM_NONE, p50k_specials, NULL, endoftext},
    [CL100K] = {"cl100k", split_cl100k_pattern, FORM_NONE, cl100k_specials, NULL, endoftext},
    [O200K] = {"o200k", split_o200k_pattern, FORM_NONE, o200k_specials, NULL, endoftext},
    [QWEN] = {"qwen", split_qwen2_pattern, FORM_NFC, qwen_specials, NULL, endoftext},
};

static const struct public_file {
    size_t size;
    const char *sha256;
    int scheme;
} public_files[] = {
    {2183982, "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55", LLAMA3},
    {3622230, "d0bdbaf59b0762c8c807617e2d8ea51420eb1b1de266df2495be755c8e0ed6ed", LLAMA4},
    /* r50k_base.tiktoken; Whisper's gpt2.tiktoken is the same file */
    {835554, "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930", GPT2},
    /* Whisper's multilingual.tiktoken, without the tokens of its languages */
    {816730, "b34b360dbb493e781e479794586d661700670d65564001f23024971d1f2fa126", GPT2},
    {836186, "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069", P50K},
    {1681126, "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7", CL100K},
    {3613922, "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d", O200K},
    {2561218, "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186", QWEN},
};

const struct tiktoken_scheme *tiktoken_scheme_of_file(const char *bytes, size_t len)
{
    for (size_t i = 0; i < sizeof public_files / sizeof *public_files; i++) {
        if (public_files[i].size != len) continue;
        struct digest d;
        char hex[DIGEST_HEX];
        digest_init(&d, DIGEST_SHA256);
        digest_add(&d, bytes, len);
        digest_hex(&d, hex);
        if (!strcmp(hex, public_files[i].sha256)) return &schemes[public_files[i].scheme];
    }
    return NULL;
}

const struct tiktoken_scheme *tiktoken_scheme_find(const char *name)
{
    for (int i = 0; i < NUM_SCHEMES; i++)
        if (!strcmp(schemes[i].name, name)) return &schemes[i];
    return NULL;
}

void tiktoken_scheme_list(struct text *out)
{
    for (int i = 0; i < NUM_SCHEMES; i++) text_addf(out, "%s%s", i ? ", " : "", schemes[i].name);
}

void tiktoken_scheme_add_specials(const struct tiktoken_scheme *s, struct tokenizer *t,
                                  int32_t num_ranks)
{
    char name[64];
    t->vocab_size = num_ranks;
    for (const struct special_run *r = s->specials; r->name; r++) {
        int32_t id = num_ranks + r->at;
        if (id < 0) continue; /* p50k's, for a vocabulary of fewer tokens */
        if (!r->count) special_tokens_add(&t->special_tokens, r->name, id);
        for (int i = 0; i < r->count; i++) {
            snprintf(name, sizeof name, "%s%d|>", r->name, r->first + i);
            special_tokens_add(&t->special_tokens, name, id + i);
        }
        int32_t end = id + (r->count ? r->count : 1);
        if (end > t->vocab_size) t->vocab_size = end;
    }
    t->bos = s->bos ? special_tokens_find(&t->special_tokens, s->bos) : -1;
    t->eos = special_tokens_find(&t->special_tokens, s->eos);
}
