// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/convert.h"
#include "app/app.h"
#include "app/arguments.h"
#include "app/flag_modes.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/manifest.h"
#include "config/config.h"
#include "infer/loaded_model.h"
#include "infer/objective.h"
#include "metrics/console.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The words of --dtype; of two for a dtype, the first is the one that is printed. */
#define DTYPES(X)                                                                                  \
    X(float32, SAFETENSORS_F32, false)                                                             \
    X(f32, SAFETENSORS_F32, false)                                                                 \
    X(bfloat16, SAFETENSORS_BF16, false)                                                           \
    X(bf16, SAFETENSORS_BF16, false)                                                               \
    X(float16, SAFETENSORS_F16, false)                                                             \
    X(f16, SAFETENSORS_F16, false)                                                                 \
    X(q8_0, SAFETENSORS_F32, true)
/* The words of --to, in the order of enum conversion_target. */
#define TARGETS(X)                                                                                 \
    X(hf, "a Hugging Face folder")                                                                 \
    X(meta, "Meta's consolidated.00.pth")                                                          \
    X(dcp, "a torch.distributed.checkpoint directory")                                             \
    X(gguf, "a GGUF file")                                                                         \
    X(nxdt, "a checkpoint of NxD Training")                                                        \
    X(native, "a checkpoint of a run")
#define WORD(word, ...)  "|" #word
#define WORDS(list)      (&("" list(WORD))[1])
#define NAMED(word, ...) {#word, __VA_ARGS__},

static const struct {
    const char *name;
    enum safetensors_dtype dtype;
    bool quantized;
} dtypes[] = {DTYPES(NAMED)};

static const struct {
    const char *name, *text;
} targets[] = {TARGETS(NAMED)};

/* dtype: an index into dtypes; below 0: not given. */
static void set_dtype(int dtype, struct conversion *c)
{
    c->keep_dtype = dtype < 0;
    if (c->keep_dtype) return;
    c->dtype = dtypes[dtype].dtype;
    c->quantized = dtypes[dtype].quantized;
}

/* "5GB", "200MB", or bytes. */
static enum status parse_size(const char *text, uint64_t *bytes)
{
    static const struct {
        const char *unit;
        double bytes;
    } units[] = {{"", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}};
    char *unit;
    double value = strtod(text, &unit);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (unit != text && !strcmp(units[i].unit, unit) && value * units[i].bytes >= 1 &&
            value * units[i].bytes < 1e18) {
            *bytes = (uint64_t)(value * units[i].bytes);
            return STATUS_OK;
        }
    FAIL(USAGE, "--shard-size: \"%s\": expected a size of at least 1 byte, such as 5GB or 200MB",
         text);
}

/* A factor, or "none". */
static enum status parse_rope_factor(const char *text, struct conversion *c)
{
    char *end;
    double factor = strtod(text, &end);
    c->sets_rope = text[0];
    if (!text[0] || !strcmp(text, "none")) return STATUS_OK;
    if (end == text || *end || !(factor >= 1 && factor <= 1e6))
        FAIL(USAGE, "--rope-factor: must be a number from 1 to 1e6, or none; is \"%s\"", text);
    c->rope_factor = factor;
    return STATUS_OK;
}

/* The flags with which NxD Training's checkpoint_converter.py says what to convert. */
struct converter_flags {
    const char *input, *output, *hub_name;
    int style;      /* not used: there is one */
    int64_t layers; /* not used: the checkpoint has the number */
    bool from_full, to_full, load_xser, save_xser;
};

