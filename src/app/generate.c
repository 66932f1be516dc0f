// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/loaded.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "model/sampling.h"

#include <stdio.h>
#include <string.h>

/* Prompt tokens go through the model in pieces, so that a long prompt needs no more memory. */
enum { PIECE = 256 };

struct generation {
    struct loaded loaded;
    struct token_list ids; /* prompt, then what was generated */
    size_t num_prompt;
    int64_t max_tokens;
    struct sampling sampling;
    struct arena run;
    struct kv_cache cache;
    float *logits_V;
    struct candidate *order_V;
};

static enum status rehearse(void *context)
{
    struct generation *g = context;
    int piece = g->num_prompt < PIECE ? (int)g->num_prompt : PIECE;
    TRY(model_decode(&g->loaded.model, &g->cache, NULL, piece, NULL, &g->loaded.step));
    g->cache.length = 0;
    return STATUS_OK;
}

static enum status take(struct generation *g)
{
    const struct model *m = &g->loaded.model;
    size_t V = (size_t)g->loaded.shape.V;
    TRY(kv_cache_init(&g->cache, m, 1, (int)(g->num_prompt + (size_t)g->max_tokens), &g->run));
    g->logits_V = arena_take(&g->run, V, sizeof *g->logits_V);
    g->order_V = arena_take(&g->run, V, sizeof *g->order_V);
    return STATUS_OK;
}

static enum status open_buffers(struct generation *g)
{
    TRY(take(g));
    TRY(loaded_arena(&g->loaded, rehearse, g));
    size_t bytes = g->run.used;
    TRY(arena_init(&g->run, bytes));
    TRY(take(g));
    return STATUS_OK;
}

static enum status read_prompt(struct generation *g, const char *prompt)
{
    const struct tokenizer *t = g->loaded.tokenizer;
    struct encoder *encoder = NULL;
    enum status st = STATUS_OK;
    token_list_reserve(&g->ids, 1);
    if (g->loaded.config.data.bos && tokenizer_bos(t) >= 0)
        g->ids.ids[g->ids.count++] = tokenizer_bos(t);
    TRY_OUT(encoder_make(&encoder, t));
    TRY_OUT(encoder_encode(encoder, prompt, strlen(prompt), &g->ids));
    if (!g->ids.count)
        FAIL_OUT(USAGE, "--prompt: the tokenizer has no begin-of-text token, so an "
                        "empty prompt has nothing to go on from");
    g->num_prompt = g->ids.count;
    token_list_reserve(&g->ids, (size_t)g->max_tokens);
out:
    encoder_free(encoder);
    return st;
}

static enum status prepare(struct generation *g, const char *prompt)
{
    if (!strcmp(g->loaded.config.objective.name, "masked"))
        FAIL(CONFIG, "%s was trained to fill in masked tokens; generate needs a causal model",
             g->loaded.folder);
    TRY(read_prompt(g, prompt));
    TRY(open_buffers(g));
    return STATUS_OK;
}

static enum status prefill(struct generation *g)
{
    for (size_t at = 0; at < g->num_prompt; at += PIECE) {
        size_t left = g->num_prompt - at, piece = left < PIECE ? left : PIECE;
        TRY(model_decode(&g->loaded.model, &g->cache, g->ids.ids + at, (int)piece, g->logits_V,
                         &g->loaded.step));
    }
    return STATUS_OK;
}

/* Bytes of one token, written as soon as they are known. */
static enum status print_token(const struct tokenizer *t, int32_t id, struct text *bytes)
{
    text_clear(bytes);
    TRY(tokenizer_decode_part(t, &id, 1, bytes));
    fwrite(bytes->data, 1, bytes->len, stdout);
    fflush(stdout);
    return STATUS_OK;
}

static bool leads(const struct generation *g) { return g->loaded.machine.world.rank == 0; }

/* Rank 0's choice: others may know the logits with other last bits. */
static enum status choose(struct generation *g, int32_t *id)
{
    double choice = 0;
    if (leads(g))
        choice =
            sampling_pick(&g->sampling, g->logits_V, g->loaded.shape.V, g->ids.count, g->order_V);
    TRY(comm_all_reduce(&g->loaded.machine.world, REDUCE_SUM, &choice, 1));
    *id = (int32_t)choice;
    return STATUS_OK;
}

