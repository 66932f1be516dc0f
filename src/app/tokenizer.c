// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.h"
#include "app/app.h"
#include "app/arguments.h"
#include "base/clock.h"
#include "base/escape.h"
#include "base/file.h"
#include "base/file_map.h"
#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"
#include "hub/hub.h"
#include "tokenizer/bpe_trainer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct usage usage = {
    "tokenizer",
    {{"train", {USAGE_FLAGS("--vocab-size N --output FILE [--force]"), USAGE_SOME(FILE, "INPUT")}},
     {"encode",
      {USAGE_FLAGS("--tokenizer FILE [--null]"), {ITEM_TEXT, "TEXT", true, true, "[TEXT ...|-]"}}},
     {"decode",
      {USAGE_FLAGS("--tokenizer FILE [--null]"), {ITEM_TEXT, "ID", true, true, "[ID ...|-]"}}},
     {"show", {USAGE_FLAGS("--tokenizer FILE [--json]")}}},
    "train learns a byte-level BPE from text files and writes a Hugging Face tokenizer.json.\n"
    "FILE is a tiktoken or SentencePiece .model, a tokenizer.json or tekken.json, a folder "
    "with\n"
    "one of these, or \"bytes\".  Without TEXT or ID, or with -, reads standard input.",
};

static enum status read_stdin(struct text *t)
{
    char bytes[1 << 16];
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, stdin)) > 0;) text_add(t, bytes, n);
    if (ferror(stdin)) FAIL(IO, "standard input: %s", strerror(errno));
    return STATUS_OK;
}

static double total_bytes(const struct arguments *a)
{
    double bytes = 0;
    struct stat s;
    for (int i = 1; i < a->num_words; i++) bytes += stat(a->words[i], &s) ? 0 : (double)s.st_size;
    return bytes;
}

static enum status train(const struct arguments *a, int64_t vocab_size, const char *output,
                         bool force)
{
    enum file_kind kind;
    uint64_t size = 0;
    struct bpe_trainer *t;
    struct text json = {0};
    int32_t made;
    double begin = clock_monotonic_s();
    enum status st = STATUS_OK;
    if (!output[0]) FAIL(USAGE, "tokenizer train: --output FILE is required");
    TRY(file_find(output, &kind));
    if (kind == FILE_REGULAR) TRY(file_size(output, &size));
    if (size && !force) /* /dev/stdout may be an empty file */
        FAIL(CONFIG, "%s already exists; use --force to overwrite it", output);
    bpe_trainer_make(&t);
    progress_begin("reading", PROGRESS_BYTES, total_bytes(a));
    for (int i = 1; i < a->num_words; i++) {
        struct file_map map;
        TRY_OUT(file_map_open(&map, a->words[i]));
        bpe_trainer_add(t, (const char *)map.data, map.size);
        st = file_map_check(&map);
        file_map_close(&map);
        if (st) goto out;
    }
    progress_begin("merging", PROGRESS_TOKENS, (double)vocab_size - 256);
    TRY_OUT(bpe_trainer_finish(t, (int32_t)vocab_size, &json, &made));
    TRY_OUT(file_write(output, json.data, json.len));
    log_line(LOG_INFO, "%s: %d tokens, trained in %.1f s", output, made,
             clock_monotonic_s() - begin);
out:
    progress_end();
    text_release(&json);
    bpe_trainer_free(t);
    return st;
}

/* Prints a line of IDs for each text: the whole input, or with `by_nul` several texts that each end
 * in a NUL byte. */
static enum status encode(const struct tokenizer *t, const struct text *input, bool by_nul)
{
    struct encoder *e;
    struct token_list ids = {0};
    struct text out = {0};
    enum status st = STATUS_OK;
    TRY(encoder_make(&e, t));
    for (const char *at = input->data, *end = at + input->len, *next; at; at = next) {
        const char *stop = by_nul ? memchr(at, 0, (size_t)(end - at)) : end;
        if (by_nul && at == end) break;
        if (!stop) FAIL_OUT(USAGE, "--null: the last text does not end in a NUL byte");
        next = by_nul ? stop + 1 : NULL;
        ids.count = 0;
        text_clear(&out);
        TRY_OUT(encoder_encode(e, at, (size_t)(stop - at), &ids));
        for (size_t i = 0; i < ids.count; i++) text_addf(&out, "%s%d", i ? " " : "", ids.ids[i]);
        text_adds(&out, "\n");
        fputs(out.data, stdout);
    }
out:
    text_release(&out);
    token_list_release(&ids);
    encoder_free(e);
    return st;
}

/* Parses IDs separated by white space. */
static enum status parse_ids(const char *text, struct token_list *ids)
{
    for (const char *at = text;;) {
        char *end;
        at += strspn(at, " \t\r\n");
        if (!*at) return STATUS_OK;
        errno = 0;
        long id = strtol(at, &end, 10);
        if (end == at || errno || id < 0 || id > INT32_MAX || (*end && !strchr(" \t\r\n", *end)))
            FAIL(USAGE, "\"%.20s\" is not a token ID", at);
        token_list_reserve(ids, 1);
        ids->ids[ids->count++] = (int32_t)id;
        at = end;
    }
}

