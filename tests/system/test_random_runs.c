/* test_random_runs.c -- draws configurations and checks relations between their runs: `check`
 * accepts what `train` accepts, a repeated and a resumed run have the same bits, other layouts give
 * the same loss, `eval` computes the logged validation loss, `convert` keeps the weights.
 *
 * The number of a draw determines its configuration.  LLAMERO_DRAWS=FIRST-LAST tries other draws
 * than these, with every relation that applies. */
// SPDX-License-Identifier: Apache-2.0
#include "base/rng.h"
#include "checkpoint/comparison.h"
#include "system/layouts.h"
#include "system/runs.h"

#include <inttypes.h>

enum { FIRST = 41, LAST = 60, MAX_VALUES = 10 };

/* In `percent` of draws one of the values is chosen, all alike; each is one or more settings. */
struct choice {
    int percent;
    const char *values[MAX_VALUES];
};

#define MASK      " objective.mask_token=<|mask|>"
#define QUANTIZED "model.converters=[\"float8\"]"
#define DELAYED   QUANTIZED " float8.recipe_name=delayed "
#define FAMILY(name, flavor)                                                                       \
    "model.name=" name " model.flavor=" flavor " model.head_dim=16 model.max_context=0"

static const struct choice choices[] = {
    {25,
     {FAMILY("qwen3", "0.6B"), FAMILY("olmo2", "1B"), FAMILY("qwen2.5", "0.5B"),
      FAMILY("smollm3", "3B"), FAMILY("mistral", "7B"), FAMILY("llama2", "debugmodel"),
      FAMILY("llama3.2", "1B"), FAMILY("frontier", "debugmodel")}},
    {30, {"model.dim=64", "model.dim=48", "model.dim=40"}},
    {30, {"model.n_layers=3", "model.n_layers=4"}},
    {30,
     {"model.n_kv_heads=1", "model.n_kv_heads=4", "model.n_heads=8",
      "model.n_heads=6 model.n_kv_heads=3 model.head_dim=8"}},
    {15, {"model.head_dim=8", "model.head_dim=24", "model.head_dim=32"}},
    {25, {"model.ffn_hidden=48", "model.ffn_hidden=96", "model.ffn_hidden=72"}},
    {50,
     {"model.qk_norm=true", "model.post_norm=true", "model.attention_bias=qkv",
      "model.attention_bias=all model.mlp_bias=true", "model.sliding_window=8",
      "model.sliding_window=40", "model.partial_rotary_factor=0.5",
      "model.no_rope_layer_interval=2", "model.logits_scaling=8 model.residual_multiplier=0.22",
      "model.embedding_multiplier=12 model.attention_multiplier=0.1"}},
    {4, {"model.attention_bias=none", "model.sliding_window=1", "model.mlp_bias=true"}},
    {20,
     {"model.rope_scaling=none", "model.rope_scaling=llama3 model.rope_original_context=16",
      "model.rope_scaling=linear model.rope_factor=2",
      "model.rope_scaling=dynamic model.rope_factor=2 model.max_context=16",
      "model.rope_scaling=yarn model.rope_factor=4 model.rope_original_context=16",
      "model.rope_scaling=longrope model.rope_original_context=16 model.head_dim=8 "
      "model.rope_short_factor=[1,1,1,2] model.rope_long_factor=[1,2,3,4]"}},
    {30, {"model.tie_embeddings=true", "model.tie_embeddings=false"}},
    {25, {"model.attn_mask_type=block_causal"}},
    {12, {"model.init=normal", "model.init=megatron", "model.depth_init=false"}},
    {12, {"model.vocab_multiple=16", "model.vocab_size=300"}},
    {15,
     {QUANTIZED, DELAYED, DELAYED "float8.amax_history_len=2 float8.margin=1",
      QUANTIZED " float8.filter_fqns=[\"layers.0.\",\"w2\"]"}},
    {25,
     {"objective.name=masked" MASK, "objective.name=masked objective.mask_probability=0.6" MASK,
      "objective.name=diffusion" MASK}},
    {40, {"data.streams=1", "data.streams=3", "data.streams=16"}},
    {30, {"data.shuffle_window=1", "data.shuffle_window=16"}},
    {10, {"data.packing=best_fit model.attn_mask_type=block_causal"}},
    {2, {"data.packing=best_fit"}},
    {10, {"data.row_overlap=false"}},
    {15, {"data.prefetch=0", "data.prefetch=1", "data.prefetch=20"}},
    {15, {"data.eos=false", "data.bos=false", "data.eod_mask_loss=true", "data.seed=7"}},
    {30, {"training.local_batch_size=1", "training.local_batch_size=4"}},
    {50,
     {"training.global_batch_size=8", "training.global_batch_size=12",
      "training.global_batch_size=6", "training.global_batch_size=5"}},
    {5, {"training.global_batch_size=-1"}},
    {20, {"training.seq_len=16", "training.seq_len=48", "training.seq_len=24"}},
    {45, {"training.mixed_precision_param=float32"}},
    {8, {"training.loss_norm=rank_mean"}},
    {10, {"training.z_loss=1e-3"}},
    {10, {"training.max_norm=0", "training.max_norm=0.1"}},
    {40,
     {"training.determinism=elastic", "training.determinism=elastic training.global_batch_size=8",
      "training.determinism=elastic training.global_batch_size=8 training.local_batch_size=1",
      "training.determinism=elastic training.global_batch_size=12 training.local_batch_size=2",
      "training.determinism=elastic training.canonical_microbatches=2"}},
    {4, {"training.batch_ramp=[2,2,8]"}},
    {50,
     {"optimizer.name=Muon", "optimizer.name=Muon optimizer.nesterov=false",
      "optimizer.name=Muon optimizer.adjust_lr_fn=match_rms_adamw optimizer.ns_steps=3",
      "training.gradient_dtype=bfloat16", "optimizer.state_dtype=int8 model.dim=64"}},
    {15, {"optimizer.state_dtype=bfloat16"}},
    {15, {"optimizer.master_weights=split training.mixed_precision_param=bfloat16"}},
    {3, {"optimizer.master_weights=split"}},
    {20, {"optimizer.ema_decay=0.9"}},
    {10, {"optimizer.decoupled_lr=1e-3"}},
    {2, {"optimizer.offload=true", "activation_checkpoint.offload=true"}},
    {15, {"optimizer.weight_decay=0", "optimizer.decay_norms=false", "optimizer.beta1=0"}},
    {30,
     {"lr_scheduler.decay_type=cosine", "lr_scheduler.decay_type=sqrt",
      "lr_scheduler.min_lr_factor=0.1", "lr_scheduler.decay_ratio=0.5",
      "lr_scheduler.formula=megatron lr_scheduler.decay_type=inverse_sqrt",
      "lr_scheduler.formula=megatron", "lr_scheduler.formula=nxdt",
      "lr_scheduler.formula=frontier"}},
    {50,
     {"activation_checkpoint.mode=none", "activation_checkpoint.mode=full",
      "activation_checkpoint.selective_ac_option=2"}},
    {60,
     {"validation.enable=true", "validation.enable=true validation.steps=2",
      "validation.enable=true validation.freq=2",
      "validation.enable=true validation.local_batch_size=3",
      "validation.enable=true validation.seq_len=16",
      "validation.enable=true validation.dataset_path= data.validation_share=0.1 "
      "validation.steps=3"}},
    {40,
     {"checkpoint.async_mode=async", "checkpoint.async_mode=async_with_pinned_mem",
      "checkpoint.enable_first_step_checkpoint=true", "checkpoint.keep_latest_k=2"}},
    {20,
     {"guard.hash_every=2", "guard.replay_every=2", "guard.check_collectives=1",
      "guard.skip_steps=[[2,2]]", "guard.skip_rows=[[3,5]]", "debug.check_collectives=true"}},
    {30, {"debug.seed=1", "debug.seed=123456789"}},
    {25,
     {"parallelism.fsdp_reshard_after_forward=never",
      "parallelism.fsdp_reshard_after_forward=always", ZERO1}},
    {15, {"device.cpu=avx2", "device.cpu=reference"}},
};
enum { CHOICES = sizeof choices / sizeof *choices };