/* Sets source, destination, format and xser from them; *input is owned. */
static enum status apply_converter_flags(const struct converter_flags *f, struct arguments *a,
                                         int *to, struct conversion *c, char **input)
{
    size_t len = strlen(f->input);
    if (f->from_full && f->to_full)
        FAIL(USAGE, "set only one of --convert-from-full-state and --convert-to-full-state");
    if (f->from_full || f->to_full) {
        int format = f->from_full ? CONVERT_NXDT : CONVERT_HF;
        if (*to >= 0 && *to != format)
            FAIL(USAGE, "--to %s contradicts --convert-%s-full-state", targets[*to].name,
                 f->from_full ? "from" : "to");
        *to = format;
    }
    if (f->from_full) c->nxdt.no_xser = !f->save_xser;
    /* NxD Training names the folder model/ of a tag */
    if (len > 6 && f->to_full && !strcmp(f->input + len - 6, "/model")) len -= 6;
    *input = heap_string(f->input, len);
    if (len) {
        memmove(a->words + 1, a->words, (size_t)a->num_words * sizeof *a->words);
        a->words[0] = *input, a->num_words++;
    }
    if (f->output[0]) a->words[a->num_words++] = f->output;
    if (a->num_words == 2) return STATUS_OK;
    FAIL(USAGE, "convert: expected SRC and DST, got %d argument%s", a->num_words,
         a->num_words == 1 ? "" : "s");
}

/* From --to (below 0: not given) and DST; *decided: not by SRC, which decides between hf and
 * native. */
static void find_target(int to, struct conversion *c, bool *decided)
{
    bool is_gguf = file_has_suffix(c->to, ".gguf");
    c->target = to >= 0 ? (enum conversion_target)to : is_gguf ? CONVERT_GGUF : CONVERT_HF;
    *decided = to >= 0 || is_gguf;
}

static enum status check_target(const struct conversion *c)
{
    if (c->quantized && c->target != CONVERT_GGUF) FAIL(USAGE, "--dtype q8_0 requires --to gguf");
    if (c->target == CONVERT_NATIVE && !c->keep_dtype && c->dtype != SAFETENSORS_F32)
        FAIL(USAGE, "--dtype: must be float32 for --to native");
    return STATUS_OK;
}

/* Flags whose help begins with other formats than the target. */
static enum status check_modes(const struct arguments *a, const struct flag *flags,
                               const struct conversion *c)
{
    const struct flag_modes modes = {
        .before = "--to ", .all = WORDS(TARGETS), .mode = targets[c->target].name};
    return flag_modes_check(&modes, flags, a->given);
}

static enum status resolve_target(int to, const char *folder, struct conversion *c)
{
    bool decided;
    char *manifest = file_join(folder, MANIFEST_NAME);
    bool from_native = file_exists(manifest);
    free(manifest);
    find_target(to, c, &decided);
    if (!decided && !from_native) c->target = CONVERT_NATIVE;
    return check_target(c);
}

/* After the default generation is known. */
static enum status set_dcp_flags(int generation, int64_t dp_size, struct conversion *c)
{
    struct dcp_target *d = &c->dcp;
    d->dp_size = (int)dp_size;
    if (generation >= 0) d->generation = (enum dcp_generation)generation;
    if (d->dp_size && !dcp_generations[d->generation].has_empty_loader)
        FAIL(USAGE, "--dp-size: not supported for --generation %s: %s",
             dcp_generations[d->generation].name, dcp_generations[d->generation].without_loader);
    return STATUS_OK;
}

/* Warns which readers of the target's format would treat a masked model as causal. */
static void warn_about_readers(const struct conversion *c)
{
    static const char *const readers[] = {
        [CONVERT_HF] = "Transformers reads is_causal = false since version 5.2; older versions",
        [CONVERT_META] = "params.json has no key for it (config.json has): programs that read "
                         "params.json",
        [CONVERT_DCP] = "DCP has no key for it (config.json has): set the mask in the program that "
                        "loads it; torchtitan's Llama",
        [CONVERT_GGUF] = "llama.cpp reads llama.attention.causal = false; older versions",
        [CONVERT_NXDT] = "NxD Training does not read is_causal = false from config.json: it",
    };
    if (c->objective->name == OBJECTIVE_causal || !readers[c->target]) return;
    log_line(LOG_WARN, "%s: a %s model: %s would attend causally", c->to,
             objective_kind_word(c->objective->name), readers[c->target]);
}

/* Reads the run's settings: the objective, and for torch, which saves them with its moments, the
 * optimizer's. */
