/* compare.c -- all values by key, and how those of two configurations differ. */
// SPDX-License-Identifier: Apache-2.0
#include "config/batch_ramp.h"
#include "config/config.h"
#include "config/effective.h"
#include "config/sections.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct value_visitor {
    void (*each)(void *context, const char *key, const char *value);
    void *context;
};

static void visit_rows(const struct value_visitor *v, const char *section,
                       const struct config_section *s, const void *from)
{
    for (size_t r = 0; r < s->count; r++) {
        struct text key = {0}, value = {0};
        text_addf(&key, "%s.%s", section, s->rows[r].name);
        option_write(&s->rows[r], from, &value);
        v->each(v->context, key.data, value.data);
        text_release(&key), text_release(&value);
    }
}

void config_for_each(const struct config *c,
                     void (*each)(void *context, const char *key, const char *value), void *context)
{
    const struct value_visitor v = {each, context};
    struct config effective;
    effective_fill(&effective, c);
    for (size_t s = 0; s < NUM_SECTIONS; s++)
        visit_rows(&v, config_sections[s].name, &config_sections[s],
                   (const char *)&effective + config_sections[s].offset);
    for (size_t a = 0; a < NUM_ARRAYS; a++)
        for (size_t i = 0; i < config_array_count(c, &config_arrays[a]); i++) {
            const struct config_section *element = &config_arrays[a].element;
            char name[40];
            snprintf(name, sizeof name, "%s.%zu", element->name, i);
            visit_rows(&v, name, element, config_array_item(c, &config_arrays[a], i));
        }
}

/* `key` is "section.key".  model.vocab_multiple only changes roundings, as the layout does. */
static bool decides_results(const char *key)
{
    static const char *const others[] = {
        "job.",    "metrics.", "profiling.",          "checkpoint.",         "device.",
        "config.", "comm.",    "data.accept_changed", "model.vocab_multiple"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strncmp(key, others[i], strlen(others[i]))) return false;
    return true;
}

/* What a resumed run does with a changed setting. */
enum change_class {
    CHANGE_continues,
    CHANGE_restarts,
    CHANGE_refused,
    CHANGE_by_name,
    CHANGE_by_shape,
    CHANGE_by_content,
    CHANGE_by_samples,
    CHANGE_by_state
};

static const char *describe_class(enum change_class class)
{
    static const char *const texts[] = {
        [CHANGE_continues] = "continues",
        [CHANGE_restarts] = "restarts this source, unless it was read under this name",
        [CHANGE_refused] = "refused",
        [CHANGE_by_name] = "refused, except with checkpoint.accept_changed",
        [CHANGE_by_shape] = "refused if a weight's shape changes",
        [CHANGE_by_content] = "refused if the content changes, except with data.accept_changed",
        [CHANGE_by_state] =
            "refused, except with checkpoint.exclude_from_loading = [\"optimizer\"]",
        [CHANGE_by_samples] = "refused if the run's number of samples changes",
    };
    return texts[class];
}

/* Which orders of the data have a key's setting in their saved position. */
enum order_set { IN_STREAMS = 1, IN_BEST_FIT = 2, IN_MEGATRON = 4, IN_ALL = 7 };

static enum order_set order_of(const struct config *c)
{
    if (c->data.order == ORDER_megatron) return IN_MEGATRON;
    return c->data.packing == PACKING_best_fit ? IN_BEST_FIT : IN_STREAMS;
}

/* How the model's shape holds a setting. */
enum shape_part {
    SHAPE_none,
    SHAPE_int,
    SHAPE_real,
    SHAPE_factor, /* model_shape_multiplier */
    SHAPE_bool,
    SHAPE_biases,
    SHAPE_scaling,
    SHAPE_derived /* in other settings' values */
};

/* What a change of a key does, unless the run simply continues, and where the shape has its value.
 * Keys of arrays are without their numbers. */
