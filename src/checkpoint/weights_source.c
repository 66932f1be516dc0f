// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weights_source.h"

#include "base/file.h"
#include "base/log.h"
#include "checkpoint/interop/hf_config.h"
#include "checkpoint/interop/torch_files.h"

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

enum status weights_source_open(struct weights_source *o, const char *folder,
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

void weights_source_close(struct weights_source *o)
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

void weights_source_log(const struct weights_source *o)
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

enum status weights_source_check_head(const struct weights_source *o)
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
