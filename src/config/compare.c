/* compare.c -- all values by key, and how those of two configurations differ. */
// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"
#include "config/sections.h"

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
    for (size_t s = 0; s < NUM_SECTIONS; s++)
        visit_rows(&v, config_sections[s].name, &config_sections[s],
                   (const char *)c + config_sections[s].offset);
    for (size_t a = 0; a < NUM_ARRAYS; a++)
        for (size_t i = 0; i < config_array_count(c, &config_arrays[a]); i++) {
            const struct config_section *element = &config_arrays[a].element;
            char name[40];
            snprintf(name, sizeof name, "%s.%zu", element->name, i);
            visit_rows(&v, name, element, config_array_item(c, &config_arrays[a], i));
        }
}

/* Of "section.key". */
static bool decides_results(const char *key)
{
    static const char *const others[] = {
        "job.",    "metrics.", "profiling.", "checkpoint.",
        "device.", "config.",  "comm.",      "data.accept_changed"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strncmp(key, others[i], strlen(others[i]))) return false;
    return true;
}

/* What a resumed run does with a changed setting. */
enum change_class {
    CHANGE_continues,
    CHANGE_restarts,
    CHANGE_refused,
    CHANGE_by_shape,
    CHANGE_by_content,
    CHANGE_by_samples
};