struct layout {
    int ranks, readers;
    const char *settings;
};
#define CHUNKED  " parallelism.pipeline_parallel_schedule=Interleaved1F1B"
#define GPIPE    " parallelism.pipeline_parallel_schedule=GPipe"
#define TWO_ROWS " parallelism.pipeline_parallel_microbatch_size=2"

/* Elastic runs change to one of the first. */
static const struct layout layouts[] = {
    {1, 1, SHARD(1)},
    {2, 2, SHARD(2)},
    {2, 2, SHARD(1) " " COPIES(2)},
    {4, 4, SHARD(2) " " COPIES(2)},
    {4, 4, SHARD(4)},
    {1, 1, SHARD(1) " device.threads=2"},
    {1, 1, SHARD(1)},
    {3, 3, SHARD(3)},
    {2, 1, TP(2)},
    {2, 1, PP(2)},
    {2, 1, CP(2)},
    {2, 1, PP(2) GPIPE TWO_ROWS},
    {4, 2, SHARD(2) " " TP(2)},
    {4, 2, SHARD(2) " " CP(2)},
    {4, 2, SHARD(2) " " PP(2) CHUNKED},
    {4, 1, TP(2) " " CP(2)},
    {4, 1, TP(2) " " PP(2) CHUNKED},
    {4, 1, TP(4)},
    {4, 1, PP(4)},
    {2, 2, SHARD(3)},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts, DATA_LAYOUTS = 6 };

