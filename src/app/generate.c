// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/arguments.h"
#include "app/flag_modes.h"
#include "app/interactive.h"
#include "app/launch_flags.h"
#include "app/piped_input.h"
#include "app/prompt_list.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/json.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/terminal_text.h"
#include "infer/fill_mask.h"
#include "infer/generation.h"
#include "infer/spike_session.h"
#include "infer/text_generation.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static bool is_diffusion(const struct generation *g)
{
    return g->loaded.config.objective.name == OBJECTIVE_diffusion;
}

static enum status prepare(struct generation *g, const char *prompt)
{
    TRY(text_generation_encode(&g->loaded, prompt, &g->ids));
    loaded_model_warn_context(&g->loaded, (int64_t)g->ids.count + g->max_tokens);
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
    fflush(stdout); /* before the log, in case both go to one file */
    log_line(LOG_INFO, "read %s in %.2f s and generated %zu in %.2f s",
             counted_format((int64_t)g->num_prompt, "token").text, t.prompt_seconds,
             g->ids.count - g->num_prompt, t.seconds - t.prompt_seconds);
out:
    text_generation_release(&t);
    return st;
}

/* `count` texts from the same prompt, with the seeds that follow each other; each after `echo`. */
static enum status generate_texts(struct generation *g, const struct flag_list *stops,
                                  int64_t count, const char *echo, bool json)
{
    const struct text_generation none = {0};
    bool ends = false;
    for (int64_t i = 0; i < count; i++) {
        TRY(text_generation_is_interrupted(&none, g, &ends));
        if (ends) break;
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
    while (end < g->ids.count && g->ids.ids[end] != tokenizer_eos(t)) end++;
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
    fflush(stdout);
    log_line(LOG_INFO, "generated %s in %.2f s", counted_format((int64_t)made, "token").text,
             seconds);
out:
    text_release(&bytes);
    return st;
}

/* Rejects two inputs, and flags that the chosen one does not read. */
static enum status check_modes(const struct flag *flags, uint64_t given)
{
    static const char all[] = "prompt|prompts|interactive|fill|session|neurons";
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

static enum status read_stdin(const struct loaded_model *l, struct text *t)
{
    for (size_t before = SIZE_MAX; t->len != before;) {
        before = t->len;
        TRY_PREFIX(piped_input_read(t), "--prompt -");
    }
    if (signals_pending()) {
        loaded_model_raise_signal(l);
        FAIL(REQUEUE, "--prompt -: interrupted while reading standard input");
    }
    if (t->len && memchr(t->data, 0, t->len)) FAIL(DATA, "--prompt -: the prompt has a NUL byte");
    return STATUS_OK;
}

static const struct usage usage = {
    "generate",
    {{NULL,
      {USAGE_ONE(FILE, "MODEL"), USAGE_FLAGS("[--prompt TEXT | --prompts FILE | --fill TEXT]"),
       USAGE_SETTINGS}},
     {NULL, {USAGE_ONE(FILE, "MODEL"), USAGE_FLAGS("--interactive"), USAGE_SETTINGS}},
     {NULL,
      {USAGE_ONE(FILE, "MODEL"), USAGE_FLAGS("--session DATA | --neurons N --out FILE.npz")}}},
    "Generates text from a prompt with a causal or diffusion model, or fills in the masks of a\n"
    "text with a masked or diffusion model.  A diffusion model appends --max-tokens masks to the\n"
    "prompt and fills them in, the most confident ones first.  MODEL is a run, a checkpoint or a\n"
    "Hugging Face folder.  With --ranks, or under mpirun or srun, ranks shard the model.\n"
    "Ctrl-C ends the text, with exit code 130; with several ranks 0, or 75 while they wait for\n"
    "--prompt -.  --json gives ids, log-probabilities under the model itself, and why the text\n"
    "ended: length, eos, stop or interrupt; with --n an object per line.\n"
    "--prompts decodes the prompts of a file together, and prints an object per text, in order.\n"
    "--interactive appends lines that you type to a text, which the model continues each time; it\n"
    "sees the last training.seq_len tokens.\n"
    "With --session a model of spike counts continues the first bins of a recorded session; with\n"
    "--neurons it continues one bin in which a random tenth of N neurons spike.  Each bin is the\n"
    "separator 255, then one count per neuron.  FILE.npz holds prompt, gen (generated), gt (the\n"
    "recorded session: ground truth) and n_neurons.",
};

/* What the command line asks for. */
struct request {
    struct generation g;
    const char *prompt, *file, *fill, *tokenizer;
    bool interactive, json, echo, ema;
    struct flag_list stops;
    int64_t seed, count, batch;
    struct unmasking how;
    struct spike_session session;
    struct launch_flags launch;
    struct text input;          /* the prompt from stdin */
    struct prompt_list prompts; /* of `file` */
};

static enum status check_request(struct request *r, const struct flag *flags, uint64_t given)
{
    for (int i = 0; i < r->stops.count; i++)
        if (!r->stops.items[i][0]) FAIL(USAGE, "--stop: the text must not be empty");
    TRY(check_modes(flags, given));
    if (r->echo && r->json) FAIL(USAGE, "--echo has no effect with --json");
    return STATUS_OK;
}

static enum status read_inputs(struct request *r)
{
    if (!strcmp(r->prompt, "-")) {
        enum status st =
            generation_is_root(&r->g) ? read_stdin(&r->g.loaded, &r->input) : STATUS_OK;
        TRY(comm_agree(&r->g.loaded.machine.world, st));
        TRY(generation_share_text(&r->g, &r->input));
        r->prompt = r->input.len ? r->input.data : "";
    }
    if (r->file) TRY(prompt_list_read(&r->prompts, r->file));
    if (spike_session_requested(&r->session)) TRY(spike_session_read(&r->session, &r->g));
    return STATUS_OK;
}

static enum status open_model(struct request *r, const struct arguments *a)
{
    /* a token is at least one byte; BOS and EOS come on top */
    size_t bytes = r->file ? r->prompts.longest : strlen(r->fill ? r->fill : r->prompt);
    size_t max_prompt = r->session.tokens_per_bin ? r->g.ids.count : bytes + 2;
    size_t most = (size_t)INT_MAX - (size_t)r->g.max_tokens;
    if (max_prompt > most)
        FAIL(USAGE,
             "the prompt has up to %zu tokens; with --max-tokens %lld at most %zu are supported",
             max_prompt, (long long)r->g.max_tokens, most);
    struct loaded_model_options o = {.path = a->words[0],
                                     .tokenizer = r->tokenizer,
                                     .settings = a->settings,
                                     .num_settings = a->num_settings,
                                     .ema = r->ema,
                                     .max_tokens = (int)(max_prompt + (size_t)r->g.max_tokens)};
    if (r->interactive) o.max_tokens = 0; /* training.seq_len */
    TRY(loaded_model_open(&r->g.loaded, &o));
    bool unmasks = r->fill || (is_diffusion(&r->g) && !r->session.tokens_per_bin);
    bool for_text = r->stops.count || r->count > 1 || r->echo;
    if (unmasks && (for_text || r->g.repeat_penalty != 1))
        FAIL(USAGE, "--stop, --n, --echo and --repeat-penalty require a causal model");
    if (!unmasks && (r->how.steps || r->how.block))
        FAIL(USAGE, "--steps and --block require --fill or a diffusion model");
    return STATUS_OK;
}

static enum status run_request(struct request *r)
{
    struct generation *g = &r->g;
    const struct comm *world = &g->loaded.machine.world;
    r->how.sampling = g->sampling;
    if (r->session.tokens_per_bin) {
        TRY(comm_agree(world, spike_session_open(&r->session, g)));
        TRY(spike_session_generate(&r->session, g, r->json));
    } else if (r->fill) {
        TRY(fill_mask_print(&g->loaded, r->fill, &r->how, r->json));
    } else if (r->interactive) {
        TRY(interactive_run(g, g->loaded.model.max_tokens, r->stops.items, r->stops.count));
    } else if (r->file) {
        TRY(prompt_list_generate(&r->prompts, g, r->count, r->stops.items, r->stops.count));
    } else {
        TRY(comm_agree(world, prepare(g, r->prompt)));
        TRY(is_diffusion(g)
                ? generate_by_diffusion(g, &r->how, r->json)
                : generate_texts(g, &r->stops, r->count, r->echo ? r->prompt : "", r->json));
    }
    return STATUS_OK;
}

enum status command_generate(int argc, char **argv)
{
    struct request r = {
        .g = {.max_tokens = 128, .repeat_penalty = 1, .sampling = {.temperature = 0.8, .top_p = 1}},
        .prompt = "",
        .tokenizer = "",
        .count = 1,
        .batch = 16,
        .session = {.source = {.path = "", .column = "spike_counts", .weight = 1},
                    .prompt_bins = 1,
                    .bins = 10,
                    .out = ""},
        .launch = LAUNCH_NONE,
    };
    const struct flag flags[] = {
        {"prompt", FLAG_TEXT, &r.prompt, "text to continue; -: standard input"},
        {"prompts", FLAG_FILE, &r.file,
         "file of prompts: a .jsonl file with \"prompt\" in each line, or lines of text"},
        {"interactive", FLAG_SWITCH, &r.interactive,
         "write a text in turns with the model; /help lists what can be typed"},
        {"batch", FLAG_INT(1, KV_CACHE_ROWS), &r.batch, "prompts: texts to decode together"},
        {"fill", FLAG_TEXT, &r.fill, "text in which a masked model replaces each <mask>"},
        {"max-tokens", FLAG_INT(1, 1 << 24), &r.g.max_tokens,
         "prompt, prompts, interactive: generate at most this many tokens"},
        {"temperature", FLAG_REAL(0, 100), &r.g.sampling.temperature,
         "softmax temperature (default; 0: greedy)"},
        {"top-k", FLAG_INT(0, FLAG_UNLIMITED), &r.g.sampling.top_k,
         "sample among the k most likely tokens (default: all)"},
        {"top-p", FLAG_REAL(0, 1), &r.g.sampling.top_p,
         "sample among the most likely tokens with this total probability (default: all)"},
        {"min-p", FLAG_REAL(0, 1), &r.g.sampling.min_p,
         "leave out tokens less likely than this fraction of the most likely one"},
        {"repeat-penalty", FLAG_REAL(0.01, 100), &r.g.repeat_penalty,
         "divide the logits of tokens that occur in prompt and text by this (default: none)"},
        {"stop", FLAG_LIST, &r.stops,
         "prompt, prompts, interactive: end before this text; may be repeated"},
        {"n", FLAG_INT(1, 1 << 20), &r.count,
         "prompt, prompts: texts to generate, with seeds from --seed on"},
        {"echo", FLAG_SWITCH, &r.echo, "prompt: print the prompt before the text"},
        {"steps", FLAG_INT(0, FLAG_UNLIMITED), &r.how.steps,
         "prompt, fill: forward passes that fill in all masks (default: one for each mask)"},
        {"block", FLAG_INT(0, FLAG_UNLIMITED), &r.how.block,
         "prompt, fill: fill in masks in blocks of this many, from left to right (default: one "
         "block)"},
        {"seed", FLAG_INT(0, 1LL << 62), &r.seed, "seed of the sampler"},
        {"tokenizer", FLAG_FILE, &r.tokenizer, "tokenizer to use instead of the model's own"},
        {"ema", FLAG_SWITCH, &r.ema, "use the moving average of the weights (optimizer.ema_decay)"},
        {"session", FLAG_FILE, &r.session.source.path,
         "spike counts to continue, .parquet or .arrow"},
        {"column", FLAG_TEXT, &r.session.source.column,
         "session: column that holds the spike counts"},
        {"row", FLAG_INT(0, FLAG_UNLIMITED), &r.session.row,
         "session: row of the session in the data"},
        {"neurons", FLAG_INT(1, 1 << 20), &r.session.neurons,
         "instead of --session: start from one bin of this many neurons, a tenth of which spike"},
        {"prompt-bins", FLAG_INT(1, 1 << 24), &r.session.prompt_bins,
         "session: bins of the session that are the prompt"},
        {"bins", FLAG_INT(1, 1 << 24), &r.session.bins, "session, neurons: bins to generate"},
        {"out", FLAG_FILE, &r.session.out,
         "session, neurons: .npz file to write the generated bins to"},
        LAUNCH_FLAGS(&r.launch),
        {"json", FLAG_SWITCH, &r.json,
         "prompt, prompts, fill, session, neurons: print one JSON object per text"},
        {0},
    };
    struct arguments a;
    bool is_rank;
    enum status st = STATUS_OK;
    TRY(arguments_read(&a, &(struct arguments_spec){&usage, flags}, argc, argv));
    if (a.help) return STATUS_OK;
    TRY(launch_flags_apply(&r.launch, &a));
    TRY(check_request(&r, flags, a.given));
    r.g.sampling.seed = (uint64_t)r.seed;
    r.g.num_rows = r.file ? (int)r.batch : 1;
    TRY_OUT(launch_flags_start(&r.launch, "", &is_rank));
    if (!is_rank) goto out;
    signals_catch();
    TRY_OUT(machine_join(&r.g.loaded.machine));
    TRY_OUT(read_inputs(&r));
    TRY_OUT(open_model(&r, &a));
    TRY_OUT(run_request(&r));
    if (!fflush(stdout) && !ferror(stdout)) loaded_model_raise_signal(&r.g.loaded);
out:
    text_release(&r.input);
    prompt_list_release(&r.prompts);
    spike_session_release(&r.session);
    generation_release(&r.g, st);
    return st;
}
