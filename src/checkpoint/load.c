// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/interop/hf_config.h"
#include "checkpoint/interop/model_files.h"
#include "checkpoint/interop/nxdt.h"
#include "checkpoint/interop/torch_files.h"
#include "checkpoint/manifest.h"
#include "tensor/device.h"
#include "tensor/queue.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status checkpoint_read_shape(const char *path, struct model_shape *shape)
{
    char *config = file_join(path, "config.json");
    bool foreign = !file_exists(config) && torch_files_detect(path);
    enum status st = foreign ? torch_files_shape(path, shape) : hf_config_read(config, shape);
    free(config);
    return st;
}

static bool is_excluded(const struct option_list *exclude, const char *name)
{
    for (size_t i = 0; exclude && i < exclude->count; i++)
        if (!fnmatch(exclude->items[i], name, 0)) return true;
    return false;
}

/* Opens the tensors that are not excluded, on every rank alike, in the model's order.  Readers of
 * excluded ones stay closed. */
static enum status open_tensors(const struct model_files *files, const struct layout *l,
                                const char *suffix, const struct option_list *exclude,
                                struct tensor_reader *readers)
{
    for (int i = 0; i < l->num_tensors; i++) {
        char stem[96], name[160];
        layout_tensor_name(&l->tensors[i], true, stem);
        if (is_excluded(exclude, stem)) continue;
        snprintf(name, sizeof name, "%s%s", stem, suffix);
        TRY(model_files_open_tensor(files, &l->tensors[i], name, &readers[i]));
    }
    return STATUS_OK;
}

/* Reads a run of this rank's shard into a flat buffer. */
static enum status read_run(struct tensor_reader *r, const struct shard_run *p,
                            const struct store *to)
{
    enum { CHUNK = 1 << 20 };
    if (!to->low && !queue_device_allocator(to->queue))
        return tensor_reader_read(r, p->first, p->count, to->dtype,
                                  (char *)to->x + p->at * dtype_bytes(to->dtype));
    float *run = heap((p->count < CHUNK ? p->count : CHUNK) * sizeof *run);
    enum status st = STATUS_OK;
    for (size_t done = 0, n; done < p->count; done += n) {
        n = p->count - done < CHUNK ? p->count - done : CHUNK;
        TRY_OUT(tensor_reader_read(r, p->first + done, n, F32, run));
        TRY_OUT(store_write(to, p->at + done, n, run));
    }
out:
    free(run);
    return st;
}

/* Loads this rank's shard of the tensors whose names end in `suffix`. */
static enum status load_buffer(const struct model_files *files, const struct checkpoint_state *s,
                               const char *suffix, const struct option_list *exclude,
                               struct store flat)
{
    struct tensor_reader *all = heap((size_t)s->layout->num_tensors * sizeof *all), *last = NULL;
    enum status st = STATUS_OK;
    TRY_OUT(open_tensors(files, s->layout, suffix, exclude, all));
    for (size_t i = 0; i < s->shard->count; i++) {
        const struct shard_run *p = &s->shard->runs[i];
        struct tensor_reader *r = &all[p->tensor];
        if (!tensor_reader_is_open(r)) continue;
        if (last && last != r) tensor_reader_close(last);
        last = r;
        TRY_OUT(read_run(r, p, &flat));
    }
    if (last) tensor_reader_close(last);
out:
    free(all);
    return st;
}

static enum status load_moments(const struct model_files *files, const struct checkpoint_state *s,
                                const struct option_list *exclude)
{
    TRY(load_buffer(files, s, ".exp_avg", exclude, checkpoint_moment(s, s->exp_avg)));
    TRY(load_buffer(files, s, ".exp_avg_sq", exclude, checkpoint_moment(s, s->exp_avg_sq)));
    return STATUS_OK;
}

