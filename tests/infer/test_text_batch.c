// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include "infer/text_batch.h"

#define IN_FLOAT32 "training.steps=20 training.mixed_precision_param=float32"

enum { COUNT = 7, TOKENS = 9 };

static const char *const prompts[COUNT] = {
    "the llama ", "a",         "walks over the high path and ", "salt", "snow falls where the ",
    "b",          "the llama "};

struct visits {
    size_t count;
    char *texts[COUNT];
    enum text_finish finish[COUNT];
    size_t made[COUNT];
};

static enum status visit(void *context, const struct text_batch_item *item)
{
    struct visits *v = context;
    CHECK(item->prompt == prompts[v->count] && item->is_done);
    v->finish[v->count] = item->text.finish;
    v->made[v->count] = item->ids.count - item->num_prompt;
    v->texts[v->count++] =
        heap_string(item->text.bytes.data ? item->text.bytes.data : "", item->text.bytes.len);
    return STATUS_OK;
}

/* Generates after all prompts with `rows` texts at a time. */
static void run_batch(const char *run, int rows, const char *stop, struct visits *v)
{
    struct generation g = {.max_tokens = TOKENS,
                           .num_rows = rows,
                           .repeat_penalty = 1.1,
                           .sampling = {.temperature = 0.9, .top_p = 1}};
    const struct loaded_model_options o = {.path = run, .tokenizer = "", .max_tokens = 64};
    struct text_batch_item items[COUNT];
    for (int i = 0; i < COUNT; i++)
        items[i] = (struct text_batch_item){.prompt = prompts[i], .seed = (uint64_t)(5 + i)};
    struct text_batch b = {items, COUNT, &stop, stop != NULL, visit, v, 0, 0};
    *v = (struct visits){0};
    CHECK_STATUS(OK, machine_join(&g.loaded.machine));
    CHECK_STATUS(OK, loaded_model_open(&g.loaded, &o));
    CHECK_STATUS(OK, text_batch_run(&b, &g));
    text_batch_release(&b);
    generation_release(&g, STATUS_OK);
}

static void release(struct visits *v)
{
    for (size_t i = 0; i < v->count; i++) free(v->texts[i]);
}

TEST(texts_of_a_batch_are_those_of_single_prompts)
{
    char *run = runs_trained(IN_FLOAT32);
    struct visits alone, together;
    run_batch(run, 1, NULL, &alone);
    CHECK(alone.count == COUNT);
    for (int rows = 2; rows <= 64; rows = rows == 2 ? 3 : rows == 3 ? 64 : 65) {
        run_batch(run, rows, NULL, &together);
        CHECK(together.count == COUNT);
        for (int i = 0; i < COUNT; i++) {
            CHECK(together.made[i] == TOKENS && together.finish[i] == TEXT_FINISH_length);
            CHECK(!strcmp(alone.texts[i], together.texts[i]));
        }
        release(&together);
    }
    CHECK(strcmp(alone.texts[0], alone.texts[6])); /* the same prompt, another seed */
    release(&alone);
    free(run);
}

TEST(texts_of_a_batch_end_at_a_stop_text_and_make_room)
{
    char *run = runs_trained(IN_FLOAT32);
    struct visits whole, cut;
    run_batch(run, 3, NULL, &whole);
    const char stop[] = {whole.texts[0][4], 0}; /* a byte that occurs */
    if (!*stop) skip();
    run_batch(run, 3, stop, &cut);
    int stopped = 0;
    CHECK(cut.count == COUNT);
    for (int i = 0; i < COUNT; i++) {
        const char *found = strchr(whole.texts[i], *stop);
        size_t len = found ? (size_t)(found - whole.texts[i]) : strlen(whole.texts[i]);
        stopped += found != NULL;
        CHECK(strlen(cut.texts[i]) == len && !memcmp(cut.texts[i], whole.texts[i], len));
        CHECK(cut.finish[i] == (found ? TEXT_FINISH_stop : TEXT_FINISH_length));
    }
    CHECK(stopped > 0);
    release(&whole), release(&cut);
    free(run);
}
