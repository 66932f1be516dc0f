// SPDX-License-Identifier: Apache-2.0
#include "infer/loaded_model.h"

#include "base/file.h"
#include "base/log.h"
#include "base/signals.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "checkpoint/interop/model_files.h"
#include "checkpoint/manifest.h"
#include "config/data_stages.h"
#include "hub/hub.h"
#include "infer/objective.h"
#include "parallel/fit.h"
#include "tensor/device.h"
#include "tensor/queue.h"
#include "train/rank_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum status loaded_model_find_step(const char *path, int64_t step, const struct comm *world,
                                   char **folder)
{
    char *local = NULL;
    *folder = NULL;
    TRY(hub_fetch(path, HUB_WEIGHTS, world));
    enum status st = comm_agree(world, hub_find(path, &local));
    if (!st) st = checkpoint_locate(local, step, world, folder);
    free(local);
    return st;
}

enum status loaded_model_find(const char *path, const struct comm *world, char **folder)
{
    TRY(loaded_model_find_step(path, -1, world, folder));
    return STATUS_OK;
}

/* The settings of the command line that a loaded model uses. */
static bool is_used(const char *setting)
{
    static const char *const keys[] = {"data.",
                                       "objective.",
                                       "tokenizer.",
                                       "device.",
                                       "parallelism.",
                                       "comm.",
                                       "debug.",
                                       "config.",
                                       "training.seq_len=",
                                       "model.attn_mask_type=",
                                       "training.mixed_precision_param="};
    static const char *const idle[] = {
        "data.tokenizer=", "data.order=",    "data.validation_share=", "data.column=",
        "data.stage.",     "data.samples=",  "data.sampler",           "data.split=",
        "data.blend=",     "data.prefetch=", "data.accept_changed="};
    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++)
        if (!strncmp(setting, idle[i], strlen(idle[i]))) return false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strncmp(setting, keys[i], strlen(keys[i]))) return true;
    return false;
}

static bool names_tokenizer(const char *setting)
{
    static const char *const keys[] = {
        "data.tokenizer=", "model.tokenizer_path=", "model.hf_assets_path="};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strncmp(setting, keys[i], strlen(keys[i]))) return true;
    return false;
}

static enum status check_settings(const struct loaded_model_options *o)
{
    for (int i = 0; i < o->num_settings; i++) {
        const char *setting = o->settings[i];
        bool is_model = !strncmp(setting, "model.", 6);
        if (names_tokenizer(setting))
            FAIL(USAGE, "%s has no effect here; did you mean --tokenizer %s?", setting,
                 strchr(setting, '=') + 1);
        if (!is_used(setting))
            FAIL(USAGE, "%s has no effect here: %s", setting,
                 is_model ? "a saved model has the sizes and constants of its config.json"
                 : !strncmp(setting, "data.", 5)
                     ? "the arguments name the data, which are read in order"
                     : "expected a key of [data], [objective], [tokenizer], [device], "
                       "[parallelism], [comm] or [debug], or training.seq_len, "
                       "training.mixed_precision_param or model.attn_mask_type");
    }
    return STATUS_OK;
}

static bool sets(const struct loaded_model_options *o, const char *key)
{
    size_t len = strlen(key);
    for (int i = 0; i < o->num_settings; i++)
        if (!strncmp(o->settings[i], key, len) && o->settings[i][len] == '=') return true;
    return false;
}

/* Whether config.json says that the weights are float32, as "dtype" or, before Transformers 4.56,
 * "torch_dtype". */
static bool folder_is_float32(const char *folder)
{
    char *path = file_join(folder, "config.json");
    struct json *root = NULL;
    bool is_float32 = false;
    if (!json_read(path, 1 << 20, &root) && json_is_object(root)) {
        const struct json *dtype = json_get(root, "dtype");
        if (!dtype) dtype = json_get(root, "torch_dtype");
        is_float32 = json_string_is(dtype, "float32");
    }
    json_free(root);
    free(path);
    return is_float32;
}

/* The configuration saved in the checkpoint, if any, with the settings of the command line; and
 * the objective that the folder's other files name.  A model of another program is computed in
 * float32 if its weights are float32. */
