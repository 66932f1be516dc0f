/* jsonl.c -- any bytes as the lines of a .jsonl file must give texts or a clean error.
 *
 * The scanner must accept what the JSON parser accepts, except deeper nesting, and extract
 * the same string. */
// SPDX-License-Identifier: Apache-2.0
#include "data/jsonl.h"

#include "base/json.h"
#include "data/source.h"
#include "data/source_kind.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* json.h writes U+0000 as C0 80, jsonl_text as a NUL. */
static bool is_same_text(const char *json, const struct text *out)
{
    struct text t = {0};
    text_reserve(&t, 2 * out->len + 1);
    for (size_t i = 0; i < out->len; i++)
        text_add(&t, out->data[i] ? &out->data[i] : "\xC0\x80", out->data[i] ? 1 : 2);
    bool same = t.len == strlen(json) && !memcmp(t.data, json, t.len);
    text_release(&t);
    return same;
}

static void compare(const char *line, size_t len, struct text *out)
{
    struct json *root = NULL;
    if (!jsonl_text(line, len, "text.text", "fuzz", out))
        BUG_IF(!text_is_utf8(out->data, out->len));
    enum status st = jsonl_text(line, len, "text", "fuzz", out);
    bool is_deep = st && strstr(status_message(), "too deeply");
    BUG_IF(!st && !text_is_utf8(out->data, out->len));
    if (json_parse(line, len, "fuzz", &root)) return;
    const struct json *value = json_is_object(root) ? json_get(root, "text") : NULL;
    bool string = json_is_string(value), null = value && json_is_null(value);
    if (is_deep) goto out;
    BUG_IF(!st != (string || null));
    if (!st) BUG_IF(!is_same_text(null ? "" : json_string(value), out));
out:
    json_free(root);
}

/* Counts the documents of a source with one file, read in `num_parts` parts, and compares the texts
 * if there is one part. */
static size_t walk(struct source *s, uint64_t num_parts, struct text *out)
{
    struct source_document f = {0};
    size_t documents = 0;
    for (uint64_t n = 0; n < num_parts; n++) {
        struct source_range cursor = source_part(s, n, num_parts);
        for (bool none = false;; documents++) {
            if (source_find(s, NULL, &cursor, &f, &none) || none) break;
            BUG_IF(!f.len || f.at + f.len > s->num_positions ||
                   memchr(s->files[0].map.data + f.at, '\n', f.len));
            if (num_parts == 1) compare((const char *)s->files[0].map.data + f.at, f.len, out);
        }
    }
    return documents;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct text out = {0};
    struct source_file file = {.map = {.data = bytes, .size = len}};
    struct source s = {.kind = &source_jsonl, .files = &file, .num_files = 1, .num_positions = len};
    if (len) BUG_IF(walk(&s, 1, &out) != walk(&s, 3, &out));
    text_release(&out);
    return 0;
}
