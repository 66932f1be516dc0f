/* test_random_runs.c -- draws configurations and checks relations between their runs: `check`
 * accepts what `train` accepts, a repeated, a resumed and a killed run have the same bits, other
 * layouts give the same losses and gradients, `eval` computes the logged validation loss, `convert`
 * keeps the weights, `generate` decodes what `eval` computes of whole rows, and an emulated GPU
 * trains as the CPU does.
 *
 * LLAMERO_DRAWS=FIRST-LAST tries other draws than these, with every relation that applies, or with
 * LLAMERO_RELATION=word those whose name contains that word. */
// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"
#include "checkpoint/comparison.h"
#include "infer/text_generation.h"
#include "system/draw_compare.h"
#include "system/draw_emulated.h"
#include "system/draw_runs.h"
#include "system/runs.h"

#include <inttypes.h>
#include <signal.h>
#include <time.h>

enum { FIRST = 41, LAST = 70, ROW = 64 }; /* ROW: of `eval` and `generate` */
#define ROW_WORD "64"

/* Trains in <folder>/<name>, from the first checkpoint if it resumes, and compares all bits with
 * the first run. */
static enum answer train_same(const struct draw *d, const struct draw_layout *layout,
                              const char *name, bool resumes, struct text *why)
{
    struct text err = {0};
    if (resumes) draw_copy_first_checkpoint(d, "a", name);
    int code = draw_run(d, "train", layout, name, &err);
    enum answer answer =
        code ? draw_broken(why, code, &err) : draw_same_metrics(d, "a", name, resumes, why);
    if (!code && draw_same_state(d, "a", name, why) == BROKEN) answer = BROKEN;
    text_release(&err);
    return answer;
}

static enum answer repeated(struct draw *d, struct text *why)
{
    return train_same(d, d->layout, "again", false, why);
}

static enum answer resumed(struct draw *d, struct text *why)
{
    return train_same(d, d->layout, "resumed", true, why);
}

/* Killed up to three times, each time at a random moment, and started again. */
static enum answer killed(struct draw *d, struct text *why)
{
    enum { KILLS = 3, KILLED_CODE = 128 + SIGKILL };
    const char *said = test_path(d->folder, "killed.log");
    struct text err = {0};
    int code = KILLED_CODE;
    /* Nothing resumes from the last save, after which the run may still be killed. */
    if (draw_has(d, "last_save_model_only=true")) return NOT_APPLICABLE;
    for (int i = 0; i <= KILLS && code == KILLED_CODE; i++) {
        pid_t run = draw_start(d, "killed", said);
        if (i < KILLS) {
            double moment = d->seconds * draw_below(d, 1000) / 1000;
            nanosleep(&(struct timespec){(time_t)moment, (long)(fmod(moment, 1) * 1e9)}, NULL);
            kill(run, SIGKILL);
        }
        code = runs_wait(run, said, &err);
    }
    enum answer answer =
        code ? draw_broken(why, code, &err) : draw_same_metrics(d, "a", "killed", false, why);
    if (!code && draw_same_state(d, "a", "killed", why) == BROKEN) answer = BROKEN;
    text_release(&err);
    return answer;
}

/* Another one of these layouts that `check` accepts, or NULL. */
static const struct draw_layout *another_layout(struct draw *d, int first, int count)
{
    struct text err = {0};
    const struct draw_layout *to = NULL;
    for (int n = 0; n < 8 && !to; n++) {
        const struct draw_layout *l = &draw_layouts[first + draw_below(d, count)];
        bool usable = strcmp(l->settings, d->layout->settings) != 0;
        if (usable && draw_run(d, "check", l, "unused", &err) == 0) to = l;
    }
    text_release(&err);
    return to;
}

static bool is_elastic(const struct draw *d) { return draw_has(d, "training.determinism=elastic"); }

static enum answer elastic(struct draw *d, struct text *why)
{
    /* Other degrees than the data-parallel ones give other roundings. */
    if (!is_elastic(d) || d->layout->ranks != d->layout->readers) return NOT_APPLICABLE;
    /* With current scaling, validation losses depend on the rows of a rank (determinism.md). */
    bool scales_rows = draw_has(d, "float8") && !draw_has(d, "recipe_name=delayed");
    if (scales_rows && draw_has(d, "validation.enable=true")) return NOT_APPLICABLE;
    const struct draw_layout *to = another_layout(d, 0, DRAW_DATA_LAYOUTS);
    if (!to) return NOT_APPLICABLE;
    bool resumes = d->number % 2;
    text_addf(why, "%s on %d ranks with %s: ", resumes ? "resumed" : "repeated", to->ranks,
              to->settings);
    return train_same(d, to, "elastic", resumes, why);
}