static enum status open_config(struct loaded_model *l, const struct loaded_model_options *o)
{
    char *toml = file_join(l->folder, "config.toml");
    l->has_config = file_exists(toml);
    enum status st =
        config_load(&l->config, l->has_config ? toml : NULL, o->settings, o->num_settings);
    free(toml);
    l->config_is_open = true;
    TRY(st); /* keys that do not exist, first */
    TRY(check_settings(o));
    if (!l->has_config && !sets(o, "training.mixed_precision_param") &&
        folder_is_float32(l->folder))
        l->config.training.mixed_precision_param = COMPUTE_DTYPE_float32;
    struct text objective = {0};
    st = objective_resolve(&l->config, l->folder, NULL, &objective);
    if (!st && objective.len && l->machine.world.rank == 0)
        log_line(LOG_INFO, "objective: %s", objective.data);
    text_release(&objective);
    return st;
}

/* Whether the command line sets a parallel degree, instead of leaving the run's layout. */
static bool requests_layout(const char *const *settings, int num_settings)
{
    for (int i = 0; i < num_settings; i++) {
        const char *key = strstr(settings[i], "degree"), *value = strchr(settings[i], '=');
        if (key && key < value) return true;
    }
    return false;
}

void loaded_model_choose_layout(struct parallelism_config *p, bool requested, int ranks)
{
    struct mesh mesh;
    int64_t *shard = &p->data_parallel_shard_degree;
    if (*shard > 0) *shard *= p->pipeline_parallel_degree * p->context_parallel_degree;
    p->pipeline_parallel_degree = p->context_parallel_degree = 1;
    if (requested || !mesh_resolve(&mesh, p, 0, ranks)) return;
    *shard = -1, p->data_parallel_replicate_degree = p->tensor_parallel_degree = 1;
    if (ranks > 1)
        log_line(LOG_INFO,
                 "the run's parallel layout does not match %d ranks: sharding the weights over all "
                 "of them (FSDP)",
                 ranks);
}

static bool is_of_command_line(const struct config *c, const char *key)
{
    return !strcmp(config_key_origin(c, key), "command line");
}

static enum status open_machine(struct loaded_model *l, bool requested)
{
    struct parallelism_config p = l->config.parallelism;
    if (is_of_command_line(&l->config, "parallelism.data_parallel_shard_degree")) {
        /* It counts all FSDP ranks: those of the run's stages and contexts do not come on top. */
        if (!is_of_command_line(&l->config, "parallelism.pipeline_parallel_degree"))
            p.pipeline_parallel_degree = 1;
        if (!is_of_command_line(&l->config, "parallelism.context_parallel_degree"))
            p.context_parallel_degree = 1;
    }
    loaded_model_choose_layout(&p, requested, l->machine.world.size);
    TRY(machine_open_ranks(&l->machine, &l->config.device, &p));
    return STATUS_OK;
}

/* Whether the step in which a stage begins depends on the number of ranks, which no checkpoint
 * records. */
static bool stages_depend_on_ranks(const struct config *c)
{
    bool any = false;
    for (size_t i = 0; i < c->data.num_stages; i++) any |= c->data.stages[i].at_tokens > 0;
    return any && c->training.global_batch_size < 0;
}

/* The step after which the weights were saved; -1: unknown.  A conversion to DCP has the run's
 * config.toml but no manifest; its step is in its training state.  Of the model only, to which
 * someone added a config.toml, the name may be step-N. */
static enum status find_step(const char *folder, int64_t *step)
{
    struct model_files moments = {0};
    struct model_shape shape;
    struct torch_state torch;
    enum status st = STATUS_OK;
    if (file_exists_in(folder, "manifest.json")) {
        TRY(manifest_check(folder, step));
        return STATUS_OK;
    }
    torch_state_init(&torch);
    TRY_OUT(checkpoint_read_shape(folder, &shape));
    TRY_OUT(model_files_open_known_moments(&moments, folder, &shape, &torch));
    *step = torch.step >= 0 ? torch.step : folder_path_step(folder);
out:
    model_files_close(&moments);
    torch_state_release(&torch);
    return st;
}

