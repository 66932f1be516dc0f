// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/arguments.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "infer/fill_mask.h"
#include "infer/generation.h"
#include "infer/spike_session.h"

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
        FAIL_OUT(USAGE, "--prompt: must not be empty, as the tokenizer has no begin-of-text token");
out:
    encoder_free(encoder);
    return st;
}

static bool is_diffusion(const struct generation *g)
{
    return g->loaded.config.objective.name == OBJECTIVE_diffusion;
}

static enum status prepare(struct generation *g, const char *prompt)
{
    if (!g->loaded.tokenizer)
        FAIL(CONFIG,
             "%s has no tokenizer: name one with --tokenizer, or for a model of spike counts use "
             "--session or --neurons",
             g->loaded.folder);
    TRY(read_prompt(g, prompt));
    if (!is_diffusion(g)) TRY(generation_open(g));
    return STATUS_OK;
}

/* Prints one token's bytes immediately, even if they end inside a UTF-8 character. */
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
    const int32_t *ids = g->ids.ids + g->num_prompt;
    struct text out = {0};
    struct json_writer w = {.text = &out};
    enum status st = STATUS_OK;
    json_begin_object(&w, NULL, JSON_INLINE);
    TRY_OUT(loaded_model_write_text(&g->loaded, ids, made, "text", &w));
    json_begin_array(&w, "ids", JSON_INLINE);
    for (size_t i = 0; i < made; i++) json_write_int(&w, NULL, ids[i]);
    json_end_array(&w);
    json_write_int(&w, "prompt_tokens", (int64_t)g->num_prompt);
    json_write_format(&w, "seconds", "%.3f", seconds);
    json_end_object(&w);
    json_finish(&w);
    puts(out.data);
out:
    text_release(&out);
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
        TRY_OUT(generation_sample(g, &id));
        if (id == tokenizer_eos(t) || id >= tokenizer_vocab_size(t)) break;
        if (generation_is_root(g) && !json) TRY_OUT(print_token(t, id, &bytes));
        TRY_OUT(generation_append(g, id, n + 1 < g->max_tokens));
    }
    double seconds = clock_monotonic_s() - begin;
    if (generation_is_root(g) && json) TRY_OUT(print_json(g, seconds));
    if (generation_is_root(g) && !json) printf("\n");
    log_line(LOG_INFO, "generated %zu tokens in %.2f s", g->ids.count - g->num_prompt, seconds);
out:
    text_release(&bytes);
    return st;
}

/* A row of documents may go on after the end of the first one. */
static void cut_at_end(struct generation *g)
{
    const struct tokenizer *t = g->loaded.tokenizer;
    size_t end = g->num_prompt;
    while (end < g->ids.count && g->ids.ids[end] != tokenizer_eos(t) &&
           g->ids.ids[end] < tokenizer_vocab_size(t))
        end++;
    g->ids.count = end;
}

static enum status generate_by_diffusion(struct generation *g, struct unmasking *how, bool json)
{
    struct text bytes = {0};
    enum status st = STATUS_OK;
    double begin = clock_monotonic_s();
    how->sampling = g->sampling;
    g->num_prompt = g->ids.count;
    TRY_OUT(fill_mask_append(&g->loaded, &g->ids, g->max_tokens, how));
    cut_at_end(g);
    double seconds = clock_monotonic_s() - begin;
    size_t made = g->ids.count - g->num_prompt;
    if (generation_is_root(g) && json) {
        TRY_OUT(print_json(g, seconds));
    } else if (generation_is_root(g)) {
        const int32_t *ids = g->ids.ids + g->num_prompt;
        TRY_OUT(tokenizer_decode(g->loaded.tokenizer, ids, made, &bytes));
        printf("%s\n", bytes.data);
    }
    log_line(LOG_INFO, "generated %zu tokens in %.2f s", made, seconds);
out:
    text_release(&bytes);
    return st;
}

static const char usage[] =
    "generate MODEL [--prompt TEXT | --fill TEXT] [section.key=value ...]\n"
    "       llamero generate MODEL --session DATA | --neurons N --out FILE.npz\n\n"
    "Generates text from a prompt with a causal or diffusion model, or fills in the masks of a\n"
    "text with a masked or diffusion model.  A diffusion model appends --max-tokens masks to the\n"
    "prompt and fills them in, the most confident ones first.  MODEL is a run, a checkpoint or a\n"
    "Hugging Face folder.  Under mpirun or srun, ranks shard the model.\n"
    "With --session a model of spike counts continues the first bins of a recorded session; with\n"
    "--neurons it continues one bin in which a random tenth of N neurons spike.  Each bin is the\n"
    "separator 255, then one count per neuron.  FILE.npz holds prompt, gen (generated), gt (the\n"
    "recorded session: ground truth) and n_neurons.";

