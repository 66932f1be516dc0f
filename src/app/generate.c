// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/arguments.h"
#include "app/flag_modes.h"
#include "app/launch_flags.h"
#include "app/prompt_list.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/terminal_text.h"
#include "infer/fill_mask.h"
#include "infer/generation.h"
#include "infer/spike_session.h"
#include "infer/text_generation.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool is_diffusion(const struct generation *g)
{
    return g->loaded.config.objective.name == OBJECTIVE_diffusion;
}

static enum status prepare(struct generation *g, const char *prompt)
{
    TRY(text_generation_set_prompt(g, prompt));
    if (!is_diffusion(g)) TRY(generation_open(g));
    return STATUS_OK;
}

static enum status generate(struct generation *g, const struct flag_list *stops, bool json)
{
    struct text_generation t = {.stops = stops->items, .num_stops = stops->count, .prints = !json};
    enum status st = STATUS_OK;
    TRY_OUT(text_generation_run(&t, g));
    const struct generated_text made = {&t, &g->ids, g->num_prompt, g->log_probabilities, NULL};
    if (generation_is_root(g) && json) TRY_OUT(text_generation_print_json(&g->loaded, &made));
    if (generation_is_root(g) && !json) printf("\n");
    log_line(LOG_INFO, "generated %zu tokens in %.2f s", g->ids.count - g->num_prompt, t.seconds);
out:
    text_generation_release(&t);
    return st;
}

/* `count` texts from the same prompt, with the seeds that follow each other; each after `echo`. */
static enum status generate_texts(struct generation *g, const struct flag_list *stops,
                                  int64_t count, const char *echo, bool json)
{
    for (int64_t i = 0; i < count && !signals_pending(); i++) {
        if (i && generation_is_root(g) && !json) printf("\n");
        if (i) generation_rewind(g);
        if (generation_is_root(g) && !json) fputs(echo, stdout);
        TRY(generate(g, stops, json));
        g->sampling.seed++;
    }
    return STATUS_OK;
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
        const struct text_generation whole = {.seconds = seconds};
        const struct generated_text t = {&whole, &g->ids, g->num_prompt, NULL, NULL};
        TRY_OUT(text_generation_print_json(&g->loaded, &t));
    } else if (generation_is_root(g)) {
        const int32_t *ids = g->ids.ids + g->num_prompt;
        TRY_OUT(tokenizer_decode(g->loaded.tokenizer, ids, made, &bytes));
        terminal_text_write(bytes.data, bytes.len, true);
        printf("\n");
    }
    log_line(LOG_INFO, "generated %zu tokens in %.2f s", made, seconds);
out:
    text_release(&bytes);
    return st;
}

static enum status check_sampling(const struct generation *g, const struct flag_list *stops,
                                  int64_t count)
{
    const struct sampling *s = &g->sampling;
    if (!(s->temperature >= 0 && s->temperature <= 100))
        FAIL(USAGE, "--temperature: must be between 0 and 100, is %g", s->temperature);
    if (!(s->top_p > 0 && s->top_p <= 1))
        FAIL(USAGE, "--top-p: must be above 0 and at most 1, is %g", s->top_p);
    if (s->top_k < 0) FAIL(USAGE, "--top-k: must be at least 0, is %lld", (long long)s->top_k);
    if (!(s->min_p >= 0 && s->min_p <= 1))
        FAIL(USAGE, "--min-p: must be between 0 and 1, is %g", s->min_p);
    if (!(g->repeat_penalty > 0 && g->repeat_penalty <= 100))
        FAIL(USAGE, "--repeat-penalty: must be above 0 and at most 100, is %g", g->repeat_penalty);
    if (count < 1 || count > 1 << 20)
        FAIL(USAGE, "--n: must be between 1 and 2^20, is %lld", (long long)count);
    for (int i = 0; i < stops->count; i++)
        if (!stops->items[i][0]) FAIL(USAGE, "--stop: the text must not be empty");
    return STATUS_OK;
}

/* Rejects two inputs, and flags that the chosen one does not read. */
static enum status check_modes(const struct flag *flags, uint64_t given)
{
    static const char all[] = "prompt|prompts|fill|session|neurons";
    struct flag_modes m = {.before = "--", .all = all, .mode = NULL};
    for (int i = 0; flags[i].name; i++) {
        if (!(given >> i & 1) || !text_is_choice(all, flags[i].name, strlen(flags[i].name)))
            continue;
        if (m.mode)
            FAIL(USAGE, "--%s and --%s: only one of them can be the input", m.mode, flags[i].name);
        m.mode = flags[i].name;
    }
    if (!m.mode) m.mode = "prompt";
    return flag_modes_check(&m, flags, given);
}

