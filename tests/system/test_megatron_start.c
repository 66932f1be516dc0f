/* test_megatron_start.c -- a run continues from a checkpoint of Megatron-LM: weights, moments, step
 * and data. */
// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include "data/rig.h"

#include <math.h>

#define FROM "checkpoint.initial_load_path=tests/checkpoint/data/megatron "
#define ALL  FROM "checkpoint.initial_load_model_only=false "
#define EACH "checkpoint.interval=2 checkpoint.keep_latest_k=0 "

enum { CONSUMED_STEPS = 3, STEPS = 8 };

struct place {
    const char *folder, *config;
    struct text err;
};

/* Sequences of 64 token IDs, and the model of that checkpoint with a learning rate of 0, so that a
 * loss depends on the rows alone. */
static struct place place(void)
{
    enum { DOCUMENTS = 90 };
    int lengths[DOCUMENTS];
    struct text t = {0};
    struct place p = {.folder = test_folder()};
    for (int d = 0; d < DOCUMENTS; d++) lengths[d] = 1 + d * 7 % 23;
    rig_tokens(p.folder, "t", lengths, DOCUMENTS, 0);
    const char *bin = test_path(p.folder, "t.bin");
    CHECK_STATUS(OK, file_read(bin, 1 << 20, &t));
    for (size_t i = 0; i < t.len; i++) t.data[i] = (char)(i % 4 ? 0 : t.data[i] * 7 % 61 & 63);
    CHECK_STATUS(OK, file_write(bin, t.data, t.len));
    text_clear(&t);
    text_addf(&t,
              "[model]\nname = \"llama3\"\ndim = 16\nn_layers = 2\nn_heads = 4\nn_kv_heads = 2\n"
              "ffn_hidden = 24\nvocab_size = 64\nrope_theta = 10000\nnorm_eps = 1e-5\n"
              "tie_embeddings = true\n"
              "[training]\nlocal_batch_size = 2\nglobal_batch_size = 4\nseq_len = 16\nsteps = %d\n"
              "[lr_scheduler]\nwarmup_steps = 0\n[optimizer]\nlr = 0\nweight_decay = 0\n"
              "[metrics]\nlog_freq = 1\npeak_flops = 1e12\n[checkpoint]\nenable = true\n"
              "[data]\norder = \"megatron\"\nsamples = 40\nsplit = \"1\"\n"
              "[[data.source]]\npath = \"%s\"\n",
              STEPS, test_path(p.folder, "t"));
    p.config = rig_text(p.folder, "run.toml", t.data);
    text_release(&t);
    return p;
}

static const char *train(struct place *p, int ranks, const char *name, const char *settings)
{
    const char *dump = test_path(p->folder, name);
    text_clear(&p->err);
    CHECK(runs_train_ranks(ranks, p->config, dump, settings, &p->err) == 0);
    return dump;
}

/* losses[step]; returns the first step. */
static int read_losses(const char *dump, double *losses)
{
    struct text t = {0};
    int first = 0;
    char *next;
    CHECK_STATUS(OK, file_read(test_path(dump, "metrics.jsonl"), 1 << 20, &t));
    for (char *at = strtok_r(t.data, "\n", &next); at; at = strtok_r(NULL, "\n", &next)) {
        struct json *line;
        CHECK_STATUS(OK, json_parse(at, strlen(at), dump, &line));
        int step = (int)json_number(json_get(line, "step"));
        CHECK(step > 0 && step <= STEPS);
        if (!first) first = step;
        losses[step] = json_number(json_get(line, "loss"));
        json_free(line);
    }
    text_release(&t);
    return first;
}

/* Checks that its steps have the losses, and so the rows, of those of a run from the first row. */
static void check_losses(const char *dump, const char *straight)
{
    double want[STEPS + 1] = {0}, got[STEPS + 1] = {0};
    CHECK(read_losses(straight, want) == 1 && read_losses(dump, got) == CONSUMED_STEPS + 1);
    for (int step = CONSUMED_STEPS + 1; step <= STEPS; step++) {
        CHECK(!(got[step] < want[step]) && !(got[step] > want[step]));
        CHECK(fabs(got[step] - want[step - CONSUMED_STEPS]) > 1e-6);
    }
}