/* Trains in another layout, or resumes in it from the first checkpoint of the run `from`. */
static enum answer train_close(struct draw *d, const char *from, bool resumes,
                               const struct draw_limits *most, struct text *why)
{
    const struct draw_layout *to = another_layout(d, 0, DRAW_LAYOUTS);
    struct draw_limits limits = *most;
    struct text err = {0};
    if (!to) return NOT_APPLICABLE;
    if (resumes) draw_copy_first_checkpoint(d, from, "layout"), limits.gradient = 0;
    int code = draw_run(d, "train", to, "layout", &err);
    text_addf(why, "%s on %d ranks with %s%s: ", resumes ? "resumed" : "trained", to->ranks,
              to->settings, d->also);
    enum answer answer = code ? draw_broken(why, code, &err) : HOLDS;
    if (!code) answer = draw_close(d, from, "layout", &limits, why);
    text_release(&err);
    return answer;
}

/* One draw in four as it is, the others in float32. */
static enum answer other_layout(struct draw *d, struct text *why)
{
    bool fixed_rows = !draw_has(d, "global_batch_size=-1") && !strstr(d->config.data, "megatron");
    if (is_elastic(d) || !fixed_rows || draw_has(d, "rank_mean")) return NOT_APPLICABLE;
    int variant = (int)(d->number % 4);
    bool resumes = variant == 2;
    const struct draw_limits *most = variant                 ? &draw_in_float32
                                     : draw_has(d, "float8") ? &draw_in_float8
                                                             : &draw_in_bfloat16;
    struct text err = {0};
    enum answer answer = HOLDS;
    if (variant) {
        d->also = DRAW_IN_FLOAT32;
        int code = draw_run(d, "train", d->layout, "exact", &err);
        if (code) text_addf(why, "with%s: ", d->also), answer = draw_broken(why, code, &err);
    }
    if (answer == HOLDS) answer = train_close(d, variant ? "exact" : "a", resumes, most, why);
    d->also = "";
    text_release(&err);
    return answer;
}

static enum answer evaluated(struct draw *d, const char *data, struct text *why)
{
    /* `eval` computes without FP8. */
    bool is_comparable = !draw_has(d, "validation_share") && !draw_has(d, "float8");
    if (!draw_has(d, "validation.enable=true") || !is_comparable) return NOT_APPLICABLE;
    struct text line = {0}, out = {0}, err = {0};
    struct json *json;
    int readers = is_elastic(d) ? 1 : d->layout->readers,
        steps = draw_number_of(d, "validation.steps", -1);
    double logged = runs_metric(test_path(d->folder, "a"), "validation_loss");
    text_addf(&line, "eval %s/a %s/validation.txt --json --batch-size %d device.threads=1",
              d->folder, data, draw_number_of(d, "validation.local_batch_size", 2));
    if (steps > 0) text_addf(&line, " --batches %d", steps * readers);
    if (draw_has(d, "validation.seq_len="))
        text_addf(&line, " --seq-len %d", draw_number_of(d, "validation.seq_len", 0));
    int code = draw_run_line(&line, &out, &err);
    enum answer answer = code ? draw_broken(why, code, &err) : HOLDS;
    if (!code) {
        CHECK_STATUS(OK, json_parse(out.data, out.len, "eval", &json));
        double loss = json_number(json_get(json, "loss")), most = 1e-8; /* of its digits */
        /* Split weights halfway between two bfloat16 round away from zero, in `eval` to even: three
         * such weights changed a loss by 1.5e-5 of it, others by up to 3.9e-5. */
        if (draw_has(d, "master_weights=split")) most = 1e-4;
        if (d->layout->ranks > 1) most = draw_is_float32(d) ? 1e-6 : 2e-3;
        if (draw_has(d, "export_dtype=bfloat16")) most = 5e-3; /* weights of the checkpoint */
        if (!(fabs(loss - logged) <= most * logged)) answer = BROKEN;
        text_addf(why, "%s: loss %.9g, logged %.9g\n", line.data, loss, logged);
        json_free(json);
    }
    text_release(&line), text_release(&out), text_release(&err);
    return answer;
}

