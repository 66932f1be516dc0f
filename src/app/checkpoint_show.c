// SPDX-License-Identifier: Apache-2.0
#include "app/checkpoint_show.h"

#include "app/dcp_listing.h"
#include "base/counted.h"
#include "base/escape.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/interop/hf_rope.h"
#include "checkpoint/interop/model_files.h"
#include "checkpoint/interop/pytorch_bin.h"
#include "checkpoint/interop/torch_files.h"
#include "checkpoint/manifest.h"
#include "infer/loaded_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What `show` prints of one folder. */
struct shown {
    char *folder;
    struct model_shape shape;
    struct layout layout;
    struct model_files files, moments, ema;
    int kind; /* of folder_kinds */
    int64_t step, tokens_seen;
};

enum { KIND_CHECKPOINT, KIND_HF }; /* then 1 + enum torch_kind */
static const struct {
    const char *name, *is;
} folder_kinds[] = {[KIND_CHECKPOINT] = {"checkpoint", "a checkpoint"},
                    [KIND_HF] = {"hf", "a Hugging Face folder"},
                    [1 + TORCH_DCP] = {"dcp", "a directory of torch.distributed.checkpoint"},
                    [1 + TORCH_NXDT] = {"nxdt", "a checkpoint of NxD Training"},
                    [1 + TORCH_MEGATRON] = {"megatron", "a checkpoint of Megatron-LM"},
                    [1 + TORCH_MEGATRON_RANKS] = {"megatron", "a checkpoint of Megatron-LM"},
                    [1 + TORCH_META] = {"meta", "Meta's .pth files"}};

/* A folder without a known file: opening it as Hugging Face's says what is missing. */
_Static_assert(1 + TORCH_NONE == KIND_HF, "TORCH_NONE is shown as KIND_HF");

static int kind_of(const char *folder)
{
    if (file_exists_in(folder, MANIFEST_NAME)) return KIND_CHECKPOINT;
    if (model_files_have_safetensors(folder) || pytorch_bin_detect(folder)) return KIND_HF;
    return 1 + (int)torch_files_kind(folder);
}

static enum status open_shown(struct shown *s, const char *path)
{
    struct torch_state torch;
    struct json *state = NULL;
    enum status st = STATUS_OK;
    TRY(loaded_model_find(path, comm_self(), &s->folder));
    torch_state_init(&torch);
    s->step = s->tokens_seen = -1;
    s->kind = kind_of(s->folder);
    TRY_OUT(checkpoint_read_shape(s->folder, &s->shape));
    layout_init(&s->layout, &s->shape, 1);
    TRY_OUT(model_files_open_any(&s->files, s->folder, &s->shape));
    if (s->kind == KIND_CHECKPOINT) TRY_OUT(manifest_check(s->folder, &s->step));
    TRY_OUT(model_files_open_known_moments(&s->moments, s->folder, &s->shape, &torch));
    TRY_OUT(model_files_open_ema(&s->ema, s->folder));
    TRY_OUT(torch_state_or_file(&torch, s->folder, &state));
    json_as_int(json_get(state, "step"), 0, INT64_MAX, &s->step);
    json_as_int(json_get(json_get(state, "train"), "tokens_seen"), 0, INT64_MAX, &s->tokens_seen);
out:
    json_free(state);
    torch_state_release(&torch);
    return st;
}

static void close_shown(struct shown *s)
{
    model_files_close(&s->files);
    model_files_close(&s->moments);
    model_files_close(&s->ema);
    layout_release(&s->layout);
    free(s->folder);
}

/* The weights' dtype, or "mixed". */
static const char *dtype_of(const struct model_files *m)
{
    int dtype = -1;
    for (size_t i = 0; i < model_files_num_tensors(m); i++) {
        int other = (int)model_files_tensor(m, i).is.dtype;
        if (dtype >= 0 && other != dtype) return "mixed";
        dtype = other;
    }
    return dtype < 0 ? "none" : safetensors_dtype_name((enum safetensors_dtype)dtype);
}

static void write_shape(const struct safetensors_tensor *t, const char *key, struct json_writer *w)
{
    json_begin_array(w, key, JSON_INLINE);
    for (int i = 0; i < t->num_dims; i++) json_write_int(w, NULL, t->shape[i]);
    json_end_array(w);
}

