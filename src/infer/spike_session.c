// SPDX-License-Identifier: Apache-2.0
#include "infer/spike_session.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/rng.h"
#include "data/corpus.h"
#include "formats/npz.h"
#include "hub/hub.h"

#include <math.h>
#include <stdio.h>

static enum status check_flags(const struct spike_session *s)
{
    if (!s->out[0])
        FAIL(USAGE, "--%s requires --out, the .npz file to write",
             s->neurons ? "neurons" : "session");
    return STATUS_OK;
}

/* One bin: a random tenth of the neurons have a count of 1, the others of 0.  Selection sampling
 * (Knuth, TAOCP 2, algorithm 3.4.2S) visits them in order. */
static void draw_bin(struct spike_session *s, uint64_t seed)
{
    uint64_t left = (uint64_t)s->neurons, spiking = left / 10;
    token_list_reserve(&s->whole, 1 + left);
    s->whole.ids[s->whole.count++] = TABLE_BIN_SEPARATOR;
    for (; left; left--) {
        bool spikes = rng_below(left, seed, RNG_NEURONS, 0, left) < spiking;
        s->whole.ids[s->whole.count++] = spikes;
        spiking -= spikes;
    }
}

static enum status read_session(struct spike_session *s, struct generation *g)
{
    enum { MAX_TOKENS = 1 << 24 };
    size_t neurons = (size_t)s->neurons;
    if (neurons)
        draw_bin(s, g->sampling.seed);
    else
        TRY(corpus_read_session(&s->source, (uint64_t)s->row, &s->whole, &neurons));
    s->tokens_per_bin = neurons + 1;
    size_t bins = s->whole.count / s->tokens_per_bin,
           prompt = (size_t)s->prompt_bins * s->tokens_per_bin;
    if ((size_t)s->prompt_bins > bins)
        FAIL(CONFIG, "%s, row %lld: the session has %zu bins, --prompt-bins is %lld",
             s->source.path, (long long)s->row, bins, (long long)s->prompt_bins);
    g->max_tokens = s->bins * (int64_t)s->tokens_per_bin;
    if (g->max_tokens + (int64_t)prompt > MAX_TOKENS)
        FAIL(USAGE, "--bins: %lld bins of %zu neurons and the prompt exceed 2^24 tokens",
             (long long)s->bins, neurons);
    token_list_reserve(&g->ids, prompt);
    for (size_t i = 0; i < prompt; i++) g->ids.ids[i] = s->whole.ids[i];
    g->ids.count = prompt;
    return STATUS_OK;
}

bool spike_session_requested(const struct spike_session *s)
{
    return s->source.path[0] || s->neurons;
}

enum status spike_session_read(struct spike_session *s, struct generation *g)
{
    const struct comm *world = &g->loaded.machine.world;
    TRY(check_flags(s));
    if (!s->neurons) TRY(hub_fetch(s->source.path, HUB_DATA, world));
    TRY(comm_agree(world, read_session(s, g)));
    return STATUS_OK;
}

enum status spike_session_open(const struct spike_session *s, struct generation *g)
{
    const struct loaded_model *l = &g->loaded;
    if (l->shape.V <= TABLE_BIN_SEPARATOR)
        FAIL(CONFIG,
             "%s: spike counts and the bin separator require 256 tokens; the vocabulary "
             "has %d",
             l->folder, l->shape.V);
    TRY(generation_open(g));
    int64_t all = (int64_t)g->num_prompt + g->max_tokens, seq_len = l->config.training.seq_len;
    if (all > seq_len && generation_is_root(g))
        log_line(LOG_WARN,
                 "prompt and bins are %lld tokens, but the model was trained on rows of %lld "
                 "tokens (%lld bins of this session)",
                 (long long)all, (long long)seq_len,
                 (long long)seq_len / (int64_t)s->tokens_per_bin);
    return STATUS_OK;
}

static enum status generate_bins(const struct spike_session *s, struct generation *g)
{
    TRY(generation_prefill(g));
    for (int64_t n = 0; n < g->max_tokens; n++) {
        int32_t id = TABLE_BIN_SEPARATOR;
        loaded_model_raise_signal(&g->loaded);
        if (g->ids.count % s->tokens_per_bin) {
            for (int v = TABLE_BIN_SEPARATOR; v < g->loaded.shape.V; v++)
                g->logits_V[v] = -INFINITY;
            TRY(generation_sample(g, &id));
        }
        TRY(generation_append(g, id, n + 1 < g->max_tokens));
    }
    return STATUS_OK;
}

static enum status write_npz(const struct spike_session *s, const struct generation *g)
{
    struct npz_writer w = {0};
    size_t known = s->whole.count < g->ids.count ? s->whole.count : g->ids.count;
    npz_add_array(&w, "prompt", g->ids.ids, g->num_prompt);
    npz_add_array(&w, "gen", g->ids.ids + g->num_prompt, g->ids.count - g->num_prompt);
    npz_add_array(&w, "gt", s->whole.ids, known);
    npz_add_scalar(&w, "n_neurons", (int64_t)s->tokens_per_bin - 1);
    enum status st = npz_close(&w, s->out);
    npz_release(&w);
    return st;
}

static void report(const struct spike_session *s, const struct generation *g, double seconds,
                   bool json)
{
    size_t made = g->ids.count - g->num_prompt;
    if (!json) {
        printf("%s: %zu neurons, %lld bins generated after %lld %s\n", s->out,
               s->tokens_per_bin - 1, (long long)s->bins, (long long)s->prompt_bins,
               s->neurons ? "random bin" : "bins of the session");
        return;
    }
    struct text t = {0};
    struct json_writer w = {.text = &t};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_string(&w, "file", s->out);
    json_write_int(&w, "n_neurons", (int64_t)s->tokens_per_bin - 1);
    json_write_int(&w, "prompt_tokens", (int64_t)g->num_prompt);
    json_write_int(&w, "generated_n_tokens", (int64_t)made);
    json_write_format(&w, "seconds", "%.3f", seconds);
    json_write_format(&w, "tokens_per_sec", "%.1f", (double)made / seconds);
    json_end_object(&w);
    json_finish(&w);
    puts(t.data);
    text_release(&t);
}

enum status spike_session_generate(const struct spike_session *s, struct generation *g, bool json)
{
    const struct comm *world = &g->loaded.machine.world;
    double begin = clock_monotonic_s();
    TRY(generate_bins(s, g));
    double seconds = clock_monotonic_s() - begin;
    TRY(comm_agree(world, generation_is_root(g) ? write_npz(s, g) : STATUS_OK));
    if (generation_is_root(g)) report(s, g, seconds, json);
    return STATUS_OK;
}

void spike_session_release(struct spike_session *s) { token_list_release(&s->whole); }
