// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/nxdt_write.h"

#include "base/file.h"
#include "checkpoint/interop/nxdt.h"
#include "formats/pickle_write.h"
#include "formats/torch_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int at_least_one(int x) { return x > 0 ? x : 1; }

/* Whether q, k and v are separate parameters (qkv_linear), so that k and v can be replicated. */
static bool is_linear(const struct nxdt_target *t)
{
    return t->qkv_linear || t->fuse_qkv || t->kv_size_multiplier > 1;
}

static enum status check_even(const char *what, int have, int ranks)
{
    if (have % ranks == 0) return STATUS_OK;
    FAIL(CONFIG, "--tp-size: %d %s cannot be divided evenly among %d ranks", have, what, ranks);
}

enum status nxdt_write_check(const struct nxdt_target *t, const struct model_shape *s)
{
    int T = at_least_one(t->tp_size), m = at_least_one(t->kv_size_multiplier);
    int64_t stages = (int64_t)at_least_one(t->pp_size) * at_least_one(t->virtual_pp_size);
    TRY(check_even("vocabulary entries", s->V, T));
    TRY(check_even("query heads", s->H, T));
    TRY(check_even("feed-forward rows", s->F, T));
    if (stages > s->L)
        FAIL(CONFIG, "--pp-size: %lld stages, but the model has only %d layers", (long long)stages,
             s->L);
    if (m > 1 && (int64_t)m * s->G != T)
        FAIL(CONFIG,
             "--kv-size-multiplier: %d key/value heads times %d is %lld, must be equal to "
             "--tp-size %d",
             s->G, m, (long long)m * s->G, T);
    if (m == 1 && s->G % T)
        FAIL(CONFIG,
             "--tp-size: %d ranks do not divide the %d key/value heads: set --kv-size-multiplier "
             "to tp-size / heads",
             T, s->G);
    if (t->coalesce_qkv && (s->G != s->H || is_linear(t)))
        FAIL(CONFIG,
             "--coalesce-qkv requires as many key/value heads as query heads (here %d and %d), and "
             "no --qkv-linear",
             s->G, s->H);
    return STATUS_OK;
}

/* A rank's tensor: blocks of our tensors, concatenated by rows. */
struct rank_item {
    struct torch_tensor is; /* its name is owned */
    struct torch_block blocks[3];
    int count;
};

struct nxdt_writer {
    const struct torch_model *model;
    const struct nxdt_target *target;
    struct nxdt_heads heads;
    const char *folder;      /* model/ */
    int tp, pp;              /* the rank being written */
    struct rank_item *items; /* of its file */
    size_t count, capacity;
};

static struct torch_block rank_block(const struct nxdt_writer *w, int tensor)
{
    const struct tensor_slot *t = &w->model->layout->tensors[tensor];
    const struct param *kind = &params[t->id];
    struct torch_block b = {tensor, 0, t->rows, 0, t->columns};
    int64_t at = w->tp, parts = w->heads.ranks;
    if (t->id == PARAM_attn_q || t->id == PARAM_attn_out) at = nxdt_query_block(&w->heads, w->tp);
    if (t->id == PARAM_attn_k || t->id == PARAM_attn_v) {
        at = nxdt_key_block(&w->heads, w->tp);
        parts /= w->heads.copies;
    }
    if (!kind->tp) return b;
    bool across = kind->axes[1] == kind->tp;
    int64_t *size = across ? &b.columns : &b.rows;
    *size /= parts;
    *(across ? &b.column : &b.row) = at * *size;
    return b;
}

static int find_tensor(const struct nxdt_writer *w, enum param_id id, int layer)
{
    const struct layout *l = w->model->layout;
    for (int i = 0; i < l->num_tensors; i++)
        if (l->tensors[i].id == id && l->tensors[i].layer == layer) return i;
    BUG_IF(true);
    return -1;
}

static void set_item_name(struct rank_item *item, const char *form, int layer)
{
    const char *number = strstr(form, "%d");
    struct text name = {0};
    if (number)
        text_addf(&name, "%.*s%d%s", (int)(number - form), form, layer, number + 2);
    else
        text_adds(&name, form);
    item->is.name = name.data;
}

static void add_item(struct nxdt_writer *w, const char *form, int layer, const enum param_id *ids,
                     int count)
{
    if (w->count == w->capacity) {
        w->capacity = w->capacity ? 2 * w->capacity : 64;
        w->items = heap_grow(w->items, w->capacity, sizeof *w->items);
    }
    struct rank_item *item = &w->items[w->count++];
    *item = (struct rank_item){.is = {.dtype = w->model->dtype}, .count = count};
    set_item_name(item, form, layer);
    for (int i = 0; i < count; i++) {
        item->blocks[i] = rank_block(w, find_tensor(w, ids[i], layer));
        item->is.shape[0] += item->blocks[i].rows;
    }
    item->is.num_dims = params[ids[0]].axes[1] ? 2 : 1;
    item->is.shape[1] = item->blocks[0].columns;
}