static enum status read_stdin(struct text *t)
{
    char bytes[1 << 16];
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, stdin)) > 0;) text_add(t, bytes, n);
    if (ferror(stdin)) FAIL(IO, "--prompt -: standard input: %s", strerror(errno));
    if (t->len && memchr(t->data, 0, t->len)) FAIL(DATA, "--prompt -: the prompt has a NUL byte");
    return STATUS_OK;
}

static const char usage[] =
    "generate MODEL [--prompt TEXT | --prompts FILE | --fill TEXT] [section.key=value ...]\n"
    "       llamero generate MODEL --session DATA | --neurons N --out FILE.npz\n\n"
    "Generates text from a prompt with a causal or diffusion model, or fills in the masks of a\n"
    "text with a masked or diffusion model.  A diffusion model appends --max-tokens masks to the\n"
    "prompt and fills them in, the most confident ones first.  MODEL is a run, a checkpoint or a\n"
    "Hugging Face folder.  With --ranks, or under mpirun or srun, ranks shard the model.\n"
    "Ctrl-C ends the text.  --json gives ids, log-probabilities under the model itself, and why\n"
    "the text ended: length, eos, stop or interrupt; with --n an object per line.\n"
    "--prompts decodes the prompts of a file together, and prints an object per text, in order.\n"
    "With --session a model of spike counts continues the first bins of a recorded session; with\n"
    "--neurons it continues one bin in which a random tenth of N neurons spike.  Each bin is the\n"
    "separator 255, then one count per neuron.  FILE.npz holds prompt, gen (generated), gt (the\n"
    "recorded session: ground truth) and n_neurons.";