/* Warns of what `stage` was guessed from, where the step or the run's ranks are unknown. */
static void warn_of_guess(const struct loaded_model *l, int64_t step, size_t stage)
{
    bool by_ranks = stages_depend_on_ranks(&l->config);
    struct text why = {0};
    if (step < 0)
        text_adds(&why, "the step is unknown, because the folder has no training state and is not "
                        "named step-N; assuming the run's last step");
    if (by_ranks)
        text_addf(&why,
                  "%sdata.stage.N.at_tokens with training.global_batch_size = -1 depends on the "
                  "run's ranks, which are unknown; assuming as many as now",
                  why.len ? "; " : "");
    if (why.len)
        log_line(LOG_WARN,
                 "%s: %s; the rows are those of data stage %zu: set training.seq_len and "
                 "model.attn_mask_type for others",
                 l->folder, why.data, stage);
    text_release(&why);
}

/* Sets the length of rows and the mask to those of the data stage of the run's last step. */
static enum status apply_stage(struct loaded_model *l, const struct loaded_model_options *o)
{
    struct config *c = &l->config;
    struct data_stage stage;
    int64_t step;
    if (!c->data.num_stages) return STATUS_OK;
    TRY(find_step(l->folder, &step));
    int64_t last = step < 0 ? c->training.steps : step;
    size_t index = data_stages_find(c, &l->machine.mesh, last > 0 ? last - 1 : 0);
    if (!sets(o, "training.seq_len") && !l->machine.world.rank) warn_of_guess(l, step, index);
    data_stages_open(&stage, c, &l->machine.mesh, index);
    if (!sets(o, "training.seq_len")) c->training.seq_len = stage.config.training.seq_len;
    if (!sets(o, "model.attn_mask_type"))
        c->model.attn_mask_type = stage.config.model.attn_mask_type;
    data_stages_close(&stage);
    return STATUS_OK;
}

/* Whether both have the same text for every ID, whatever files they were read from. */
static bool is_same_tokenizer(const struct tokenizer *a, const struct tokenizer *b)
{
    struct text x = {0}, y = {0};
    int32_t count = tokenizer_vocab_size(a);
    bool same = count == tokenizer_vocab_size(b);
    if (tokenizer_hash(a) == tokenizer_hash(b)) return true;
    for (int32_t id = 0; id < count && same; id++) {
        text_clear(&x), text_clear(&y);
        same = tokenizer_decode_part(a, &id, 1, &x) == tokenizer_decode_part(b, &id, 1, &y);
        same = same && x.len == y.len && (!x.len || !memcmp(x.data, y.data, x.len));
    }
    text_release(&x), text_release(&y);
    return same;
}

/* The loss of text in another tokenizer's IDs means nothing. */
static enum status compare_tokenizers(const struct loaded_model *l, const char *given)
{
    struct tokenizer *own = NULL;
    int count = tokenizer_vocab_size(l->tokenizer);
    if (l->machine.world.rank) return STATUS_OK;
    if (tokenizer_is_in(l->folder)) {
        TRY(tokenizer_open(&own, l->folder, &l->config.tokenizer));
        if (!is_same_tokenizer(own, l->tokenizer))
            log_line(LOG_WARN,
                     "--tokenizer %s: not the model's own, which is in %s: the model was trained "
                     "on other IDs",
                     given, l->folder);
        tokenizer_close(own);
    } else if (10LL * count < 9LL * l->shape.V) {
        log_line(LOG_WARN,
                 "--tokenizer %s: has %d tokens, but the model's vocabulary %d: the model was "
                 "probably trained with another one",
                 given, count, l->shape.V);
    }
    return STATUS_OK;
}

/* A folder without config.toml only names the longest row that the model supports. */
static void limit_rows(struct loaded_model *l, const struct loaded_model_options *o)
{
    int64_t *seq_len = &l->config.training.seq_len, longest = l->shape.max_context;
    if (l->has_config || sets(o, "training.seq_len")) return;
    if (longest > 0 && longest < *seq_len) *seq_len = longest;
}

/* A run that starts from other weights may have been trained on longer rows before; dynamic RoPE is
 * for contexts beyond those of training. */
static void find_context(struct loaded_model *l, const struct loaded_model_options *o)
{
    const struct model_shape *s = &l->shape;
    bool is_own = !l->config.checkpoint.initial_load_path[0] && !sets(o, "training.seq_len");
    bool has_rows = l->has_config && is_own;
    bool is_dynamic = s->scaling.factor > 0 && s->scaling.method == ROPE_dynamic;
    l->context = has_rows ? l->config.training.seq_len : is_dynamic ? 0 : s->max_context;
    l->context_key = has_rows ? "training.seq_len" : "max_position_embeddings";
}