static const char *describe_class(enum change_class class)
{
    static const char *const texts[] = {
        [CHANGE_continues] = "continues",
        [CHANGE_restarts] = "restarts this source, unless it was read under this name",
        [CHANGE_refused] = "refused",
        [CHANGE_by_shape] = "refused if a weight's shape changes",
        [CHANGE_by_content] = "refused if the content changes, except with data.accept_changed",
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

/* Keys that do not simply continue; those of arrays without their numbers. */
static const struct key_class {
    const char *key;
    enum change_class class;
    enum order_set orders;
} key_classes[] = {
    {"model.name", CHANGE_by_shape, IN_ALL},
    {"model.flavor", CHANGE_by_shape, IN_ALL},
    {"model.dim", CHANGE_refused, IN_ALL},
    {"model.n_layers", CHANGE_refused, IN_ALL},
    {"model.n_heads", CHANGE_refused, IN_ALL},
    {"model.n_kv_heads", CHANGE_refused, IN_ALL},
    {"model.head_dim", CHANGE_refused, IN_ALL},
    {"model.ffn_hidden", CHANGE_refused, IN_ALL},
    {"model.vocab_size", CHANGE_refused, IN_ALL},
    {"model.vocab_multiple", CHANGE_by_shape, IN_ALL},
    {"model.qk_norm", CHANGE_refused, IN_ALL},
    {"model.tie_embeddings", CHANGE_refused, IN_ALL},
    {"debug.seed", CHANGE_refused, IN_ALL},
    {"data.order", CHANGE_refused, IN_ALL},
    {"data.seed", CHANGE_refused, IN_ALL},
    {"data.packing", CHANGE_refused, IN_STREAMS | IN_BEST_FIT},
    {"data.shuffle_window", CHANGE_refused, IN_STREAMS | IN_BEST_FIT},
    {"data.validation_share", CHANGE_refused, IN_STREAMS | IN_BEST_FIT},
    {"data.bos", CHANGE_refused, IN_BEST_FIT},
    {"data.eos", CHANGE_refused, IN_BEST_FIT},
    {"data.row_overlap", CHANGE_refused, IN_BEST_FIT},
    {"data.split", CHANGE_refused, IN_MEGATRON},
    {"data.blend", CHANGE_refused, IN_MEGATRON},
    {"data.samples", CHANGE_by_samples, IN_MEGATRON},
    {"data.sampler", CHANGE_refused, IN_MEGATRON},
    {"data.sampler_ranks", CHANGE_refused, IN_MEGATRON},
    {"data.sampler_rows", CHANGE_refused, IN_MEGATRON},
    {"data.sampler_batch", CHANGE_refused, IN_MEGATRON},
    {"data.tokenizer", CHANGE_by_content, IN_ALL},
    {"data.source", CHANGE_refused, IN_BEST_FIT | IN_MEGATRON},
    {"data.source.path", CHANGE_by_content, IN_ALL},
    {"data.source.name", CHANGE_restarts, IN_STREAMS},
    {"data.source.weight", CHANGE_refused, IN_BEST_FIT | IN_MEGATRON},
    {"data.source.column", CHANGE_refused, IN_ALL},
    {"data.source.filter_column", CHANGE_refused, IN_ALL},
    {"data.source.filter_value", CHANGE_refused, IN_ALL},
    {"data.source.motifs", CHANGE_refused, IN_ALL},
    {"data.source.neurons", CHANGE_refused, IN_ALL},
    {"objective.name", CHANGE_refused, IN_BEST_FIT | IN_MEGATRON},
    {"objective.mask_probability", CHANGE_refused, IN_BEST_FIT | IN_MEGATRON},
    {"objective.mask_token", CHANGE_refused, IN_BEST_FIT | IN_MEGATRON},
    {"training.dataset_path", CHANGE_by_content, IN_ALL},
    {"training.seq_len", CHANGE_refused, IN_BEST_FIT | IN_MEGATRON},
    {"training.steps", CHANGE_by_samples, IN_MEGATRON},
    {"training.local_batch_size", CHANGE_by_samples, IN_MEGATRON},
    {"training.global_batch_size", CHANGE_by_samples, IN_MEGATRON},
    {"training.batch_ramp", CHANGE_by_samples, IN_MEGATRON},
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
        if (!strcmp(plain, key_classes[i].key))
            return key_classes[i].orders & order_of(c) ? key_classes[i].class : CHANGE_continues;
    return CHANGE_continues;
}

/* A list of changes. */
struct change_list {
    const struct config *config; /* the new one */
    struct text *out;
};

/* Compares one section's rows; `name` is the section's, for messages. */
static void compare_rows(const struct change_list *to, const struct config_section *s,
                         const char *name, const void *old, const void *now)
{
    struct text key = {0}, a = {0}, b = {0};
    for (size_t r = 0; r < s->count; r++) {
        text_clear(&key), text_clear(&a), text_clear(&b);
        text_addf(&key, "%s.%s", name, s->rows[r].name);
        option_write(&s->rows[r], old, &a);
        option_write(&s->rows[r], now, &b);
        if (decides_results(key.data) && strcmp(a.data, b.data))
            text_addf(to->out, "%s%s: %s -> %s (%s)", to->out->len ? "\n" : "", key.data, a.data,
                      b.data, describe_class(classify(to->config, key.data)));
    }
    text_release(&key), text_release(&a), text_release(&b);
}

static void compare_array(const struct change_list *to, const struct config_array *a,
                          const struct config *old)
{
    const struct config *c = to->config;
    size_t common = config_array_count(old, a), count = config_array_count(c, a);
    if (common != count)
        text_addf(to->out, "%s%s: %zu -> %zu (%s)", to->out->len ? "\n" : "", a->element.name,
                  common, count, describe_class(classify(c, a->element.name)));
    if (common > count) common = count;
    for (size_t i = 0; i < common; i++) {
        char name[40];
        snprintf(name, sizeof name, "%s.%zu", a->element.name, i);
        compare_rows(to, &a->element, name, config_array_item(old, a, i),
                     config_array_item(c, a, i));
    }
}

void config_compare(const struct config *old, const struct config *c, struct text *out)
{
    const struct change_list to = {c, out};
    for (size_t s = 0; s < NUM_SECTIONS; s++) {
        const struct config_section *section = &config_sections[s];
        compare_rows(&to, section, section->name, (const char *)old + section->offset,
                     (const char *)c + section->offset);
    }
    for (size_t a = 0; a < NUM_ARRAYS; a++) compare_array(&to, &config_arrays[a], old);
}
