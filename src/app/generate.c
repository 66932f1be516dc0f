// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "infer/fill.h"
#include "infer/generation.h"
#include "infer/sessions.h"

#include <stdio.h>
#include <string.h>

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
out:
    encoder_free(encoder);
    return st;
}

static enum status prepare(struct generation *g, const char *prompt)
{
    if (!g->loaded.tokenizer)
        FAIL(CONFIG,
             "%s has no tokenizer: --tokenizer names one; a model of spike counts goes on from "
             "--session",
             g->loaded.folder);
    TRY(read_prompt(g, prompt));
    TRY(generation_open(g));
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

static enum status print_json(const struct generation *g, double seconds)
{
    size_t made = g->ids.count - g->num_prompt;
    struct text bytes = {0}, out = {0};
    enum status st = STATUS_OK;
    TRY_OUT(tokenizer_decode_part(g->loaded.tokenizer, g->ids.ids + g->num_prompt, made, &bytes));
    text_adds(&out, "{\"text\": ");
    json_quote(&out, text_is_utf8(bytes.data, bytes.len) ? bytes.data : "");
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
    TRY_OUT(generation_prefill(g));
    for (int64_t n = 0; n < g->max_tokens; n++) {
        int32_t id;
        TRY_OUT(generation_choose(g, &id));
        if (id == tokenizer_eos(t) || id >= tokenizer_vocab_size(t)) break;
        if (generation_leads(g) && !json) TRY_OUT(print_token(t, id, &bytes));
        TRY_OUT(generation_append(g, id, n + 1 < g->max_tokens));
    }
    double seconds = clock_monotonic_s() - begin;
    if (generation_leads(g) && json) TRY_OUT(print_json(g, seconds));
    if (generation_leads(g) && !json) printf("\n");
    log_line(LOG_INFO, "%zu tokens in %.2f s", g->ids.count - g->num_prompt, seconds);
out:
    text_release(&bytes);
    return st;
}

enum status command_generate(int argc, char **argv)
{
    const char *prompt = "", *tokenizer = "", *fill = NULL;
    struct generation g = {.max_tokens = 128, .sampling = {.temperature = 0.8, .top_p = 1}};
    struct session session = {.source = {.path = "", .column = "spike_counts", .weight = 1},
                              .prompt_bins = 1,
                              .bins = 10,
                              .out = ""};
    int64_t seed = 0;
    bool json = false;
    const struct flag flags[] = {
        {"prompt", FLAG_TEXT, &prompt, "text to go on from"},
        {"fill", FLAG_TEXT, &fill, "text of a masked model, with <mask> for each token to fill in"},
        {"max-tokens", FLAG_INT, &g.max_tokens, "tokens to write at most (default 128)"},
        {"temperature", FLAG_REAL, &g.sampling.temperature, "0: the likeliest (default 0.8)"},
        {"top-k", FLAG_INT, &g.sampling.top_k, "choose among the k likeliest (default 0: all)"},
        {"top-p", FLAG_REAL, &g.sampling.top_p,
         "choose among the likeliest that hold this "
         "probability (default 1: all)"},
        {"seed", FLAG_INT, &seed, "of the choices (default 0)"},
        {"tokenizer", FLAG_TEXT, &tokenizer, "tokenizer to use instead of the model's own"},
        {"session", FLAG_TEXT, &session.source.path,
         "spike counts to go on from, .parquet or .arrow"},
        {"column", FLAG_TEXT, &session.source.column, "that holds them (default spike_counts)"},
        {"row", FLAG_INT, &session.row, "of the session in the data (default 0)"},
        {"prompt-bins", FLAG_INT, &session.prompt_bins, "bins of it to go on from (default 1)"},
        {"bins", FLAG_INT, &session.bins, "bins to generate (default 10)"},
        {"out", FLAG_TEXT, &session.out, "the .npz file to write them to"},
        {"json", FLAG_SWITCH, &json, "print one JSON object"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(
        &a, flags,
        "generate MODEL [--prompt TEXT | --fill TEXT] [section.key=value ...]\n"
        "       llamero generate MODEL --session DATA --out FILE.npz\n\n"
        "Writes text as a causal model continues the prompt, or a masked one fills in the masks.  "
        "MODEL is\na run, a checkpoint or a Hugging Face folder.  Under mpirun or srun, ranks "
        "share out the model.\n"
        "With --session a model of spike counts goes on from the first bins of a session: every "
        "bin begins\nwith 255, and is then as many counts as the session has neurons.  FILE.npz "
        "holds prompt, gen, gt\n(what the session went on with) and n_neurons.",
        1, 1, argc, argv));
    if (a.help) return STATUS_OK;
    if (g.max_tokens < 1 || g.max_tokens > 1 << 24)
        FAIL(USAGE, "--max-tokens: %lld is not between 1 and 2^24", (long long)g.max_tokens);
    g.sampling.seed = (uint64_t)seed;
    enum status st = STATUS_OK;
    TRY_OUT(machine_join(&g.loaded.machine));
    if (session.source.path[0]) {
        TRY_OUT(session_read(&session, &g));
    } else if (session.out[0]) {
        FAIL_OUT(USAGE, "--out is for what --session begins");
    }
    /* a token has a byte at least */
    size_t most = session.bin ? g.ids.count : strlen(fill ? fill : prompt) + 2;
    TRY_OUT(loaded_open(&g.loaded, a.words[0], tokenizer, a.settings, a.num_settings,
                        (int)(most + (size_t)g.max_tokens)));
    const struct comm *world = &g.loaded.machine.world;
    if (session.bin) {
        TRY_OUT(comm_agree(world, session_open(&session, &g)));
        TRY_OUT(session_generate(&session, &g, json));
    } else if (fill) {
        TRY_OUT(fill_print(&g.loaded, fill, &g.sampling, json));
    } else {
        TRY_OUT(comm_agree(world, prepare(&g, prompt)));
        TRY_OUT(generate(&g, json));
    }
out:
    session_release(&session);
    generation_release(&g, st);
    return st;
}
