// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.h"
#include "app/app.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "hub/hub.h"
#include "tokenizer/bpe_trainer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "tokenizer train --vocab-size N --output FILE INPUT...\n"
    "       llamero tokenizer encode --tokenizer FILE [--null] [TEXT|-]\n"
    "       llamero tokenizer decode --tokenizer FILE [--null] [ID ...|-]\n"
    "       llamero tokenizer show --tokenizer FILE [--json]\n\n"
    "train learns a byte-level BPE from text files and writes a Hugging Face tokenizer.json.\n"
    "FILE is a tiktoken or SentencePiece BPE .model, a tokenizer.json, a folder with one, or\n"
    "\"bytes\"; without TEXT or ID, or with -, standard input is read.";

static enum status read_stdin(struct text *t)
{
    char bytes[1 << 16];
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, stdin)) > 0;) text_add(t, bytes, n);
    if (ferror(stdin)) FAIL(IO, "standard input: %s", strerror(errno));
    return STATUS_OK;
}

static enum status train(const struct arguments *a, int64_t vocab_size, const char *output)
{
    struct bpe_trainer *t;
    struct text json = {0};
    int32_t made;
    double begin = clock_monotonic_s();
    enum status st = STATUS_OK;
    if (!output[0]) FAIL(USAGE, "tokenizer train: --output FILE is missing");
    if (a->num_words < 2) FAIL(USAGE, "tokenizer train: which text files?");
    bpe_trainer_make(&t);
    for (int i = 1; i < a->num_words; i++) {
        struct file_map map;
        TRY_OUT(file_map_open(&map, a->words[i]));
        bpe_trainer_add(t, (const char *)map.data, map.size);
        file_map_close(&map);
    }
    TRY_OUT(bpe_trainer_finish(t, (int32_t)vocab_size, &json, &made));
    TRY_OUT(file_write(output, json.data, json.len));
    log_line(LOG_INFO, "%s: %d tokens, learnt in %.1f s", output, made,
             clock_monotonic_s() - begin);
out:
    text_release(&json);
    bpe_trainer_free(t);
    return st;
}

