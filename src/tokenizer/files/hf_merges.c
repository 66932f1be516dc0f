// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/files/hf_merges.h"

#include "tokenizer/tokenizer_impl.h"

#include <string.h>

/* Splits a merge written as "a b" or ["a", "b"] into its halves. */
static bool merge_parts(const struct json *v, const char *part[2], size_t len[2])
{
    if (json_is_string(v)) {
        part[0] = json_string(v);
        const char *space = strchr(part[0], ' ');
        if (!space || strchr(space + 1, ' ')) return false;
        len[0] = (size_t)(space - part[0]);
        part[1] = space + 1;
        len[1] = strlen(part[1]);
        return true;
    }
    const struct json *first = json_first(v), *second = first ? json_next(first) : NULL;
    if (!json_is_array(v) || !json_is_string(first) || !json_is_string(second) || json_next(second))
        return false;
    part[0] = json_string(first), part[1] = json_string(second);
    len[0] = strlen(part[0]), len[1] = strlen(part[1]);
    return true;
}

enum status hf_merges_read(struct tokenizer *t, const struct json *merges, hf_merges_decode *decode)
{
    struct text left = {0}, right = {0};
    int32_t rank = 0;
    enum status st = STATUS_OK;
    if (!json_is_array(merges)) FAIL(DATA, "%s: model.merges is not an array", t->path);
    for (const struct json *v = json_first(merges); v; v = json_next(v), rank++) {
        const char *part[2];
        size_t len[2];
        if (!merge_parts(v, part, len) || decode(t, part[0], len[0], &left) ||
            decode(t, part[1], len[1], &right))
            FAIL_OUT(DATA, "%s: merge %d: expected a pair of tokens", t->path, rank);
        int32_t x = vocabulary_find(&t->vocabulary, left.data, left.len);
        int32_t y = vocabulary_find(&t->vocabulary, right.data, right.len);
        text_add(&left, right.data, right.len);
        int32_t merged = vocabulary_find(&t->vocabulary, left.data, left.len);
        if (x < 0 || y < 0 || merged < 0)
            FAIL_OUT(DATA, "%s: merge %d: a token is not in the vocabulary", t->path, rank);
        vocabulary_add_pair(&t->vocabulary, x, y, rank, merged);
    }
out:
    text_release(&left), text_release(&right);
    return st;
}