static const struct key_class {
    const char *key;
    enum change_class class;
    enum order_set orders;
    enum shape_part part;
    size_t at; /* of the field in struct model_shape */
} key_classes[] = {
/* clang-format off */
#define PART_OF(x) _Generic(x, int: SHAPE_int, double: SHAPE_real, bool: SHAPE_bool)
#define OF(field)  PART_OF(((struct model_shape *)0)->field), offsetof(struct model_shape, field)
/* clang-format on */
#define FACTOR(field) SHAPE_factor, offsetof(struct model_shape, field)
#define DERIVED       SHAPE_derived, 0
#define NONE          SHAPE_none, 0
    {"model.name", CHANGE_by_shape, IN_ALL, DERIVED},
    {"model.flavor", CHANGE_by_shape, IN_ALL, DERIVED},
    {"model.dim", CHANGE_refused, IN_ALL, OF(D)},
    {"model.n_layers", CHANGE_refused, IN_ALL, OF(L)},
    {"model.n_heads", CHANGE_refused, IN_ALL, OF(H)},
    {"model.n_kv_heads", CHANGE_refused, IN_ALL, OF(G)},
    {"model.head_dim", CHANGE_refused, IN_ALL, OF(K)},
    {"model.ffn_hidden", CHANGE_refused, IN_ALL, OF(F)},
    {"model.vocab_size", CHANGE_refused, IN_ALL, OF(V)},
    {"model.qk_norm", CHANGE_refused, IN_ALL, OF(qk_norm)},
    {"model.post_norm", CHANGE_refused, IN_ALL, OF(post_norm)},
    {"model.attention_bias", CHANGE_refused, IN_ALL, SHAPE_biases, 0},
    {"model.sliding_window", CHANGE_by_name, IN_ALL, OF(window)},
    {"model.mlp_bias", CHANGE_refused, IN_ALL, OF(mlp_bias)},
    {"model.tie_embeddings", CHANGE_by_name, IN_ALL, OF(tied)},
    {"model.rope_theta", CHANGE_by_name, IN_ALL, OF(rope_theta)},
    {"model.norm_eps", CHANGE_by_name, IN_ALL, OF(norm_eps)},
    {"model.max_context", CHANGE_continues, IN_ALL, OF(max_context)},
    {"model.partial_rotary_factor", CHANGE_refused, IN_ALL, FACTOR(partial_rotary_factor)},
    {"model.no_rope_layer_interval", CHANGE_refused, IN_ALL, OF(no_rope_interval)},
    {"model.embedding_multiplier", CHANGE_refused, IN_ALL, FACTOR(embedding_multiplier)},
    {"model.residual_multiplier", CHANGE_refused, IN_ALL, FACTOR(residual_multiplier)},
    {"model.attention_multiplier", CHANGE_refused, IN_ALL, OF(attention_multiplier)},
    {"model.logits_scaling", CHANGE_refused, IN_ALL, FACTOR(logits_scaling)},
    {"model.rope_scaling", CHANGE_by_name, IN_ALL, SHAPE_scaling, 0},
    {"model.rope_factor", CHANGE_by_shape, IN_ALL, DERIVED},
    {"model.rope_original_context", CHANGE_by_shape, IN_ALL, DERIVED},
    {"model.rope_low_freq_factor", CHANGE_by_shape, IN_ALL, DERIVED},
    {"model.rope_high_freq_factor", CHANGE_by_shape, IN_ALL, DERIVED},
    {"model.rope_beta_fast", CHANGE_by_shape, IN_ALL, DERIVED},
    {"model.rope_beta_slow", CHANGE_by_shape, IN_ALL, DERIVED},
    {"model.rope_attention_factor", CHANGE_by_shape, IN_ALL, DERIVED},
    {"model.rope_short_factor", CHANGE_by_shape, IN_ALL, DERIVED},
    {"model.rope_long_factor", CHANGE_by_shape, IN_ALL, DERIVED},
    {"model.attn_mask_type", CHANGE_by_name, IN_ALL, NONE},
    {"optimizer.name", CHANGE_by_state, IN_ALL, NONE},
    {"debug.seed", CHANGE_refused, IN_ALL, NONE},
    {"data.order", CHANGE_refused, IN_ALL, NONE},
    {"data.seed", CHANGE_refused, IN_ALL, NONE},
    {"data.packing", CHANGE_refused, IN_STREAMS | IN_BEST_FIT, NONE},
    {"data.shuffle_window", CHANGE_refused, IN_STREAMS | IN_BEST_FIT, NONE},
    {"data.validation_share", CHANGE_refused, IN_STREAMS | IN_BEST_FIT, NONE},
    {"data.bos", CHANGE_refused, IN_BEST_FIT, NONE},
    {"data.eos", CHANGE_refused, IN_BEST_FIT, NONE},
    {"data.row_overlap", CHANGE_refused, IN_BEST_FIT, NONE},
    {"data.split", CHANGE_refused, IN_MEGATRON, NONE},
    {"data.blend", CHANGE_refused, IN_MEGATRON, NONE},
    {"data.samples", CHANGE_by_samples, IN_MEGATRON, NONE},
    {"data.sampler", CHANGE_refused, IN_MEGATRON, NONE},
    {"data.sampler_ranks", CHANGE_refused, IN_MEGATRON, NONE},
    {"data.sampler_rows", CHANGE_refused, IN_MEGATRON, NONE},
    {"data.sampler_batch", CHANGE_refused, IN_MEGATRON, NONE},
    {"data.tokenizer", CHANGE_by_content, IN_ALL, NONE},
    {"data.source", CHANGE_refused, IN_BEST_FIT | IN_MEGATRON, NONE},
    {"data.source.path", CHANGE_by_content, IN_ALL, NONE},
    {"data.source.name", CHANGE_restarts, IN_STREAMS, NONE},
    {"data.source.weight", CHANGE_refused, IN_BEST_FIT | IN_MEGATRON, NONE},
    {"data.source.column", CHANGE_refused, IN_ALL, NONE},
    {"data.source.filter_column", CHANGE_refused, IN_ALL, NONE},
    {"data.source.filter_value", CHANGE_refused, IN_ALL, NONE},
    {"data.source.motifs", CHANGE_refused, IN_ALL, NONE},
    {"data.source.neurons", CHANGE_refused, IN_ALL, NONE},
    {"objective.name", CHANGE_by_name, IN_STREAMS, NONE},
    {"objective.name", CHANGE_refused, IN_BEST_FIT | IN_MEGATRON, NONE},
    {"objective.mask_probability", CHANGE_refused, IN_BEST_FIT | IN_MEGATRON, NONE},
    {"objective.mask_token", CHANGE_refused, IN_BEST_FIT | IN_MEGATRON, NONE},
    {"training.dataset_path", CHANGE_by_content, IN_ALL, NONE},
    {"training.seq_len", CHANGE_refused, IN_BEST_FIT | IN_MEGATRON, NONE},
    {"training.steps", CHANGE_by_samples, IN_MEGATRON, NONE},
    {"training.local_batch_size", CHANGE_by_samples, IN_MEGATRON, NONE},
    {"training.global_batch_size", CHANGE_by_samples, IN_MEGATRON, NONE},
    {"training.batch_ramp", CHANGE_by_samples, IN_MEGATRON, NONE},
#undef PART_OF
#undef OF
#undef FACTOR
#undef DERIVED
#undef NONE
};