/* To a Hugging Face folder and back. */
static enum answer converted(struct draw *d, struct text *why)
{
    const char *run = test_path(d->folder, "a"), *hf = test_path(d->folder, "hf"),
               *back = test_path(d->folder, "back");
    struct text err = {0};
    struct comparison c = {0};
    enum answer answer = HOLDS;
    int code = LLAMERO(NULL, &err, "convert", run, hf, "--to", "hf");
    if (!code) code = LLAMERO(NULL, &err, "convert", hf, back, "--to", "native");
    if (code) answer = draw_broken(why, code, &err);
    if (!code)
        CHECK_STATUS(OK, comparison_make(&c, draw_checkpoint(d, "a", d->steps),
                                         test_path(back, "checkpoint/step-0")));
    for (size_t i = 0; i < c.count; i++) {
        const struct difference *x = &c.all[i];
        bool is_state = !strncmp(x->name, "state.json", 10) || strstr(x->name, "moments") ||
                        !strcmp(x->name, "ema: all tensors");
        /* The native format has float32. */
        bool is_widened =
            !strcmp(x->name, "config.json: torch_dtype") && draw_has(d, "export_dtype=bfloat16");
        if (is_state || is_widened) continue;
        text_addf(why, "%s differs: %s, %s\n", x->name, x->first ? x->first : "",
                  x->second ? x->second : "");
        answer = BROKEN;
    }
    comparison_release(&c);
    text_release(&err);
    return answer;
}

#define PROMPT "the llama walks over salt"
/* `generate` and `eval` compute in this precision and on one thread. */
#define INFERENCE "training.mixed_precision_param=float32", "device.threads=1"

/* Mean of -log p of the tokens of PROMPT, decoded one by one with the KV cache. */
static enum status decode_prompt(const char *run, double *loss, int *count)
{
    const char *const settings[] = {INFERENCE};
    struct generation g = {.max_tokens = ROW - 1};
    const struct loaded_model_options o = {run, "", settings, 2, false, ROW};
    struct token_list ids = {0};
    enum status st = STATUS_OK;
    *loss = 0;
    TRY_OUT(machine_join(&g.loaded.machine));
    TRY_OUT(loaded_model_open(&g.loaded, &o));
    TRY_OUT(text_generation_encode(&g.loaded, PROMPT, &ids));
    token_list_reserve(&ids, 1);
    if (g.loaded.config.data.eos) ids.ids[ids.count++] = tokenizer_eos(g.loaded.tokenizer);
    token_list_reserve(&g.ids, 1);
    g.ids.ids[g.ids.count++] = ids.ids[0];
    TRY_OUT(generation_open(&g));
    TRY_OUT(generation_prefill(&g));
    for (size_t i = 1; i < ids.count; i++) {
        double sum = 0;
        for (int v = 0; v < g.loaded.shape.V; v++) sum += exp((double)g.logits_V[v]);
        *loss += (log(sum) - (double)g.logits_V[ids.ids[i]]) / (double)(ids.count - 1);
        TRY_OUT(generation_append(&g, ids.ids[i], true));
    }
    *count = (int)ids.count - 1;
out:
    token_list_release(&ids);
    generation_release(&g, st);
    return st;
}

/* `eval` of the same text, as one row. */
static enum answer same_likelihood(const struct draw *d, const char *run, struct text *why)
{
    const char *file = test_path(d->folder, "prompt.txt");
    struct text out = {0}, err = {0};
    struct json *json;
    double decoded;
    int count;
    CHECK_STATUS(OK, file_write(file, PROMPT, strlen(PROMPT)));
    int code = LLAMERO(&out, &err, "eval", run, file, "--json", "--seq-len", ROW_WORD, INFERENCE);
    enum answer answer = code ? draw_broken(why, code, &err) : HOLDS;
    if (!code && decode_prompt(run, &decoded, &count)) {
        text_addf(why, "decoding: %s\n", status_message());
        answer = BROKEN;
    } else if (!code) {
        CHECK_STATUS(OK, json_parse(out.data, out.len, "eval", &json));
        double loss = json_number(json_get(json, "loss"));
        bool same = json_number(json_get(json, "tokens")) == count;
        if (!same || !(fabs(loss - decoded) <= 1e-5 * loss)) answer = BROKEN;
        text_addf(why, "eval %.9g of %g tokens, decoded %.9g of %d\n", loss,
                  json_number(json_get(json, "tokens")), decoded, count);
        json_free(json);
    }
    text_release(&out), text_release(&err);
    return answer;
}