void loaded_model_warn_context(const struct loaded_model *l, int64_t tokens)
{
    if (l->context > 0 && tokens > l->context && !l->machine.world.rank)
        log_line(LOG_WARN,
                 "a context of up to %lld tokens is longer than the %lld that %s was trained on "
                 "(%s): results beyond them may be poor",
                 (long long)tokens, (long long)l->context, l->folder, l->context_key);
}

static void find_gaps(struct loaded_model *l)
{
    for (int32_t id = 0; id < tokenizer_vocab_size(l->tokenizer); id++) {
        if (tokenizer_has(l->tokenizer, id)) continue;
        token_list_reserve(&l->gaps, 1);
        l->gaps.ids[l->gaps.count++] = id;
    }
}

/* Opens the tokenizer and reads the shape; checks that they match each other and the mesh. */
static enum status open_shape(struct loaded_model *l, const struct loaded_model_options *o)
{
    const struct mesh *mesh = &l->machine.mesh;
    const char *tokenizer = o->tokenizer, *path = tokenizer[0] ? tokenizer : l->folder;
    if (tokenizer[0] || tokenizer_is_in(path))
        TRY(tokenizer_open(&l->tokenizer, path, &l->config.tokenizer));
    TRY(checkpoint_read_shape(l->folder, &l->shape));
    limit_rows(l, o);
    find_context(l, o);
    if (l->tokenizer && tokenizer_vocab_size(l->tokenizer) > l->shape.V)
        FAIL(CONFIG, "%s: the tokenizer has %d tokens, but the model's vocabulary only %d",
             tokenizer_path(l->tokenizer), tokenizer_vocab_size(l->tokenizer), l->shape.V);
    if (tokenizer[0]) TRY(compare_tokenizers(l, tokenizer));
    find_gaps(l);
    /* Without sequence parallelism any row length works, so check only the smallest. */
    struct fit f = {.mesh = mesh,
                    .shape = &l->shape,
                    .section = "training",
                    .seq_len = mesh->degree[AXIS_tp],
                    .local_batch_size = 1,
                    .micro_batch_size = 1};
    TRY(fit_check(&f));
    return STATUS_OK;
}

/* Allocates this rank's shard of the model; with a sizing arena, only adds up its size. */
static enum status alloc_model(struct loaded_model *l, int max_tokens)
{
    const struct parallelism_config *p = &l->config.parallelism;
    const struct comm *groups = l->machine.groups.of, *shard = &groups[GROUP_shard];
    struct model_shape here =
        model_shape_slice(&l->shape, groups[GROUP_tp].rank, groups[GROUP_tp].size);
    enum dtype dtype = training_compute_dtype(&l->config.training);
    l->stage = layout_whole_stage(&l->shape);
    l->model.queue = l->machine.queue;
    TRY(model_init(&l->model, &here, max_tokens, shard->size, &l->run));
    plan_init_tensor(&l->plan, &groups[GROUP_tp], false);
    l->fsdp = (struct fsdp){
        .layout = &l->model.layout,
        .shard = shard,
        .replicate = &groups[GROUP_replicate],
        .ops = l->machine.ops,
        .queue = l->machine.queue,
        .dtype = dtype,
        .tied = l->shape.tied,
        .keep = p->fsdp_reshard_after_forward == FSDP_RESHARD_never || !p->fsdp_shard_gradients,
        .forward_only = true,
    };
    fsdp_alloc(&l->fsdp, &l->run);
    l->weights = arena_alloc(&l->run, fsdp_shard_elements(&l->fsdp), dtype_bytes(dtype));
    if (l->run.overflow) FAIL(DATA, "%s: the model's size overflows 64 bits", l->folder);
    l->fsdp.weights = l->weights;
    l->model.ops = l->machine.ops, l->model.plan = &l->plan.plan;
    l->model.dtype = dtype, l->model.units = &l->fsdp.units;
    return STATUS_OK;
}

static enum status open_model(struct loaded_model *l, int max_tokens)
{
    TRY(alloc_model(l, max_tokens));
    size_t bytes = l->run.used;
    fsdp_release(&l->fsdp);
    model_release(&l->model);
    TRY(arena_init(&l->run, bytes, queue_device_allocator(l->machine.queue)));
    TRY(alloc_model(l, max_tokens));
    return STATUS_OK;
}

