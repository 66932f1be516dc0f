// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/convert.h"

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/content.h"
#include "checkpoint/folder.h"
#include "checkpoint/interop/dcp_write.h"
#include "checkpoint/interop/gguf_model.h"
#include "checkpoint/interop/hf_config.h"
#include "checkpoint/interop/meta.h"
#include "checkpoint/interop/model_files.h"
#include "checkpoint/interop/nxdt.h"
#include "checkpoint/interop/state_json.h"
#include "checkpoint/interop/torch_files.h"
#include "optim/optim.h"
#include "tokenizer/hf_folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct conversion_source;

/* The weights, or one of the moments, of the source. */
struct source_tensors {
    const struct conversion_source *source;
    const struct model_files *files;
    enum tensor_kind kind;
};

/* The model that is read, and a buffer for elements of one of its tensors. */
struct conversion_source {
    struct model_shape shape;
    struct layout layout;
    struct model_files files, moments, ema;
    struct source_tensors parts[3], ema_tensors;
    struct shard shard;
    float *values;
    struct hf_usage usage;
    int64_t step;      /* of a run to resume; -1: only the model is converted */
    struct text train; /* the trainer's part of state.json */
};

static enum status read_run(void *context, const struct shard_run *p, size_t first, size_t count,
                            const float **values)
{
    const struct source_tensors *from = context;
    const struct conversion_source *o = from->source;
    const struct tensor_slot *t = &o->layout.tensors[p->tensor];
    struct tensor_reader r;
    char stem[96], name[160];
    layout_tensor_name(t, true, stem);
    snprintf(name, sizeof name, "%s%s", stem, tensor_name_suffix(from->kind));
    TRY(model_files_open_tensor(from->files, t, name, &r));
    TRY(tensor_reader_read(&r, first, count, F32, o->values));
    tensor_reader_close(&r);
    *values = o->values;
    return STATUS_OK;
}

static struct tensor_source source_tensors_of(struct conversion_source *o, enum tensor_kind kind)
{
    o->parts[kind] =
        (struct source_tensors){o, kind == TENSOR_WEIGHT ? &o->files : &o->moments, kind};
    return (struct tensor_source){read_run, &o->parts[kind]};
}

static void set_rope(struct rope_scaling *r, double factor)
{
    if (r->factor <= 0 || r->method != ROPE_llama3)
        *r = (struct rope_scaling){
            .low_frequency_factor = 1, .high_frequency_factor = 4, .original_context = 8192};
    r->factor = factor;
    if (factor <= 0) *r = (struct rope_scaling){0};
}

static enum status open_source(struct conversion_source *o, const struct conversion *c)
{
    const char *folder = c->from;
    char *config_folder = torch_files_folder(folder);
    char *config = c->config ? heap_strdup(c->config) : file_join(config_folder, "config.json");
    bool native;
    enum status st = STATUS_OK;
    TRY_OUT(checkpoint_advise(folder, checkpoint_check_native(folder, &native)));
    TRY_OUT(c->config ? hf_config_read(config, &o->shape)
                      : checkpoint_read_shape(folder, &o->shape));
    if (c->sets_rope) set_rope(&o->shape.scaling, c->rope_factor);
    if (c->sets_rope) TRY_OUT(model_shape_check(&o->shape)); /* Phi-3 has no such scaling */
    o->usage = (struct hf_usage){.bos = -1, .eos = -1};
    if (file_exists(config)) TRY_OUT(hf_config_read_usage(config, &o->usage));
    layout_init(&o->layout, &o->shape, 1);
    TRY_OUT(c->ema ? model_files_open_ema(&o->files, folder)
                   : model_files_open_any(&o->files, folder, &o->shape));
    if (c->ema && model_files_are_empty(&o->files))
        FAIL_OUT(MISSING,
                 "%s: no moving average of the weights (ema-*.safetensors): train with "
                 "optimizer.ema_decay, or leave out --ema",
                 folder);
    TRY_OUT(model_files_check(&o->files, &o->layout, o->shape.tied));
    shard_init(&o->shard, &o->layout, 0, 1);
    o->values = heap(TENSOR_SOURCE_ELEMENTS * sizeof *o->values);
out:
    free(config_folder), free(config);
    return st;
}