/* "data.source.3.path" without its number. */
static void skip_number(char *key)
{
    char *digits = strpbrk(key, "0123456789"), *end = digits;
    if (!digits || digits[-1] != '.') return;
    while (*end >= '0' && *end <= '9') end++;
    if (*end == '.') memmove(digits, end + 1, strlen(end));
}

/* Whether the run's other settings leave it an effect on the data. */
static bool is_used(const struct config *c, const char *key)
{
    if (!strcmp(key, "debug.seed")) return c->data.seed < 0;
    if (!strcmp(key, "objective.mask_probability")) return c->objective.name == OBJECTIVE_masked;
    if (!strcmp(key, "objective.mask_token")) return c->objective.name != OBJECTIVE_causal;
    if (!strcmp(key, "data.row_overlap")) return c->objective.name == OBJECTIVE_causal;
    return true;
}

static enum change_class classify(const struct config *c, const char *key)
{
    char plain[100];
    snprintf(plain, sizeof plain, "%s", key);
    skip_number(plain);
    if (!is_used(c, key)) return CHANGE_continues;
    for (size_t i = 0; i < sizeof key_classes / sizeof *key_classes; i++)
        if (!strcmp(plain, key_classes[i].key) && key_classes[i].orders & order_of(c))
            return key_classes[i].class;
    return CHANGE_continues;
}