/* Checks that `data show` finds the rows of a step in the one run that it finds in the other. */
static void check_shown(const char *run, const char *straight, const char *step)
{
    struct text a = {0}, b = {0};
    CHECK(LLAMERO(&a, NULL, "data", "show", run, "--step", step, "--json") == 0);
    CHECK(LLAMERO(&b, NULL, "data", "show", straight, "--step", step, "--json") == 0);
    const char *rows = strstr(a.data, "\"data\"");
    CHECK(rows && !strcmp(rows, strstr(b.data, "\"data\"")));
    text_release(&a), text_release(&b);
}

TEST(a_run_reads_on_after_the_samples_of_a_checkpoint_of_megatron)
{
    struct place p = place();
    const char *straight = train(&p, 1, "straight", FROM "checkpoint.enable=false");
    const char *one = train(&p, 1, "one", ALL EACH);
    CHECK(strstr(p.err.data, "moments of step 3, 192 tokens seen, 12 samples consumed"));
    CHECK(strstr(p.err.data, "data continues with sample 12 of Megatron-LM's order"));
    CHECK(!strstr(p.err.data, "from the beginning"));
    check_losses(one, straight);
    for (int step = 4; step <= STEPS; step++) {
        char number[12];
        snprintf(number, sizeof number, "%d", step);
        check_shown(one, straight, number); /* step 4 follows from Megatron's, 8 from the run's */
    }
    train(&p, 1, "resumed", ALL EACH "training.steps=6");
    const char *resumed = train(&p, 2, "resumed", ALL EACH);
    CHECK(strstr(p.err.data, "resuming from") && !strstr(p.err.data, "Megatron"));
    check_losses(resumed, straight);
    check_losses(train(&p, 2, "two", ALL EACH), straight);
    runs_check_same_files(test_path(one, "checkpoint/step-8"),
                          test_path(resumed, "checkpoint/step-8"), "state.json");
    text_release(&p.err);
}

TEST(other_data_begins_with_its_first_row_after_a_checkpoint_of_megatron)
{
    struct place p = place();
    const char *streams = "data.order=streams data.streams=1 metrics.log_freq=1 ";
    struct text set = {0};
    text_addf(&set, "%s" ALL, streams);
    const char *run = train(&p, 1, "run", set.data);
    CHECK(strstr(p.err.data, "Megatron-LM's data position requires data.order = \"megatron\": data "
                             "starts from the beginning"));
    struct text state = {0};
    CHECK_STATUS(OK, file_read(test_path(run, "checkpoint/step-8/state.json"), 1 << 20, &state));
    CHECK(strstr(state.data, "\"next_row\": 20,") && strstr(state.data, "\"rows_done\": 32,"));
    text_release(&p.err), text_release(&set), text_release(&state);
}

TEST(check_compares_the_data_position_of_megatron_as_a_start_does)
{
    static const struct {
        const char *setting, *message; /* NULL: valid */
    } cases[] = {
        {"data.seed=5", NULL}, /* the checkpoint does not say its seed */
        {"training.seq_len=8", "args.seq_length = 16, but training.seq_len = 8"},
    };
    struct place p = place();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text err = {0};
        struct text dump = {0};
        text_addf(&dump, "job.dump_folder=%s", test_path(p.folder, "check"));
        int code = LLAMERO(NULL, &err, "check", p.config,
                           "checkpoint.initial_load_path=tests/checkpoint/data/megatron",
                           "checkpoint.initial_load_model_only=false", cases[i].setting, dump.data);
        CHECK(code == (cases[i].message ? 78 : 0));
        CHECK(!cases[i].message || strstr(err.data, cases[i].message));
        text_release(&err), text_release(&dump);
    }
    text_release(&p.err);
}
