// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/rig.h"

#include "base/file.h"

enum status open_bytes(struct tokenizer **t, const char *name, const struct text *file)
{
    const char *path = test_path(test_folder(), name);
    bool is_tiktoken = file->len && file->data[0] != '{' && file->data[0] != '\n';
    struct tokenizer_config config = {.pattern = is_tiktoken ? "llama3" : ""};
    CHECK_STATUS(OK, file_write(path, file->data, file->len));
    return tokenizer_open(t, path, &config);
}

enum status opens(const char *name, const char *file)
{
    struct tokenizer *t = NULL;
    struct text bytes = {0};
    text_adds(&bytes, file);
    enum status st = open_bytes(&t, name, &bytes);
    CHECK(!st == (t != NULL));
    tokenizer_close(t);
    text_release(&bytes);
    return st;
}

void append_byte_level(struct text *t, int byte)
{
    int code = byte, next = 256;
    for (int b = 0; b <= byte; b++) {
        bool itself = (b > ' ' && b < 0x7F) || (b > 0xA0 && b != 0xAD);
        if (b == byte && !itself) code = next;
        next += !itself;
    }
    if (code == '"' || code == '\\') text_adds(t, "\\");
    if (code < 0x80)
        text_addf(t, "%c", code);
    else
        text_addf(t, "%c%c", 0xC0 | code >> 6, 0x80 | (code & 63));
}

static const char *value_or(const char *given, const char *fallback)
{
    return given ? given : fallback;
}

void write_json(struct text *file, const struct json_parts *p)
{
    text_addf(file, "{%s\"added_tokens\": [%s], \"normalizer\": %s, \"pre_tokenizer\": %s,",
              value_or(p->rest, ""), value_or(p->added_tokens, ""), value_or(p->normalizer, "null"),
              value_or(p->pre, "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}"));
    text_addf(file, "\"model\": {%s\"type\": \"BPE\", \"vocab\": {", value_or(p->model, ""));
    for (int byte = 0; byte < 256; byte++) {
        text_adds(file, byte ? ",\"" : "\"");
        append_byte_level(file, byte);
        text_addf(file, "\":%d", byte);
    }
    text_addf(file, "%s}, \"merges\": [%s]}}", value_or(p->vocab, ""), value_or(p->merges, ""));
}

void append_base64(struct text *t, const unsigned char *bytes, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t at = 0; at < len; at += 3) {
        uint32_t bits = 0;
        for (size_t i = 0; i < 3; i++) bits = bits << 8 | (at + i < len ? bytes[at + i] : 0);
        for (size_t i = 0; i < 4; i++)
            text_addf(t, "%c", at + i <= len ? digits[bits >> (18 - 6 * i) & 63] : '=');
    }
}

void write_tiktoken(struct text *file, const char *const *tokens, size_t count)
{
    for (int i = 0; i < 256; i++) {
        unsigned char byte = (unsigned char)i;
        append_base64(file, &byte, 1);
        text_addf(file, " %d\n", i);
    }
    for (size_t i = 0; i < count; i++) {
        append_base64(file, (const unsigned char *)tokens[i], strlen(tokens[i]));
        text_addf(file, " %zu\n", 256 + i);
    }
}

struct token_list encoded(const struct tokenizer *t, const void *bytes, size_t len)
{
    struct encoder *e;
    struct token_list ids = {0};
    CHECK_STATUS(OK, encoder_make_sized(&e, t, 8)); /* ASan marks each byte of 4 MiB, twice */
    CHECK_STATUS(OK, encoder_encode(e, bytes, len, &ids));
    encoder_free(e);
    return ids;
}

bool ids_are(const struct tokenizer *t, const char *text, const int32_t *ids, size_t count)
{
    struct token_list got = encoded(t, text, strlen(text));
    bool same = got.count == count && (!count || !memcmp(got.ids, ids, count * sizeof *ids));
    for (size_t i = 0; i < got.count && !same; i++) print_error("%d ", got.ids[i]);
    token_list_release(&got);
    return same;
}