static enum status open_settings(struct conversion *c, struct config *config)
{
    struct text objective = {0};
    char *toml = file_join(c->from, "config.toml");
    enum status st = config_load(config, file_exists(toml) ? toml : NULL, NULL, 0);
    free(toml);
    if (!st) st = objective_resolve(config, c->from, c->config, &objective);
    if (!st && objective.len) log_line(LOG_INFO, "objective: %s", objective.data);
    text_release(&objective);
    TRY(st);
    c->objective = &config->objective;
    warn_about_readers(c);
    if (c->target != CONVERT_DCP) return STATUS_OK;
    c->optimizer = &config->optimizer, c->lr_scheduler = &config->lr_scheduler;
    int64_t steps = config->lr_scheduler.total_steps, rows = config->training.global_batch_size;
    c->schedule_steps = steps ? steps : config->training.steps;
    c->rows = rows > 0 ? rows : config->training.local_batch_size;
    c->dcp.seq_len = config->training.seq_len;
    c->dcp.generation = dcp_generation_of_model(config->model.name);
    return STATUS_OK;
}

/* Torch loads the optimizer's settings from its checkpoint, ignoring its configuration. */
static void warn_about_defaults(const struct conversion *c, const struct converted *done)
{
    char *toml = file_join(c->from, "config.toml");
    if (c->target == CONVERT_DCP && done->step >= 0 && !file_exists(toml))
        log_line(
            LOG_WARN,
            "%s has no config.toml, so the optimizer in %s gets default settings: lr %g, betas "
            "%g and %g, eps %g, weight_decay %g",
            c->from, c->to, c->optimizer->lr, c->optimizer->beta1, c->optimizer->beta2,
            c->optimizer->eps, c->optimizer->weight_decay);
    free(toml);
}

static void report(const struct conversion *c, const struct converted *done, bool json)
{
    const char *dtype = "";
    for (size_t i = sizeof dtypes / sizeof *dtypes; i-- > 0;)
        if (c->quantized ? dtypes[i].quantized : dtypes[i].dtype == done->dtype)
            dtype = dtypes[i].name;
    if (!json) {
        struct text parameters = {0};
        console_thousands(&parameters, (double)done->parameters);
        printf("%s: %s with %d tensors, %s parameters in %s", c->to, targets[c->target].text,
               done->num_tensors, parameters.data, dtype);
        text_release(&parameters);
        if (c->target == CONVERT_DCP)
            printf(", for torchtitan %s", dcp_generations[c->dcp.generation].name);
        if (done->step >= 0) printf(", and the optimizer after step %lld", (long long)done->step);
        printf("\n");
        return;
    }
    struct text t = {0};
    struct json_writer w = {.text = &t};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_string(&w, "output", c->to);
    json_write_string(&w, "format", targets[c->target].name);
    json_write_string(&w, "dtype", dtype);
    json_write_int(&w, "tensors", done->num_tensors);
    json_write_int(&w, "parameters", done->parameters);
    json_write_int_or_null(&w, "step", done->step);
    if (c->target == CONVERT_DCP)
        json_write_string(&w, "generation", dcp_generations[c->dcp.generation].name);
    json_end_object(&w);
    json_finish(&w);
    puts(t.data);
    text_release(&t);
}

