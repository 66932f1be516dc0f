// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/convert.h"
#include "app/app.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/manifest.h"
#include "config/config.h"
#include "infer/loaded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first name of a type is the one that is shown. */
static const struct {
    const char *name;
    enum safetensors_dtype dtype;
    bool quantized;
} dtypes[] = {{"float32", SAFETENSORS_F32, false},   {"f32", SAFETENSORS_F32, false},
              {"bfloat16", SAFETENSORS_BF16, false}, {"bf16", SAFETENSORS_BF16, false},
              {"float16", SAFETENSORS_F16, false},   {"f16", SAFETENSORS_F16, false},
              {"q8_0", SAFETENSORS_F32, true}};

static const struct {
    const char *name, *made;
    bool in_part; /* takes a model without embedding and head */
} targets[] = {
    [CONVERT_HF] = {"hf", "as a Hugging Face folder", true},
    [CONVERT_NATIVE] = {"native", "as a checkpoint of a run", false},
    [CONVERT_META] = {"meta", "as Meta's consolidated.00.pth", true},
    [CONVERT_DCP] = {"dcp", "as a directory of torch.distributed.checkpoint", true},
    [CONVERT_GGUF] = {"gguf", "as a GGUF file", false},
    [CONVERT_NXDT] = {"nxdt", "as a checkpoint of NxD Training", false},
};

static enum status read_dtype(const char *name, struct conversion *c)
{
    c->keep_dtype = !name[0];
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (!strcmp(dtypes[i].name, name)) {
            c->dtype = dtypes[i].dtype;
            c->quantized = dtypes[i].quantized;
            return STATUS_OK;
        }
    if (!name[0]) return STATUS_OK;
    FAIL(USAGE, "--dtype: float32, bfloat16, float16 or q8_0; not \"%s\"", name);
}

/* "5GB", "200MB", or bytes. */
static enum status read_size(const char *text, uint64_t *bytes)
{
    static const struct {
        const char *unit;
        double bytes;
    } units[] = {{"", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}};
    char *unit;
    double value = strtod(text, &unit);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (unit != text && !strcmp(units[i].unit, unit) && value > 0 &&
            value * units[i].bytes < 1e18) {
            *bytes = (uint64_t)(value * units[i].bytes);
            return STATUS_OK;
        }
    FAIL(USAGE, "--shard-size: a size such as 5GB or 200MB, not \"%s\"", text);
}

/* A factor, or "none". */
static enum status read_rope(const char *text, struct conversion *c)
{
    char *end;
    double factor = strtod(text, &end);
    c->sets_rope = text[0];
    if (!text[0] || !strcmp(text, "none")) return STATUS_OK;
    if (end == text || *end || !(factor >= 1 && factor <= 1e6))
        FAIL(USAGE, "--rope-factor: a number from 1 on, or none; not \"%s\"", text);
    c->rope_factor = factor;
    return STATUS_OK;
}

/* Flags of the one format that has them. */
static enum status read_nxdt(const char *hw_backend, const int64_t *sizes, struct conversion *c)
{
    static const char *const names[] = {"tp-size", "pp-size", "virtual-pp-size",
                                        "kv-size-multiplier"};
    struct nxdt_target *n = &c->nxdt;
    int *const into[] = {&n->tp_size, &n->pp_size, &n->virtual_pp_size, &n->kv_size_multiplier};
    bool given = hw_backend[0] || n->qkv_linear || n->fuse_qkv || n->coalesce_qkv || n->no_xser;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (sizes[i] < 1 || sizes[i] > 1 << 14)
            FAIL(USAGE, "--%s: from 1 to 16384, not %lld", names[i], (long long)sizes[i]);
        *into[i] = (int)sizes[i];
        given |= sizes[i] > 1;
    }
    n->adjacent = !strcmp(hw_backend, "trn2");
    if (hw_backend[0] && !n->adjacent && strcmp(hw_backend, "trn1"))
        FAIL(USAGE, "--hw-backend: trn1 or trn2, not \"%s\"", hw_backend);
    if (given && c->target != CONVERT_NXDT)
        FAIL(USAGE, "--tp-size and what follows it in --help are for --to nxdt");
    return STATUS_OK;
}