static void close_source(struct conversion_source *o)
{
    free(o->values);
    text_release(&o->train);
    model_files_close(&o->moments), model_files_close(&o->ema);
    shard_release(&o->shard);
    model_files_close(&o->files);
    layout_release(&o->layout);
}

/* Sets *kinds to the kinds of weights of which no tensor has a second moment.  Only an optimizer
 * other than AdamW may leave them out; what else is missing is an error when it is read. */
static enum status find_first_moment_only(const struct conversion_source *o, uint32_t *kinds)
{
    struct json *train;
    uint32_t found = 0, missing = 0;
    *kinds = 0;
    TRY(json_parse(o->train.data, o->train.len, "state.json", &train));
    bool is_other = json_get(train, "optimizer");
    json_free(train);
    for (int i = 0; is_other && i < o->layout.num_tensors; i++) {
        const struct tensor_slot *t = &o->layout.tensors[i];
        struct model_tensor tensor;
        char stem[96], name[160];
        layout_tensor_name(t, true, stem);
        snprintf(name, sizeof name, "%s%s", stem, tensor_name_suffix(TENSOR_EXP_AVG_SQ));
        if (model_files_named(&o->moments, name, &tensor))
            found |= param_set_of(t->id);
        else
            missing |= param_set_of(t->id);
    }
    *kinds = missing & ~found;
    return STATUS_OK;
}

/* The checkpoint has been verified already. */
static enum status read_state(struct conversion_source *o, const char *folder)
{
    char *path = file_join(folder, "state.json");
    enum status st = state_json_read(path, &o->step, &o->train);
    if (!o->train.len) o->step = -1;
    free(path);
    return st;
}

/* A run can only be resumed with both moments and the trainer's state. */
static enum status open_training_state(const struct conversion *c, struct conversion_source *o)
{
    bool fits = c->target == CONVERT_NATIVE || (c->target == CONVERT_DCP && c->optimizer);
    struct torch_state torch;
    enum status st = STATUS_OK;
    o->step = -1;
    if (!fits || c->model_only || c->without_io || c->ema) return STATUS_OK;
    if (nxdt_files_have_optimizer(c->from))
        log_line(LOG_WARN,
                 "%s: NxD Training's optimizer state (ZeRO-1 shards in optim/) is not supported: "
                 "converting only the weights",
                 c->from);
    TRY_OUT(model_files_open_moments_any(&o->moments, c->from, &o->shape, &torch));
    if (model_files_are_empty(&o->moments)) {
        torch_state_warn(&torch, c->from);
        goto out;
    }
    if (!o->moments.slices) {
        TRY_OUT(read_state(o, c->from));
        goto out;
    }
    TRY_OUT(torch_state_check_moments(&torch, c->from));
    o->step = torch.step;
    torch_state_train(&torch, &o->train);
    torch_state_log(&torch, c->from, true);
out:
    torch_state_release(&torch);
    return st;
}

static enum status resolve_dtype(const struct conversion *c, const struct conversion_source *o,
                                 enum safetensors_dtype *dtype)
{
    enum safetensors_dtype has;
    char name[160];
    *dtype = c->target == CONVERT_NATIVE ? SAFETENSORS_F32 : c->dtype;
    if (c->target == CONVERT_NATIVE || !c->keep_dtype) return STATUS_OK;
    layout_tensor_name(&o->layout.tensors[0], true, name);
    if (!model_files_dtype(&o->files, &o->layout.tensors[0], &has))
        FAIL(DATA, "%s: tensor %s is missing", o->files.folder, name);
    *dtype = has == SAFETENSORS_BF16 || has == SAFETENSORS_F16 ? has : SAFETENSORS_F32;
    return STATUS_OK;
}

