// SPDX-License-Identifier: Apache-2.0
#include "hub/hub_path.h"

#include "base/file.h"
#include "hub/digest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool hub_path_is_contained(const char *path)
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

/* Whether it is a valid name of an organization or repository.  It becomes part of a folder name
 * and of a URL. */
static bool is_name(const char *text, size_t n)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789._-";
    if (!n || n > 96 || strspn(text, letters) < n || text[0] == '.' || text[0] == '-') return false;
    for (size_t i = 0; i + 1 < n; i++)
        if (text[i] == text[i + 1] && (text[i] == '-' || text[i] == '.')) return false;
    return true;
}

/* Reads the revision after the @ and returns its end.  %2F becomes a slash. */
static const char *read_revision(const char *at, struct text *out)
{
    static const char *const multi_level[] = {"refs/convert/", "refs/pr/"};
    size_t n = strcspn(at, "/");
    for (size_t i = 0; i < 2; i++) {
        size_t m = strlen(multi_level[i]);
        if (!strncmp(at, multi_level[i], m)) n = m + strcspn(at + m, "/");
    }
    if (*at == '~') text_adds(out, "refs/convert/");
    for (size_t i = *at == '~'; i < n; i++) {
        bool slash = n - i >= 3 && !strncasecmp(at + i, "%2F", 3);
        text_add(out, slash ? "/" : at + i, 1);
        if (slash) i += 2;
    }
    return at + n;
}

enum status hub_path_check_scheme(const char *path)
{
    size_t n = file_url_scheme(path);
    if (!n || (n == 2 && (!strncmp(path, "hf", 2) || !strncmp(path, "s3", 2)))) return STATUS_OK;
    FAIL(CONFIG, "%s: unknown URL scheme \"%.*s\"; expected a local path, hf:// or s3://", path,
         (int)n, path);
}

static enum status parse_s3(struct hub_path *p, const char *path)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789._-";
    const char *bucket = path + strlen("s3://");
    size_t n = strcspn(bucket, "/"), m = strlen(bucket + n);
    const char *key = bucket + n + (m > 0);
    if (m > 1 && key[m - 2] == '/') m--; /* a folder may end in a slash */
    struct digest d;
    char hash[DIGEST_HEX];
    digest_init(&d, DIGEST_SHA1);
    digest_add(&d, bucket, n + m);
    digest_hex(&d, hash);
    struct text revision = {0};
    text_addf(&revision, "path-%s", hash);
    *p = (struct hub_path){.is_s3 = true,
                           .name = heap_strdup(path),
                           .repo = heap_string(bucket, n),
                           .revision = revision.data,
                           .path = heap_string(key, m > 0 ? m - 1 : 0)};
    bool is_valid = n >= 3 && n <= 63 && strspn(bucket, letters) >= n && bucket[0] != '.' &&
                    bucket[0] != '-' && !strstr(p->repo, "..");
    if (is_valid && (!p->path[0] || hub_path_is_contained(p->path))) return STATUS_OK;
    hub_path_release(p);
    if (memchr(bucket, '@', n)) /* may be a secret: do not repeat it */
        FAIL(CONFIG, "s3://...@...: credentials in a URL are not supported; set AWS_ACCESS_KEY_ID "
                     "and AWS_SECRET_ACCESS_KEY");
    FAIL(CONFIG, "%s: expected s3://BUCKET/KEY, where KEY may be a pattern or a folder", path);
}

enum status hub_path_parse(struct hub_path *p, const char *path)
{
    const char *at = path + strlen("hf://"), *org, *rest = "";
    struct text revision = {0};
    if (!strncmp(path, "s3://", 5)) return parse_s3(p, path);
    *p = (struct hub_path){.is_dataset = !strncmp(at, "datasets/", 9)};
    org = at + (p->is_dataset ? 9 : 0);
    size_t n = strcspn(org, "/"), m = org[n] ? strcspn(org + n + 1, "/@") : 0;
    if (m) rest = org + n + 1 + m;
    if (*rest == '@')
        rest = read_revision(rest + 1, &revision);
    else
        text_adds(&revision, "main");
    bool slash = *rest == '/';
    bool is_valid = is_name(org, n) && m && is_name(org + n + 1, m) && (slash || !*rest);
    is_valid = is_valid && revision.len && hub_path_is_contained(revision.data) &&
               (!rest[slash] || hub_path_is_contained(rest + slash));
    *p = (struct hub_path){
        .is_dataset = p->is_dataset,
        .name = heap_strdup(path),
        .repo = heap_string(org, m ? n + 1 + m : n),
        .revision = heap_strdup(revision.data ? revision.data : ""),
        .path = heap_strdup(*rest ? rest + slash : ""),
    };
    text_release(&revision);
    if (is_valid && (!p->is_dataset || p->path[0])) return STATUS_OK;
    hub_path_release(p);
    FAIL(CONFIG,
         "%s: expected hf://datasets/ORG/NAME[@REVISION]/GLOB or "
         "hf://ORG/MODEL[@REVISION][/FILE]",
         path);
}

void hub_path_release(struct hub_path *p)
{
    free(p->name);
    free(p->repo);
    free(p->revision);
    free(p->path);
    *p = (struct hub_path){0};
}

char *hub_path_cache_folder(const struct hub_path *p, const char *cache)
{
    struct text name = {0};
    size_t org = strcspn(p->repo, "/");
    if (p->is_s3) return file_join(cache, p->repo);
    text_addf(&name, "%s--%.*s--%s", p->is_dataset ? "datasets" : "models", (int)org, p->repo,
              p->repo + org + 1);
    char *folder = file_join(cache, name.data);
    text_release(&name);
    return folder;
}

static char *ref_path(const struct hub_path *p, const char *cache)
{
    char *folder = hub_path_cache_folder(p, cache), *refs = file_join(folder, "refs");
    char *path = file_join(refs, p->revision);
    free(folder), free(refs);
    return path;
}

enum status hub_path_cached_commit(const struct hub_path *p, const char *cache,
                                   char commit[COMMIT_HEX])
{
    static const char white[] = " \t\r\n";
    struct text content = {0};
    char *path = ref_path(p, cache);
    enum status st = STATUS_OK;
    if (digest_is_hex(p->revision, COMMIT_HEX - 1)) {
        memcpy(commit, p->revision, COMMIT_HEX);
        goto out;
    }
    TRY_OUT(file_read(path, 256, &content));
    char *word = content.data + strspn(content.data, white), *end = word + strcspn(word, white);
    bool is_last = !end[strspn(end, white)];
    *end = 0;
    if (!is_last || !digest_is_hex(word, COMMIT_HEX - 1))
        FAIL_OUT(DATA, "%s: not a commit hash", path);
    memcpy(commit, word, COMMIT_HEX);
out:
    free(path);
    text_release(&content);
    return st;
}

enum status hub_path_write_ref(const struct hub_path *p, const char *cache, const char *commit)
{
    char known[COMMIT_HEX];
    if (digest_is_hex(p->revision, COMMIT_HEX - 1)) return STATUS_OK;
    if (!hub_path_cached_commit(p, cache, known) && !strcmp(known, commit)) return STATUS_OK;
    char *path = ref_path(p, cache), *end = strrchr(path, '/');
    *end = 0;
    enum status st = file_make_dirs(path);
    *end = '/';
    if (!st) st = file_write(path, commit, strlen(commit));
    free(path);
    return st;
}