/* Adds the tokens that `generate` appends greedily to some prompts. */
static int greedy_tokens(const struct draw *d, const char *model, const char *options,
                         struct text *ids, struct text *err)
{
    struct text line = {0}, out = {0};
    text_addf(&line,
              "generate %s/%s --temperature 0 --max-tokens 8 --json "
              "training.mixed_precision_param=float32 device.threads=1%s %s",
              d->folder, model, draw_has(d, "data.bos=false") ? " data.bos=false" : "", options);
    int code = draw_run_line(&line, &out, err);
    const char *at = out.data;
    text_adds(ids, "");
    while (!code && (at = strstr(at, "\"ids\""))) {
        size_t len = strcspn(at, "]");
        text_addf(ids, "%.*s\n", (int)len, at);
        at += len;
    }
    text_release(&line), text_release(&out);
    return code;
}

/* Compares the greedy tokens after several prompts, decoded together, with those of another
 * command. */
static enum answer same_tokens(const struct draw *d, const char *model, const char *options,
                               const struct text *together, struct text *why)
{
    struct text ids = {0}, err = {0};
    int code = greedy_tokens(d, model, options, &ids, &err);
    enum answer answer = code ? draw_broken(why, code, &err) : HOLDS;
    if (!code && (!ids.len || strcmp(together->data, ids.data))) {
        text_addf(why, "%s %s generates\n%sinstead of\n%s", model, options, ids.data,
                  together->data);
        answer = BROKEN;
    }
    text_release(&ids), text_release(&err);
    return answer;
}

static enum answer generated(struct draw *d, struct text *why)
{
    if (draw_has(d, "objective.name=")) return NOT_APPLICABLE;
    const char *run = test_path(d->folder, "a"), *hf = test_path(d->folder, "exported");
    const char *file = test_path(d->folder, "prompts.txt");
    const char *prompts = PROMPT "\nsnow\nthe high path and the town of llamas\n";
    char options[3][256];
    struct text ids = {0}, err = {0};
    CHECK_STATUS(OK, file_write(file, prompts, strlen(prompts)));
    snprintf(options[0], sizeof *options, "--prompts %s --batch 3", file);
    snprintf(options[1], sizeof *options, "--prompts %s --batch 1", file);
    snprintf(options[2], sizeof *options, "--prompts %s --batch 2 --ranks 2", file);
    enum answer answer = same_likelihood(d, run, why);
    int code = greedy_tokens(d, "a", options[0], &ids, &err);
    if (!code) code = LLAMERO(NULL, &err, "convert", run, hf, "--to", "hf");
    if (code) answer = draw_broken(why, code, &err);
    for (int i = 1; i < 3 && !code; i++)
        if (same_tokens(d, "a", options[i], &ids, why) == BROKEN) answer = BROKEN;
    if (!code && same_tokens(d, "exported", options[0], &ids, why) == BROKEN) answer = BROKEN;
    text_release(&ids), text_release(&err);
    return answer;
}

enum relation {
    CHECKED,
    REPEATED,
    RESUMED,
    KILLED,
    ELASTIC,
    LAYOUT,
    EVALUATED,
    CONVERTED,
    GENERATED,
    EMULATED,
    RELATIONS
};
static const char *const relation_names[RELATIONS] = {"check accepts what train accepts",
                                                      "repeated",
                                                      "resumed",
                                                      "killed and resumed",
                                                      "elastic",
                                                      "another layout",
                                                      "eval",
                                                      "converted",
                                                      "generate",
                                                      "on an emulated GPU"};

struct tally {
    const char *data;
    int draws, accepted, failures, count[RELATIONS];
};