/* From here on only tensors and runs are used, not units. */
static void drop_io_tensors(struct conversion_source *o)
{
    struct layout *l = &o->layout;
    size_t kept = 0;
    for (size_t i = 0; i < o->shard.count; i++) {
        struct shard_run p = o->shard.runs[i]; /* a whole tensor, since the model is not sharded */
        const struct tensor_slot t = l->tensors[p.tensor];
        if (t.id == PARAM_embed || t.id == PARAM_head) {
            l->parameters -= (int64_t)t.elements;
            continue;
        }
        p.tensor = (int)kept;
        l->tensors[kept] = t;
        o->shard.runs[kept++] = p;
    }
    l->num_tensors = (int)kept;
    o->shard.count = kept;
}

/* Copies tokenizer and other files next to the weights unchanged.  Meta's own Hugging Face folders
 * have tokenizer.model in original/. */
static enum status copy_other_files(const char *from, bool with_run, struct manifest *m)
{
    static const char *const names[] = {
        "tokenizer.json",        "tokenizer.model",         "tekken.json",
        "tokenizer_config.json", "special_tokens_map.json", "generation_config.json",
        "added_tokens.json",     "chat_template.jinja",     "config.toml"};
    static const char original[] = "original/tokenizer.model";
    const size_t count = sizeof names / sizeof *names - !with_run;
    struct text bytes = {0};
    enum status st = STATUS_OK;
    for (size_t i = 0; i < count && !st; i++) {
        bool is_original = i == 1 && !file_exists_in(from, names[i]);
        char *name = file_join(from, is_original ? original : names[i]);
        if (file_exists(name)) st = file_read(name, 1 << 30, &bytes);
        if (file_exists(name) && !st) st = manifest_write_file(m, names[i], bytes.data, bytes.len);
        free(name);
    }
    text_release(&bytes);
    return st;
}

/* tokenizer.json and tokenizer_config.json belong together: both are the source's, or both ours. */
static enum status write_missing_files(const struct hf_folder *f, struct manifest *m)
{
    bool has_config = file_exists_in(m->folder, "tokenizer_config.json");
    for (int i = 0; i < HF_FOLDER_FILES; i++) {
        const struct hf_folder_file *file = &f->files[i];
        bool skip = !strcmp(file->name, "tokenizer.json") && has_config;
        if (skip || !file->text.len || file_exists_in(m->folder, file->name)) continue;
        TRY(manifest_write_file(m, file->name, file->text.data, file->text.len));
    }
    return STATUS_OK;
}

/* llama.cpp's converter takes a tokenizer.model beside the weights for a SentencePiece model. */
static enum status move_tiktoken_model(const char *folder)
{
    char *from = file_join(folder, "tokenizer.model"), *original = file_join(folder, "original");
    char *to = file_join(original, "tokenizer.model");
    enum status st = STATUS_OK;
    TRY_OUT(file_make_dirs(original));
    if (rename(from, to)) FAIL_OUT(IO, "%s: %s", to, strerror(errno));
    TRY_OUT(file_sync_dir(original));
out:
    free(from), free(original), free(to);
    return st;
}

/* Adds the files that Transformers needs and the source lacks. */
static enum status complete_hf_folder(const struct conversion *c, const struct content *content,
                                      const char *from, struct manifest *m)
{
    const struct hf_folder_options o = {.bos = content->bos,
                                        .eos = content->eos,
                                        .max_length = content->shape->max_context,
                                        .mask_token = content_mask_token(content->objective)};
    struct tokenizer *t;
    struct hf_folder f;
    if (!tokenizer_is_in(from)) return STATUS_OK;
    if (tokenizer_open(&t, from, &(struct tokenizer_config){0})) {
        log_line(LOG_WARN, "copied the tokenizer without files for Transformers: %s",
                 status_message());
        return STATUS_OK;
    }
    hf_folder_make(&f, t, &o);
    enum status st = write_missing_files(&f, m);
    if (!st && f.other_ids)
        log_line(
            LOG_WARN,
            "%s: from the tokenizer.json of this SentencePiece model, AutoTokenizer gives other "
            "IDs for some %s; SentencePieceBackend gives the same IDs (docs/hugging-face.md)",
            tokenizer_path(t), f.other_ids);
    bool is_tiktoken = !strcmp(tokenizer_kind(t), "tiktoken");
    if (!st && is_tiktoken && c->target == CONVERT_HF) st = move_tiktoken_model(m->folder);
    hf_folder_release(&f);
    tokenizer_close(t);
    return st;
}

