// SPDX-License-Identifier: Apache-2.0
#include "infer/spike_run.h"

#include "infer/co_smoothing.h"
#include "infer/generation.h"
#include "infer/spikes.h"

enum { NEURONS = 6, WIDTH = NEURONS + 1, ROW = 64, BINS = ROW / WIDTH, VISIBLE_BINS = BINS / 2 };

static const struct source_config source = {.path = spike_test, .column = "spike_counts"};
static const struct corpus corpus = {.sources = &source, .num_sources = 1, .vocab_size = 256};

static void open_model(struct loaded_model *l, const char *run)
{
    const struct loaded_model_options o = {.path = run, .tokenizer = "", .max_tokens = ROW};
    CHECK_STATUS(OK, machine_join(&l->machine));
    CHECK_STATUS(OK, loaded_model_open(l, &o));
}

static double softmax_loss(const float *logits_V, int V, int32_t id)
{
    double sum = 0;
    for (int v = 0; v < V; v++) sum += exp((double)logits_V[v] - (double)logits_V[id]);
    return log(sum);
}

/* The first window of the first session with that neuron hidden, token by token. */
static void measure_window(const char *run, int hidden, struct co_smoothing *c)
{
    struct generation g = {.max_tokens = BINS * WIDTH - 1};
    struct token_list session = {0};
    const struct sampling sampling = {.temperature = 1, .top_p = 1, .seed = c->seed};
    double rates[NEURONS];
    size_t neurons;
    CHECK_STATUS(OK, corpus_read_session(&source, 0, &session, &neurons));
    CHECK(neurons == NEURONS);
    spikes_rates(session.ids, session.count / WIDTH, NEURONS, rates);
    open_model(&g.loaded, run);
    token_list_reserve(&g.ids, 1);
    g.ids.ids[g.ids.count++] = 255;
    CHECK_STATUS(OK, generation_open(&g));
    CHECK_STATUS(OK, generation_prefill(&g));
    for (int i = 1; i < BINS * WIDTH; i++) {
        int slot = i % WIDTH - 1, last = NEURONS - 1;
        int neuron = slot == last ? hidden : slot + (slot >= hidden);
        int32_t id = slot < 0 ? 255 : session.ids[i / WIDTH * WIDTH + 1 + neuron];
        if (i / WIDTH >= VISIBLE_BINS && slot == last) {
            c->loss_sum += softmax_loss(g.logits_V, 256, id);
            c->constant_loss_sum += spikes_poisson_loss(rates[hidden], id);
            g.logits_V[255] = -INFINITY;
            id =
                sampling_pick(&sampling, g.logits_V, 256, (uint64_t)(i / WIDTH * WIDTH), g.order_V);
        }
        CHECK_STATUS(OK, generation_append(&g, id, true));
    }
    token_list_release(&session);
    generation_release(&g, STATUS_OK);
}

TEST(co_smoothing_hides_one_neuron_after_half_a_window)
{
    char *run = spike_run("training.steps=40 validation.enable=false");
    struct co_smoothing c = {.held_out = 0.1, .windows = 1, .seed = 7, .row = ROW};
    struct loaded_model l = {0};
    int matches = 0;
    open_model(&l, run);
    CHECK_STATUS(OK, co_smoothing_measure(&c, &l, &corpus));
    loaded_model_close(&l, STATUS_OK);
    CHECK(c.used == 1 && c.counts == BINS - VISIBLE_BINS);
    for (int hidden = 0; hidden < NEURONS; hidden++) {
        struct co_smoothing one = {.seed = 7};
        measure_window(run, hidden, &one);
        matches += fabs(one.loss_sum - c.loss_sum) < 1e-4 &&
                   fabs(one.constant_loss_sum - c.constant_loss_sum) < 1e-9;
    }
    CHECK(matches == 1);
    free(run);
}

TEST(co_smoothing_predicts_every_bin_after_half_a_window_once)
{
    char *run = spike_run("training.steps=2 validation.enable=false");
    struct text out = {0};
    CHECK(LLAMERO(&out, NULL, "eval", run, spike_test, "--column", "spike_counts", "--held-out",
                  "0.4", "--windows", "1000", "--json") == 0);
    struct json *v = spike_answer(&out);
    const struct json *co = json_get(v, "co_smoothing");
    double counts = 0;
    for (uint64_t row = 0; row < 3; row++) { /* 5 or 6 neurons, of which 2 are held out */
        struct token_list session = {0};
        size_t neurons;
        CHECK_STATUS(OK, corpus_read_session(&source, row, &session, &neurons));
        size_t width = neurons + 1;
        counts += 2 * (double)(session.count / width - ROW / width / 2);
        token_list_release(&session);
    }
    CHECK(counts > 200 && spike_number(co, "counts") == counts);
    double gain = spike_number(co, "homogeneous_loss") - spike_number(co, "count_loss");
    CHECK_NEAR(spike_number(co, "bits_per_spike"),
               gain * spike_number(co, "counts") / spike_number(co, "spikes") / log(2), 1e-9);
    json_free(v);
    text_release(&out);
    free(run);
}

TEST(co_smoothing_reads_on_past_sessions_that_are_too_short_for_a_window)
{
    char *run = spike_run("training.steps=1 validation.enable=false");
    enum { LONG_ROW = 720 }; /* half of it has all 60 bins of 5 neurons, but not those of 6 */
    struct source_config sources[3];
    const char *const sessions[] = {"train_2", "train_3", "train_4"}; /* of 5, 5 and 6 neurons */
    for (int i = 0; i < 3; i++)
        sources[i] = (struct source_config){.path = spike_train,
                                            .column = "spike_counts",
                                            .filter_column = "session_id",
                                            .filter_value = sessions[i]};
    const struct corpus d = {.sources = sources, .num_sources = 3, .vocab_size = 256};
    struct co_smoothing c = {.held_out = 0.1, .windows = 1, .row = LONG_ROW};
    const struct loaded_model_options o = {.path = run, .tokenizer = "", .max_tokens = LONG_ROW};
    struct loaded_model l = {0};
    CHECK_STATUS(OK, machine_join(&l.machine));
    CHECK_STATUS(OK, loaded_model_open(&l, &o));
    CHECK_STATUS(OK, co_smoothing_measure(&c, &l, &d));
    loaded_model_close(&l, STATUS_OK);
    CHECK(c.used == 1 && c.counts == 60 - LONG_ROW / WIDTH / 2);
    free(run);
}

TEST(co_smoothing_reports_what_it_cannot_hold_out)
{
    char *run = spike_run("training.steps=1 validation.enable=false");
    struct text err = {0};
    CHECK(LLAMERO(NULL, &err, "eval", run, spike_test, "--column", "spike_counts", "--held-out",
                  "1") == 64);
    CHECK(strstr(err.data, "--held-out"));
    CHECK(LLAMERO(NULL, &err, "eval", run, spike_test, "--column", "spike_counts", "--held-out",
                  "0.5", "--windows", "0") == 64);
    CHECK(LLAMERO(NULL, &err, "eval", run, spike_test, "--column", "spike_counts", "--held-out",
                  "0.5", "--seq-len", "11") == 65);
    CHECK(strstr(err.data, "two of their bins"));
    text_release(&err);
    free(run);
}
