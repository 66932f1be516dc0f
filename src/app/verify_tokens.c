// SPDX-License-Identifier: Apache-2.0
#include "app/verify_tokens.h"

#include "base/file.h"
#include "base/json.h"
#include "formats/megatron_sum.h"

#include <stdio.h>
#include <stdlib.h>

bool verify_tokens_handles(const char *path)
{
    struct text idx = {0};
    size_t len;
    bool named = file_has_suffix(path, ".bin") || file_has_suffix(path, ".idx");
    text_addf(&idx, "%s.idx", path);
    bool handles =
        (named || megatron_sum_exists(path, &len) || file_exists(idx.data)) && !file_is_dir(path);
    text_release(&idx);
    return handles;
}

static void print_json(const char *prefix, uint64_t bytes, const struct text *errors)
{
    struct text t = {0};
    struct json_writer w = {.text = &t};
    json_begin_array(&w, NULL, JSON_INLINE);
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_string(&w, "path", prefix);
    json_write_int(&w, "bytes", (int64_t)bytes);
    json_write_bool(&w, "valid", !errors->len);
    if (errors->len) json_write_string(&w, "reason", errors->data);
    json_end_object(&w);
    json_end_array(&w);
    json_finish(&w);
    puts(t.data);
    text_release(&t);
}

enum status verify_tokens(const char *path, bool json)
{
    struct text errors = {0};
    size_t len;
    uint64_t bytes;
    megatron_sum_exists(path, &len);
    char *prefix = heap_string(path, len);
    enum status st = STATUS_OK;
    TRY_OUT(megatron_sum_verify(prefix, &errors, &bytes));
    if (json)
        print_json(prefix, bytes, &errors);
    else
        printf("%s.bin and .idx %10.1f MB  %s\n%s%s", prefix, (double)bytes / 1e6,
               errors.len ? "DAMAGED" : "good", errors.len ? errors.data : "",
               errors.len ? "\n" : "");
    if (errors.len) FAIL_OUT(DATA, "%s: the token files are damaged", prefix);
out:
    text_release(&errors);
    free(prefix);
    return st;
}
