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
enum change_class { CHANGE_continues, CHANGE_restarts, CHANGE_refused, CHANGE_by_shape };

static bool begins_with(const char *key, const char *const *prefixes)
{
    for (; *prefixes; prefixes++)
        if (!strncmp(key, *prefixes, strlen(*prefixes))) return true;
    return false;
}

/* Whether the key ends in ".name", one of the names. */
static bool is_named(const char *key, const char *const *names)
{
    const char *name = strrchr(key, '.') + 1;
    for (; *names; names++)
        if (!strcmp(name, *names)) return true;
    return false;
}

static enum change_class classify(const struct config *c, const char *key)
{
    static const char *const shape[] = {"dim",      "n_layers",   "n_heads",        "n_kv_heads",
                                        "head_dim", "ffn_hidden", "tie_embeddings", "vocab_size",
                                        NULL};
    static const char *const order[] = {"data.order", "data.seed", NULL};
    static const char *const streams[] = {"data.shuffle_window", "data.validation_share",
                                          "data.packing", NULL};
    static const char *const fixed[] = {"data.s",           "data.b",       "data.eo",
                                        "data.row_overlap", "data.packing", "data.validation_share",
                                        "training.seq_len", "objective.",   NULL};
    static const char *const selection[] = {"column", "filter_column", "filter_value",
                                            "motifs", "neurons",       NULL};
    bool is_source = !strncmp(key, "data.source.", 12);
    if (!strncmp(key, "model.", 6) && is_named(key, shape)) return CHANGE_refused;
    if (!strcmp(key, "model.name") || !strcmp(key, "model.flavor")) return CHANGE_by_shape;
    if (is_source && is_named(key, (const char *const[]){"name", NULL})) return CHANGE_restarts;
    if (is_source && is_named(key, selection)) return CHANGE_refused;
    if (begins_with(key, order) || (!strcmp(key, "debug.seed") && c->data.seed < 0))
        return CHANGE_refused;
    bool is_fixed = c->data.order == ORDER_megatron || c->data.packing == PACKING_best_fit;
    return begins_with(key, is_fixed ? fixed : streams) ? CHANGE_refused : CHANGE_continues;
}

static const char *describe_class(enum change_class class)
{
    static const char *const texts[] = {
        [CHANGE_continues] = "continues",
        [CHANGE_restarts] = "restarts this source, unless it was read under this name",
        [CHANGE_refused] = "refused",
        [CHANGE_by_shape] = "refused if a weight's shape changes",
    };
    return texts[class];
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
        text_addf(to->out, "%s%s: %zu -> %zu (continues)", to->out->len ? "\n" : "",
                  a->element.name, common, count);
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
