// SPDX-License-Identifier: Apache-2.0
#include "infer/sessions.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "data/corpus.h"
#include "formats/npz.h"
#include "hub/hub.h"

#include <math.h>
#include <stdio.h>

static enum status check_numbers(const struct session *s)
{
    enum { MOST = 1 << 24 };
    if (!s->out[0]) FAIL(USAGE, "--session needs --out, the .npz file to write");
    if (s->row < 0) FAIL(USAGE, "--row: %lld is below 0", (long long)s->row);
    if (s->prompt_bins < 1 || s->prompt_bins > MOST)
        FAIL(USAGE, "--prompt-bins: %lld is not between 1 and 2^24", (long long)s->prompt_bins);
    if (s->bins < 1 || s->bins > MOST)
        FAIL(USAGE, "--bins: %lld is not between 1 and 2^24", (long long)s->bins);
    return STATUS_OK;
}

static enum status read_whole(struct session *s, struct generation *g)
{
    enum { MOST_TOKENS = 1 << 24 };
    size_t neurons;
    TRY(corpus_read_session(&s->source, (uint64_t)s->row, &s->whole, &neurons));
    s->bin = neurons + 1;
    size_t bins = s->whole.count / s->bin, prompt = (size_t)s->prompt_bins * s->bin;
    if ((size_t)s->prompt_bins > bins)
        FAIL(CONFIG, "%s, row %lld: a session of %zu bins; --prompt-bins asks for %lld",
             s->source.path, (long long)s->row, bins, (long long)s->prompt_bins);
    g->max_tokens = s->bins * (int64_t)s->bin;
    if (g->max_tokens + (int64_t)prompt > MOST_TOKENS)
        FAIL(USAGE, "--bins: %lld bins of %zu neurons are more than 2^24 tokens",
             (long long)s->bins, neurons);
    token_list_reserve(&g->ids, prompt);
    for (size_t i = 0; i < prompt; i++) g->ids.ids[i] = s->whole.ids[i];
    g->ids.count = prompt;
    return STATUS_OK;
}

enum status session_read(struct session *s, struct generation *g)
{
    const struct comm *world = &g->loaded.machine.world;
    TRY(check_numbers(s));
    TRY(hub_fetch(s->source.path, HUB_DATA, world));
    TRY(comm_agree(world, read_whole(s, g)));
    return STATUS_OK;
}

enum status session_open(const struct session *s, struct generation *g)
{
    const struct loaded *l = &g->loaded;
    if (l->shape.V <= TABLE_BIN_SEPARATOR)
        FAIL(CONFIG, "%s: a vocabulary of %d tokens; spike counts and the mark of a bin are 256",
             l->folder, l->shape.V);
    TRY(generation_open(g));
    int64_t all = (int64_t)g->num_prompt + g->max_tokens, seq_len = l->config.training.seq_len;
    if (all > seq_len && generation_leads(g))
        log_line(LOG_WARN,
                 "%lld tokens of prompt and bins; the model was trained on rows of %lld "
                 "(%lld bins of this session)",
                 (long long)all, (long long)seq_len, (long long)seq_len / (int64_t)s->bin);
    return STATUS_OK;
}

static enum status go_on(const struct session *s, struct generation *g)
{
    TRY(generation_prefill(g));
    for (int64_t n = 0; n < g->max_tokens; n++) {
        int32_t id = TABLE_BIN_SEPARATOR;
        if (g->ids.count % s->bin) {
            for (int v = TABLE_BIN_SEPARATOR; v < g->loaded.shape.V; v++)
                g->logits_V[v] = -INFINITY;
            TRY(generation_choose(g, &id));
        }
        TRY(generation_append(g, id, n + 1 < g->max_tokens));
    }
    return STATUS_OK;
}

static enum status write_npz(const struct session *s, const struct generation *g)
{
    struct npz_writer w = {0};
    size_t known = s->whole.count < g->ids.count ? s->whole.count : g->ids.count;
    npz_add_array(&w, "prompt", g->ids.ids, g->num_prompt);
    npz_add_array(&w, "gen", g->ids.ids + g->num_prompt, g->ids.count - g->num_prompt);
    npz_add_array(&w, "gt", s->whole.ids, known);
    npz_add_scalar(&w, "n_neurons", (int64_t)s->bin - 1);
    enum status st = npz_close(&w, s->out);
    npz_release(&w);
    return st;
}

static void report(const struct session *s, const struct generation *g, double seconds, bool json)
{
    size_t made = g->ids.count - g->num_prompt;
    if (!json) {
        printf("%s: %zu neurons, %lld bins behind %lld of the session\n", s->out, s->bin - 1,
               (long long)s->bins, (long long)s->prompt_bins);
        return;
    }
    struct text t = {0};
    text_adds(&t, "{\"file\": ");
    json_quote(&t, s->out);
    printf("%s, \"n_neurons\": %zu, \"prompt_tokens\": %zu, \"generated_n_tokens\": %zu, "
           "\"seconds\": %.3f, \"tokens_per_sec\": %.1f}\n",
           t.data, s->bin - 1, g->num_prompt, made, seconds, (double)made / seconds);
    text_release(&t);
}

enum status session_generate(const struct session *s, struct generation *g, bool json)
{
    const struct comm *world = &g->loaded.machine.world;
    double begin = clock_monotonic_s();
    TRY(go_on(s, g));
    double seconds = clock_monotonic_s() - begin;
    TRY(comm_agree(world, generation_leads(g) ? write_npz(s, g) : STATUS_OK));
    if (generation_leads(g)) report(s, g, seconds, json);
    return STATUS_OK;
}

void session_release(struct session *s) { token_list_release(&s->whole); }