static enum status resolve_target(const char *to, const char *folder, struct conversion *c)
{
    char *manifest = file_join(folder, MANIFEST_NAME);
    bool from_native = file_exists(manifest);
    free(manifest);
    size_t len = strlen(c->to);
    c->target = from_native ? CONVERT_HF : CONVERT_NATIVE;
    if (len > 5 && !strcmp(c->to + len - 5, ".gguf")) c->target = CONVERT_GGUF;
    bool known = !to[0];
    for (size_t i = 0; i < sizeof targets / sizeof *targets && !known; i++) {
        known = !strcmp(targets[i].name, to);
        if (known) c->target = (enum conversion_target)i;
    }
    if (!known) FAIL(USAGE, "--to: hf, meta, dcp, gguf, nxdt or native, not \"%s\"", to);
    if (c->without_io && !targets[c->target].in_part)
        FAIL(USAGE, "--without-io: with --to hf, meta or dcp; not %s", targets[c->target].name);
    if (c->quantized && c->target != CONVERT_GGUF)
        FAIL(USAGE, "--dtype: q8_0 is for --to gguf alone");
    if (c->target == CONVERT_NATIVE && !c->keep_dtype && c->dtype != SAFETENSORS_F32)
        FAIL(USAGE, "--dtype: a run's weights are float32");
    return STATUS_OK;
}

/* Torch keeps an optimizer's settings beside its moments: those of the run. */
static enum status open_settings(struct conversion *c, struct config *config)
{
    if (c->target != CONVERT_DCP) return STATUS_OK;
    char *toml = file_join(c->from, "config.toml");
    enum status st = config_load(config, file_exists(toml) ? toml : NULL, NULL, 0);
    free(toml);
    TRY(st);
    c->optimizer = &config->optimizer, c->lr_scheduler = &config->lr_scheduler;
    int64_t steps = config->lr_scheduler.total_steps, rows = config->training.global_batch_size;
    c->schedule_steps = steps ? steps : config->training.steps;
    c->rows = rows > 0 ? rows : config->training.local_batch_size;
    return STATUS_OK;
}

/* Torch takes an optimizer's settings from its checkpoint, not from its configuration. */
static void warn_of_defaults(const struct conversion *c, const struct converted *done)
{
    char *toml = file_join(c->from, "config.toml");
    if (c->target == CONVERT_DCP && done->step >= 0 && !file_exists(toml))
        log_line(LOG_WARN,
                 "%s: there is no config.toml, so the optimizer in %s has settings by default: lr "
                 "%g, betas %g and %g, eps %g, weight_decay %g",
                 c->from, c->to, c->optimizer->lr, c->optimizer->beta1, c->optimizer->beta2,
                 c->optimizer->eps, c->optimizer->weight_decay);
    free(toml);
}

static void report(const struct conversion *c, const struct converted *done, bool json)
{
    const char *to = targets[c->target].name, *dtype = "";
    for (size_t i = sizeof dtypes / sizeof *dtypes; i-- > 0;)
        if (c->quantized ? dtypes[i].quantized : dtypes[i].dtype == done->dtype)
            dtype = dtypes[i].name;
    struct text t = {0};
    if (json) {
        text_adds(&t, "{\"output\": ");
        json_quote(&t, c->to);
        text_addf(&t,
                  ", \"format\": \"%s\", \"dtype\": \"%s\", \"tensors\": %d, "
                  "\"parameters\": %lld, \"step\": ",
                  to, dtype, done->num_tensors, (long long)done->parameters);
        text_addf(&t, done->step < 0 ? "null}\n" : "%lld}\n", (long long)done->step);
    } else {
        text_addf(&t, "%s: %d tensors, %lld parameters, %s, %s", c->to, done->num_tensors,
                  (long long)done->parameters, dtype, targets[c->target].made);
        if (done->step >= 0)
            text_addf(&t, ", with the optimizer after step %lld", (long long)done->step);
        text_adds(&t, "\n");
    }
    fputs(t.data, stdout);
    text_release(&t);
}

static const char usage[] =
    "convert SRC DST [--to hf|meta|dcp|gguf|nxdt|native]\n\n"
    "SRC is a run, a checkpoint, a Hugging Face folder (safetensors or pytorch_model.bin, sharded "
    "or\n"
    "not, tied or not), or torch's: a folder of .pth files with params.json, or one of them; or a\n"
    "directory of torch.distributed.checkpoint with config.json or params.json in it or above it;\n"
    "or NxD Training's: a tag's folder (xser or not) with config.json, or checkpoint.pt.\n"
    "Of a run, or a folder of step-N of either kind, it is the newest complete one, or --step.\n"
    "hf      DST becomes a plain Hugging Face folder: weights, config.json, tokenizer.\n"
    "meta    DST becomes a folder as Meta has it: consolidated.00.pth, params.json, tokenizer.\n"
    "dcp     DST becomes a directory of torch.distributed.checkpoint with torchtitan's names, and\n"
    "        config.json: it may be step-0 of a run of torchtitan.\n"
    "gguf    DST becomes a file for llama.cpp, with the tokenizer; --dtype q8_0, too.\n"
    "nxdt    DST becomes a checkpoint that NxD Training begins from with weight_init_only: model/\n"
    "        cut for --tp-size and --pp-size, each tensor a file (xser), and config.json.\n"
    "native  DST becomes the dump folder of a run: train with job.dump_folder=DST goes on from\n"
    "        SRC's optimizer and step where it has them, else begins with these weights.\n"
    "To dcp and native SRC's optimizer, step and counts go along, unless --model-only is given.\n"
    "Without --to DST.gguf becomes gguf; else a run becomes hf, and all else native.\n"
    "With --without-io a model of another vocabulary can begin with the blocks; here, by\n"
    "checkpoint.exclude_from_loading=model.embed_tokens.weight,lm_head.weight.";

