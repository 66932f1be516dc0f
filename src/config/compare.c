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

/* Compares one section's rows; `name` is the section's, for messages. */
static void compare_rows(const struct config_section *s, const char *name, const void *old,
                         const void *now, struct text *out)
{
    struct text key = {0}, a = {0}, b = {0};
    for (size_t r = 0; r < s->count; r++) {
        text_clear(&key), text_clear(&a), text_clear(&b);
        text_addf(&key, "%s.%s", name, s->rows[r].name);
        option_write(&s->rows[r], old, &a);
        option_write(&s->rows[r], now, &b);
        if (decides_results(key.data) && strcmp(a.data, b.data))
            text_addf(out, "%s%s: %s -> %s", out->len ? ", " : "", key.data, a.data, b.data);
    }
    text_release(&key), text_release(&a), text_release(&b);
}

static void compare_array(const struct config_array *a, const struct config *old,
                          const struct config *c, struct text *out)
{
    size_t common = config_array_count(old, a), count = config_array_count(c, a);
    if (common != count)
        text_addf(out, "%s%s: %zu -> %zu", out->len ? ", " : "", a->element.name, common, count);
    if (common > count) common = count;
    for (size_t i = 0; i < common; i++) {
        char name[40];
        snprintf(name, sizeof name, "%s.%zu", a->element.name, i);
        compare_rows(&a->element, name, config_array_item(old, a, i), config_array_item(c, a, i),
                     out);
    }
}

void config_compare(const struct config *old, const struct config *c, struct text *out)
{
    for (size_t s = 0; s < NUM_SECTIONS; s++) {
        const struct config_section *section = &config_sections[s];
        compare_rows(section, section->name, (const char *)old + section->offset,
                     (const char *)c + section->offset, out);
    }
    for (size_t a = 0; a < NUM_ARRAYS; a++) compare_array(&config_arrays[a], old, c, out);
}