/* The fused tensor that starts with this one; NULL: it is stored under Hugging Face's name. */
static const struct nxdt_fused *fused_of(const struct nxdt_target *t, enum param_id id)
{
    enum { WHOLE, COALESCED, QUERY, KEY, VALUE, GATE_UP };
    bool one = t->fuse_qkv || t->coalesce_qkv;
    if (id == PARAM_mlp_gate) return &nxdt_fused[GATE_UP];
    if (id == PARAM_attn_q && one) return &nxdt_fused[t->fuse_qkv ? WHOLE : COALESCED];
    if (!is_linear(t) || one) return NULL;
    return id == PARAM_attn_q   ? &nxdt_fused[QUERY]
           : id == PARAM_attn_k ? &nxdt_fused[KEY]
           : id == PARAM_attn_v ? &nxdt_fused[VALUE]
                                : NULL;
}

/* Whether it is part of a fused tensor that an earlier one started. */
static bool is_fused_into_previous(const struct nxdt_target *t, enum param_id id)
{
    bool one = t->fuse_qkv || t->coalesce_qkv;
    return id == PARAM_mlp_up || (one && (id == PARAM_attn_k || id == PARAM_attn_v));
}

/* Layers are divided evenly, the last stages taking one of the remainder each; stages are assigned
 * to ranks round-robin. */
static int pipeline_rank_of_layer(const struct nxdt_writer *w, int layer)
{
    int P = at_least_one(w->target->pp_size), L = w->model->shape->L;
    int stages = P * at_least_one(w->target->virtual_pp_size), stage = 0;
    for (int end = 0;; stage++) {
        end += L / stages + (stage >= stages - L % stages);
        if (layer < end) return stage % P;
    }
}

static bool is_on_this_rank(const struct nxdt_writer *w, const struct tensor_slot *t)
{
    if (t->id == PARAM_embed) return w->pp == 0;
    if (t->layer < 0) return w->pp == at_least_one(w->target->pp_size) - 1;
    return w->pp == pipeline_rank_of_layer(w, t->layer);
}

/* Their model always has a head of its own, even if ours is tied. */
static void list_items(struct nxdt_writer *w)
{
    const struct layout *l = w->model->layout;
    bool last = w->pp == at_least_one(w->target->pp_size) - 1;
    for (int i = 0; i < l->num_tensors; i++) {
        const struct tensor_slot *t = &l->tensors[i];
        const struct nxdt_fused *f = fused_of(w->target, t->id);
        if (!is_on_this_rank(w, t) || is_fused_into_previous(w->target, t->id)) continue;
        if (f)
            add_item(w, f->form, t->layer, f->ids, f->count);
        else
            add_item(w, params[t->id].hf_name, t->layer, &t->id, 1);
    }
    if (w->model->shape->tied && last)
        add_item(w, params[PARAM_head].hf_name, -1, (const enum param_id[]){PARAM_embed}, 1);
}

static void clear_items(struct nxdt_writer *w)
{
    for (size_t i = 0; i < w->count; i++) free(w->items[i].is.name);
    w->count = 0;
}

/* The contents of an archive: tensors, or only a pickle. */
struct archive {
    const struct torch_tensor *tensors;
    const struct rank_item *items; /* the tensors' blocks */
    size_t count;
    const struct text *pickle; /* NULL: tensors */
};

static enum status write_archive(const struct nxdt_writer *w, const char *path,
                                 const struct archive *a)
{
    struct torch_writer writer = {0};
    uint64_t size;
    enum status st = STATUS_OK;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) FAIL_OUT(IO, "%s: %s", path, strerror(errno));
    TRY_OUT(a->pickle ? torch_writer_open_pickle(&writer, fd, path, 0, a->pickle)
                      : torch_writer_open(&writer, fd, path, 0, a->tensors, a->count));
    for (size_t i = 0; i < a->count; i++)
        for (int b = 0; b < a->items[i].count; b++)
            TRY_OUT(torch_model_stream_block(w->model, &a->items[i].blocks[b], torch_model_write,
                                             &writer));
    TRY_OUT(torch_writer_close(&writer, &size));
    if (fsync(fd)) FAIL_OUT(IO, "%s: %s", path, strerror(errno));
out:
    torch_writer_release(&writer);
    if (fd >= 0) close(fd);
    return st;
}

/* The state_dict in which each tensor is a reference to its file's number. */
static void write_references(const struct nxdt_writer *w, struct text *t)
{
    pickle_write_proto(t);
    pickle_write_empty_dict(t), pickle_write_mark(t);
    for (size_t i = 0; i < w->count; i++) {
        pickle_write_string(t, w->items[i].is.name);
        pickle_write_global(t, "torch_xla.utils.serialization", "TensorReference");
        pickle_write_empty_tuple(t), pickle_write_newobj(t);
        pickle_write_empty_dict(t), pickle_write_mark(t);
        pickle_write_string(t, "tid"), pickle_write_int(t, (int64_t)i);
        pickle_write_setitems(t), pickle_write_build(t);
    }
    pickle_write_setitems(t);
    pickle_write_stop(t);
}

