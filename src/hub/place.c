// SPDX-License-Identifier: Apache-2.0
#include "hub/place.h"

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

static char *copy(const char *text) { return heap_string(text, strlen(text)); }

static bool is_on(const char *name)
{
    static const char *const yes[] = {"1", "ON", "YES", "TRUE"};
    const char *value = variable(name);
    for (size_t i = 0; value && i < sizeof yes / sizeof *yes; i++)
        if (!strcasecmp(value, yes[i])) return true;
    return false;
}

/* Without what is white at both ends; heap. */
static char *trimmed(const char *text)
{
    static const char white[] = " \t\r\n";
    text += strspn(text, white);
    size_t n = strlen(text);
    while (n && strchr(white, text[n - 1])) n--;
    return heap_string(text, n);
}

/* $HF_HOME, $XDG_CACHE_HOME/huggingface or ~/.cache/huggingface; heap, NULL: none of them. */
static char *home(void)
{
    const char *own = variable("HF_HOME"), *cache = variable("XDG_CACHE_HOME");
    const char *user = variable("HOME");
    if (own) return copy(own);
    if (cache) return file_join(cache, "huggingface");
    return user ? file_join(user, ".cache/huggingface") : NULL;
}

static enum status read_token(struct hub_settings *s, const char *folder)
{
    const char *token = variable("HF_TOKEN"), *given = variable("HF_TOKEN_PATH");
    struct text held = {0};
    char *path = given ? copy(given) : folder ? file_join(folder, "token") : copy("");
    enum status st = STATUS_OK;
    s->token_from = token ? "HF_TOKEN" : given ? "the file HF_TOKEN_PATH names" : "$HF_HOME/token";
    if (!token && path[0] && file_exists(path)) TRY_OUT(file_read(path, 4096, &held));
    s->token = trimmed(token ? token : held.data ? held.data : "");
    for (const char *at = s->token; *at; at++)
        if (*at <= ' ' || *at > '~') FAIL_OUT(DATA, "%s: this is no token", s->token_from);
out:
    text_release(&held);
    free(path);
    return st;
}

enum status hub_settings_read(struct hub_settings *s)
{
    const char *cache = variable("HF_HUB_CACHE"), *endpoint = variable("HF_ENDPOINT");
    char *folder = home();
    enum status st = STATUS_OK;
    if (!cache) cache = variable("HUGGINGFACE_HUB_CACHE");
    *s = (struct hub_settings){.endpoint = copy(endpoint ? endpoint : "https://huggingface.co")};
    for (size_t n = strlen(s->endpoint); n && s->endpoint[n - 1] == '/';) s->endpoint[--n] = 0;
    s->offline = is_on("HF_HUB_OFFLINE") || is_on("TRANSFORMERS_OFFLINE");
    if (!cache && !folder)
        FAIL_OUT(CONFIG, "hf://: HF_HOME says where files from the Hub are kept, and neither it "
                         "nor HOME is set");
    s->cache = cache ? copy(cache) : file_join(folder, "hub");
    TRY_OUT(read_token(s, folder));
out:
    free(folder);
    if (st) hub_settings_release(s);
    return st;
}

void hub_settings_release(struct hub_settings *s)
{
    free(s->endpoint);
    free(s->cache);
    free(s->token);
    *s = (struct hub_settings){0};
}

bool is_hex(const char *text, size_t digits)
{
    return strspn(text, "0123456789abcdef") == digits && !text[digits];
}

bool is_inside(const char *path)
{
    if (!path[0] || strlen(path) > 1024) return false;
    for (const char *at = path; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 127) return false;
    for (;;) {
        size_t n = strcspn(path, "/");
        bool dots = n <= 2 && !strncmp(path, "..", n);
        if (!n || n > 255 || dots) return false;
        if (!path[n]) return true;
        path += n + 1;
    }
}

/* A name of the Hub: it becomes a part of a folder's name and of a URL. */
static bool is_name(const char *text, size_t n)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789._-";
    if (!n || n > 96 || strspn(text, letters) < n || text[0] == '.' || text[0] == '-') return false;
    for (size_t i = 0; i + 1 < n; i++)
        if (text[i] == text[i + 1] && (text[i] == '-' || text[i] == '.')) return false;
    return true;
}