/* These files belong to the vocabulary. */
static enum status write_other_files(const struct conversion *c, const struct content *content,
                                     bool with_run, struct manifest *m)
{
    char *from = torch_files_folder(c->from);
    bool is_hf = c->target == CONVERT_HF || c->target == CONVERT_NATIVE;
    enum status st = copy_other_files(from, with_run, m);
    if (!st && is_hf) st = complete_hf_folder(c, content, from, m);
    free(from);
    return st;
}

static enum status write_torch_model(const struct conversion *c, const struct torch_model *m,
                                     const struct dcp_run *run, const char *folder)
{
    if (c->target == CONVERT_DCP) return dcp_write(m, &c->dcp, run, c->shard_bytes, folder);
    return c->target == CONVERT_NXDT ? nxdt_write(m, &c->nxdt, folder) : meta_write(m, folder);
}

/* config.json is always written as well: params.json leaves much to its reader, and the other
 * formats do not describe the model at all. */
static enum status write_torch(const struct conversion *c, const struct content *content,
                               const struct dcp_run *run, const char *folder, struct manifest *m)
{
    const struct torch_model model = {content->shape, content->layout, content->shard,
                                      content->weights, content->dtype};
    TRY(write_torch_model(c, &model, run, folder));
    TRY(content_write_texts(content, m));
    return STATUS_OK;
}

/* Logs how the program that loads the run will differ from ours. */
static void log_target(const struct conversion *c, const struct conversion_source *o)
{
    const struct dcp_generation_spec *spec = &dcp_generations[c->dcp.generation];
    const char *norms =
        c->optimizer->decay_norms ? "" : "; torchtitan also applies weight decay to norms";
    if (c->dcp.dp_size)
        log_line(LOG_INFO, "%s (%s): %d data-parallel ranks start from the beginning of the data%s",
                 c->to, spec->name, c->dcp.dp_size, norms);
    else
        log_line(LOG_INFO, "%s (%s): torch's data position (dataloader.*) is not written: %s%s",
                 c->to, spec->name, spec->without_loader, norms);
    if (o->shape.tied && !spec->ties)
        log_line(LOG_WARN,
                 "%s: torchtitan %s has no tied head: the head and its moments become copies of "
                 "the embedding's, and are trained separately from now on",
                 c->to, spec->name);
}

/* param_groups hold the learning rate of the next step, step + 1. */
static enum status describe_run(const struct conversion *c, struct conversion_source *o,
                                struct dcp_run *run)
{
    struct json *train;
    *run = (struct dcp_run){.exp_avg = source_tensors_of(o, TENSOR_EXP_AVG),
                            .exp_avg_sq = source_tensors_of(o, TENSOR_EXP_AVG_SQ),
                            .step = o->step,
                            .moment_steps = o->step,
                            .train = o->train.data};
    const struct optimizer_config *a = c->optimizer;
    if (a->name != OPTIMIZER_AdamW)
        FAIL(CONFIG,
             "%s: optimizer.name = \"%s\": a torch checkpoint can only have AdamW's state; use "
             "--model-only to convert the weights",
             c->from, optimizer_name_word(a->name));
    if (o->step >= INT32_MAX)
        FAIL(CONFIG, "%s: step %lld is too large for torch (int32)", c->from, (long long)o->step);
    struct schedule_step next = {o->step + 1, c->schedule_steps, o->step * c->rows, c->rows};
    TRY(json_parse(o->train.data, o->train.len, "state.json", &train));
    json_as_int(json_get(train, "tokens_seen"), 0, JSON_MAX_INT, &run->tokens_seen);
    json_as_int(json_get(train, "rows_done"), 0, JSON_MAX_INT, &next.rows_done);
    json_as_int(json_get(train, "moment_steps"), 0, JSON_MAX_INT, &run->moment_steps);
    json_free(train);
    run->adamw = (struct dcp_adamw){
        .lr = schedule_lr(c->lr_scheduler, a->lr, &next),
        .peak_lr = a->lr,
        .beta1 = a->beta1,
        .beta2 = a->beta2,
        .eps = a->eps,
        .weight_decay = a->weight_decay,
        .fused = a->implementation == IMPLEMENTATION_fused,
        .foreach = a->implementation == IMPLEMENTATION_foreach,
    };
    log_target(c, o);
    return STATUS_OK;
}

