// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include "infer/text_generation.h"

TEST(a_text_is_the_same_after_another_prompt_in_the_same_context)
{
    char *run = runs_trained("training.steps=2");
    struct generation g = {.max_tokens = 6, .max_prompt = 20, .repeat_penalty = 1};
    struct text_generation t = {0};
    struct text first = {0};
    const struct loaded_model_options o = {.path = run, .tokenizer = "", .max_tokens = -1};
    CHECK_STATUS(OK, machine_join(&g.loaded.machine));
    CHECK_STATUS(OK, loaded_model_open(&g.loaded, &o));
    CHECK_STATUS(OK, text_generation_encode(&g.loaded, "ab", &g.ids));
    CHECK_STATUS(OK, generation_open(&g));
    CHECK_STATUS(OK, text_generation_run(&t, &g));
    CHECK(g.ids.count == g.num_prompt + 6 &&
          !strcmp(text_generation_finish_name(t.finish), "length"));
    text_add(&first, t.bytes.data, t.bytes.len);
    CHECK_STATUS(OK, text_generation_encode(&g.loaded, "over the path", &g.ids));
    CHECK_STATUS(OK, generation_restart(&g));
    CHECK_STATUS(OK, text_generation_run(&t, &g));
    CHECK_STATUS(OK, text_generation_encode(&g.loaded, "ab", &g.ids));
    CHECK_STATUS(OK, generation_restart(&g));
    CHECK_STATUS(OK, text_generation_run(&t, &g));
    CHECK(t.bytes.len == first.len && !memcmp(t.bytes.data, first.data, first.len));
    CHECK_STATUS(OK,
                 text_generation_encode(&g.loaded, "a prompt of more than twenty bytes", &g.ids));
    CHECK_STATUS(USAGE, generation_restart(&g));
    const char *stop = "e";
    t.stops = &stop, t.num_stops = 1;
    CHECK_STATUS(OK, text_generation_encode(&g.loaded, "ab", &g.ids));
    CHECK_STATUS(OK, generation_restart(&g));
    CHECK_STATUS(OK, text_generation_run(&t, &g));
    CHECK(!memchr(t.bytes.data, 'e', t.bytes.len));
    text_generation_release(&t);
    generation_release(&g, STATUS_OK);
    text_release(&first);
    free(run);
}