struct draw {
    uint64_t number, position; /* of the next random number */
    const char *folder;
    const struct layout *layout;
    int steps;
    struct text config, settings; /* settings: without the layout's */
};

static int below(struct draw *d, int n)
{
    return (int)rng_below((uint64_t)n, d->number, RNG_TEST, 0, d->position++);
}

static const char *const stages[] = {
    "[[data.stage]]\nat_step = 2\nseq_len = 16\n",
    "[[data.stage]]\nat_step = 4\nweights = [1.0, 3.0]\n",
    "[[data.stage]]\nat_step = 3\nattn_mask_type = \"block_causal\"\n",
    "[[data.stage]]\nat_step = 2\nlocal_batch_size = 1\nglobal_batch_size = 8\n",
};

static void draw_config(struct draw *d, const char *data)
{
    struct text *t = &d->config;
    bool mock = below(d, 12) == 0, two = !mock && below(d, 3) == 0,
         staged = !mock && below(d, 6) == 0;
    text_addf(t,
              "[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\ndim = 32\nn_layers = 2\n"
              "n_heads = 4\nn_kv_heads = 2\nffn_hidden = 64\n"
              "[training]\nlocal_batch_size = 2\nglobal_batch_size = 4\nseq_len = 32\nsteps = %d\n"
              "[lr_scheduler]\nwarmup_steps = 2\n[optimizer]\nlr = 1e-3\n"
              "[metrics]\nlog_freq = 1\n[checkpoint]\nenable = true\ninterval = 3\n"
              "[validation]\nfreq = 3\nlocal_batch_size = 2\ndataset_path = \"%s/validation.txt\"\n"
              "[device]\nthreads = 1\n"
              "[data]\ntokenizer = \"bytes\"\nstreams = 8\nshuffle_window = 4\n"
              "%s[[data.source]]\npath = \"%s%s\"\n",
              d->steps, data, mock ? "order = \"megatron\"\n" : "", mock ? "" : data,
              mock ? "mock" : "/corpus.txt");
    if (two || staged)
        text_addf(t, "[[data.source]]\npath = \"%s/corpus.jsonl\"\nweight = 0.5\n", data);
    if (staged) text_adds(t, stages[below(d, sizeof stages / sizeof *stages)]);
}