/* What stands behind the @: returns where it ends.  A %2F becomes a slash. */
static const char *read_revision(const char *at, struct text *out)
{
    static const char *const deep[] = {"refs/convert/", "refs/pr/"};
    size_t n = strcspn(at, "/");
    for (size_t i = 0; i < 2; i++) {
        size_t m = strlen(deep[i]);
        if (!strncmp(at, deep[i], m)) n = m + strcspn(at + m, "/");
    }
    if (*at == '~') text_adds(out, "refs/convert/");
    for (size_t i = *at == '~'; i < n; i++) {
        bool slash = n - i >= 3 && !strncasecmp(at + i, "%2F", 3);
        text_add(out, slash ? "/" : at + i, 1);
        if (slash) i += 2;
    }
    return at + n;
}

enum status place_read(struct place *p, const char *path)
{
    const char *at = path + strlen("hf://"), *org, *rest = "";
    struct text revision = {0};
    *p = (struct place){.is_dataset = !strncmp(at, "datasets/", 9)};
    org = at + (p->is_dataset ? 9 : 0);
    size_t n = strcspn(org, "/"), m = org[n] ? strcspn(org + n + 1, "/@") : 0;
    if (m) rest = org + n + 1 + m;
    if (*rest == '@')
        rest = read_revision(rest + 1, &revision);
    else
        text_adds(&revision, "main");
    bool slash = *rest == '/';
    bool good = is_name(org, n) && m && is_name(org + n + 1, m) && (slash || !*rest);
    good = good && revision.len && is_inside(revision.data) &&
           (!rest[slash] || is_inside(rest + slash));
    *p = (struct place){
        .is_dataset = p->is_dataset,
        .name = copy(path),
        .repo = heap_string(org, m ? n + 1 + m : n),
        .revision = copy(revision.data ? revision.data : ""),
        .path = copy(*rest ? rest + slash : ""),
    };
    text_release(&revision);
    if (good && (!p->is_dataset || p->path[0])) return STATUS_OK;
    place_release(p);
    FAIL(CONFIG,
         "%s: a path of the Hub is hf://datasets/ORG/NAME[@REVISION]/GLOB or "
         "hf://ORG/MODEL[@REVISION][/FILE]",
         path);
}

void place_release(struct place *p)
{
    free(p->name);
    free(p->repo);
    free(p->revision);
    free(p->path);
    *p = (struct place){0};
}

char *place_folder(const struct place *p, const char *cache)
{
    struct text name = {0};
    size_t org = strcspn(p->repo, "/");
    text_addf(&name, "%s--%.*s--%s", p->is_dataset ? "datasets" : "models", (int)org, p->repo,
              p->repo + org + 1);
    char *folder = file_join(cache, name.data);
    text_release(&name);
    return folder;
}

static char *note_path(const struct place *p, const char *cache)
{
    char *folder = place_folder(p, cache), *refs = file_join(folder, "refs");
    char *path = file_join(refs, p->revision);
    free(folder), free(refs);
    return path;
}

enum status place_commit(const struct place *p, const char *cache, char commit[COMMIT_HEX])
{
    struct text held = {0};
    char *path = note_path(p, cache), *word = NULL;
    enum status st = STATUS_OK;
    if (is_hex(p->revision, COMMIT_HEX - 1)) {
        memcpy(commit, p->revision, COMMIT_HEX);
        goto out;
    }
    TRY_OUT(file_read(path, 256, &held));
    word = trimmed(held.data);
    if (!is_hex(word, COMMIT_HEX - 1)) FAIL_OUT(DATA, "%s: this is no commit", path);
    memcpy(commit, word, COMMIT_HEX);
out:
    free(path), free(word);
    text_release(&held);
    return st;
}

enum status place_note(const struct place *p, const char *cache, const char *commit)
{
    char known[COMMIT_HEX];
    if (is_hex(p->revision, COMMIT_HEX - 1)) return STATUS_OK;
    if (!place_commit(p, cache, known) && !strcmp(known, commit)) return STATUS_OK;
    char *path = note_path(p, cache), *end = strrchr(path, '/');
    *end = 0;
    enum status st = file_make_dirs(path);
    *end = '/';
    if (!st) st = file_write(path, commit, strlen(commit));
    free(path);
    return st;
}
