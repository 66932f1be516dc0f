// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/content.h"

#include "base/file.h"
#include "checkpoint/interop/hf_config.h"
#include "checkpoint/interop/state_json.h"
#include "tokenizer/hf_folder.h"

#include <stdlib.h>

#define SHARD_BYTES UINT64_C(5000000000)

static enum status write_safetensors(const struct content *c, struct block_exchange *x,
                                     struct manifest *m)
{
    static const char *const plain[] = {""}, *const moments[] = {".exp_avg", ".exp_avg_sq"};
    struct safetensors_shards model = {.stem = "model",
                                       .parts = plain,
                                       .sources = &c->weights,
                                       .num_parts = 1,
                                       .fuses = model_shape_is_phi3(c->shape),
                                       .dtype = c->dtype,
                                       .max_bytes = c->shard_bytes ? c->shard_bytes : SHARD_BYTES,
                                       .index = c->plain ? INDEX_IF_MANY : INDEX_ALWAYS,
                                       .exchange = x};
    TRY(safetensors_shards_write(&model, m));
    struct safetensors_shards average = model;
    average.stem = "ema", average.sources = &c->ema, average.dtype = SAFETENSORS_F32;
    average.max_bytes = SHARD_BYTES, average.index = INDEX_NEVER, average.fuses = false;
    if (c->ema.read) TRY(safetensors_shards_write(&average, m));
    if (!c->exp_avg.read) return STATUS_OK;
    struct tensor_source both[] = {c->exp_avg, c->exp_avg_sq};
    const uint32_t omitted[] = {0, c->first_moment_only};
    struct safetensors_shards optimizer = {.stem = "optimizer",
                                           .parts = moments,
                                           .sources = both,
                                           .num_parts = 2,
                                           .omitted = omitted,
                                           .dtype = SAFETENSORS_F32,
                                           .max_bytes = SHARD_BYTES,
                                           .index = INDEX_NEVER,
                                           .exchange = x};
    TRY(safetensors_shards_write(&optimizer, m));
    return STATUS_OK;
}

static enum status write_tensors(const struct content *c, struct manifest *m)
{
    struct block_exchange x;
    enum status st = block_exchange_open(&x, c->layout, c->shard, c->ranks);
    if (!st) st = write_safetensors(c, &x, m);
    block_exchange_close(&x);
    return st;
}

const char *content_mask_token(const struct objective_config *objective)
{
    return objective && objective->name != OBJECTIVE_causal ? objective->mask_token : NULL;
}

static enum status write_hf_folder(const struct content *c, const char *folder)
{
    const struct hf_folder_options o = {.bos = c->bos,
                                        .eos = c->eos,
                                        .max_length = c->shape->max_context,
                                        .mask_token = content_mask_token(c->objective)};
    struct hf_folder f;
    enum status st = STATUS_OK;
    hf_folder_make(&f, c->tokenizer, &o);
    for (int i = 0; i < HF_FOLDER_FILES && !st; i++) {
        const struct hf_folder_file *file = &f.files[i];
        char *path = file_join(folder, file->name);
        if (file->text.len) st = file_write(path, file->text.data, file->text.len);
        free(path);
    }
    hf_folder_release(&f);
    return st;
}

static enum status write_tokenizer(const struct content *c, struct manifest *m)
{
    struct file_list names;
    enum status st = STATUS_OK;
    if (!c->tokenizer) return STATUS_OK;
    TRY(tokenizer_copy(c->tokenizer, m->folder)); /* the folder is still empty */
    TRY(write_hf_folder(c, m->folder));
    TRY(file_list_dir(&names, m->folder));
    for (size_t i = 0; i < names.count && !st; i++) st = manifest_add_existing(m, names.paths[i]);
    file_list_release(&names);
    return st;
}

enum status content_write_texts(const struct content *c, struct manifest *m)
{
    struct text t = {0};
    const char *dtype = c->dtype == SAFETENSORS_F32    ? "float32"
                        : c->dtype == SAFETENSORS_BF16 ? "bfloat16"
                                                       : "float16";
    enum status st = STATUS_OK;
    struct hf_usage usage = {.bos = c->bos, .eos = c->eos};
    if (content_mask_token(c->objective)) {
        usage.is_causal = HF_CAUSAL_FALSE;
        usage.is_diffusion = c->objective->name == OBJECTIVE_diffusion;
        if (!usage.is_diffusion) usage.mlm_probability = c->objective->mask_probability;
    }
    hf_config_write(c->shape, dtype, &usage, &t);
    TRY_OUT(manifest_write_file(m, "config.json", t.data, t.len));
    if (c->plain) goto out;
    text_clear(&t);
    state_json_write(c->step, c->train, &t);
    TRY_OUT(manifest_write_file(m, "state.json", t.data, t.len));
    if (c->config_toml)
        TRY_OUT(manifest_write_file(m, "config.toml", c->config_toml->data, c->config_toml->len));
out:
    text_release(&t);
    return st;
}

enum status content_write(const struct content *c, struct manifest *m)
{
    bool is_root = c->ranks->rank == 0;
    TRY(comm_agree(c->ranks, is_root ? write_tokenizer(c, m) : STATUS_OK));
    TRY(write_tensors(c, m));
    TRY(comm_agree(c->ranks, is_root ? content_write_texts(c, m) : STATUS_OK));
    return STATUS_OK;
}