static void draw_make(struct draw *d, uint64_t number, const char *data)
{
    *d = (struct draw){.number = number, .folder = test_folder()};
    d->steps = 5 + below(d, 3);
    d->layout = &layouts[below(d, LAYOUTS)];
    draw_config(d, data);
    text_adds(&d->settings, "");
    for (int i = 0; i < CHOICES; i++) {
        int count = 0;
        while (count < MAX_VALUES && choices[i].values[count]) count++;
        if (below(d, 100) >= choices[i].percent) continue;
        text_addf(&d->settings, " %s", choices[i].values[below(d, count)]);
    }
    CHECK_STATUS(OK, file_write(test_path(d->folder, "run.toml"), d->config.data, d->config.len));
}

static void draw_release(struct draw *d)
{
    CHECK_STATUS(OK, file_remove_tree(d->folder));
    text_release(&d->config), text_release(&d->settings);
}

static bool has(const struct draw *d, const char *setting)
{
    return strstr(d->settings.data, setting) != NULL;
}

/* The number that the settings give a key, the last if there are several. */
static int number_of(const struct draw *d, const char *key, int otherwise)
{
    int number = otherwise;
    for (const char *at = d->settings.data; (at = strstr(at, key)); at += strlen(key))
        if (at[strlen(key)] == '=') number = atoi(at + strlen(key) + 1);
    return number;
}

/* Runs the program with the words of a line. */
static int run_line(const struct text *line, struct text *out, struct text *err)
{
    const char *words[64] = {NULL};
    char *copy = heap_string(line->data, line->len), *next = NULL;
    int n = 0;
    for (char *word = strtok_r(copy, " ", &next); word; word = strtok_r(NULL, " ", &next)) {
        CHECK(n < 62);
        words[n++] = word;
    }
    int code = test_llamero(out, err, words);
    free(copy);
    return code;
}

/* Runs `check` or `train` into <folder>/<dump>. */
static int run_draw(const struct draw *d, const char *command, const struct layout *layout,
                    const char *dump, struct text *err)
{
    struct text line = {0};
    text_addf(&line, "%s %s/run.toml --ranks %d job.dump_folder=%s/%s%s %s", command, d->folder,
              layout->ranks, d->folder, dump, d->settings.data, layout->settings);
    int code = run_line(&line, NULL, err);
    text_release(&line);
    return code;
}

enum answer { NOT_APPLICABLE, HOLDS, BROKEN };

static enum answer broken(struct text *why, int code, const struct text *err)
{
    text_addf(why, "exit code %d: %s", code, err->data);
    return BROKEN;
}

/* The lines of metrics.jsonl, without timings and memory. */
static void read_numbers(const char *dump, struct text *numbers)
{
    static const char *const keys[] = {
        "step", "loss", "max_loss", "grad_norm", "lr", "validation_loss", "tokens_seen"};
    struct text t = {0};
    char *next;
    text_adds(numbers, "");
    CHECK_STATUS(OK, file_read(test_path(dump, "metrics.jsonl"), UINT64_MAX, &t));
    for (char *at = strtok_r(t.data, "\n", &next); at; at = strtok_r(NULL, "\n", &next)) {
        struct json *line;
        CHECK_STATUS(OK, json_parse(at, strlen(at), dump, &line));
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            const struct json *v = json_get(line, keys[i]);
            if (json_is_number(v)) text_addf(numbers, "%s %.9g ", keys[i], json_number(v));
        }
        text_adds(numbers, "\n");
        json_free(line);
    }
    text_release(&t);
}