/* A comparison and what it finds. */
struct settings_pair {
    const struct config_model *old, *now;
    struct config_changes *out;
};

/* Whether the weights, by this change, belong to another model. */
static bool makes_other_model(const char *key, enum change_class class)
{
    if (class == CHANGE_by_name) return true;
    return class == CHANGE_refused && !strncmp(key, "model.", 6);
}

/* What this configuration does with the change; NULL: it is refused. */
static const char *describe_allowed(const struct settings_pair *p, const char *key,
                                    enum change_class class)
{
    const struct config *old = p->old->config;
    const struct checkpoint_config *k = &p->now->config->checkpoint;
    bool starts_over =
        option_list_contains(&k->exclude_from_loading, "dataloader") &&
        !(old && option_list_contains(&old->checkpoint.exclude_from_loading, "dataloader"));
    bool is_model = makes_other_model(key, class);
    if (class == CHANGE_by_name && option_list_contains(&k->accept_changed, key)) return "accepted";
    if (class == CHANGE_refused && !is_model && starts_over) return "the data start over";
    if (config_find_array(key) && order_of(p->now->config) == IN_STREAMS)
        return describe_class(class); /* the sources may be in another order */
    /* without the shapes a size that a flavor sets is unknown */
    if (class == CHANGE_refused && is_model && !(p->old->shape && p->now->shape))
        return describe_class(CHANGE_by_shape);
    return class == CHANGE_refused || class == CHANGE_by_name ? NULL : describe_class(class);
}

static void refuse(const struct settings_pair *p, const char *key, enum change_class class,
                   const char *old, const char *now)
{
    struct config_changes *out = p->out;
    const char *origin = config_key_origin(p->now->config, key);
    bool has_origin = strcmp(origin, "default") != 0;
    text_addf(&out->refused, "%s%s was %s, is %s%s%s%s", out->refused.len ? "; " : "", key, old,
              now, has_origin ? " (" : "", has_origin ? origin : "", has_origin ? ")" : "");
    const struct config *was = p->old->config, *is = p->now->config;
    if (!strcmp(key, "model.vocab_size") && was &&
        strcmp(was->data.tokenizer, is->data.tokenizer) != 0)
        text_addf(&out->refused, " (data.tokenizer was \"%s\", is \"%s\")", was->data.tokenizer,
                  is->data.tokenizer);
    if (class == CHANGE_by_name)
        text_addf(&out->names, "%s\"%s\"", out->names.len ? ", " : "", key);
    else if (makes_other_model(key, class))
        out->is_other_model = true;
    else
        out->is_other_data = true;
}

static void add_change(const struct settings_pair *p, const char *key, const char *old,
                       const char *now)
{
    enum change_class class = classify(p->now->config, key);
    const char *allowed = describe_allowed(p, key, class);
    text_addf(&p->out->lines, "%s%s: %s -> %s (%s)", p->out->lines.len ? "\n" : "", key, old, now,
              allowed ? allowed : describe_class(class));
    if (!allowed) refuse(p, key, class, old, now);
}

static double mean(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] / n;
    return sum;
}

