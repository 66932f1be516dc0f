// SPDX-License-Identifier: Apache-2.0
#include "metrics/run_description.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/toml_parse.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

const char *run_description_env(const char *variable, const char *otherwise)
{
    const char *value = getenv(variable);
    return value && *value ? value : otherwise;
}

void run_description_name(struct text *t, const char *dump_folder)
{
    char *path = realpath(dump_folder, NULL);
    const char *name = path ? file_name(path) : "";
    text_adds(t, *name ? name : "run");
    free(path);
}

void run_description_random(struct text *t, const char *alphabet, int digits)
{
    unsigned char bytes[32];
    size_t letters = strlen(alphabet);
    for (int i = 0; i < digits; i++) {
        if (i % 32 == 0 && getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
            for (size_t k = 0; k < sizeof bytes; k++)
                bytes[k] = (unsigned char)((uint64_t)(clock_wall_s() * 1e6) >> (k % 8 * 4));
        text_add(t, &alphabet[bytes[i % 32] % letters], 1);
    }
}

struct toml *run_description_config(const char *config_toml)
{
    struct toml *root = NULL;
    if (!config_toml || toml_parse(config_toml, strlen(config_toml), "config.toml", &root))
        return NULL;
    return root;
}

/* The shorter of 15 and 17 digits that reads back as the same number. */
static void add_real(struct text *t, double value)
{
    char digits[32];
    snprintf(digits, sizeof digits, "%.15g", value);
    if (isfinite(value) && strtod(digits, NULL) == value)
        text_adds(t, digits);
    else
        json_real(t, value);
}

/* Keys come from our own tables, which nest a few levels deep. */
static void add_json(struct text *t, const struct toml *v, int depth)
{
    bool is_table = v->kind == TOML_TABLE;
    switch (v->kind) {
    case TOML_INTEGER: text_addf(t, "%lld", (long long)v->integer); break;
    case TOML_FLOAT: add_real(t, v->real); break;
    case TOML_BOOL: text_adds(t, v->boolean ? "true" : "false"); break;
    case TOML_ARRAY:
    case TOML_TABLE:
        text_adds(t, is_table ? "{" : "[");
        for (const struct toml *m = depth < JSON_MAX_DEPTH ? v->first : NULL; m; m = m->next) {
            if (is_table) json_quote(t, m->key), text_adds(t, ":");
            add_json(t, m, depth + 1);
            if (m->next) text_adds(t, ",");
        }
        text_adds(t, is_table ? "}" : "]");
        break;
    default: json_quote(t, v->text); break;
    }
}

void run_description_json(struct text *t, const struct toml *value) { add_json(t, value, 0); }
