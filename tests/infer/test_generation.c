// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include "infer/generation.h"

static void start(struct generation *g, const char *run, int prompt, int64_t max_tokens)
{
    *g = (struct generation){.max_tokens = max_tokens, .sampling = {.temperature = 0}};
    CHECK_STATUS(OK, machine_join(&g->loaded.machine));
    struct loaded_model_options o = {
        .path = run, .tokenizer = "", .max_tokens = prompt + (int)max_tokens};
    CHECK_STATUS(OK, loaded_model_open(&g->loaded, &o));
    token_list_reserve(&g->ids, (size_t)prompt);
    for (int i = 0; i < prompt; i++) g->ids.ids[g->ids.count++] = 97 + i % 5;
}

/* Chunked prefill and token-by-token decoding must agree. */
TEST(appended_tokens_equal_a_longer_prompt)
{
    char *run = runs_trained("training.steps=2");
    struct generation a, b;
    start(&a, run, 300, 2);
    start(&b, run, 290, 12);
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
