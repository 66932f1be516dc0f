// SPDX-License-Identifier: Apache-2.0
#include "base/activity.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/interop/hf_config.h"
#include "checkpoint/interop/model_files.h"
#include "checkpoint/interop/nxdt.h"
#include "checkpoint/interop/torch_files.h"
#include "checkpoint/manifest.h"
#include "checkpoint/tensor_origins.h"
#include "model/value_check.h"
#include "tensor/device.h"
#include "tensor/queue.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* `model` has the sizes that a partial model's tensors do not determine; NULL: all tensors are
 * required. */
static enum status read_shape(const char *path, const struct model_shape *model,
                              struct model_shape *shape)
{
    char *config = file_join(path, "config.json");
    bool foreign = !file_exists(config) && torch_files_detect(path);
    enum status st =
        foreign ? torch_files_shape(path, model, shape) : hf_config_read(config, shape);
    free(config);
    return st;
}

static const char head[] = "lm_head.weight", embed[] = "model.embed_tokens.weight";

/* Whether the files have a head whose values are not those of the embedding. */
static enum status find_own_head(const struct model_files *files, bool *found)
{
    enum { CHUNK = 1 << 18 };
    struct model_tensor input = {0}, own = {0};
    float *x = heap(CHUNK * sizeof *x), *y = heap(CHUNK * sizeof *y);
    enum status st = STATUS_OK;
    bool has_input = model_files_named(files, embed, &input);
    bool has_own = model_files_named(files, head, &own), has_both = has_input && has_own;
    *found = has_both && input.is.elements != own.is.elements;
    for (uint64_t at = 0, n; has_both && !*found && at < own.is.elements; at += n) {
        n = own.is.elements - at < CHUNK ? own.is.elements - at : CHUNK;
        TRY_OUT(tensor_reader_read(&input.reader, at, n, F32, x));
        TRY_OUT(tensor_reader_read(&own.reader, at, n, F32, y));
        *found = memcmp(x, y, n * sizeof *x) != 0;
    }
out:
    if (has_input) tensor_reader_close(&input.reader);
    if (has_own) tensor_reader_close(&own.reader);
    free(x), free(y);
    return st;
}

/* Files that cannot be opened are reported when they are loaded. */
static bool has_own_head(const char *path, const struct model_shape *shape)
{
    struct model_files files = {0};
    bool found = false;
    if (model_files_open_any(&files, path, shape) || find_own_head(&files, &found)) found = false;
    model_files_close(&files);
    return found;
}

enum status checkpoint_read_shape(const char *path, struct model_shape *shape)
{
    TRY(read_shape(path, NULL, shape));
    if (!shape->tied || !has_own_head(path, shape)) return STATUS_OK;
    shape->tied = false; /* as Transformers does */
    log_line(LOG_WARN,
             "%s: %s differs from the embedding, although \"tie_word_embeddings\" is true: it is "
             "used, and the model is not tied",
             path, head);
    return STATUS_OK;
}

/* Checks what was just read of a tensor: elements [run->first, run->first + n). */
static enum status check_values(const struct tensor_origins *o, const struct shard_run *run,
                                enum value_kind kind, enum dtype dtype, const void *x)
{
    size_t bad = value_check_find(kind, dtype, x, run->count);
    if (bad == run->count) return STATUS_OK;
    float value = dtype == F32 ? ((const float *)x)[bad] : bf16_to_f32(((const bf16 *)x)[bad]);
    return value_check_fail(STATUS_DATA, o->files->folder,
                            &(struct bad_element){.kind = kind,
                                                  .tensor = &o->layout->tensors[run->tensor],
                                                  .element = run->first + bad,
                                                  .value = (double)value});
}

/* Reads a run of this rank's shard into a flat buffer, and checks the values while they are in the
 * cache. */
static enum status read_run(struct tensor_origins *o, const struct shard_run *p,
                            enum value_kind kind, const struct store *to)
{
    enum { CHUNK = 1 << 18 };
    bool direct = !to->low && to->dtype != INT8 && !queue_device_allocator(to->queue);
    enum dtype dtype = direct ? to->dtype : F32;
    float *staging = direct ? NULL : heap((p->count < CHUNK ? p->count : CHUNK) * sizeof *staging);
    enum status st = STATUS_OK;
    for (size_t done = 0, n; done < p->count; done += n) {
        n = p->count - done < CHUNK ? p->count - done : CHUNK;
        struct shard_run part = {p->tensor, p->first + done, n, p->at + done};
        void *x = direct ? (char *)to->x + part.at * dtype_bytes(dtype) : (void *)staging;
        TRY_OUT(tensor_reader_read(&o->readers[p->tensor], part.first, n, dtype, x));
        TRY_OUT(check_values(o, &part, kind, dtype, x));
        if (!direct) TRY_OUT(store_write(to, part.at, n, staging));
    }
out:
    free(staging);
    return st;
}