/* Reads step and trainer's state from state.json, or from torch files. */
static enum status load_state(const char *folder, const struct torch_state *torch,
                              struct checkpoint_found *found)
{
    TRY(torch_state_or_file(torch, folder, &found->state));
    TRY(json_get_int(found->state, "step", 0, INT64_C(1) << 53, &found->step));
    const struct json *train = json_get(found->state, "train");
    found->train = json_is_object(train) ? train : NULL;
    return STATUS_OK;
}

/* A checkpoint of ours has a manifest. */
static enum status find_manifest(const char *folder, int64_t *native)
{
    char *manifest = file_join(folder, MANIFEST_NAME), *state = file_join(folder, "state.json");
    enum status st = STATUS_OK;
    *native = file_exists(manifest);
    if (!*native && file_exists(state))
        FAIL_OUT(DATA, "%s: incomplete checkpoint: %s is missing", folder, MANIFEST_NAME);
out:
    free(manifest), free(state);
    return st;
}

enum status checkpoint_check_native(const char *folder, const struct comm *world, bool *native)
{
    int64_t answer = 0;
    enum status st = world->rank == 0 ? find_manifest(folder, &answer) : STATUS_OK;
    TRY(comm_agree(world, st));
    TRY(comm_broadcast_bytes(world, 0, &answer, sizeof answer));
    *native = answer;
    if (!*native) return STATUS_OK;
    st = manifest_verify_part(folder, world->rank, world->size);
    TRY(comm_agree(world, st));
    return STATUS_OK;
}

static bool is_same_scaling(const struct rope_scaling *a, const struct rope_scaling *b)
{
    double off = fabs(a->factor - b->factor) +
                 fabs(a->low_frequency_factor - b->low_frequency_factor) +
                 fabs(a->high_frequency_factor - b->high_frequency_factor);
    return off <= 0 && a->original_context == b->original_context;
}

/* Tensors may have the same shapes with other heads, which is another model.  Another RoPE may be
 * intended, for longer contexts. */
static enum status compare_shapes(const char *folder, const struct checkpoint_state *s)
{
    const struct model_shape *model = s->shape;
    struct model_shape has;
    if (torch_files_detect(folder) && !torch_files_have_shape(folder)) return STATUS_OK;
    TRY(checkpoint_read_shape(folder, &has));
    if (has.H != model->H || has.G != model->G || has.K != model->K)
        FAIL(CONFIG,
             "%s: saved with %d heads of size %d, %d key/value heads; this model has %d of size "
             "%d, and %d",
             folder, has.H, has.K, has.G, model->H, model->K, model->G);
    if (s->world->rank > 0) return STATUS_OK; /* one warning is enough */
    const struct rope_scaling *a = &has.scaling, *b = &model->scaling;
    if (has.rope_theta < model->rope_theta || has.rope_theta > model->rope_theta ||
        !is_same_scaling(a, b))
        log_line(LOG_WARN,
                 "%s: saved with RoPE base %g and scaling factor %g over %d tokens; this model has "
                 "%g and %g over %d",
                 folder, has.rope_theta, a->factor, a->original_context, model->rope_theta,
                 b->factor, b->original_context);
    if (has.norm_eps < model->norm_eps || has.norm_eps > model->norm_eps)
        log_line(LOG_WARN, "%s: saved with norm_eps %g; this model has %g", folder, has.norm_eps,
                 model->norm_eps);
    return STATUS_OK;
}

/* Checked first: the usual mistake when fine-tuning with another tokenizer. */
static enum status check_vocabulary(const struct model_files *files, const char *folder,
                                    const struct checkpoint_state *s,
                                    const struct option_list *exclude)
{
    static const char embed[] = "model.embed_tokens.weight";
    struct model_tensor t;
    if (is_excluded(exclude, embed) || !model_files_named(files, embed, &t)) return STATUS_OK;
    if (t.is.num_dims != 2 || t.is.shape[1] != s->shape->D || t.is.shape[0] == s->shape->V)
        return STATUS_OK;
    FAIL(CONFIG,
         "%s: saved with a vocabulary of %lld tokens (rows of %s); this model has %d: set "
         "model.vocab_size or use its tokenizer",
         folder, (long long)t.is.shape[0], embed, s->shape->V);
}