static const struct usage usage = {
    "convert",
    {{NULL,
      {{ITEM_FILE, "SRC", true, false, "SRC"},
       {ITEM_FILE, "DST", true, false, "DST"},
       USAGE_FLAGS("[--to FORMAT]")}}},
    "SRC is one of, detected automatically:\n"
    "    a run, or one of its checkpoints\n"
    "    a Hugging Face folder: safetensors or pytorch_model.bin, sharded or not, tied or not\n"
    "    Meta's folder of .pth files with params.json, or a single .pth file\n"
    "    a torch.distributed.checkpoint (DCP) directory with config.json or params.json in it or\n"
    "    above it\n"
    "    NxD Training's folder of a tag (xser or not) with config.json, or checkpoint.pt\n"
    "    a Megatron-LM checkpoint: an iter_N, or the folder of them, for the last; torch_dist, or\n"
    "    torch (mp_rank_*)\n"
    "A run, or a folder of step-N of any kind, stands for its newest intact checkpoint, or for\n"
    "--step.\n"
    "hf      DST becomes a plain Hugging Face folder: weights, config.json, tokenizer, and the\n"
    "        files that Transformers' AutoTokenizer needs.\n"
    "meta    DST becomes a folder in Meta's format: consolidated.00.pth, params.json, tokenizer.\n"
    "dcp     DST becomes a DCP directory that torchtitan --generation loads: frontier (the forks\n"
    "        frontier-torchtitan, torchtitan-mlm, gpt-neuro), v0.1, v0.2, or new (after v0.2.2).\n"
    "        Name it step-0 of a run if only the model is converted, else step-N.\n"
    "gguf    DST becomes a file for llama.cpp, including the tokenizer; also with --dtype q8_0.\n"
    "nxdt    DST becomes a checkpoint that NxD Training loads with weight_init_only: model/,\n"
    "        sharded for --tp-size and --pp-size, one file per tensor (xser), and config.json.\n"
    "native  DST becomes the dump folder of a run: train with job.dump_folder=DST resumes with\n"
    "        SRC's optimizer and step if it has them, else starts from these weights.\n"
    "With dcp and native, SRC's optimizer, step and counters are converted too, unless\n"
    "--model-only is given.\n"
    "Without --to: DST.gguf becomes gguf; else a run becomes hf, and anything else native.\n"
    "With --without-io, a model with another vocabulary can start from the blocks; in Llamero,\n"
    "use checkpoint.exclude_from_loading=model.embed_tokens.weight,lm_head.weight.",
};