static void describe_scaling(const struct rope_scaling *s, char *to, size_t size)
{
    const char *name = rope_method_name(s);
    if (!(s->factor > 0))
        snprintf(to, size, "\"none\"");
    else if (s->method == ROPE_llama3)
        snprintf(to, size, "\"%s\" (factor %g, low %g, high %g, context %d)", name, s->factor,
                 s->low_frequency_factor, s->high_frequency_factor, s->original_context);
    else if (s->method == ROPE_yarn)
        snprintf(to, size, "\"%s\" (factor %g, beta %g to %g, attention factor %g, context %d)",
                 name, s->factor, s->beta_slow, s->beta_fast, rope_attention_factor(s),
                 s->original_context);
    else if (s->method == ROPE_longrope)
        snprintf(to, size,
                 "\"%s\" (factors %.9g and %.9g on average, attention factor %g, context %d)", name,
                 mean(s->short_factors, s->num_factors), mean(s->long_factors, s->num_factors),
                 rope_attention_factor(s), s->original_context);
    else if (s->method == ROPE_dynamic)
        snprintf(to, size, "\"%s\" (factor %g, context %d)", name, s->factor, s->original_context);
    else
        snprintf(to, size, "\"%s\" (factor %g)", name, s->factor);
}

/* Whether the shape has the value of a key. */
static bool is_of_shape(const char *key)
{
    for (size_t i = 0; i < sizeof key_classes / sizeof *key_classes; i++)
        if (!strcmp(key, key_classes[i].key)) return key_classes[i].part != SHAPE_none;
    return false;
}

static double real_of(const struct key_class *row, const struct model_shape *s)
{
    const double value = *(const double *)((const char *)s + row->at);
    return row->part == SHAPE_factor ? model_shape_multiplier(value) : value;
}

static void describe_setting(const struct key_class *row, const struct model_shape *s, char *to,
                             size_t size)
{
    const char *at = (const char *)s + row->at;
    to[0] = 0;
    switch (row->part) {
    case SHAPE_none:
    case SHAPE_derived: break;
    case SHAPE_int: snprintf(to, size, "%d", *(const int *)at); break;
    case SHAPE_real:
    case SHAPE_factor: snprintf(to, size, "%.9g", real_of(row, s)); break;
    case SHAPE_bool: snprintf(to, size, "%s", *(const bool *)at ? "true" : "false"); break;
    case SHAPE_biases: snprintf(to, size, "\"%s\"", model_shape_biases(s)); break;
    case SHAPE_scaling: describe_scaling(&s->scaling, to, size); break;
    }
}

/* Not if it follows from another setting that has changed. */
static bool is_compared(const struct settings_pair *p, const char *key)
{
    const struct model_shape *a = p->old->shape, *b = p->now->shape;
    const struct model_config *m = &p->now->config->model;
    /* config.json has no other context than the original one of dynamic RoPE. */
    const bool is_dynamic = b->scaling.factor > 0 && b->scaling.method == ROPE_dynamic;
    if (!strcmp(key, "model.head_dim")) return m->head_dim || (a->D == b->D && a->H == b->H);
    if (!strcmp(key, "model.ffn_hidden")) return m->ffn_hidden || a->D == b->D;
    if (!strcmp(key, "model.max_context")) return m->max_context && !is_dynamic;
    return true;
}

static void compare_shapes(const struct settings_pair *p)
{
    for (size_t i = 0; i < sizeof key_classes / sizeof *key_classes; i++) {
        const struct key_class *row = &key_classes[i];
        const struct model_shape *a = p->old->shape, *b = p->now->shape;
        char old[120], now[120];
        if (!is_compared(p, row->key)) continue;
        describe_setting(row, a, old, sizeof old);
        describe_setting(row, b, now, sizeof now);
        bool is_real = row->part == SHAPE_real || row->part == SHAPE_factor;
        bool differs = is_real ? real_of(row, a) != real_of(row, b) : strcmp(old, now) != 0;
        if (differs) add_change(p, row->key, old, now);
    }
}

/* data.seed = -1 stands for debug.seed. */
static bool is_same_seed(const struct config *a, const struct config *b, const char *key)
{
    int64_t old = a->data.seed < 0 ? a->debug.seed : a->data.seed;
    int64_t now = b->data.seed < 0 ? b->debug.seed : b->data.seed;
    return old == now && !strcmp(key, "data.seed");
}