/* Fills this rank's shard of the tensors that have an origin in the files. */
static enum status load_buffer(struct tensor_origins *o, const struct shard *shard,
                               enum value_kind kind, struct store flat)
{
    struct tensor_reader *last = NULL;
    for (size_t i = 0; i < shard->count; i++) {
        const struct shard_run *p = &shard->runs[i];
        struct tensor_reader *r = &o->readers[p->tensor];
        if (!tensor_reader_is_open(r)) continue;
        if (last && last != r) tensor_reader_close(last);
        last = r;
        TRY(read_run(o, p, kind, &flat));
        activity_tick_io();
    }
    if (last) tensor_reader_close(last);
    return STATUS_OK;
}

static enum status load_moment(const struct model_files *files, const struct checkpoint_state *s,
                               enum tensor_kind kind, const struct tensor_rules *rules)
{
    struct tensor_origins o;
    bool is_first = kind == TENSOR_EXP_AVG;
    struct store to = is_first ? checkpoint_exp_avg(s) : checkpoint_exp_avg_sq(s);
    TRY(tensor_origins_find(&o, files, s->layout, tensor_name_suffix(kind), rules));
    enum status st = load_buffer(&o, s->shard, is_first ? VALUE_EXP_AVG : VALUE_EXP_AVG_SQ, to);
    tensor_origins_release(&o);
    return st;
}