static void write_size(struct text *t, const struct torch_tensor *is)
{
    pickle_write_global(t, "torch", "Size");
    pickle_write_mark(t);
    pickle_write_int_tuple(t, is->shape, is->num_dims);
    pickle_write_tuple(t), pickle_write_reduce(t);
}

/* dtype and shape of each file, for ranks that receive tensors instead of reading them. */
static void write_info(const struct nxdt_writer *w, struct text *t)
{
    enum safetensors_dtype d = w->model->dtype;
    pickle_write_proto(t);
    pickle_write_empty_dict(t), pickle_write_mark(t);
    for (size_t i = 0; i < w->count; i++) {
        pickle_write_int(t, (int64_t)i);
        pickle_write_empty_dict(t), pickle_write_mark(t);
        pickle_write_string(t, "dtype");
        pickle_write_global(t, "torch",
                            d == SAFETENSORS_BF16  ? "bfloat16"
                            : d == SAFETENSORS_F16 ? "float16"
                                                   : "float32");
        pickle_write_string(t, "shape"), write_size(t, &w->items[i].is);
        pickle_write_string(t, "expert_model_parallel"), pickle_write_bool(t, false);
        pickle_write_setitems(t);
    }
    pickle_write_setitems(t);
    pickle_write_stop(t);
}

static enum status write_pickle(const struct nxdt_writer *w, const char *path,
                                void (*write)(const struct nxdt_writer *w, struct text *t))
{
    struct text pickle = {0};
    write(w, &pickle);
    enum status st = write_archive(w, path, &(struct archive){.pickle = &pickle});
    text_release(&pickle);
    return st;
}

static enum status write_xser(const struct nxdt_writer *w, const char *path)
{
    struct text name = {0};
    enum status st = STATUS_OK;
    text_addf(&name, "%s.tensors", path);
    TRY_OUT(file_make_dirs(name.data));
    for (size_t i = 0; i < w->count; i++) {
        struct torch_tensor alone = w->items[i].is;
        alone.name = (char[]){""};
        text_release(&name);
        text_addf(&name, "%s.tensors/tensor_%zu.pt", path, i);
        TRY_OUT(write_archive(w, name.data, &(struct archive){&alone, &w->items[i], 1, NULL}));
    }
    text_release(&name);
    text_addf(&name, "%s.info.pt", path);
    TRY_OUT(write_pickle(w, name.data, write_info));
    TRY_OUT(write_pickle(w, path, write_references));
out:
    text_release(&name);
    return st;
}

static enum status write_single_file(const struct nxdt_writer *w, const char *path)
{
    struct torch_tensor *tensors = heap(w->count * sizeof *tensors);
    for (size_t i = 0; i < w->count; i++) tensors[i] = w->items[i].is;
    enum status st = write_archive(w, path, &(struct archive){tensors, w->items, w->count, NULL});
    free(tensors);
    return st;
}

static enum status write_rank(struct nxdt_writer *w)
{
    struct text path = {0};
    text_addf(&path, "%s/dp_rank_00_tp_rank_%02d_pp_rank_%02d.pt", w->folder, w->tp, w->pp);
    list_items(w);
    enum status st =
        w->target->no_xser ? write_single_file(w, path.data) : write_xser(w, path.data);
    clear_items(w);
    text_release(&path);
    return st;
}

static enum status write_marker(const char *folder, const char *name)
{
    char *path = file_join(folder, name);
    enum status st = file_write(path, "1", 1);
    free(path);
    return st;
}

enum status nxdt_write(const struct torch_model *m, const struct nxdt_target *t, const char *folder)
{
    char *model = file_join(folder, "model");
    struct nxdt_writer w = {.model = m, .target = t, .folder = model};
    int pp = at_least_one(t->pp_size);
    enum status st = STATUS_OK;
    w.heads = (struct nxdt_heads){at_least_one(t->tp_size), at_least_one(t->kv_size_multiplier),
                                  m->shape->G, t->adjacent};
    TRY_OUT(nxdt_write_check(t, m->shape));
    TRY_OUT(file_make_dirs(model));
    TRY_OUT(write_marker(folder, "checkpoint"));
    for (; w.tp < w.heads.ranks; w.tp++)
        for (w.pp = 0; w.pp < pp; w.pp++) TRY_OUT(write_rank(&w));
    TRY_OUT(file_sync_dir(model));
    TRY_OUT(write_marker(folder, "done"));
out:
    free(w.items);
    free(model);
    return st;
}
