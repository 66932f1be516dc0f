// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/convert.h"

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/content.h"
#include "checkpoint/dcp_writer.h"
#include "checkpoint/folder.h"
#include "checkpoint/gguf_model.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/meta.h"
#include "checkpoint/model_files.h"
#include "checkpoint/torch_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The folder that is read, and some numbers of a tensor of it. */
struct origin {
    struct model_shape shape;
    struct layout layout;
    struct model_files files;
    struct pieces pieces;
    float *values;
    int bos, eos;
};

static enum status read_piece(void *context, const struct piece *p, size_t first, size_t count,
                              const float **values)
{
    const struct origin *o = context;
    const struct tensor_place *t = &o->layout.tensors[p->tensor];
    struct tensor_reader r;
    char name[160];
    tensor_place_name(t, true, name);
    TRY(tensor_reader_open(&r, &o->files, t, name));
    TRY(tensor_reader_read(&r, first, count, F32, o->values));
    tensor_reader_close(&r);
    *values = o->values;
    return STATUS_OK;
}

static void set_rope(struct rope_scaling *r, double factor)
{
    if (r->factor <= 0)
        *r = (struct rope_scaling){
            .low_frequency_factor = 1, .high_frequency_factor = 4, .original_context = 8192};
    r->factor = factor;
    if (factor <= 0) *r = (struct rope_scaling){0};
}

static enum status open_origin(struct origin *o, const struct conversion *c)
{
    const char *folder = c->from;
    char *beside = torch_files_folder(folder), *config = file_join(beside, "config.json");
    bool ours;
    enum status st = STATUS_OK;
    TRY_OUT(checkpoint_origin(folder, NULL, &ours));
    TRY_OUT(checkpoint_read_shape(folder, &o->shape));
    if (c->sets_rope) set_rope(&o->shape.scaling, c->rope_factor);
    o->bos = o->eos = -1;
    if (file_exists(config)) TRY_OUT(hf_config_ids(config, &o->bos, &o->eos));
    layout_init(&o->layout, &o->shape, 1);
    TRY_OUT(model_files_open_any(&o->files, folder, &o->shape));
    TRY_OUT(model_files_check(&o->files, &o->layout, o->shape.tied));
    pieces_init(&o->pieces, &o->layout, 0, 1);
    o->values = heap(EXCHANGE_ELEMENTS * sizeof *o->values);
out:
    free(beside), free(config);
    return st;
}

static void close_origin(struct origin *o)
{
    free(o->values);
    pieces_release(&o->pieces);
    model_files_close(&o->files);
    layout_release(&o->layout);
}

static enum status resolve_dtype(const struct conversion *c, const struct origin *o,
                                 enum safetensors_dtype *dtype)
{
    enum safetensors_dtype has;
    char name[160];
    *dtype = c->target == CONVERT_NATIVE ? SAFETENSORS_F32 : c->dtype;
    if (c->target == CONVERT_NATIVE || !c->keep_dtype) return STATUS_OK;
    tensor_place_name(&o->layout.tensors[0], true, name);
    if (!model_files_dtype(&o->files, &o->layout.tensors[0], &has))
        FAIL(DATA, "%s: the tensor %s is missing", o->files.folder, name);
    *dtype = has == SAFETENSORS_BF16 || has == SAFETENSORS_F16 ? has : SAFETENSORS_F32;
    return STATUS_OK;
}

/* From here on only the tensors and their pieces are looked at, not the units. */
static void leave_out_io(struct origin *o)
{
    struct layout *l = &o->layout;
    size_t kept = 0;
    for (size_t i = 0; i < o->pieces.count; i++) {
        struct piece p = o->pieces.all[i]; /* a whole tensor, as there is one part */
        const struct tensor_place t = l->tensors[p.tensor];
        if (t.id == PARAM_embed || t.id == PARAM_head) {
            l->parameters -= (int64_t)t.elements;
            continue;
        }
        p.tensor = (int)kept;
        l->tensors[kept] = t;
        o->pieces.all[kept++] = p;
    }
    l->num_tensors = (int)kept;
    o->pieces.count = kept;
}

/* What stands beside the weights goes along as it is. */
static enum status copy_texts(const char *path, struct manifest *m)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model",
                                        "tokenizer_config.json", "special_tokens_map.json",
                                        "generation_config.json"};
    struct text bytes = {0};
    char *from = torch_files_folder(path);
    enum status st = STATUS_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names && !st; i++) {
        char *name = file_join(from, names[i]);
        if (file_exists(name)) st = file_read(name, 1 << 30, &bytes);
        if (file_exists(name) && !st) st = sealed_put(m, names[i], bytes.data, bytes.len);
        free(name);
    }
    text_release(&bytes);
    free(from);
    return st;
}

/* With params.json, which leaves much to the program that reads it, and with torch's directory,
 * which says nothing of the model, goes config.json. */
static enum status write_torch(const struct content *c, enum conversion_target target,
                               const char *folder, struct manifest *m)
{
    const struct torch_model model = {c->shape, c->layout, c->pieces, c->weights, c->dtype};
    TRY(target == CONVERT_DCP ? dcp_write(&model, c->shard_bytes, folder)
                              : meta_write(&model, folder));
    TRY(content_write_texts(c, m));
    return STATUS_OK;
}