static enum status load_weights(struct loaded_model *l, const struct loaded_model_options *o)
{
    const struct comm *groups = l->machine.groups.of, *shard = &groups[GROUP_shard];
    struct layout whole;
    struct shard here;
    layout_init(&whole, &l->shape, 1);
    shard_init_sliced(&here, &l->model.layout, &whole,
                      (struct shard_position){shard->rank, shard->size, groups[GROUP_tp].rank,
                                              groups[GROUP_tp].size});
    struct checkpoint_state state = {.shape = &l->shape,
                                     .layout = &whole,
                                     .shard = &here,
                                     .world = &groups[GROUP_world],
                                     .queue = l->machine.queue,
                                     .loads_ema = o->ema};
    enum status st = checkpoint_load_weights(l->folder, &state, l->model.dtype, l->weights);
    shard_release(&here);
    layout_release(&whole);
    TRY(st);
    return STATUS_OK;
}

enum status loaded_model_open(struct loaded_model *l, const struct loaded_model_options *o)
{
    const struct comm *world = &l->machine.world;
    TRY(loaded_model_find(o->path, world, &l->folder));
    TRY(comm_agree(world, open_config(l, o)));
    TRY(rank_check_config(&l->config, world));
    TRY(open_machine(l, requests_layout(o->settings, o->num_settings)));
    TRY(comm_agree(world, apply_stage(l, o)));
    TRY(hub_fetch(o->tokenizer, HUB_TOKENIZER, world));
    TRY(comm_agree(world, open_shape(l, o)));
    int max_tokens = o->max_tokens < 0 ? l->shape.max_context : o->max_tokens;
    if (max_tokens <= 0) max_tokens = (int)l->config.training.seq_len;
    TRY(comm_agree(world, open_model(l, max_tokens)));
    TRY(checkpoint_advise(l->folder, load_weights(l, o)));
    return STATUS_OK;
}

void loaded_model_close(struct loaded_model *l, enum status how)
{
    fsdp_release(&l->fsdp);
    model_release(&l->model);
    arena_release(&l->step);
    arena_release(&l->run);
    if (l->machine.queue) arena_release(&l->machine.queue->scratch);
    machine_close_ranks(&l->machine, how);
    tokenizer_close(l->tokenizer);
    token_list_release(&l->gaps);
    if (l->config_is_open) config_release(&l->config);
    free(l->folder);
}

int loaded_model_mask_logits(const struct loaded_model *l, float *logits_V)
{
    int V = l->shape.V, known = l->tokenizer ? tokenizer_vocab_size(l->tokenizer) : V;
    for (size_t i = 0; i < l->gaps.count; i++) logits_V[l->gaps.ids[i]] = -INFINITY;
    return known < V ? known : V;
}

enum status loaded_model_write_text(const struct loaded_model *l, const int32_t *ids, size_t count,
                                    const char *key, struct json_writer *w)
{
    struct text bytes = {0};
    enum status st = tokenizer_decode_part(l->tokenizer, ids, count, &bytes);
    for (size_t i = 0; i < bytes.len; i++) /* a NUL would end the string */
        if (!bytes.data[i]) bytes.data[i] = '\xFF';
    if (!st) json_write_string(w, key, bytes.len ? bytes.data : "");
    text_release(&bytes);
    return st;
}

struct pipeline loaded_model_pipeline(const struct loaded_model *l)
{
    return (struct pipeline){.model = &l->model,
                             .group = &l->machine.groups.of[GROUP_pp],
                             .stages = &l->stage,
                             .schedule = {.pp = 1, .chunks = 1}};
}

enum status loaded_model_alloc_step(struct loaded_model *l, enum status (*forward)(void *context),
                                    void *context)
{
    struct queue *queue = l->machine.queue;
    arena_release(&queue->scratch);
    arena_release(&l->step);
    queue->sizing = true;
    enum status st = forward(context);
    queue->sizing = false;
    TRY(st);
    size_t step = l->step.peak, scratch = queue->scratch.peak;
    TRY(arena_init(&l->step, step, queue_device_allocator(queue)));
    TRY(arena_init(&queue->scratch, scratch, queue_device_allocator(queue)));
    return STATUS_OK;
}

void loaded_model_raise_signal(const struct loaded_model *l)
{
    if (l->machine.world.size <= 1) signals_raise_pending();
}