/* Loads the weights' moving average, if the folder has it. */
static enum status load_ema(const char *folder, const struct checkpoint_state *s,
                            const struct tensor_rules *rules, bool *found)
{
    struct model_files files;
    struct tensor_origins o = {0};
    TRY(model_files_open_ema(&files, folder));
    enum status st = STATUS_OK;
    *found = !model_files_are_empty(&files);
    if (!*found) goto out;
    TRY_OUT(tensor_origins_find(&o, &files, s->layout, "", rules));
    TRY_OUT(load_buffer(&o, s->shard, VALUE_EMA, checkpoint_ema(s)));
out:
    tensor_origins_release(&o);
    model_files_close(&files);
    return st;
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

/* Tensors may have the same shapes with other heads, which is another model.  Another RoPE may be
 * intended, for longer contexts. */
static enum status compare_shapes(const char *folder, const struct model_shape *has,
                                  const struct model_shape *model, bool log)
{
    if (has->H != model->H || has->G != model->G || has->K != model->K)
        FAIL(CONFIG,
             "%s: saved with %d heads of size %d, %d key/value heads; this model has %d of size "
             "%d, and %d: set model.n_heads, model.head_dim and model.n_kv_heads",
             folder, has->H, has->K, has->G, model->H, model->K, model->G);
    if (!log) return STATUS_OK;
    const struct rope_scaling *a = &has->scaling, *b = &model->scaling;
    if (has->rope_theta < model->rope_theta || has->rope_theta > model->rope_theta ||
        !rope_scaling_equals(a, b))
        log_line(LOG_WARN,
                 "%s: saved with RoPE base %g and scaling %s, factor %g over %d tokens; this model "
                 "has %g and %s, %g over %d",
                 folder, has->rope_theta, rope_method_name(a), a->factor, a->original_context,
                 model->rope_theta, rope_method_name(b), b->factor, b->original_context);
    if (has->window != model->window)
        log_line(LOG_WARN,
                 "%s: saved with a sliding window of %d tokens (0: none); this model has %d: see "
                 "model.sliding_window",
                 folder, has->window, model->window);
    if (has->norm_eps < model->norm_eps || has->norm_eps > model->norm_eps)
        log_line(LOG_WARN, "%s: saved with norm_eps %g; this model has %g", folder, has->norm_eps,
                 model->norm_eps);
    return STATUS_OK;
}

/* Checked first: the usual mistake when fine-tuning with another tokenizer. */
static enum status check_vocabulary(const struct model_files *files, const char *folder,
                                    const struct checkpoint_state *s,
                                    const struct option_list *exclude)
{
    struct model_tensor t;
    if (tensor_origins_excludes(exclude, embed) || !model_files_named(files, embed, &t))
        return STATUS_OK;
    if (t.is.num_dims != 2 || t.is.shape[1] != s->shape->D || t.is.shape[0] == s->shape->V)
        return STATUS_OK;
    FAIL(CONFIG,
         "%s: saved with a vocabulary of %lld tokens (rows of %s); this model has %d: set "
         "model.vocab_size or use its tokenizer, or keep the initial values with "
         "checkpoint.exclude_from_loading = [\"%s\", \"lm_head.weight\"]",
         folder, (long long)t.is.shape[0], embed, s->shape->V, embed);
}

/* The weights would compute something else. */
static enum status compare_extra(const char *folder, const struct model_shape *has,
                                 const struct model_shape *model)
{
    const struct {
        const char *key;
        double has, model;
    } of[] = {
        {"partial_rotary_factor", has->partial_rotary_factor, model->partial_rotary_factor},
        {"no_rope_layer_interval", has->no_rope_interval, model->no_rope_interval},
        {"embedding_multiplier", has->embedding_multiplier, model->embedding_multiplier},
        {"residual_multiplier", has->residual_multiplier, model->residual_multiplier},
        {"attention_multiplier", has->attention_multiplier, model->attention_multiplier},
        {"logits_scaling", has->logits_scaling, model->logits_scaling},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        if (!(of[i].has < of[i].model) && !(of[i].has > of[i].model)) continue;
        if (of[i].has > 0)
            FAIL(CONFIG, "%s: saved with another model.%s; set model.%s = %.9g", folder, of[i].key,
                 of[i].key, of[i].has);
        FAIL(CONFIG, "%s: saved without model.%s, which is %.9g here: remove it", folder, of[i].key,
             of[i].model);
    }
    return STATUS_OK;
}

/* A folder that was opened to load its weights. */
struct weights_source {
    const char *folder;
    struct model_files files;
    struct tensor_rules rules;
    struct tensor_origins origins;
    bool drops_head;     /* it has a head, and the model is tied */
    bool drops_own_head; /* that head is, or may be, different from the embedding */
};

/* A file's biases cannot be left out, as a bias that is missing in it can be initialized. */
static enum status compare_biases(const char *folder, const struct model_shape *has,
                                  const struct model_shape *s)
{
    if (has->qkv_bias > s->qkv_bias || has->out_bias > s->out_bias)
        FAIL(CONFIG, "%s: saved with biases of attention: set model.attention_bias = \"%s\"",
             folder, has->out_bias ? "all" : "qkv");
    if (has->mlp_bias && !s->mlp_bias)
        FAIL(CONFIG, "%s: saved with biases of the feed-forward layer: set model.mlp_bias = true",
             folder);
    return STATUS_OK;
}

/* Opens the files and compares names and shapes; reads no elements. */
static enum status open_source(struct weights_source *o, const char *folder,
                               const struct checkpoint_state *s, const struct load_rules *rules,
                               bool log)
{
    bool has_config = !torch_files_detect(folder) || torch_files_have_shape(folder);
    struct model_shape has = {.tied = true};
    struct model_tensor t;
    *o = (struct weights_source){.folder = folder};
    if (has_config) TRY(read_shape(folder, s->shape, &has));
    if (has.qk_norm && !s->shape->qk_norm)
        FAIL(CONFIG, "%s: saved with QK norm: set model.%s = true", folder,
             has.post_norm ? "post_norm" : "qk_norm");
    if (has_config && has.post_norm != s->shape->post_norm)
        FAIL(CONFIG,
             "%s: saved with norms %s attention and feed-forward layer: set model.post_norm = %s",
             folder, has.post_norm ? "behind" : "in front of", has.post_norm ? "true" : "false");
    TRY(compare_biases(folder, &has, s->shape));
    if (rules) TRY(tensor_origins_check_excluded(rules->exclude, s->layout));
    if (rules && !rules->resumes) o->rules.exclude = rules->exclude;
    if (rules) o->rules.partial = rules->partial;
    o->rules.tied = has.tied;
    TRY(s->loads_ema ? model_files_open_ema(&o->files, folder)
                     : model_files_open_any(&o->files, folder, s->shape));
    if (s->loads_ema && model_files_are_empty(&o->files))
        FAIL(MISSING,
             "%s: no moving average of the weights (ema-*.safetensors): train with "
             "optimizer.ema_decay, or leave out --ema",
             folder);
    TRY(model_files_check(&o->files, s->layout, s->shape->tied));
    TRY(check_vocabulary(&o->files, folder, s, o->rules.exclude));
    TRY(tensor_origins_find(&o->origins, &o->files, s->layout, "", &o->rules));
    if (tensor_origins_count(&o->origins, ORIGIN_MISSING) +
            tensor_origins_count(&o->origins, ORIGIN_EXCLUDED) ==
        s->layout->num_tensors)
        FAIL(DATA, "%s: none of its tensors would be loaded", folder);
    if (has_config) TRY(compare_extra(folder, &has, s->shape));
    if (has_config) TRY(compare_shapes(folder, &has, s->shape, log));
    o->drops_head = s->shape->tied && model_files_named(&o->files, head, &t);
    o->drops_own_head = o->drops_head && !tensor_origins_excludes(o->rules.exclude, head);
    return STATUS_OK;
}

static void close_source(struct weights_source *o)
{
    tensor_origins_release(&o->origins);
    model_files_close(&o->files);
}

static void list_tensors(const struct weights_source *o, enum tensor_origin origin,
                         const char *before, const char *after, struct text *line)
{
    if (!tensor_origins_count(&o->origins, origin)) return;
    text_adds(line, before);
    tensor_origins_list(&o->origins, origin, line);
    text_adds(line, after);
}

/* Logs in one line which tensors are loaded, copied, left out or kept. */
static void log_source(const struct weights_source *o)
{
    const struct tensor_origins *all = &o->origins;
    struct text line = {0};
    int whole = tensor_origins_count(all, ORIGIN_FILE), missing;
    missing = tensor_origins_count(all, ORIGIN_MISSING);
    if (whole == all->layout->num_tensors)
        text_addf(&line, " loads all %d tensors", whole);
    else
        list_tensors(o, ORIGIN_FILE, " loads ", "", &line);
    list_tensors(o, ORIGIN_EMBEDDING, "; copies ", " from model.embed_tokens.weight, as it is tied",
                 &line);
    list_tensors(o, ORIGIN_EXCLUDED, "; keeps initial values of ", " (excluded)", &line);
    list_tensors(o, ORIGIN_MISSING, "; keeps initial values of ", " (missing there)", &line);
    if (o->drops_head)
        text_addf(&line, "; leaves out %s, as this model is tied%s", head,
                  o->drops_own_head ? " (if it equals the embedding)" : "");
    log_line(missing ? LOG_WARN : LOG_INFO, "%s:%s", o->folder, line.data);
    text_release(&line);
}

/* Whether a run resumes with all of its tensors, which is not worth a line of the log. */
static bool is_resumed_whole(const struct weights_source *o, const struct checkpoint_state *s)
{
    return s->exp_avg && tensor_origins_count(&o->origins, ORIGIN_FILE) == s->layout->num_tensors;
}

/* Fails if a tied model would lose a head that differs from the embedding. */
static enum status compare_head(const struct weights_source *o)
{
    bool is_own = false;
    if (o->drops_own_head) TRY(find_own_head(&o->files, &is_own));
    if (is_own)
        FAIL(CONFIG,
             "%s: %s differs from the embedding, but this model's head is tied to it: set "
             "model.tie_embeddings = false, or leave the head out with "
             "checkpoint.exclude_from_loading = [\"%s\"]",
             o->folder, head, head);
    return STATUS_OK;
}

/* Loads moments and training state.  Torch files without moments have neither. */
static enum status load_training_state(const char *folder, const struct checkpoint_state *state,
                                       bool native, const struct tensor_rules *rules,
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
    if (!state->exp_avg || !found->has_moments ||
        tensor_origins_excludes(rules->exclude, "optimizer"))
        goto out;
    TRY_OUT(load_moment(&moments, state, TENSOR_EXP_AVG, rules));
    TRY_OUT(load_moment(&moments, state, TENSOR_EXP_AVG_SQ, rules));
    if (state->ema) TRY_OUT(load_ema(folder, state, rules, &found->has_ema));
out:
    torch_state_release(&torch);
    model_files_close(&moments);
    return st;
}

/* On this rank alone. */
static enum status load_on_rank(const char *folder, const struct checkpoint_state *state,
                                bool native, const struct load_rules *rules,
                                struct checkpoint_found *found)
{
    struct weights_source o;
    enum status st = STATUS_OK;
    bool log = state->world->rank == 0; /* one line is enough */
    TRY_OUT(open_source(&o, folder, state, rules, log));
    if (log && rules && !is_resumed_whole(&o, state)) log_source(&o);
    TRY_OUT(compare_head(&o));
    TRY_OUT(load_buffer(&o.origins, state->shard, VALUE_WEIGHT, checkpoint_weights(state)));
    if (native || state->exp_avg)
        TRY_OUT(load_training_state(folder, state, native, &o.rules, found));
out:
    close_source(&o);
    return st;
}

enum status checkpoint_load(const char *folder, struct checkpoint_state *state,
                            const struct load_rules *rules, struct checkpoint_found *found)
{
    bool native;
    *found = (struct checkpoint_found){0};
    TRY(checkpoint_check_native(folder, state->world, &native));
    enum status st = comm_agree(state->world, load_on_rank(folder, state, native, rules, found));
    if (!st) return STATUS_OK;
    json_free(found->state);
    *found = (struct checkpoint_found){0};
    return st;
}

enum status checkpoint_check_shapes(const char *folder, const struct checkpoint_state *state,
                                    const struct load_rules *rules, bool log)
{
    struct weights_source o;
    int64_t native, step;
    TRY(find_manifest(folder, &native));
    if (native) TRY(manifest_check(folder, &step));
    enum status st = open_source(&o, folder, state, rules, log);
    if (!st && log) log_source(&o);
    if (!st) st = compare_head(&o);
    close_source(&o);
    return st;
}

enum status checkpoint_read_state(const char *folder, const struct checkpoint_state *state,
                                  struct checkpoint_found *found)
{
    const struct tensor_rules rules = {0};
    const struct checkpoint_state only = {.shape = state->shape, .world = state->world};
    *found = (struct checkpoint_found){0};
    enum status st = load_training_state(folder, &only, true, &rules, found);
    if (!st) return STATUS_OK;
    json_free(found->state);
    *found = (struct checkpoint_found){0};
    return st;
}

static enum status load_weights_on_rank(const char *folder, const struct checkpoint_state *state,
                                        enum dtype dtype, void *weights)
{
    struct weights_source o;
    struct store to = {.x = weights, .dtype = dtype, .queue = state->queue};
    enum status st = open_source(&o, folder, state, NULL, state->world->rank == 0);
    if (!st) st = load_buffer(&o.origins, state->shard, VALUE_WEIGHT, to);
    close_source(&o);
    return st;
}

enum status checkpoint_load_weights(const char *folder, const struct checkpoint_state *state,
                                    enum dtype dtype, void *weights)
{
    TRY(checkpoint_check_native(folder, state->world, &(bool){false}));
    TRY(comm_agree(state->world, load_weights_on_rank(folder, state, dtype, weights)));
    return STATUS_OK;
}

static enum status check_tensor(const char *folder, struct model_tensor *t, float *chunk,
                                size_t size)
{
    static const enum value_kind kinds[] = {[TENSOR_WEIGHT] = VALUE_WEIGHT,
                                            [TENSOR_EXP_AVG] = VALUE_EXP_AVG,
                                            [TENSOR_EXP_AVG_SQ] = VALUE_EXP_AVG_SQ};
    enum value_kind kind = kinds[tensor_name_kind(t->is.name)];
    enum status st = STATUS_OK;
    for (uint64_t at = 0, n, bad; at < t->is.elements && !st; at += n) {
        n = t->is.elements - at < size ? t->is.elements - at : size;
        TRY_OUT(tensor_reader_read(&t->reader, at, n, F32, chunk));
        bad = value_check_find(kind, F32, chunk, n);
        if (bad < n)
            st = value_check_fail(STATUS_DATA, folder,
                                  &(struct bad_element){.kind = kind,
                                                        .name = t->is.name,
                                                        .element = at + bad,
                                                        .value = (double)chunk[bad]});
    }
out:
    tensor_reader_close(&t->reader);
    return st;
}

enum status checkpoint_check_values(const char *folder, bool moments)
{
    enum { CHUNK = 1 << 18 };
    struct model_files files;
    float *chunk = heap(CHUNK * sizeof *chunk);
    enum status st = STATUS_OK;
    for (int part = 0; part < (moments ? 1 : 2) && !st; part++) {
        st = part      ? model_files_open_ema(&files, folder)
             : moments ? model_files_open_moments(&files, folder)
                       : model_files_open(&files, folder);
        for (size_t i = 0; !st && i < model_files_num_tensors(&files); i++) {
            struct model_tensor t = model_files_tensor(&files, i);
            st = check_tensor(folder, &t, chunk, CHUNK);
        }
        model_files_close(&files);
    }
    free(chunk);
    return st;
}

enum status checkpoint_verify(const char *folder)
{
    TRY(manifest_verify(folder, NULL));
    TRY(checkpoint_check_values(folder, false));
    TRY(checkpoint_check_values(folder, true));
    return STATUS_OK;
}