static enum status write_folder(const struct conversion *c, struct conversion_source *o,
                                const char *folder, struct converted *done)
{
    struct content content = {
        .shape = &o->shape,
        .layout = &o->layout,
        .shard = &o->shard,
        .ranks = comm_self(),
        .weights = source_tensors_of(o, TENSOR_WEIGHT),
        .shard_bytes = c->shard_bytes,
        .plain = c->target != CONVERT_NATIVE,
        .bos = o->usage.bos,
        .eos = o->usage.eos,
        .objective = c->objective,
    };
    bool with_run = o->step >= 0;
    struct manifest m = {.folder = folder, .step = with_run ? o->step : 0};
    struct dcp_run run;
    enum status st = STATUS_OK;
    if (c->without_io) drop_io_tensors(o);
    TRY_OUT(resolve_dtype(c, o, &content.dtype));
    if (with_run && c->target == CONVERT_DCP) TRY_OUT(describe_run(c, o, &run));
    if (with_run && c->target == CONVERT_NATIVE) {
        content.exp_avg = source_tensors_of(o, TENSOR_EXP_AVG);
        content.exp_avg_sq = source_tensors_of(o, TENSOR_EXP_AVG_SQ);
        TRY_OUT(find_first_moment_only(o, &content.first_moment_only));
        TRY_OUT(model_files_open_ema(&o->ema, c->from));
        o->ema_tensors = (struct source_tensors){o, &o->ema, TENSOR_WEIGHT};
        if (!model_files_are_empty(&o->ema))
            content.ema = (struct tensor_source){read_run, &o->ema_tensors};
        content.step = o->step, content.train = o->train.data;
    }
    int tensors = content.exp_avg.read || (with_run && c->target == CONVERT_DCP) ? 3 : 1;
    progress_begin("convert", PROGRESS_BYTES,
                   ((double)o->layout.parameters * tensors -
                    (double)layout_elements(&o->layout, content.first_moment_only)) *
                       (double)safetensors_dtype_bytes(content.dtype));
    TRY_OUT(file_remove_tree(folder)); /* left by a conversion that was killed */
    TRY_OUT(file_make_dirs(folder));
    if (c->target == CONVERT_HF || c->target == CONVERT_NATIVE)
        TRY_OUT(content_write(&content, &m));
    else
        TRY_OUT(write_torch(c, &content, with_run ? &run : NULL, folder, &m));
    if (!c->without_io) TRY_OUT(write_other_files(c, &content, with_run, &m));
    if (c->target == CONVERT_NATIVE) TRY_OUT(manifest_finish(&m));
    *done = (struct converted){o->layout.num_tensors, o->layout.parameters, content.dtype, o->step};
out:
    progress_end();
    manifest_release(&m);
    return st;
}

/* OK if the folder does not exist or is empty. */
static enum status check_empty(const char *folder)
{
    struct file_list names;
    if (!file_exists(folder)) return STATUS_OK;
    if (!file_is_dir(folder)) FAIL(CONFIG, "%s exists and is not a folder", folder);
    TRY(file_list_dir(&names, folder));
    size_t count = names.count;
    file_list_release(&names);
    if (count)
        FAIL(CONFIG, "%s exists and is not empty; choose another DST, or empty it first", folder);
    return STATUS_OK;
}