/* Compares one section's rows; `name` is the section's, for messages. */
static void compare_rows(const struct settings_pair *p, const struct config_section *s,
                         const char *name, const void *old, const void *now)
{
    bool has_shapes = p->old->shape && p->now->shape;
    struct text key = {0}, a = {0}, b = {0};
    for (size_t i = 0; i < s->count; i++) {
        text_clear(&key), text_clear(&a), text_clear(&b);
        text_addf(&key, "%s.%s", name, s->rows[i].name);
        if (!decides_results(key.data) || (has_shapes && is_of_shape(key.data))) continue;
        option_write(&s->rows[i], old, &a);
        option_write(&s->rows[i], now, &b);
        if (strcmp(a.data, b.data) != 0 && !is_same_seed(p->old->config, p->now->config, key.data))
            add_change(p, key.data, a.data, b.data);
    }
    text_release(&key), text_release(&a), text_release(&b);
}

static void compare_array(const struct settings_pair *p, const struct config_array *a)
{
    const struct config *old = p->old->config, *c = p->now->config;
    size_t common = config_array_count(old, a), count = config_array_count(c, a);
    char was[24], is[24];
    snprintf(was, sizeof was, "%zu", common), snprintf(is, sizeof is, "%zu", count);
    if (common != count) add_change(p, a->element.name, was, is);
    if (common > count) common = count;
    for (size_t i = 0; i < common; i++) {
        char name[40];
        snprintf(name, sizeof name, "%s.%zu", a->element.name, i);
        compare_rows(p, &a->element, name, config_array_item(old, a, i),
                     config_array_item(c, a, i));
    }
}

/* The number of samples that Megatron-LM's order is built for; 0: another order, or a number that
 * depends on ranks or data stages. */
static int64_t find_samples(const struct config *c)
{
    if (c->data.order != ORDER_megatron) return 0;
    if (c->data.samples) return c->data.samples;
    if (c->training.global_batch_size < 0 || c->data.num_stages) return 0;
    const struct batch_ramp r = batch_ramp_of(&c->training, c->training.global_batch_size);
    return batch_ramp_advance(&r, 0, c->training.steps);
}

static void compare_samples(const struct settings_pair *p)
{
    int64_t old = find_samples(p->old->config), now = find_samples(p->now->config);
    struct config_changes *out = p->out;
    if (!old || !now || old == now) return;
    if (describe_allowed(p, "data.samples", CHANGE_refused)) return;
    text_addf(&out->refused,
              "%sthe number of samples (data.samples, or training.steps times the batch) was %lld, "
              "is %lld (data.samples = %lld keeps the order)",
              out->refused.len ? "; " : "", (long long)old, (long long)now, (long long)old);
    out->is_other_data = true;
}

void config_compare(const struct config_model *old, const struct config_model *now,
                    struct config_changes *out)
{
    const struct settings_pair p = {old, now, out};
    *out = (struct config_changes){0};
    if (old->shape && now->shape) compare_shapes(&p);
    if (!old->config) return;
    for (size_t s = 0; s < NUM_SECTIONS; s++) {
        const struct config_section *section = &config_sections[s];
        compare_rows(&p, section, section->name, (const char *)old->config + section->offset,
                     (const char *)now->config + section->offset);
    }
    for (size_t a = 0; a < NUM_ARRAYS; a++) compare_array(&p, &config_arrays[a]);
    compare_samples(&p);
}

void config_changes_release(struct config_changes *x)
{
    text_release(&x->lines), text_release(&x->refused), text_release(&x->names);
}

enum status config_check_accepted(const struct config *c)
{
    const struct option_list *accepted = &c->checkpoint.accept_changed;
    for (size_t i = 0; i < accepted->count; i++) {
        struct text names = {0};
        bool is_known = false;
        for (size_t k = 0; k < sizeof key_classes / sizeof *key_classes; k++) {
            const struct key_class *row = &key_classes[k];
            if (row->class != CHANGE_by_name) continue;
            is_known |= !strcmp(row->key, accepted->items[i]);
            text_addf(&names, "%s%s", names.len ? ", " : "", row->key);
        }
        enum status st = STATUS_OK;
        if (!is_known)
            st = FAILURE(CONFIG, "checkpoint.accept_changed: \"%s\": expected one of %s",
                         accepted->items[i], names.data);
        text_release(&names);
        TRY(st);
    }
    return STATUS_OK;
}
