// SPDX-License-Identifier: Apache-2.0
#include "data/source_rig.h"

struct source_config source_rig_config(const char *path)
{
    return (struct source_config){.path = path, .column = "text", .weight = 1};
}

struct source source_rig_open(struct source_config *config)
{
    struct source s;
    CHECK_STATUS(OK, source_open(&s, config));
    return s;
}

void source_rig_tokens_init(struct source_rig_tokens *r)
{
    *r = (struct source_rig_tokens){0};
    CHECK_STATUS(OK, tokenizer_open(&r->tokenizer, "bytes", &(struct tokenizer_config){0}));
    r->tokens = (struct source_tokens){.tokenizer = r->tokenizer, .bos = true, .eos = true};
    CHECK_STATUS(OK, encoder_make(&r->tokens.encoder, r->tokenizer));
}

void source_rig_tokens_release(struct source_rig_tokens *r)
{
    encoder_free(r->tokens.encoder);
    tokenizer_close(r->tokenizer);
    text_release(&r->tokens.text);
    token_list_release(&r->ids);
}

enum status source_rig_read_part(struct source *s, uint64_t part, uint64_t num_parts,
                                 struct text *out)
{
    struct source_reader reader = {0};
    struct source_rig_tokens r;
    struct source_document f = {0};
    struct source_range cursor = source_part(s, part, num_parts);
    bool none = false;
    enum status st = STATUS_OK;
    source_rig_tokens_init(&r);
    text_adds(out, "");
    for (;;) {
        TRY_OUT(source_find(s, &reader, &cursor, &f, &none));
        if (none) break;
        r.ids.count = 0;
        TRY_OUT(source_read(s, &f, &r.tokens, &r.ids));
        for (size_t i = 0; i < r.ids.count; i++) {
            int32_t id = r.ids.ids[i];
            text_add(out, id == 256 ? "<" : id == 257 ? ">" : &(char){(char)id}, 1);
        }
        text_adds(out, "|");
    }
out:
    text_release(&f.text);
    source_reader_close(&reader);
    source_rig_tokens_release(&r);
    return st;
}

void source_rig_check(const char *path, const char *want)
{
    struct source_config c = source_rig_config(path);
    struct source s = source_rig_open(&c);
    struct text got = {0};
    CHECK_STATUS(OK, source_rig_read_part(&s, 0, 1, &got));
    if (strcmp(got.data, want)) fail_msg("%s: %s", path, got.data);
    text_release(&got);
    source_close(&s);
}

void source_rig_check_fails(const char *path, const char *why)
{
    struct source_config c = source_rig_config(path);
    struct source s = source_rig_open(&c);
    struct text got = {0};
    CHECK_STATUS(RECORD, source_rig_read_part(&s, 0, 1, &got));
    CHECK_MESSAGE(path);
    CHECK_MESSAGE(why);
    text_release(&got);
    source_close(&s);
}

const char *source_rig_compressed(const char *folder, const char *name, const char *text)
{
    struct text out = {0};
    if (strstr(name, ".gz"))
        rig_gzip(&out, text, strlen(text));
    else
        rig_zstd(&out, text, strlen(text));
    const char *path = rig_bytes(folder, name, out.data, out.len);
    text_release(&out);
    return path;
}
