// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/torch_files.h"

#include "base/file.h"
#include "checkpoint/interop/dcp.h"
#include "checkpoint/interop/hf_config.h"
#include "checkpoint/interop/megatron_dist.h"
#include "checkpoint/interop/megatron_ranks.h"
#include "checkpoint/interop/meta.h"
#include "checkpoint/interop/nxdt.h"
#include "checkpoint/interop/params_json.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRACKER "latest_checkpointed_iteration.txt"

/* A folder of .pth files may contain anything else. */
enum torch_kind torch_files_kind(const char *path)
{
    if (megatron_dist_detect(path)) return TORCH_MEGATRON;
    if (megatron_ranks_detect(path)) return TORCH_MEGATRON_RANKS;
    if (dcp_detect(path)) return TORCH_DCP;
    bool meta = meta_detect(path);
    if (!(meta && file_is_dir(path)) && nxdt_files_detect(path)) return TORCH_NXDT;
    return meta ? TORCH_META : TORCH_NONE;
}

static bool has_iterations(const char *path)
{
    struct file_list l;
    bool found = false;
    if (file_list_dir(&l, path)) return false;
    for (size_t i = 0; i < l.count; i++)
        found |= !strncmp(l.paths[i], "iter_", 5) || !strcmp(l.paths[i], "release");
    file_list_release(&l);
    return found;
}

/* verl writes latest_checkpointed_iteration.txt, too, but next to its folders global_step_N. */
bool torch_files_are_megatron(const char *path)
{
    if (megatron_ranks_detect(path) || file_exists_in(path, "model_optim_rng.pt")) return true;
    if (file_exists_in(path, TRACKER) && has_iterations(path)) return true;
    return megatron_dist_detect(path);
}

enum status torch_files_last_iteration(const char *path, int64_t *iteration)
{
    enum { DIGITS = 9 };
    char *file = file_join(path, TRACKER);
    struct text t = {0};
    enum status st = STATUS_OK;
    *iteration = -1;
    TRY_OUT(file_read(file, 64, &t));
    while (t.len && isspace((unsigned char)t.data[t.len - 1])) t.data[--t.len] = '\0';
    if (t.len && !strcmp(t.data, "release")) goto out;
    if (!t.len || t.len > DIGITS || strspn(t.data, "0123456789") != t.len)
        FAIL_OUT(DATA, "%s: expected an iteration or \"release\"", file);
    *iteration = strtol(t.data, NULL, 10);
out:
    text_release(&t);
    free(file);
    return st;
}

char *torch_files_iteration_path(const char *path, int64_t iteration)
{
    char name[32];
    snprintf(name, sizeof name, "iter_%07lld", (long long)iteration);
    return file_join(path, iteration < 0 ? "release" : name);
}

enum status torch_files_open(struct tensor_slices *slices, const char *path,
                             const struct model_shape *shape)
{
    enum torch_kind kind = torch_files_kind(path);
    TRY(kind == TORCH_DCP              ? dcp_open(slices, path, shape)
        : kind == TORCH_NXDT           ? nxdt_open(slices, path, shape)
        : kind == TORCH_MEGATRON       ? megatron_dist_open(slices, path, shape)
        : kind == TORCH_MEGATRON_RANKS ? megatron_ranks_open(slices, path, shape)
                                       : meta_open(slices, path, shape));
    return STATUS_OK;
}

enum status torch_files_open_moments(struct tensor_slices *slices, const char *path,
                                     const struct model_shape *shape, struct torch_state *state)
{
    torch_state_init(state);
    *slices = (struct tensor_slices){0};
    enum torch_kind kind = torch_files_kind(path);
    if (kind == TORCH_DCP) TRY(dcp_open_moments(slices, path, shape, state));
    if (kind == TORCH_MEGATRON) TRY(megatron_dist_open_moments(slices, path, shape, state));
    if (kind == TORCH_MEGATRON_RANKS) TRY(megatron_ranks_open_moments(slices, path, shape, state));
    return STATUS_OK;
}

const char *torch_files_moments_advice(const char *path)
{
    switch (torch_files_kind(path)) {
    case TORCH_MEGATRON:
        return "save with Megatron-LM's --dist-ckpt-optim-fully-reshardable, or load only the "
               "weights";
    case TORCH_MEGATRON_RANKS:
        return "convert the checkpoint with Megatron-LM's --ckpt-convert-format torch_dist, or "
               "load only the weights";
    default: return NULL;
    }
}

static bool has_config(const char *folder)
{
    return file_exists_in(folder, "config.json") || file_exists_in(folder, "params.json");
}

char *torch_files_folder(const char *path)
{
    static const char *const above[] = {"..", "../.."};
    char *own = meta_folder(path);
    enum torch_kind kind = torch_files_kind(path);
    bool below = kind != TORCH_NONE && kind != TORCH_META;
    for (int i = 0; i < 2 && below && !has_config(own); i++) {
        char *folder = file_join(own, above[i]);
        if (has_config(folder)) {
            free(own);
            return folder;
        }
        free(folder);
    }
    return own;
}

static bool is_megatron(const char *path)
{
    enum torch_kind kind = torch_files_kind(path);
    return kind == TORCH_MEGATRON || kind == TORCH_MEGATRON_RANKS;
}

static enum status read_megatron_state(const char *path, struct megatron_state *m)
{
    TRY(torch_files_kind(path) == TORCH_MEGATRON ? megatron_dist_read_state(path, m)
                                                 : megatron_ranks_read_state(path, m));
    return STATUS_OK;
}

bool torch_files_have_shape(const char *path)
{
    char *folder = torch_files_folder(path);
    bool has = has_config(folder);
    free(folder);
    struct megatron_state m;
    if (has || !is_megatron(path)) return has;
    has = read_megatron_state(path, &m) || m.has_args;
    megatron_state_release(&m);
    return has;
}

static enum status read_arguments(const char *path, struct model_shape *shape)
{
    struct megatron_state m;
    enum status st = read_megatron_state(path, &m);
    if (!st && !m.has_args)
        st =
            FAILURE(MISSING, "%s: the checkpoint has no args, and config.json was not found", path);
    if (!st) *shape = m.shape;
    megatron_state_release(&m);
    return st;
}

static enum status read_params(const char *path, const char *json, const struct model_shape *model,
                               struct model_shape *shape)
{
    struct tensor_slices slices;
    TRY(torch_files_open(&slices, path, NULL));
    enum status st = params_json_read(json, &slices, model, shape);
    tensor_slices_release(&slices);
    return st;
}

enum status torch_files_shape(const char *path, const struct model_shape *model,
                              struct model_shape *shape)
{
    char *folder = torch_files_folder(path), *config = file_join(folder, "config.json");
    char *other = file_join(folder, "params.json");
    enum status st = STATUS_OK;
    if (!has_config(folder) && is_megatron(path)) {
        TRY_OUT(read_arguments(path, shape));
        goto out;
    }
    if (!has_config(folder))
        FAIL_OUT(MISSING,
                 "%s: neither config.json nor params.json found: the weights alone do not "
                 "determine the number of heads; put the model's config.json into %s",
                 path, folder);
    if (file_exists(config))
        TRY_OUT(hf_config_read(config, shape));
    else
        TRY_OUT(read_params(path, other, model, shape));
out:
    free(folder), free(config), free(other);
    return st;
}