enum status command_generate(int argc, char **argv)
{
    const char *prompt = "", *tokenizer = "", *fill = NULL;
    struct generation g = {.max_tokens = 128, .sampling = {.temperature = 0.8, .top_p = 1}};
    struct spike_session session = {.source = {.path = "", .column = "spike_counts", .weight = 1},
                                    .prompt_bins = 1,
                                    .bins = 10,
                                    .out = ""};
    struct unmasking how = {.steps = 0};
    int64_t seed = 0;
    bool json = false;
    const struct flag flags[] = {
        {"prompt", FLAG_TEXT, &prompt, "text to continue"},
        {"fill", FLAG_TEXT, &fill, "text in which a masked model replaces each <mask>"},
        {"max-tokens", FLAG_INT, &g.max_tokens, "generate at most this many tokens (default 128)"},
        {"temperature", FLAG_REAL, &g.sampling.temperature,
         "softmax temperature; 0: greedy (default 0.8)"},
        {"top-k", FLAG_INT, &g.sampling.top_k,
         "sample among the k most likely tokens (default 0: all)"},
        {"top-p", FLAG_REAL, &g.sampling.top_p,
         "sample among the most likely tokens with this total probability (default 1: all)"},
        {"steps", FLAG_INT, &how.steps,
         "forward passes that fill in all masks (default 0: one for each mask)"},
        {"block", FLAG_INT, &how.block,
         "fill in masks in blocks of this many, from left to right (default 0: one block)"},
        {"seed", FLAG_INT, &seed, "seed of the sampler (default 0)"},
        {"tokenizer", FLAG_FILE, &tokenizer, "tokenizer to use instead of the model's own"},
        {"session", FLAG_FILE, &session.source.path,
         "spike counts to continue, .parquet or .arrow"},
        {"column", FLAG_TEXT, &session.source.column,
         "column that holds the spike counts (default spike_counts)"},
        {"row", FLAG_INT, &session.row, "row of the session in the data (default 0)"},
        {"neurons", FLAG_INT, &session.neurons,
         "instead of --session: start from one bin of this many neurons, a tenth of which spike"},
        {"prompt-bins", FLAG_INT, &session.prompt_bins,
         "bins of the session that are the prompt (default 1)"},
        {"bins", FLAG_INT, &session.bins, "bins to generate (default 10)"},
        {"out", FLAG_FILE, &session.out, ".npz file to write the generated bins to"},
        {"json", FLAG_SWITCH, &json, "print one JSON object"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(&a, &(struct arguments_spec){usage, flags, 1, 1}, argc, argv));
    if (a.help) return STATUS_OK;
    if (g.max_tokens < 1 || g.max_tokens > 1 << 24)
        FAIL(USAGE, "--max-tokens: must be between 1 and 2^24, is %lld", (long long)g.max_tokens);
    if (how.steps < 0 || how.block < 0)
        FAIL(USAGE, "--%s: must be at least 0, is %lld", how.steps < 0 ? "steps" : "block",
             (long long)(how.steps < 0 ? how.steps : how.block));
    g.sampling.seed = (uint64_t)seed;
    enum status st = STATUS_OK;
    TRY_OUT(machine_join(&g.loaded.machine));
    if (spike_session_requested(&session)) {
        TRY_OUT(spike_session_read(&session, &g));
    } else if (session.out[0]) {
        FAIL_OUT(USAGE, "--out requires --session or --neurons");
    }
    /* a token is at least one byte; BOS and EOS come on top */
    size_t max_prompt = session.tokens_per_bin ? g.ids.count : strlen(fill ? fill : prompt) + 2;
    struct loaded_model_options o = {.path = a.words[0],
                                     .tokenizer = tokenizer,
                                     .settings = a.settings,
                                     .num_settings = a.num_settings,
                                     .max_tokens = (int)(max_prompt + (size_t)g.max_tokens)};
    TRY_OUT(loaded_model_open(&g.loaded, &o));
    const struct comm *world = &g.loaded.machine.world;
    bool unmasks = fill || (is_diffusion(&g) && !session.tokens_per_bin);
    if (!unmasks && (how.steps || how.block))
        FAIL_OUT(USAGE, "--steps and --block require --fill or a diffusion model");
    if (session.tokens_per_bin) {
        TRY_OUT(comm_agree(world, spike_session_open(&session, &g)));
        TRY_OUT(spike_session_generate(&session, &g, json));
    } else if (fill) {
        how.sampling = g.sampling;
        TRY_OUT(fill_mask_print(&g.loaded, fill, &how, json));
    } else {
        TRY_OUT(comm_agree(world, prepare(&g, prompt)));
        TRY_OUT(is_diffusion(&g) ? generate_by_diffusion(&g, &how, json) : generate(&g, json));
    }
out:
    spike_session_release(&session);
    generation_release(&g, st);
    return st;
}