static void report(struct tally *t, const struct draw *d, enum relation r, const struct text *why)
{
    t->failures++;
    fprintf(stderr, "draw %" PRIu64 ", %s: %s\n%s\ntrain run.toml --ranks %d%s %s\n\n", d->number,
            relation_names[r], why->data, d->config.data, d->layout->ranks, d->settings.data,
            d->layout->settings);
}

static enum answer relate(struct tally *t, struct draw *d, enum relation r)
{
    struct text why = {0};
    text_adds(&why, "");
    enum answer answer = r == REPEATED    ? repeated(d, &why)
                         : r == RESUMED   ? resumed(d, &why)
                         : r == KILLED    ? killed(d, &why)
                         : r == ELASTIC   ? elastic(d, &why)
                         : r == LAYOUT    ? other_layout(d, &why)
                         : r == EVALUATED ? evaluated(d, t->data, &why)
                         : r == CONVERTED ? converted(d, &why)
                         : r == EMULATED  ? draw_emulated(d, &why)
                                          : generated(d, &why);
    if (answer != NOT_APPLICABLE) t->count[r]++;
    if (answer == BROKEN) report(t, d, r, &why);
    text_release(&why);
    return answer;
}

/* Whether `train` accepts it. */
static bool try_to_train(struct tally *t, struct draw *d)
{
    struct text checked = {0}, trained = {0}, why = {0};
    int check = draw_run(d, "check", d->layout, "a", &checked);
    double begin = clock_monotonic_s();
    int train = draw_run(d, "train", d->layout, "a", &trained);
    d->seconds = clock_monotonic_s() - begin;
    t->draws++, t->count[CHECKED]++;
    if (!train) t->accepted++;
    const char *error = strstr(trained.data, "error: ");
    if (train)
        print_message("draw %" PRIu64 " exits with %d: %.*s\n", d->number, train,
                      error ? (int)strcspn(error, "\n") : 0, error ? error : "");
    if (check != train) {
        text_addf(&why, "check: exit code %d: %s\ntrain: exit code %d: %s\n", check, checked.data,
                  train, trained.data);
        report(t, d, CHECKED, &why);
    }
    text_release(&checked), text_release(&trained), text_release(&why);
    return !train;
}

/* LLAMERO_RELATION=word: only those whose name contains it. */
static bool is_selected(enum relation r)
{
    const char *word = getenv("LLAMERO_RELATION");
    return !word || strstr(relation_names[r], word);
}

/* All relations of a draw that apply; or some, in turn, and few runs on an emulated GPU, which take
 * seconds. */
static void try_draw(struct tally *t, uint64_t number, bool all)
{
    enum { SOME = 3, EMULATED_EACH = 5 };
    int most = all ? RELATIONS : SOME;
    struct draw d;
    draw_make(&d, number, t->data);
    if (!try_to_train(t, &d)) goto out;
    for (int i = -1; i < EMULATED - 1 && most; i++) {
        /* Elastic runs are few. */
        int r = i < 0 ? ELASTIC : REPEATED + (int)((number + (uint64_t)i) % (EMULATED - 1));
        if ((i >= 0 && r == ELASTIC) || !is_selected((enum relation)r)) continue;
        if (relate(t, &d, (enum relation)r) != NOT_APPLICABLE) most--;
    }
    if (is_selected(EMULATED) && (all || number % EMULATED_EACH == 1)) relate(t, &d, EMULATED);
out:
    draw_release(&d);
}

TEST(relations_between_runs_hold_for_random_configurations)
{
    const char *wanted = getenv("LLAMERO_DRAWS");
    uint64_t first = FIRST, last = LAST;
    struct tally t = {.data = test_folder()};
    if (wanted) CHECK(sscanf(wanted, "%" SCNu64 "-%" SCNu64, &first, &last) == 2);
    draw_write_data(t.data);
    for (uint64_t n = first; n <= last; n++) try_draw(&t, n, wanted != NULL);
    print_message("%d of %d draws train\n", t.accepted, t.draws);
    for (int r = 0; r < RELATIONS; r++) print_message("%3d %s\n", t.count[r], relation_names[r]);
    CHECK(t.failures == 0);
    if (wanted || TEST_SLOWED) return;
    CHECK(2 * t.accepted >= t.draws);
    for (int r = 0; r < RELATIONS; r++) CHECK(t.count[r] >= 2);
}