static enum status print_json(const struct generation *g, double seconds)
{
    size_t made = g->ids.count - g->num_prompt;
    struct text bytes = {0}, out = {0};
    enum status st = STATUS_OK;
    TRY_OUT(tokenizer_decode_part(g->loaded.tokenizer, g->ids.ids + g->num_prompt, made, &bytes));
    text_adds(&out, "{\"text\": ");
    json_quote(&out, utf8_valid(bytes.data, bytes.len) ? bytes.data : "");
    text_adds(&out, ", \"ids\": [");
    for (size_t i = 0; i < made; i++)
        text_addf(&out, "%s%d", i ? ", " : "", g->ids.ids[g->num_prompt + i]);
    printf("%s], \"prompt_tokens\": %zu, \"seconds\": %.3f}\n", out.data, g->num_prompt, seconds);
out:
    text_release(&bytes), text_release(&out);
    return st;
}

static enum status generate(struct generation *g, bool json)
{
    const struct tokenizer *t = g->loaded.tokenizer;
    struct text bytes = {0};
    enum status st = STATUS_OK;
    double begin = clock_monotonic_s();
    TRY_OUT(prefill(g));
    for (int64_t n = 0; n < g->max_tokens; n++) {
        int32_t id;
        TRY_OUT(choose(g, &id));
        if (id == tokenizer_eos(t) || id >= tokenizer_vocab_size(t)) break;
        g->ids.ids[g->ids.count++] = id;
        if (leads(g) && !json) TRY_OUT(print_token(t, id, &bytes));
        if (n + 1 < g->max_tokens)
            TRY_OUT(
                model_decode(&g->loaded.model, &g->cache, &id, 1, g->logits_V, &g->loaded.step));
    }
    double seconds = clock_monotonic_s() - begin;
    if (leads(g) && json) TRY_OUT(print_json(g, seconds));
    if (leads(g) && !json) printf("\n");
    log_line(LOG_INFO, "%zu tokens in %.2f s", g->ids.count - g->num_prompt, seconds);
out:
    text_release(&bytes);
    return st;
}

enum status command_generate(int argc, char **argv)
{
    const char *prompt = "", *tokenizer = "";
    struct generation g = {.max_tokens = 128, .sampling = {.temperature = 0.8, .top_p = 1}};
    int64_t seed = 0;
    bool json = false;
    const struct flag flags[] = {
        {"prompt", FLAG_TEXT, &prompt, "text to go on from"},
        {"max-tokens", FLAG_INT, &g.max_tokens, "tokens to write at most (default 128)"},
        {"temperature", FLAG_REAL, &g.sampling.temperature, "0: the likeliest (default 0.8)"},
        {"top-k", FLAG_INT, &g.sampling.top_k, "choose among the k likeliest (default 0: all)"},
        {"top-p", FLAG_REAL, &g.sampling.top_p,
         "choose among the likeliest that hold this "
         "probability (default 1: all)"},
        {"seed", FLAG_INT, &seed, "of the choices (default 0)"},
        {"tokenizer", FLAG_TEXT, &tokenizer, "tokenizer to use instead of the model's own"},
        {"json", FLAG_SWITCH, &json, "print one JSON object"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(
        &a, flags,
        "generate MODEL [--prompt TEXT] [section.key=value ...]\n\n"
        "Writes text as a causal model continues the prompt.  MODEL is a run, a "
        "checkpoint or a\nHugging Face folder.  Under mpirun or srun, ranks share out the model.",
        1, 1, argc, argv));
    if (a.help) return STATUS_OK;
    if (g.max_tokens < 1 || g.max_tokens > 1 << 24)
        FAIL(USAGE, "--max-tokens: %lld is not between 1 and 2^24", (long long)g.max_tokens);
    g.sampling.seed = (uint64_t)seed;
    int positions =
        (int)(strlen(prompt) + 1 + (size_t)g.max_tokens); /* a token has a byte at least */
    enum status st = STATUS_OK;
    TRY_OUT(machine_join(&g.loaded.machine));
    TRY_OUT(loaded_open(&g.loaded, a.words[0], tokenizer, a.settings, a.num_settings, positions));
    TRY_OUT(comm_agree(&g.loaded.machine.world, prepare(&g, prompt)));
    TRY_OUT(generate(&g, json));
out:
    loaded_close(&g.loaded, st);
    token_list_release(&g.ids);
    arena_release(&g.run);
    return st;
}