enum status command_convert(int argc, char **argv)
{
    const char *shard_size = "5GB", *rope = "", *config_json = "";
    int to = -1, dtype = -1, hw_backend = 0, generation = -1;
    int64_t step = -1, dp_size = 0, tp_size = 1, pp_size = 1, virtual_pp_size = 1,
            kv_multiplier = 1;
    bool json = false, decided = false;
    struct conversion c = {0};
    struct converter_flags f = {
        .input = "", .output = "", .style = -1, .hub_name = "", .layers = -1};
    const struct flag flags[] = {
        {"to", FLAG_CHOICE(WORDS(TARGETS)), &to, "target format"},
        {"dtype", FLAG_CHOICE(WORDS(DTYPES)), &dtype,
         "data type of the weights; q8_0 only with gguf (default: unchanged)"},
        {"shard-size", FLAG_TEXT, &shard_size,
         "hf, native, dcp: maximum size of a file of weights"},
        {"rope-factor", FLAG_TEXT, &rope,
         "factor of Llama 3's RoPE scaling: 8, 32, or none (default: SRC's; for params.json 8, or "
         "32 if the head is tied to the embedding, as in Llama 3.2)"},
        {"without-io", FLAG_SWITCH, &c.without_io,
         "hf, meta, dcp: omit embedding, head and tokenizer"},
        {"step", FLAG_INT(0, FLAG_UNLIMITED), &step,
         "step of a run's checkpoint (default: the newest)"},
        {"ema", FLAG_SWITCH, &c.ema,
         "convert the moving average of a run's weights (optimizer.ema_decay), and the model only"},
        {"model-only", FLAG_SWITCH, &c.model_only, "native, dcp: omit optimizer and step"},
        {"generation", FLAG_CHOICE(DCP_GENERATION_WORDS), &generation,
         "dcp: generation of torchtitan (default: frontier if the run's model.name is "
         "\"frontier\", else v0.2)"},
        {"dp-size", FLAG_INT(1, 1 << 14), &dp_size,
         "dcp: data-parallel ranks that will load it (frontier, v0.1, v0.2): lets each start from "
         "the beginning of its data"},
        {"config", FLAG_FILE, &config_json, "config.json of a SRC that does not include one"},
        {"tp-size", FLAG_INT(1, 1 << 14), &tp_size, "nxdt: tensor parallel size"},
        {"pp-size", FLAG_INT(1, 1 << 14), &pp_size, "nxdt: pipeline parallel size"},
        {"virtual-pp-size", FLAG_INT(1, 1 << 14), &virtual_pp_size,
         "nxdt: stages per pipeline rank"},
        {"kv-size-multiplier", FLAG_INT(1, 1 << 14), &kv_multiplier,
         "nxdt: ranks that replicate a KV head: tp-size / KV heads"},
        {"qkv-linear", FLAG_SWITCH, &c.nxdt.qkv_linear,
         "nxdt: name the weights weight_q, weight_k and weight_v"},
        {"fuse-qkv", FLAG_SWITCH, &c.nxdt.fuse_qkv, "nxdt: fuse these three into weight_qkv"},
        {"coalesce-qkv", FLAG_SWITCH, &c.nxdt.coalesce_qkv,
         "nxdt: fuse q, k and v into qkv_proj.weight, if all have the same number of heads"},
        {"hw-backend", FLAG_CHOICE("trn1|trn2"), &hw_backend, "nxdt: order of replicated heads"},
        {"no-xser", FLAG_SWITCH, &c.nxdt.no_xser, "nxdt: one file per rank, not per tensor"},
        {"input-dir", FLAG_FOLDER, &f.input, "SRC, as NxD Training's converter spells it"},
        {"output-dir", FLAG_FOLDER, &f.output, "DST, likewise"},
        {"convert-from-full-state", FLAG_SWITCH, &f.from_full,
         "--to nxdt, and --no-xser unless --save-xser is given"},
        {"convert-to-full-state", FLAG_SWITCH, &f.to_full, "--to hf"},
        {"save-xser", FLAG_SWITCH, &f.save_xser, "nxdt: one file per tensor"},
        {"load-xser", FLAG_SWITCH, &f.load_xser, "no effect: the format of SRC is detected"},
        {"model-style", FLAG_CHOICE("hf"), &f.style, "the only style that is supported"},
        {"hf-model-name", FLAG_TEXT, &f.hub_name, "no effect: see --config"},
        {"n-layers", FLAG_INT(0, FLAG_UNLIMITED), &f.layers,
         "no effect: SRC has the number of layers"},
        {"json", FLAG_SWITCH, &json, "print one JSON object"},
        {0},
    };
    struct arguments a;
    struct converted done;
    struct config config = {0};
    char *folder = NULL, *input = NULL;
    enum status st = STATUS_OK;
    TRY(arguments_read(&a, &(struct arguments_spec){&usage, flags}, argc, argv));
    if (a.help) return STATUS_OK;
    TRY_OUT(apply_converter_flags(&f, &a, &to, &c, &input));
    set_dtype(dtype, &c);
    TRY_OUT(parse_size(shard_size, &c.shard_bytes));
    TRY_OUT(parse_rope_factor(rope, &c));
    c.to = a.words[1];
    find_target(to, &c, &decided);
    if (decided) TRY_OUT(check_target(&c));
    c.nxdt.tp_size = (int)tp_size, c.nxdt.pp_size = (int)pp_size;
    c.nxdt.virtual_pp_size = (int)virtual_pp_size, c.nxdt.kv_size_multiplier = (int)kv_multiplier;
    c.nxdt.adjacent = hw_backend;
    if (decided) TRY_OUT(check_modes(&a, flags, &c));
    TRY_OUT(loaded_model_find_step(a.words[0], step, comm_self(), &folder));
    c.from = folder;
    c.config = config_json[0] ? config_json : NULL;
    TRY_OUT(resolve_target(to, folder, &c));
    TRY_OUT(check_modes(&a, flags, &c));
    TRY_OUT(open_settings(&c, &config));
    TRY_OUT(set_dcp_flags(generation, dp_size, &c));
    TRY_OUT(convert_checkpoint(&c, &done));
    warn_about_defaults(&c, &done);
    report(&c, &done, json);
out:
    config_release(&config);
    free(folder), free(input);
    return st;
}
