// SPDX-License-Identifier: Apache-2.0
#include "hub/s3_profile.h"

#include "base/file.h"
#include "hub/env.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_FILE_BYTES = 1 << 20 };

static const char white[] = " \t\r";

static bool word_is(const char *at, size_t n, const char *word)
{
    return strlen(word) == n && !strncmp(at, word, n);
}

/* Whether the line is "[NAME]", "[KIND NAME]" or, with kind "profile", either of them. */
static bool is_section(const char *line, size_t n, const char *kind, const char *name)
{
    const char *at = line + 1, *end = memchr(line, ']', n);
    if (!end) return false;
    at += strspn(at, white);
    size_t m = strcspn(at, " \t\r\n]"), k = strlen(kind);
    bool is_kind = m == k && !strncmp(at, kind, k) && at[m] != ']';
    if (is_kind) at += m + strspn(at + m, white);
    while (end > at && strchr(white, end[-1])) end--;
    return (is_kind || !strcmp(kind, "profile")) && word_is(at, (size_t)(end - at), name);
}

/* KEY, or the indented SUBKEY below KEY, of one section. */
struct ini_key {
    const char *kind, *section, *key, *subkey; /* subkey NULL: none */
};

static char *find_in_section(const char *ini, const struct ini_key *k, bool *found)
{
    const char *key = k->key, *subkey = k->subkey;
    bool inside = false, below = false;
    char *value = NULL;
    for (const char *line = ini; *line;) {
        size_t n = strcspn(line, "\n"), indent = strspn(line, " \t");
        const char *at = line + indent, *equals = memchr(line, '=', n);
        if (*at == '[' && !indent) {
            inside = is_section(line, n, k->kind, k->section);
            if (inside) *found = true;
            below = false;
        } else if (inside && equals && *at != '#' && *at != ';') {
            const char *end = equals;
            while (end > at && strchr(white, end[-1])) end--;
            bool is_key = word_is(at, (size_t)(end - at), below && indent ? subkey : key);
            if (!indent) below = is_key && subkey;
            if (is_key && !!subkey == (indent > 0)) {
                char *raw = heap_string(equals + 1, n - (size_t)(equals + 1 - line));
                free(value);
                value = text_trimmed(raw);
                free(raw);
            }
        }
        line += n + (line[n] == '\n');
    }
    if (value && value[0]) return value;
    free(value);
    return NULL;
}

char *s3_profile_find(const char *ini, const char *profile, const char *key, bool *found)
{
    char *value = NULL;
    bool ignored;
    if (strncmp(key, "services.", 9))
        return find_in_section(ini, &(struct ini_key){"profile", profile, key, NULL}, found);
    char *services =
        find_in_section(ini, &(struct ini_key){"profile", profile, "services", NULL}, found);
    const char *dot = strchr(key + 9, '.');
    char *parent = heap_string(key + 9, (size_t)(dot - key - 9));
    if (services)
        value = find_in_section(ini, &(struct ini_key){"services", services, parent, dot + 1},
                                &ignored);
    free(parent);
    free(services);
    return value;
}

static enum status read_file(const char *variable, const char *name, struct text *out)
{
    const char *given = env_find(variable), *home = env_find("HOME");
    char *path = given ? heap_strdup(given) : home ? file_join(home, name) : heap_strdup("");
    enum status st = STATUS_OK;
    text_clear(out);
    if (path[0] && file_exists(path)) st = file_read(path, MAX_FILE_BYTES, out);
    free(path);
    text_adds(out, "");
    return st;
}

enum status s3_profile_read(struct s3_profile *p)
{
    const char *name = env_find("AWS_PROFILE");
    enum status st = STATUS_OK;
    if (!name) name = env_find("AWS_DEFAULT_PROFILE");
    *p = (struct s3_profile){.name = heap_strdup(name ? name : "default"), .is_named = name};
    TRY_OUT(read_file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", &p->credentials));
    TRY_OUT(read_file("AWS_CONFIG_FILE", ".aws/config", &p->config));
out:
    if (st) s3_profile_release(p);
    return st;
}

void s3_profile_release(struct s3_profile *p)
{
    free(p->name);
    text_release(&p->credentials);
    text_release(&p->config);
    *p = (struct s3_profile){0};
}

bool s3_profile_exists(const struct s3_profile *p)
{
    const struct ini_key any = {"profile", p->name, "", NULL};
    bool found = false;
    free(find_in_section(p->credentials.data, &any, &found));
    free(find_in_section(p->config.data, &any, &found));
    return found;
}

char *s3_profile_key(const struct s3_profile *p, const char *key)
{
    bool found;
    char *value = s3_profile_find(p->credentials.data, p->name, key, &found);
    return value ? value : s3_profile_find(p->config.data, p->name, key, &found);
}

char *s3_profile_setting(const struct s3_profile *p, const char *variable, const char *key)
{
    const char *value = env_find(variable);
    return value ? heap_strdup(value) : s3_profile_key(p, key);
}