/* Prints the text of all IDs; with `by_nul`, of each line of IDs, followed by a NUL byte. */
static enum status decode(const struct tokenizer *t, struct text *words, bool by_nul)
{
    struct token_list ids = {0};
    struct text out = {0};
    enum status st = STATUS_OK;
    if (strlen(words->data) != words->len) FAIL(USAGE, "a NUL byte is not a token ID");
    for (char *line = words->data, *next; line && !st; line = next) {
        next = by_nul ? strchr(line, '\n') : NULL;
        if (by_nul && !next && !*line) break;
        if (next) *next++ = 0;
        ids.count = 0;
        text_clear(&out);
        text_adds(&out, "");
        st = parse_ids(line, &ids);
        if (!st) st = tokenizer_decode(t, ids.ids, ids.count, &out);
        if (!st) fwrite(out.data, 1, out.len + by_nul, stdout);
    }
    text_release(&out);
    token_list_release(&ids);
    return st;
}

static void show(const struct tokenizer *t)
{
    printf("kind        %s\nvocabulary  %d tokens\nbos, eos    %d, %d\n", tokenizer_kind(t),
           tokenizer_vocab_size(t), tokenizer_bos(t), tokenizer_eos(t));
    for (int32_t id = 0; id < tokenizer_vocab_size(t); id++) {
        const char *name = tokenizer_special_name(t, id);
        char shown[256];
        if (name) printf("  %6d  %s\n", id, escape_controls(shown, sizeof shown, name, ""));
    }
}

static void show_json(const struct tokenizer *t)
{
    struct text out = {0};
    struct json_writer w = {.text = &out};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_string(&w, "kind", tokenizer_kind(t));
    json_write_int(&w, "vocab_size", tokenizer_vocab_size(t));
    json_write_int(&w, "bos", tokenizer_bos(t));
    json_write_int(&w, "eos", tokenizer_eos(t));
    json_begin_object(&w, "specials", JSON_INLINE);
    for (int32_t id = 0; id < tokenizer_vocab_size(t); id++) {
        const char *name = tokenizer_special_name(t, id);
        if (name) json_write_int(&w, name, id);
    }
    json_end_object(&w);
    json_end_object(&w);
    json_finish(&w);
    puts(out.data);
    text_release(&out);
}

/* encode, decode or show. */
static enum status use_tokenizer(const struct arguments *a, const struct tokenizer *t, bool json,
                                 bool by_nul)
{
    const char *verb = a->words[0];
    struct text input = {0};
    enum status st = STATUS_OK;
    if (!strcmp(verb, "show")) {
        (json ? show_json : show)(t);
        return STATUS_OK;
    }
    if (a->num_words == 1 || (a->num_words == 2 && !strcmp(a->words[1], "-")))
        TRY_OUT(read_stdin(&input));
    else
        for (int i = 1; i < a->num_words; i++)
            text_addf(&input, "%s%s", i > 1 ? " " : "", a->words[i]);
    text_adds(&input, "");
    if (!strcmp(verb, "encode"))
        st = encode(t, &input, by_nul);
    else
        st = decode(t, &input, by_nul);
out:
    text_release(&input);
    return st;
}

enum status command_tokenizer(int argc, char **argv)
{
    const char *path = "", *output = "", *pattern = "";
    int64_t vocab_size = 32000;
    bool json = false, cuts = false, by_nul = false, force = false;
    const struct flag flags[] = {
        {"tokenizer", FLAG_FILE, &path, "encode, decode, show: the tokenizer to use"},
        {"vocab-size", FLAG_INT(BPE_TRAINER_MIN_SIZE, BPE_TRAINER_MAX_SIZE), &vocab_size,
         "train: vocabulary size, including special tokens"},
        {"output", FLAG_FILE, &output, "train: tokenizer.json to write"},
        {"force", FLAG_SWITCH, &force, "train: overwrite an existing file"},
        {"meta-cuts", FLAG_SWITCH, &cuts, "encode: split long text as Meta's tokenizer.py does"},
        {"pattern", FLAG_TEXT, &pattern,
         "encode, decode, show: pre-tokenizer pattern of a tiktoken file: llama3, gpt2, ..."},
        {"null", FLAG_SWITCH, &by_nul,
         "encode, decode: several texts, each ending in a NUL byte; a line of IDs each"},
        {"json", FLAG_SWITCH, &json, "show: print one JSON object"},
        {0},
    };
    struct arguments a;
    struct tokenizer *t;
    TRY(arguments_read(&a, &(struct arguments_spec){&usage, flags}, argc, argv));
    if (a.help) return STATUS_OK;
    if (!strcmp(a.words[0], "train")) return train(&a, vocab_size, output, force);
    if (!path[0]) FAIL(USAGE, "tokenizer %s: --tokenizer FILE is required", a.words[0]);
    struct tokenizer_config config = {.meta_cuts = cuts, .pattern = pattern};
    TRY(hub_fetch(path, HUB_TOKENIZER, comm_self()));
    TRY(tokenizer_open(&t, path, &config));
    if (cuts && !encoder_uses_cuts(t)) {
        tokenizer_close(t);
        FAIL(USAGE, "--meta-cuts has no effect with the tokenizer %s, which does not split text",
             path);
    }
    enum status st = use_tokenizer(&a, t, json, by_nul);
    tokenizer_close(t);
    return st;
}