/* A resumed run has the last lines of the first. */
static enum answer same_metrics(const struct draw *d, const char *dump, struct text *why)
{
    struct text x = {0}, y = {0};
    read_numbers(test_path(d->folder, "a"), &x), read_numbers(test_path(d->folder, dump), &y);
    bool resumes = !strcmp(dump, "resumed");
    bool same = y.len && (resumes ? x.len > y.len : x.len == y.len) &&
                !strcmp(x.data + x.len - y.len, y.data);
    if (!same) text_addf(why, "metrics of the first run:\n%sof the second:\n%s", x.data, y.data);
    text_release(&x), text_release(&y);
    return same ? HOLDS : BROKEN;
}

static bool is_state(const char *name)
{
    return strstr(name, ".safetensors") || !strcmp(name, "state.json");
}

static const char *checkpoint_of(const struct draw *d, const char *dump, int step)
{
    char name[64];
    snprintf(name, sizeof name, "%s/checkpoint/step-%d", dump, step);
    return test_path(d->folder, name);
}

static enum answer same_state(const struct draw *d, const char *a, const char *b, struct text *why)
{
    struct file_list names;
    enum answer answer = HOLDS;
    int compared = 0;
    const char *from = checkpoint_of(d, a, d->steps), *to = checkpoint_of(d, b, d->steps);
    CHECK_STATUS(OK, file_list_dir(&names, from));
    for (size_t i = 0; i < names.count; i++) {
        if (!is_state(names.paths[i])) continue;
        compared++;
        struct text x = {0}, y = {0};
        const char *path = test_path(to, names.paths[i]);
        CHECK_STATUS(OK, file_read(test_path(from, names.paths[i]), UINT64_MAX, &x));
        if (file_exists(path)) CHECK_STATUS(OK, file_read(path, UINT64_MAX, &y));
        if (x.len != y.len || memcmp(x.data, y.data, x.len)) {
            text_addf(why, "%s of step %d differs\n", names.paths[i], d->steps);
            answer = BROKEN;
        }
        text_release(&x), text_release(&y);
    }
    CHECK(compared >= 3); /* weights, moments and state.json */
    file_list_release(&names);
    return answer;
}

/* Trains in <folder>/<name> and compares all bits with the first run. */
static enum answer train_same(const struct draw *d, const struct layout *layout, const char *name,
                              struct text *why)
{
    struct text err = {0};
    int code = run_draw(d, "train", layout, name, &err);
    enum answer answer = code ? broken(why, code, &err) : same_metrics(d, name, why);
    if (!code && same_state(d, "a", name, why) == BROKEN) answer = BROKEN;
    text_release(&err);
    return answer;
}

static enum answer repeated(struct draw *d, struct text *why)
{
    return train_same(d, d->layout, "again", why);
}

static enum answer resumed(struct draw *d, struct text *why)
{
    const char *to = test_path(d->folder, "resumed/checkpoint"), *from = checkpoint_of(d, "a", 1);
    for (int step = 2; step < d->steps && !file_exists(from); step++)
        from = checkpoint_of(d, "a", step);
    CHECK_STATUS(OK, file_make_dirs(to));
    CHECK(test_run((const char *const[]){"cp", "-r", from, to, NULL}, NULL, NULL) == 0);
    return train_same(d, d->layout, "resumed", why);
}

/* Another one of these layouts that `check` accepts, or NULL. */
static const struct layout *another_layout(struct draw *d, int first, int count)
{
    struct text err = {0};
    const struct layout *to = NULL;
    for (int n = 0; n < 8 && !to; n++) {
        const struct layout *l = &layouts[first + below(d, count)];
        bool usable = strcmp(l->settings, d->layout->settings) != 0;
        if (usable && run_draw(d, "check", l, "unused", &err) == 0) to = l;
    }
    text_release(&err);
    return to;
}

