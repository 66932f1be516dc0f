// SPDX-License-Identifier: Apache-2.0
#include "config/closest_key.h"

#include "base/closest.h"
#include "config/sections.h"

#include <stdio.h>
#include <string.h>

static const struct closest_synonym synonyms[] = {
#define SYNONYM(word, key) {word, key},
#include "config/synonyms.def"
#undef SYNONYM
};

static const struct config_section *find_section(const char *name)
{
    for (size_t s = 0; s < NUM_SECTIONS; s++)
        if (!strcmp(config_sections[s].name, name)) return &config_sections[s];
    return NULL;
}

static bool has_key(const struct config_section *s, const char *name)
{
    for (size_t r = 0; r < s->count; r++)
        if (!strcmp(s->rows[r].name, name)) return true;
    return false;
}

static const char *write_key(const char *section, const char *name, char *buffer, size_t size)
{
    snprintf(buffer, size, "%s.%s", section, name);
    return buffer;
}

/* A key of that name in some section: of those with most settings first; else the only one. */
static const char *find_elsewhere(const char *name, char *buffer, size_t size)
{
    static const char *const first[] = {"training", "model", "optimizer", "data", "parallelism"};
    const char *section = NULL;
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        if (has_key(find_section(first[i]), name)) return write_key(first[i], name, buffer, size);
    for (size_t s = 0; s < NUM_SECTIONS; s++) {
        if (!has_key(&config_sections[s], name)) continue;
        if (section) return NULL;
        section = config_sections[s].name;
    }
    return section ? write_key(section, name, buffer, size) : NULL;
}

/* The key of the section whose name is most similar. */
static const char *find_similar(const struct config_section *s, const char *name)
{
    struct closest c = closest_to(name);
    for (size_t r = 0; r < s->count; r++) closest_offer(&c, s->rows[r].name);
    return c.name;
}

/* "data.source.0.pth": the index remains. */
static const char *find_in_array(const struct config_array *a, const char *key, char *buffer,
                                 size_t size)
{
    const char *dot = strrchr(key, '.'), *name = find_similar(&a->element, dot + 1);
    if (!name) return NULL;
    snprintf(buffer, size, "%.*s.%s", (int)(dot - key), key, name);
    return buffer;
}

const char *closest_key_exact(const char *key, char *buffer, size_t size)
{
    const char *dot = strrchr(key, '.'), *name = dot ? dot + 1 : key;
    const char *known = closest_find_synonym(synonyms, sizeof synonyms / sizeof *synonyms, name);
    if (!known) return find_elsewhere(name, buffer, size);
    snprintf(buffer, size, "%s", known);
    return buffer;
}

const char *closest_key_find(const char *key, char *buffer, size_t size)
{
    const struct config_array *array = config_find_array(key);
    const char *dot = strrchr(key, '.'), *name = dot ? dot + 1 : key, *found;
    char section[64] = "";
    if (array && dot) return find_in_array(array, key, buffer, size);
    if (dot) snprintf(section, sizeof section, "%.*s", (int)(dot - key), key);
    struct closest c = closest_to(section);
    for (size_t s = 0; s < NUM_SECTIONS; s++) closest_offer(&c, config_sections[s].name);
    if (c.name && has_key(find_section(c.name), name)) return write_key(c.name, name, buffer, size);
    found = closest_key_exact(key, buffer, size);
    if (found) return found;
    const char *similar = c.name ? find_similar(find_section(c.name), name) : NULL;
    if (similar) return write_key(c.name, similar, buffer, size);
    c = closest_to(name);
    for (size_t s = 0; s < NUM_SECTIONS; s++)
        for (size_t r = 0; r < config_sections[s].count; r++) {
            size_t before = c.cost;
            closest_offer(&c, config_sections[s].rows[r].name);
            if (c.cost < before) write_key(config_sections[s].name, c.name, buffer, size);
        }
    return c.name && c.cost ? buffer : NULL; /* equal: several sections have it */
}

const char *closest_key_misspelled(const char *key, char *buffer, size_t size)
{
    enum { MAX_COST = 2 * 2 }; /* two edits */
    const char *dot = strchr(key, '.');
    size_t prefix = dot ? (size_t)(dot - key) + 1 : 0;
    char section[64];
    if (!dot || strchr(dot + 1, '.') || strlen(dot + 1) < 5) return NULL;
    struct closest c = closest_to(dot + 1);
    for (size_t i = 0; i < config_num_foreign; i++) {
        const char *row = config_foreign[i].name;
        if (!strncmp(row, key, prefix) && !strchr(row, '*')) closest_offer(&c, row + prefix);
    }
    snprintf(section, sizeof section, "%.*s", (int)(prefix - 1), key);
    const struct config_section *s = find_section(section);
    for (size_t r = 0; s && r < s->count; r++) closest_offer(&c, s->rows[r].name);
    return c.cost <= MAX_COST ? write_key(section, c.name, buffer, size) : NULL;
}