enum status command_convert(int argc, char **argv)
{
    const char *to = "", *dtype = "", *shard_size = "5GB", *rope = "", *config_json = "";
    const char *hw_backend = "";
    int64_t step = -1, sizes[] = {1, 1, 1, 1};
    bool json = false;
    struct conversion c = {0};
    const struct flag flags[] = {
        {"to", FLAG_TEXT, &to, "hf, meta, dcp, gguf, nxdt or native"},
        {"dtype", FLAG_TEXT, &dtype,
         "float32 (or f32), bfloat16, float16, gguf: q8_0 (default: as it is)"},
        {"shard-size", FLAG_TEXT, &shard_size, "of a file of weights, at most (default 5GB)"},
        {"rope-factor", FLAG_TEXT, &rope,
         "of Llama 3's scaled frequencies: 8, 32, or none (default: as SRC says; for params.json "
         "8, or "
         "32 where the head is the embedding, as 3.2's)"},
        {"without-io", FLAG_SWITCH, &c.without_io, "leave out embedding, head and tokenizer"},
        {"step", FLAG_INT, &step, "which checkpoint of a run (default: the newest)"},
        {"model-only", FLAG_SWITCH, &c.model_only, "native, dcp: leave out optimizer and step"},
        {"config", FLAG_TEXT, &config_json, "config.json of a SRC that has none beside it"},
        {"tp-size", FLAG_INT, &sizes[0], "nxdt: ranks of tensor parallelism (default 1)"},
        {"pp-size", FLAG_INT, &sizes[1], "nxdt: ranks of pipeline parallelism (default 1)"},
        {"virtual-pp-size", FLAG_INT, &sizes[2], "nxdt: stages of each of these (default 1)"},
        {"kv-size-multiplier", FLAG_INT, &sizes[3],
         "nxdt: ranks that have the same key and value head: tp-size over heads (default 1)"},
        {"qkv-linear", FLAG_SWITCH, &c.nxdt.qkv_linear, "nxdt: weight_q, weight_k and weight_v"},
        {"fuse-qkv", FLAG_SWITCH, &c.nxdt.fuse_qkv, "nxdt: the three as one weight_qkv"},
        {"coalesce-qkv", FLAG_SWITCH, &c.nxdt.coalesce_qkv,
         "nxdt: q, k and v as one qkv_proj.weight, where there are as many heads of each"},
        {"hw-backend", FLAG_TEXT, &hw_backend,
         "nxdt: order of repeated heads, trn1 or trn2 (default trn1)"},
        {"no-xser", FLAG_SWITCH, &c.nxdt.no_xser, "nxdt: a rank's tensors in one file"},
        {"json", FLAG_SWITCH, &json, "print one JSON object"},
        {0},
    };
    struct arguments a;
    struct converted done;
    struct config config = {0};
    char *folder = NULL;
    enum status st = STATUS_OK;
    TRY(arguments_read(&a, flags, usage, 2, 2, argc, argv));
    if (a.help) return STATUS_OK;
    TRY(read_dtype(dtype, &c));
    TRY(read_size(shard_size, &c.shard_bytes));
    TRY(read_rope(rope, &c));
    TRY_OUT(loaded_step(a.words[0], step, comm_self(), &folder));
    c.from = folder, c.to = a.words[1];
    c.config = config_json[0] ? config_json : NULL;
    TRY_OUT(resolve_target(to, folder, &c));
    TRY_OUT(read_nxdt(hw_backend, sizes, &c));
    TRY_OUT(open_settings(&c, &config));
    TRY_OUT(checkpoint_convert(&c, &done));
    warn_of_defaults(&c, &done);
    report(&c, &done, json);
out:
    config_release(&config);
    free(folder);
    return st;
}