static bool is_float32(const struct draw *d)
{
    const char *last = d->settings.data, *key = "mixed_precision_param=";
    for (const char *at = last; (at = strstr(at, key));) last = at += strlen(key);
    /* Moments and gradients may be narrower. */
    bool is_narrow = has(d, "_dtype=bfloat16") || has(d, "_dtype=int8");
    return !strncmp(last, "float32", 7) && !is_narrow;
}

static bool is_elastic(const struct draw *d) { return has(d, "training.determinism=elastic"); }

static enum answer elastic(struct draw *d, struct text *why)
{
    /* Other degrees than the data-parallel ones give other roundings. */
    if (!is_elastic(d) || d->layout->ranks != d->layout->readers) return NOT_APPLICABLE;
    const struct layout *to = another_layout(d, 0, DATA_LAYOUTS);
    if (!to) return NOT_APPLICABLE;
    text_addf(why, "on %d ranks with %s: ", to->ranks, to->settings);
    return train_same(d, to, "elastic", why);
}

/* The largest relative difference of the values of a key in the metrics of two runs. */
static double max_difference(const char *a, const char *b, const char *key)
{
    struct text x = {0}, y = {0};
    double most = 0;
    int lines = 0;
    read_numbers(a, &x), read_numbers(b, &y);
    const char *p = x.data, *q = y.data;
    for (; (p = strstr(p, key)) && (q = strstr(q, key)); lines++) {
        p += strlen(key), q += strlen(key);
        double off = fabs(strtod(p, NULL) / strtod(q, NULL) - 1);
        if (!(off <= most)) most = off;
    }
    if (p || !lines) most = INFINITY;
    text_release(&x), text_release(&y);
    return most;
}

static enum answer other_layout(struct draw *d, struct text *why)
{
    bool fixed_rows = !has(d, "global_batch_size=-1") && !strstr(d->config.data, "megatron");
    if (is_elastic(d) || !fixed_rows || has(d, "rank_mean")) return NOT_APPLICABLE;
    const struct layout *to = another_layout(d, 0, LAYOUTS);
    struct text err = {0};
    if (!to) return NOT_APPLICABLE;
    int code = run_draw(d, "train", to, "layout", &err);
    text_addf(why, "on %d ranks with %s: ", to->ranks, to->settings);
    enum answer answer = code ? broken(why, code, &err) : HOLDS;
    if (!code) {
        const char *a = test_path(d->folder, "a"), *b = test_path(d->folder, "layout");
        double loss = max_difference(a, b, " loss "), norm = max_difference(a, b, " grad_norm ");
        double most = has(d, "float8") ? 0.05 : is_float32(d) ? 1e-4 : 0.02;
        if (!(loss <= most / 5 && norm <= 5 * most)) answer = BROKEN;
        text_addf(why, "losses differ by %g, gradient norms by %g\n", loss, norm);
    }
    text_release(&err);
    return answer;
}