static void list_tensors(const struct model_files *m, struct text *out)
{
    for (size_t i = 0; i < model_files_num_tensors(m); i++) {
        const struct safetensors_tensor t = model_files_tensor(m, i).is;
        char name[CHECKPOINT_NAME_BYTES];
        text_addf(out, "  %-52s %-5s ", escape_controls(name, sizeof name, t.name, ""),
                  safetensors_dtype_name(t.dtype));
        write_shape(&t, NULL, &(struct json_writer){.text = out});
        text_adds(out, "\n");
    }
}

static void write_tensors(const struct model_files *m, struct json_writer *w)
{
    json_begin_array(w, "tensors", JSON_INLINE);
    for (size_t i = 0; i < model_files_num_tensors(m); i++) {
        const struct model_tensor t = model_files_tensor(m, i);
        json_newline(w, 2);
        json_begin_object(w, NULL, JSON_INLINE);
        json_write_string(w, "name", t.is.name);
        json_write_string(w, "dtype", safetensors_dtype_name(t.is.dtype));
        write_shape(&t.is, "shape", w);
        json_write_string(w, "file", t.file);
        json_end_object(w);
    }
    json_end_array(w);
}

static struct model_file *find_file(struct model_file *files, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(files[i].name, name)) return &files[i];
    return NULL;
}

/* Lists every file once: torch's files hold both weights and moments. */
static struct model_file *merge_files(const struct shown *s, size_t *count)
{
    const struct model_files *sets[] = {&s->files, &s->ema, &s->moments};
    size_t num_sets = sizeof sets / sizeof *sets, most = 0;
    for (size_t k = 0; k < num_sets; k++) most += model_files_num_files(sets[k]);
    struct model_file *files = heap(most * sizeof *files);
    *count = 0;
    for (size_t k = 0; k < num_sets; k++)
        for (size_t f = 0; f < model_files_num_files(sets[k]); f++) {
            const struct model_file file = model_files_file(sets[k], f);
            struct model_file *have = find_file(files, *count, file.name);
            if (have)
                have->num_tensors += file.num_tensors;
            else
                files[(*count)++] = file;
        }
    return files;
}

static void list_files(const struct shown *s, struct text *out)
{
    size_t count;
    struct model_file *files = merge_files(s, &count);
    for (size_t f = 0; f < count; f++) {
        char name[CHECKPOINT_NAME_BYTES];
        text_addf(out, "  %-44s %8zu tensors %12.1f MB\n",
                  escape_controls(name, sizeof name, files[f].name, ""), files[f].num_tensors,
                  (double)files[f].bytes / 1e6);
    }
    free(files);
}

static void write_files(const struct shown *s, struct json_writer *w)
{
    size_t count;
    struct model_file *files = merge_files(s, &count);
    json_begin_array(w, "files", JSON_INLINE);
    for (size_t f = 0; f < count; f++) {
        json_begin_object(w, NULL, JSON_INLINE);
        json_write_string(w, "name", files[f].name);
        json_write_int(w, "bytes", (int64_t)files[f].bytes);
        json_write_int(w, "tensors", (int64_t)files[f].num_tensors);
        json_end_object(w);
    }
    json_end_array(w);
    free(files);
}

static void write_model(const struct model_shape *m, struct json_writer *w)
{
    model_shape_write_json(m, w);
    json_write_int(w, "max_context", m->max_context);
    json_write_bool(w, "tie_embeddings", m->tied);
    json_write_bool(w, "qk_norm", m->qk_norm);
    json_write_bool(w, "post_norm", m->post_norm);
    json_write_string(w, "attention_bias", model_shape_biases(m));
    json_write_bool(w, "mlp_bias", m->mlp_bias);
    json_write_int(w, "sliding_window", m->window);
    json_write_int(w, "no_rope_layer_interval", m->no_rope_interval);
    json_write_real(w, "embedding_multiplier", m->embedding_multiplier);
    json_write_real(w, "residual_multiplier", m->residual_multiplier);
    json_write_real(w, "attention_multiplier", m->attention_multiplier);
    json_write_real(w, "logits_scaling", m->logits_scaling);
    json_write_real(w, "norm_eps", m->norm_eps);
    hf_rope_write(w, m);
}

