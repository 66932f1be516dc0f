// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include "infer/generation.h"
#include "tokenizer/rig.h"

static void start(struct generation *g, const char *run, const char *tokenizer, int prompt,
                  int64_t max_tokens)
{
    *g = (struct generation){.max_tokens = max_tokens, .sampling = {.temperature = 0}};
    CHECK_STATUS(OK, machine_join(&g->loaded.machine));
    struct loaded_model_options o = {
        .path = run, .tokenizer = tokenizer, .max_tokens = prompt + (int)max_tokens};
    CHECK_STATUS(OK, loaded_model_open(&g->loaded, &o));
    token_list_reserve(&g->ids, (size_t)prompt);
    for (int i = 0; i < prompt; i++) g->ids.ids[g->ids.count++] = 97 + i % 5;
}

/* Chunked prefill and token-by-token decoding must agree. */
TEST(appended_tokens_equal_a_longer_prompt)
{
    char *run = runs_trained("training.steps=2");
    struct generation a, b;
    start(&a, run, "", 300, 2);
    start(&b, run, "", 290, 12);
    CHECK_STATUS(OK, generation_open(&a));
    CHECK_STATUS(OK, generation_open(&b));
    CHECK(generation_is_root(&a) && a.num_prompt == 300);
    CHECK_STATUS(OK, generation_prefill(&a));
    CHECK_STATUS(OK, generation_prefill(&b));
    for (int i = 290; i < 300; i++) CHECK_STATUS(OK, generation_append(&b, 97 + i % 5, true));
    CHECK(b.ids.count == 300);
    for (int v = 0; v < a.loaded.shape.V; v++)
        CHECK_NEAR((double)a.logits_V[v], (double)b.logits_V[v], 2e-2); /* bfloat16 */
    int32_t id;
    a.logits_V[3] = 1e9f;
    CHECK_STATUS(OK, generation_sample(&a, &id));
    CHECK(id == 3);
    CHECK_STATUS(OK, generation_append(&a, id, false));
    CHECK(a.ids.ids[300] == 3);
    generation_release(&a, STATUS_OK);
    generation_release(&b, STATUS_OK);
    free(run);
}

/* As eval's loss, the log-probability is that of a softmax over the model's whole vocabulary. */
TEST(ids_that_the_tokenizer_lacks_are_never_drawn)
{
    char *run = runs_trained("training.steps=1 model.vocab_size=320");
    const char *path = test_path(test_folder(), "tokenizer.json");
    const struct json_parts sparse = {
        .added_tokens =
            "{\"id\": 256, \"content\": \"<s>\"}, {\"id\": 300, \"content\": \"</s>\"}"};
    struct text file = {0};
    struct generation g;
    int32_t id;
    write_json(&file, &sparse);
    CHECK_STATUS(OK, file_write(path, file.data, file.len));
    start(&g, run, path, 4, 3);
    CHECK_STATUS(OK, generation_open(&g));
    CHECK_STATUS(OK, generation_prefill(&g));
    g.logits_V[280] = 1e3f, g.logits_V[310] = 1e3f, g.logits_V[300] = 999;
    CHECK_STATUS(OK, generation_sample(&g, &id));
    CHECK(id == 300);
    CHECK_NEAR(g.log_probabilities[0], -1 - log(2 + exp(-1)), 1e-6);
    g.sampling.temperature = 1e9, g.repeat_penalty = 1.5;
    for (uint64_t seed = 0; seed < 200; seed++) {
        g.sampling.seed = seed;
        CHECK_STATUS(OK, generation_sample(&g, &id));
        CHECK(tokenizer_has(g.loaded.tokenizer, id));
    }
    generation_release(&g, STATUS_OK);
    text_release(&file);
    free(run);
}