static enum answer evaluated(struct draw *d, const char *data, struct text *why)
{
    /* `eval` computes without FP8. */
    bool is_comparable = !has(d, "validation_share") && !has(d, "float8");
    if (!has(d, "validation.enable=true") || !is_comparable) return NOT_APPLICABLE;
    struct text line = {0}, out = {0}, err = {0};
    struct json *json;
    int readers = is_elastic(d) ? 1 : d->layout->readers,
        steps = number_of(d, "validation.steps", -1);
    double logged = runs_metric(test_path(d->folder, "a"), "validation_loss");
    text_addf(&line, "eval %s/a %s/validation.txt --json --batch-size %d device.threads=1",
              d->folder, data, number_of(d, "validation.local_batch_size", 2));
    if (steps > 0) text_addf(&line, " --batches %d", steps * readers);
    if (has(d, "validation.seq_len=16")) text_adds(&line, " --seq-len 16");
    int code = run_line(&line, &out, &err);
    enum answer answer = code ? broken(why, code, &err) : HOLDS;
    if (!code) {
        CHECK_STATUS(OK, json_parse(out.data, out.len, "eval", &json));
        double loss = json_number(json_get(json, "loss")), most = 1e-8; /* of its digits */
        if (d->layout->ranks > 1) most = is_float32(d) ? 1e-5 : 5e-3;
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
    if (code) answer = broken(why, code, &err);
    if (!code)
        CHECK_STATUS(OK, comparison_make(&c, checkpoint_of(d, "a", d->steps),
                                         test_path(back, "checkpoint/step-0")));
    for (size_t i = 0; i < c.count; i++) {
        const struct difference *x = &c.all[i];
        bool is_state = !strncmp(x->name, "state.json", 10) || strstr(x->name, "moments");
        if (is_state) continue;
        text_addf(why, "%s differs: %s, %s\n", x->name, x->first ? x->first : "",
                  x->second ? x->second : "");
        answer = BROKEN;
    }
    comparison_release(&c);
    text_release(&err);
    return answer;
}

enum relation { CHECKED, REPEATED, RESUMED, ELASTIC, LAYOUT, EVALUATED, CONVERTED, RELATIONS };
static const char *const relation_names[RELATIONS] = {"check accepts what train accepts",
                                                      "repeated",
                                                      "resumed",
                                                      "elastic",
                                                      "another layout",
                                                      "eval",
                                                      "converted"};

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
                         : r == ELASTIC   ? elastic(d, &why)
                         : r == LAYOUT    ? other_layout(d, &why)
                         : r == EVALUATED ? evaluated(d, t->data, &why)
                                          : converted(d, &why);
    if (answer != NOT_APPLICABLE) t->count[r]++;
    if (answer == BROKEN) report(t, d, r, &why);
    text_release(&why);
    return answer;
}

/* Whether `train` accepts it. */
static bool try_to_train(struct tally *t, struct draw *d)
{
    struct text checked = {0}, trained = {0}, why = {0};
    int check = run_draw(d, "check", d->layout, "a", &checked);
    int train = run_draw(d, "train", d->layout, "a", &trained);
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

/* The relations of a draw, or `most` of those that apply, in turn. */
static void try_draw(struct tally *t, uint64_t number, int most)
{
    struct draw d;
    draw_make(&d, number, t->data);
    if (try_to_train(t, &d))
        for (int i = -1; i < RELATIONS - 1 && most; i++) {
            /* Elastic runs are few. */
            int r = i < 0 ? ELASTIC : REPEATED + (int)((number + (uint64_t)i) % (RELATIONS - 1));
            if (i >= 0 && r == ELASTIC) continue;
            if (relate(t, &d, (enum relation)r) != NOT_APPLICABLE) most--;
        }
    draw_release(&d);
}

TEST(relations_between_runs_hold_for_random_configurations)
{
    const char *wanted = getenv("LLAMERO_DRAWS");
    uint64_t first = FIRST, last = LAST;
    struct tally t = {.data = test_folder()};
    if (wanted) CHECK(sscanf(wanted, "%" SCNu64 "-%" SCNu64, &first, &last) == 2);
    runs_write_corpus(test_path(t.data, "corpus.txt"), 30000);
    runs_write_corpus(test_path(t.data, "corpus.jsonl"), 30000);
    runs_write_corpus(test_path(t.data, "validation.txt"), 1500);
    for (uint64_t n = first; n <= last; n++) try_draw(&t, n, wanted ? RELATIONS : 3);
    print_message("%d of %d draws train\n", t.accepted, t.draws);
    for (int r = 0; r < RELATIONS; r++) print_message("%3d %s\n", t.count[r], relation_names[r]);
    CHECK(t.failures == 0);
    if (wanted || TEST_SLOWED) return;
    CHECK(2 * t.accepted >= t.draws);
    for (int r = 0; r < RELATIONS; r++) CHECK(t.count[r] >= 2);
}