/* A line of ids for each text.  There is one text, or `ended` ones, each with a NUL at its end. */
static enum status encode(const struct tokenizer *t, const struct text *input, bool ended)
{
    struct encoder *e;
    struct token_list ids = {0};
    struct text out = {0};
    enum status st = STATUS_OK;
    TRY(encoder_make(&e, t));
    for (const char *at = input->data, *end = at + input->len, *next; at; at = next) {
        const char *stop = ended ? memchr(at, 0, (size_t)(end - at)) : end;
        if (ended && at == end) break;
        if (!stop) FAIL_OUT(USAGE, "--null: the last text does not end in a NUL byte");
        next = ended ? stop + 1 : NULL;
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

/* Ids from words separated by white space. */
static enum status read_ids(const char *text, struct token_list *ids)
{
    for (const char *at = text;;) {
        char *end;
        at += strspn(at, " \t\r\n");
        if (!*at) return STATUS_OK;
        errno = 0;
        long id = strtol(at, &end, 10);
        if (end == at || errno || id < 0 || id > INT32_MAX || (*end && !strchr(" \t\r\n", *end)))
            FAIL(USAGE, "\"%.20s\" is no token id", at);
        token_list_reserve(ids, 1);
        ids->ids[ids->count++] = (int32_t)id;
        at = end;
    }
}

/* The text of all ids, or of those of each line with a NUL at its end. */
static enum status decode(const struct tokenizer *t, struct text *words, bool ended)
{
    struct token_list ids = {0};
    struct text out = {0};
    enum status st = STATUS_OK;
    if (strlen(words->data) != words->len) FAIL(USAGE, "a NUL byte is no token id");
    for (char *line = words->data, *next; line && !st; line = next) {
        next = ended ? strchr(line, '\n') : NULL;
        if (ended && !next && !*line) break;
        if (next) *next++ = 0;
        ids.count = 0;
        text_clear(&out);
        text_adds(&out, "");
        st = read_ids(line, &ids);
        if (!st) st = tokenizer_decode(t, ids.ids, ids.count, &out);
        if (!st) fwrite(out.data, 1, out.len + ended, stdout);
    }
    text_release(&out);
    token_list_release(&ids);
    return st;
}

static void show(const struct tokenizer *t, bool json)
{
    struct text out = {0};
    bool first = true;
    text_addf(&out,
              json ? "{\"kind\": \"%s\", \"vocab_size\": %d, \"bos\": %d, \"eos\": %d, "
                     "\"specials\": {"
                   : "kind        %s\nvocabulary  %d tokens\nbegins with %d, ends with %d\n",
              tokenizer_kind(t), tokenizer_vocab_size(t), tokenizer_bos(t), tokenizer_eos(t));
    for (int32_t id = 0; id < tokenizer_vocab_size(t); id++) {
        const char *name = tokenizer_special_name(t, id);
        if (!name) continue;
        if (json) {
            text_adds(&out, first ? "" : ", ");
            json_quote(&out, name);
            text_addf(&out, ": %d", id);
        } else {
            text_addf(&out, "  %6d  %s\n", id, name);
        }
        first = false;
    }
    text_adds(&out, json ? "}}\n" : "");
    fputs(out.data, stdout);
    text_release(&out);
}

/* encode, decode and show: with an open tokenizer. */
static enum status with_tokenizer(const struct arguments *a, const struct tokenizer *t, bool json,
                                  bool ended)
{
    const char *verb = a->words[0];
    struct text input = {0};
    enum status st = STATUS_OK;
    if (!strcmp(verb, "show")) {
        show(t, json);
        return STATUS_OK;
    }
    if (a->num_words == 1 || (a->num_words == 2 && !strcmp(a->words[1], "-")))
        TRY_OUT(read_stdin(&input));
    else
        for (int i = 1; i < a->num_words; i++)
            text_addf(&input, "%s%s", i > 1 ? " " : "", a->words[i]);
    text_adds(&input, "");
    if (!strcmp(verb, "encode"))
        st = encode(t, &input, ended);
    else
        st = decode(t, &input, ended);
out:
    text_release(&input);
    return st;
}

enum status command_tokenizer(int argc, char **argv)
{
    static const char *const verbs[] = {"train", "encode", "decode", "show"};
    const char *path = "", *output = "";
    int64_t vocab_size = 32000;
    bool json = false, known = false, cuts = false, ended = false;
    const struct flag flags[] = {
        {"tokenizer", FLAG_TEXT, &path, "the tokenizer to use"},
        {"vocab-size", FLAG_INT, &vocab_size, "tokens to learn, specials included (default 32000)"},
        {"output", FLAG_TEXT, &output, "where train writes the tokenizer.json"},
        {"meta-cuts", FLAG_SWITCH, &cuts, "cut long text as Meta's tokenizer.py does"},
        {"null", FLAG_SWITCH, &ended, "each text ends in a NUL byte, its ids are a line"},
        {"json", FLAG_SWITCH, &json, "print one JSON object"},
        {0},
    };
    struct arguments a;
    struct tokenizer *t;
    TRY(arguments_read(&a, flags, usage, 1, 64, argc, argv));
    if (a.help) return STATUS_OK;
    for (size_t i = 0; i < 4; i++) known |= !strcmp(a.words[0], verbs[i]);
    if (!known) FAIL(USAGE, "tokenizer: train, encode, decode or show; not \"%s\"", a.words[0]);
    if (a.num_settings)
        FAIL(USAGE, "tokenizer: \"%s\" is a setting; text goes behind --", a.settings[0]);
    if (!strcmp(a.words[0], "train")) {
        if (vocab_size < 0 || vocab_size > 1 << 24) FAIL(USAGE, "--vocab-size: out of bounds");
        return train(&a, vocab_size, output);
    }
    if (!path[0]) FAIL(USAGE, "tokenizer %s: --tokenizer FILE is missing", a.words[0]);
    struct tokenizer_config config = {.meta_cuts = cuts};
    TRY(hub_fetch(path, HUB_TOKENIZER, comm_self()));
    TRY(tokenizer_open(&t, path, &config));
    enum status st = with_tokenizer(&a, t, json, ended);
    tokenizer_close(t);
    return st;
}