enum status command_generate(int argc, char **argv)
{
    const char *prompt = "", *tokenizer = "", *fill = NULL, *file = NULL;
    struct generation g = {
        .max_tokens = 128, .repeat_penalty = 1, .sampling = {.temperature = 0.8, .top_p = 1}};
    struct spike_session session = {.source = {.path = "", .column = "spike_counts", .weight = 1},
                                    .prompt_bins = 1,
                                    .bins = 10,
                                    .out = ""};
    struct unmasking how = {.steps = 0};
    int64_t seed = 0, count = 1, batch = 16;
    struct prompt_list prompts = {0};
    struct flag_list stops = {0};
    struct text input = {0};
    bool json = false, echo = false, is_rank;
    struct launch_flags launch = LAUNCH_NONE;
    const struct flag flags[] = {
        {"prompt", FLAG_TEXT, &prompt, "text to continue; -: standard input"},
        {"prompts", FLAG_FILE, &file,
         "file of prompts: a .jsonl file with \"prompt\" in each line, or lines of text"},
        {"batch", FLAG_INT, &batch, "prompts: texts to decode together, 1 to 64 (default 16)"},
        {"fill", FLAG_TEXT, &fill, "text in which a masked model replaces each <mask>"},
        {"max-tokens", FLAG_INT, &g.max_tokens,
         "prompt, prompts: generate at most this many tokens (default 128)"},
        {"temperature", FLAG_REAL, &g.sampling.temperature,
         "softmax temperature; 0: greedy (default 0.8)"},
        {"top-k", FLAG_INT, &g.sampling.top_k,
         "sample among the k most likely tokens (default 0: all)"},
        {"top-p", FLAG_REAL, &g.sampling.top_p,
         "sample among the most likely tokens with this total probability (default 1: all)"},
        {"min-p", FLAG_REAL, &g.sampling.min_p,
         "leave out tokens less likely than this fraction of the most likely one (default 0)"},
        {"repeat-penalty", FLAG_REAL, &g.repeat_penalty,
         "divide the logits of tokens that occur in prompt and text by this (default 1: none)"},
        {"stop", FLAG_LIST, &stops, "prompt, prompts: end before this text; may be repeated"},
        {"n", FLAG_INT, &count,
         "prompt, prompts: texts to generate, with seeds from --seed on (default 1)"},
        {"echo", FLAG_SWITCH, &echo, "prompt: print the prompt before the text"},
        {"steps", FLAG_INT, &how.steps,
         "prompt, fill: forward passes that fill in all masks (default 0: one for each mask)"},
        {"block", FLAG_INT, &how.block,
         "prompt, fill: fill in masks in blocks of this many, from left to right (default 0: one "
         "block)"},
        {"seed", FLAG_INT, &seed, "seed of the sampler (default 0)"},
        {"tokenizer", FLAG_FILE, &tokenizer, "tokenizer to use instead of the model's own"},
        {"session", FLAG_FILE, &session.source.path,
         "spike counts to continue, .parquet or .arrow"},
        {"column", FLAG_TEXT, &session.source.column,
         "session: column that holds the spike counts (default spike_counts)"},
        {"row", FLAG_INT, &session.row, "session: row of the session in the data (default 0)"},
        {"neurons", FLAG_INT, &session.neurons,
         "instead of --session: start from one bin of this many neurons, a tenth of which spike"},
        {"prompt-bins", FLAG_INT, &session.prompt_bins,
         "session: bins of the session that are the prompt (default 1)"},
        {"bins", FLAG_INT, &session.bins, "session, neurons: bins to generate (default 10)"},
        {"out", FLAG_FILE, &session.out,
         "session, neurons: .npz file to write the generated bins to"},
        LAUNCH_FLAGS(&launch),
        {"json", FLAG_SWITCH, &json, "print one JSON object"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(&a, &(struct arguments_spec){usage, flags, 1, 1}, argc, argv));
    if (a.help) return STATUS_OK;
    TRY(launch_flags_apply(&launch, &a));
    if (g.max_tokens < 1 || g.max_tokens > 1 << 24)
        FAIL(USAGE, "--max-tokens: must be between 1 and 2^24, is %lld", (long long)g.max_tokens);
    if (how.steps < 0 || how.block < 0)
        FAIL(USAGE, "--%s: must be at least 0, is %lld", how.steps < 0 ? "steps" : "block",
             (long long)(how.steps < 0 ? how.steps : how.block));
    TRY(check_sampling(&g, &stops, count));
    TRY(check_modes(flags, a.given));
    if (batch < 1 || batch > KV_CACHE_ROWS)
        FAIL(USAGE, "--batch: must be between 1 and %d, is %lld", KV_CACHE_ROWS, (long long)batch);
    g.sampling.seed = (uint64_t)seed;
    g.num_rows = file ? (int)batch : 1;
    if (!strcmp(prompt, "-")) TRY(read_stdin(&input));
    if (!strcmp(prompt, "-")) prompt = input.len ? input.data : "";
    enum status st = STATUS_OK;
    bool for_text = stops.count || count > 1 || echo;
    if (echo && json) FAIL(USAGE, "--echo has no effect with --json");
    TRY_OUT(launch_flags_start(&launch, "", &is_rank));
    if (!is_rank) goto out;
    signals_catch();
    TRY_OUT(machine_join(&g.loaded.machine));
    if (file) TRY_OUT(prompt_list_read(&prompts, file));
    if (spike_session_requested(&session)) TRY_OUT(spike_session_read(&session, &g));
    /* a token is at least one byte; BOS and EOS come on top */
    size_t bytes = file ? prompts.longest : strlen(fill ? fill : prompt);
    size_t max_prompt = session.tokens_per_bin ? g.ids.count : bytes + 2;
    struct loaded_model_options o = {.path = a.words[0],
                                     .tokenizer = tokenizer,
                                     .settings = a.settings,
                                     .num_settings = a.num_settings,
                                     .max_tokens = (int)(max_prompt + (size_t)g.max_tokens)};
    TRY_OUT(loaded_model_open(&g.loaded, &o));
    const struct comm *world = &g.loaded.machine.world;
    bool unmasks = fill || (is_diffusion(&g) && !session.tokens_per_bin);
    if (unmasks && (for_text || g.repeat_penalty != 1))
        FAIL_OUT(USAGE, "--stop, --n, --echo and --repeat-penalty require a causal model");
    if (!unmasks && (how.steps || how.block))
        FAIL_OUT(USAGE, "--steps and --block require --fill or a diffusion model");
    if (session.tokens_per_bin) {
        TRY_OUT(comm_agree(world, spike_session_open(&session, &g)));
        TRY_OUT(spike_session_generate(&session, &g, json));
    } else if (fill) {
        how.sampling = g.sampling;
        TRY_OUT(fill_mask_print(&g.loaded, fill, &how, json));
    } else if (file) {
        TRY_OUT(prompt_list_generate(&prompts, &g, count, stops.items, stops.count));
    } else {
        TRY_OUT(comm_agree(world, prepare(&g, prompt)));
        TRY_OUT(is_diffusion(&g) ? generate_by_diffusion(&g, &how, json)
                                 : generate_texts(&g, &stops, count, echo ? prompt : "", json));
    }
out:
    text_release(&input);
    prompt_list_release(&prompts);
    spike_session_release(&session);
    generation_release(&g, st);
    return st;
}