/* Loads moments and training state.  Torch files without moments have neither. */
static enum status load_training_state(const char *folder, const struct checkpoint_state *state,
                                       bool native, const struct option_list *exclude,
                                       struct checkpoint_found *found)
{
    struct model_files moments = {0};
    struct torch_state torch;
    enum status st = STATUS_OK;
    torch_state_init(&torch);
    if (!native && nxdt_files_have_optimizer(folder))
        FAIL_OUT(UNSUPPORTED,
                 "%s: NxD Training's optimizer state (ZeRO-1 shards in optim/) is not supported: "
                 "load only the weights with checkpoint.initial_load_model_only=true",
                 folder);
    TRY_OUT(model_files_open_moments_any(&moments, folder, state->shape, &torch));
    found->has_moments = !model_files_are_empty(&moments);
    if (!native && !found->has_moments) goto out;
    TRY_OUT(load_state(folder, &torch, found));
    if (!native && state->world->rank == 0) torch_state_log(&torch, folder);
    if (state->exp_avg && found->has_moments && !is_excluded(exclude, "optimizer"))
        TRY_OUT(load_moments(&moments, state, exclude));
out:
    torch_state_release(&torch);
    model_files_close(&moments);
    return st;
}

/* On this rank alone. */
static enum status load_on_rank(const char *folder, const struct checkpoint_state *state,
                                bool native, const struct option_list *exclude,
                                struct checkpoint_found *found)
{
    struct model_files files = {0};
    enum status st = STATUS_OK;
    TRY_OUT(model_files_open_any(&files, folder, state->shape));
    TRY_OUT(model_files_check(&files, state->layout, state->shape->tied));
    TRY_OUT(check_vocabulary(&files, folder, state, exclude));
    TRY_OUT(load_buffer(&files, state, "", exclude, checkpoint_weights(state)));
    TRY_OUT(compare_shapes(folder, state));
    if (native || state->exp_avg)
        TRY_OUT(load_training_state(folder, state, native, exclude, found));
out:
    model_files_close(&files);
    return st;
}

enum status checkpoint_load(const char *folder, struct checkpoint_state *state,
                            const struct option_list *exclude, struct checkpoint_found *found)
{
    bool native;
    *found = (struct checkpoint_found){0};
    TRY(checkpoint_check_native(folder, state->world, &native));
    enum status st = comm_agree(state->world, load_on_rank(folder, state, native, exclude, found));
    if (!st) return STATUS_OK;
    json_free(found->state);
    *found = (struct checkpoint_found){0};
    return st;
}

static enum status load_weights_on_rank(const char *folder, const struct checkpoint_state *state,
                                        enum dtype dtype, void *weights)
{
    struct model_files files = {0};
    struct store to = {.x = weights, .dtype = dtype, .queue = state->queue};
    enum status st = STATUS_OK;
    TRY_OUT(model_files_open_any(&files, folder, state->shape));
    TRY_OUT(model_files_check(&files, state->layout, state->shape->tied));
    TRY_OUT(load_buffer(&files, state, "", NULL, to));
    TRY_OUT(compare_shapes(folder, state));
out:
    model_files_close(&files);
    return st;
}

enum status checkpoint_load_weights(const char *folder, const struct checkpoint_state *state,
                                    enum dtype dtype, void *weights)
{
    TRY(checkpoint_check_native(folder, state->world, &(bool){false}));
    TRY(comm_agree(state->world, load_weights_on_rank(folder, state, dtype, weights)));
    return STATUS_OK;
}

enum status checkpoint_verify(const char *folder)
{
    struct model_files files;
    TRY(manifest_verify(folder, NULL));
    TRY(model_files_open(&files, folder));
    model_files_close(&files);
    TRY(model_files_open_moments(&files, folder));
    model_files_close(&files);
    return STATUS_OK;
}