static enum status write_folder(const struct conversion *c, struct origin *o, const char *folder,
                                struct converted *done)
{
    struct content content = {
        .shape = &o->shape,
        .layout = &o->layout,
        .pieces = &o->pieces,
        .weights = {read_piece, o},
        .shard_bytes = c->shard_bytes,
        .plain = c->target != CONVERT_NATIVE,
        .bos = o->bos,
        .eos = o->eos,
    };
    struct manifest m = {.folder = folder};
    enum status st = STATUS_OK;
    TRY_OUT(resolve_dtype(c, o, &content.dtype));
    if (c->without_io) leave_out_io(o);
    TRY_OUT(file_remove_tree(folder)); /* left by one that was killed */
    TRY_OUT(file_make_dirs(folder));
    if (c->target == CONVERT_META || c->target == CONVERT_DCP)
        TRY_OUT(write_torch(&content, c->target, folder, &m));
    else
        TRY_OUT(content_write(&content, &m));
    if (!c->without_io) TRY_OUT(copy_texts(c->from, &m)); /* all of them are of a vocabulary */
    if (c->target == CONVERT_NATIVE) TRY_OUT(manifest_finish(&m));
    *done = (struct converted){o->layout.num_tensors, o->layout.parameters, content.dtype};
out:
    manifest_release(&m);
    return st;
}

/* MISSING is fine, and so is a folder without anything in it. */
static enum status refuse_full(const char *folder)
{
    struct file_list names;
    if (!file_exists(folder)) return STATUS_OK;
    if (!file_is_dir(folder)) FAIL(CONFIG, "%s is there, and no folder", folder);
    TRY(file_list_dir(&names, folder));
    size_t count = names.count;
    file_list_release(&names);
    if (count) FAIL(CONFIG, "%s is there, and not empty", folder);
    return STATUS_OK;
}

static enum status sync_parent(const char *path)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/') len--;
    while (len && path[len - 1] != '/') len--;
    char *parent = len ? heap_string(path, len) : heap_string(".", 1);
    enum status st = file_sync_dir(parent);
    free(parent);
    return st;
}

static enum status write_gguf(const struct conversion *c, struct origin *o, const char *path,
                              struct converted *done)
{
    const char *slash = strrchr(c->to, '/'), *stem = slash ? slash + 1 : c->to;
    const char *dot = strrchr(stem, '.');
    enum safetensors_dtype dtype;
    TRY(resolve_dtype(c, o, &dtype));
    char *name = heap_string(stem, dot && dot > stem ? (size_t)(dot - stem) : strlen(stem));
    char *beside = torch_files_folder(c->from);
    const struct gguf_model g = {
        .model = {&o->shape, &o->layout, &o->pieces, {read_piece, o}, dtype},
        .type = c->quantized               ? GGUF_Q8_0
                : dtype == SAFETENSORS_F32 ? GGUF_F32
                : dtype == SAFETENSORS_F16 ? GGUF_F16
                                           : GGUF_BF16,
        .name = name,
        .tokenizer = beside,
        .bos = o->bos,
        .eos = o->eos,
    };
    enum status st = gguf_model_write(&g, path);
    *done = (struct converted){o->layout.num_tensors, o->layout.parameters, dtype};
    free(name), free(beside);
    return st;
}

static enum status make_plain(const struct conversion *c, struct origin *o, struct converted *done)
{
    struct text temporary = {0};
    size_t len = strlen(c->to);
    bool is_file = c->target == CONVERT_GGUF;
    while (len > 1 && c->to[len - 1] == '/') len--;
    text_addf(&temporary, "%.*s.llamero-tmp", (int)len, c->to);
    enum status st = STATUS_OK;
    if (is_file && file_exists(c->to)) FAIL_OUT(CONFIG, "%s is there already", c->to);
    TRY_OUT(is_file ? STATUS_OK : refuse_full(c->to));
    TRY_OUT(is_file ? write_gguf(c, o, temporary.data, done)
                    : write_folder(c, o, temporary.data, done));
    TRY_OUT(is_file ? STATUS_OK : file_sync_dir(temporary.data));
    if (rename(temporary.data, c->to)) FAIL_OUT(IO, "%s: %s", c->to, strerror(errno));
    TRY_OUT(sync_parent(c->to));
out:
    if (st) {
        struct failure first = {0};
        failure_keep(&first, st);
        file_remove_tree(temporary.data);
        failure_tell(&first);
    }
    text_release(&temporary);
    return st;
}

static enum status make_native(const struct conversion *c, struct origin *o, struct converted *done)
{
    char *folder = file_join(c->to, "checkpoint"), *temporary = file_join(folder, "step-0.tmp");
    struct step_list steps = {0};
    int lock = -1;
    enum status st = STATUS_OK;
    TRY_OUT(folder_lock(folder, &lock));
    TRY_OUT(step_list_read(&steps, folder));
    if (steps.count) FAIL_OUT(CONFIG, "%s: there are checkpoints already", folder);
    TRY_OUT(write_folder(c, o, temporary, done));
    TRY_OUT(folder_commit(folder, temporary, 0));
out:
    step_list_release(&steps);
    folder_unlock(lock);
    free(folder), free(temporary);
    return st;
}

enum status checkpoint_convert(const struct conversion *c, struct converted *done)
{
    struct origin o = {0};
    BUG_IF(c->without_io && (c->target == CONVERT_NATIVE || c->target == CONVERT_GGUF));
    enum status st = open_origin(&o, c);
    if (!st) st = c->target == CONVERT_NATIVE ? make_native(c, &o, done) : make_plain(c, &o, done);
    close_origin(&o);
    return st;
}