static void write_json(const struct shown *s, bool tensors, struct text *out)
{
    struct json_writer w = {.text = out};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_string(&w, "path", s->folder);
    json_write_string(&w, "kind", folder_kinds[s->kind].name);
    json_write_int_or_null(&w, "step", s->step);
    json_write_int_or_null(&w, "tokens_seen", s->tokens_seen);
    json_write_int(&w, "parameters", s->layout.parameters);
    json_write_string(&w, "dtype", dtype_of(&s->files));
    json_write_bool(&w, "moments", !model_files_are_empty(&s->moments));
    json_newline(&w, 1);
    write_model(&s->shape, &w);
    json_newline(&w, 1);
    write_files(s, &w);
    if (tensors) {
        json_newline(&w, 1);
        write_tensors(&s->files, &w);
    }
    json_end_object(&w);
    json_finish(&w);
    text_adds(out, "\n");
}

static void list_attention(const struct model_shape *m, struct text *out)
{
    text_addf(out, "%s of %d (%d for keys and values", counted_format(m->H, "head").text, m->K,
              m->G);
    if (m->qk_norm) text_addf(out, "; QK norm%s", m->post_norm ? ", norms behind" : "");
    if (m->qkv_bias) text_addf(out, "; biases of %s", model_shape_biases(m));
    if (m->window) text_addf(out, "; a sliding window of %d tokens", m->window);
    text_adds(out, ")");
}

static void list_rope(const struct model_shape *m, struct text *out)
{
    text_addf(out, "RoPE theta %g", m->rope_theta);
    if (m->partial_rotary_factor > 0)
        text_addf(out, ", of %d of each head's %d", 2 * model_shape_rotary_pairs(m), m->K);
    if (m->no_rope_interval)
        text_addf(out, ", in %d of %d layers", m->no_rope_interval - 1, m->no_rope_interval);
    if (m->scaling.factor > 0)
        text_addf(out, ", scaled RoPE (%s, %g times)", rope_method_name(&m->scaling),
                  m->scaling.factor);
}

static void list_multipliers(const struct model_shape *m, struct text *out)
{
    text_addf(out, "multipliers embedding %g, residual %g, attention %g, logits 1/%g\n",
              model_shape_multiplier(m->embedding_multiplier),
              model_shape_multiplier(m->residual_multiplier),
              (double)model_shape_attention_scale(m), model_shape_multiplier(m->logits_scaling));
}

static void list_model(const struct model_shape *m, struct text *out)
{
    text_addf(out, "model       %d wide, %s, ", m->D, counted_format(m->L, "layer").text);
    list_attention(m, out);
    text_addf(out, ", feed-forward %d%s\nvocabulary  %d tokens%s\ncontext     %d tokens, ", m->F,
              m->mlp_bias ? " with biases" : "", m->V,
              m->tied ? ", head tied to the embedding" : "", m->max_context);
    list_rope(m, out);
    text_adds(out, "\n");
    if (model_shape_multiplies(m)) list_multipliers(m, out);
}

static void write_plain(const struct shown *s, bool tensors, struct text *out)
{
    text_addf(out, "%s\n", s->folder);
    if (s->kind != KIND_CHECKPOINT) text_addf(out, "kind        %s\n", folder_kinds[s->kind].is);
    if (s->step >= 0) text_addf(out, "step        %lld\n", (long long)s->step);
    if (s->tokens_seen >= 0) text_addf(out, "tokens seen %lld\n", (long long)s->tokens_seen);
    text_addf(out, "parameters  %lld, %s%s\n", (long long)s->layout.parameters, dtype_of(&s->files),
              model_files_are_empty(&s->moments) ? "" : ", with the optimizer's moments");
    list_model(&s->shape, out);
    text_adds(out, tensors ? "tensors\n" : "files\n");
    if (tensors)
        list_tensors(&s->files, out);
    else
        list_files(s, out);
}

enum status checkpoint_show(const char *path, bool tensors, bool json)
{
    struct shown s = {0};
    struct text out = {0};
    enum status st = open_shown(&s, path);
    if (!st) {
        (json ? write_json : write_plain)(&s, tensors, &out);
        fputs(out.data, stdout);
    }
    text_release(&out);
    close_shown(&s);
    return st;
}

enum status checkpoint_show_as(const char *path, enum dcp_generation generation, bool json)
{
    struct shown s = {0};
    enum status st = open_shown(&s, path);
    const struct dcp_listing l = {
        .folder = s.folder,
        .shape = &s.shape,
        .layout = &s.layout,
        .files = &s.files,
        .resumes = s.step >= 0 && !model_files_are_empty(&s.moments),
    };
    if (!st) st = dcp_listing_print(&l, generation, json);
    close_shown(&s);
    return st;
}