static enum status write_gguf(const struct conversion *c, struct conversion_source *o,
                              const char *path, struct converted *done)
{
    const char *stem = file_name(c->to), *dot = strrchr(stem, '.');
    enum safetensors_dtype dtype;
    TRY(resolve_dtype(c, o, &dtype));
    char *name = heap_string(stem, dot && dot > stem ? (size_t)(dot - stem) : strlen(stem));
    char *config_folder = torch_files_folder(c->from);
    const struct gguf_model g = {
        .model = {&o->shape, &o->layout, &o->shard, source_tensors_of(o, TENSOR_WEIGHT), dtype},
        .type = c->quantized               ? GGUF_Q8_0
                : dtype == SAFETENSORS_F32 ? GGUF_F32
                : dtype == SAFETENSORS_F16 ? GGUF_F16
                                           : GGUF_BF16,
        .name = name,
        .tokenizer = config_folder,
        .bos = o->usage.bos,
        .eos = o->usage.eos,
        .is_masked = content_mask_token(c->objective),
    };
    enum status st = gguf_model_write(&g, path);
    *done = (struct converted){o->layout.num_tensors, o->layout.parameters, dtype, -1};
    free(name), free(config_folder);
    return st;
}

static enum status convert_to_path(const struct conversion *c, struct conversion_source *o,
                                   struct converted *done)
{
    struct text temporary = {0};
    size_t len = strlen(c->to);
    bool is_file = c->target == CONVERT_GGUF;
    while (len > 1 && c->to[len - 1] == '/') len--;
    text_addf(&temporary, "%.*s.llamero-tmp", (int)len, c->to);
    enum status st = STATUS_OK;
    if (is_file && file_exists(c->to)) FAIL_OUT(CONFIG, "%s already exists", c->to);
    TRY_OUT(is_file ? STATUS_OK : check_empty(c->to));
    TRY_OUT(is_file ? write_gguf(c, o, temporary.data, done)
                    : write_folder(c, o, temporary.data, done));
    TRY_OUT(is_file ? STATUS_OK : file_sync_dir(temporary.data));
    if (rename(temporary.data, c->to)) FAIL_OUT(IO, "%s: %s", c->to, strerror(errno));
    TRY_OUT(file_sync_parent(c->to));
out:
    if (st) file_discard_tree(temporary.data);
    text_release(&temporary);
    return st;
}

static enum status convert_to_run(const struct conversion *c, struct conversion_source *o,
                                  struct converted *done)
{
    int64_t step = o->step < 0 ? 0 : o->step;
    char *folder = file_join(c->to, "checkpoint");
    char *temporary = folder_temporary_path(folder, step);
    size_t num_steps;
    bool writes = false;
    int lock = -1;
    enum status st = STATUS_OK;
    TRY_OUT(folder_lock(folder, &lock));
    TRY_OUT(folder_steps_count(folder, &num_steps));
    if (num_steps) FAIL_OUT(CONFIG, "%s already contains checkpoints", folder);
    writes = true;
    TRY_OUT(write_folder(c, o, temporary, done));
    TRY_OUT(folder_commit(folder, temporary, step));
out:
    if (st && writes) file_discard_tree(temporary);
    folder_unlock(lock);
    free(folder), free(temporary);
    return st;
}

enum status convert_checkpoint(const struct conversion *c, struct converted *done)
{
    const struct convert_check check = {c->from, c->target, c->dcp.generation};
    struct conversion_source o = {0};
    BUG_IF(c->without_io &&
           (c->target == CONVERT_NATIVE || c->target == CONVERT_GGUF || c->target == CONVERT_NXDT));
    enum status st = open_source(&o, c);
    if (!st) st = convert_check_settings(&check, &o.shape);
    if (!st) st = open_training_state(c, &o);
    if (!st)
        st = c->target == CONVERT_NATIVE ? convert_to_run(c, &o, done)
                                         : convert_to_path(c, &o, done);
    close_source(&o);
    return st;
}
