/* tokenizer.c -- megabytes of text that one core encodes per second, and worst-case inputs, which
 * are slow if merging or splitting is not linear.
 *
 *     bench/tokenizer [TOKENIZER [TEXT]]
 *
 * Without arguments: trains a vocabulary on generated words and encodes other words from the same
 * distribution.  Documents in TEXT may be separated by NUL; without TEXT only the worst-case inputs
 * are measured.  Seconds are CPU time. */
// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/median.h"
#include "base/rng.h"
#include "tokenizer/bpe_trainer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RUNS = 5, WORDS = 20000, TEXT_BYTES = 8 << 20, WORST_CASE_BYTES = 1 << 20 };

static uint64_t below(uint64_t most, uint64_t stream, uint64_t position)
{
    return rng_below(most, 1, RNG_TEST, stream, position);
}

/* Word k of the language: two to ten letters, common letters more often. */
static void add_word(struct text *t, uint64_t k)
{
    static const char letters[] = "eeeeeetttttaaaaooooiiinnnssshhhrrrdddlluucmfywgpbvk";
    uint64_t count = 2 + below(5, 1, 2 * k) + below(5, 1, 2 * k + 1);
    for (uint64_t i = 0; i < count; i++)
        text_add(t, &letters[below(sizeof letters - 1, 2, 16 * k + i)], 1);
}

/* Zipf-distributed words, with commas and full stops. */
static void add_words(struct text *t, size_t bytes, uint64_t stream)
{
    for (uint64_t i = 0; t->len < bytes; i++) {
        double u = rng_uniform(2, RNG_TEST, stream, i);
        uint64_t rank = (uint64_t)(1 / (u + 1.0 / WORDS));
        add_word(t, rank);
        uint64_t mark = below(12, stream + 100, i);
        text_adds(t, mark == 0 ? ".\n" : mark == 1 ? ", " : " ");
    }
}

static enum status train_tokenizer(struct tokenizer **t, struct text *text)
{
    char folder[] = "/tmp/llamero-bench-XXXXXX";
    struct bpe_trainer *trainer;
    struct text json = {0};
    struct tokenizer_config config = {0};
    int32_t made;
    if (!mkdtemp(folder)) FAIL(IO, "%s: cannot create the folder: %s", folder, strerror(errno));
    add_words(text, TEXT_BYTES / 2, 3);
    bpe_trainer_make(&trainer);
    bpe_trainer_add(trainer, text->data, text->len);
    char *path = file_join(folder, "tokenizer.json");
    enum status st = bpe_trainer_finish(trainer, 8000, &json, &made);
    if (!st) st = file_write(path, json.data, json.len);
    if (!st) st = tokenizer_open(t, path, &config);
    if (!st) st = file_remove_tree(folder);
    text_clear(text);
    add_words(text, TEXT_BYTES, 4);
    free(path);
    text_release(&json);
    bpe_trainer_free(trainer);
    return st;
}

static enum status encode_documents(struct encoder *e, const struct text *text,
                                    struct token_list *ids)
{
    const char *end = text->data + text->len;
    for (const char *at = text->data, *stop; at < end; at = stop + 1) {
        stop = memchr(at, 0, (size_t)(end - at));
        if (!stop) stop = end;
        TRY(encoder_encode(e, at, (size_t)(stop - at), ids));
    }
    return STATUS_OK;
}

/* Prints the median of RUNS runs, each with a new encoder. */
static enum status measure(const struct tokenizer *t, const char *name, const struct text *text)
{
    double seconds[RUNS];
    struct token_list ids = {0};
    for (int i = 0; i < RUNS; i++) {
        struct encoder *e;
        ids.count = 0;
        TRY(encoder_make_sized(&e, t, ENCODER_CORPUS_BITS));
        clock_t begin = clock();
        enum status st = encode_documents(e, text, &ids);
        seconds[i] = (double)(clock() - begin) / CLOCKS_PER_SEC;
        encoder_free(e);
        TRY(st);
    }
    double megabytes = (double)text->len / 1e6, typical = median(seconds, RUNS);
    printf("%-16s %10.3f MB %10zu tokens %9.1f MB/s %8.4f s\n", name, megabytes, ids.count,
           megabytes / typical, typical);
    token_list_release(&ids);
    return STATUS_OK;
}

static enum status measure_worst_case(const struct tokenizer *t)
{
    static const struct {
        const char *name, *alphabet;
    } inputs[] = {{"one letter", "a"},
                  {"spaces", " "},
                  {"digits", "0123456789"},
                  {"letters", "abcdefghijklmnopqrstuvwxyz"},
                  {"symbols", "!#$%&()*+,-./:;<=>?@[]^_{|}~"},
                  {"one symbol", "="},
                  {"line breaks", "\n"}};
    struct text text = {0};
    enum status st = STATUS_OK;
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs && !st; i++) {
        text_clear(&text);
        for (uint64_t k = 0; k < WORST_CASE_BYTES; k++)
            text_add(&text, &inputs[i].alphabet[below(strlen(inputs[i].alphabet), 5 + i, k)], 1);
        st = measure(t, inputs[i].name, &text);
    }
    text_release(&text);
    return st;
}

static enum status run_benchmark(int argc, char **argv)
{
    struct tokenizer *t = NULL;
    struct text text = {0};
    struct tokenizer_config config = {0};
    enum status st = STATUS_OK;
    double begin = clock_monotonic_s();
    if (argc > 1)
        st = tokenizer_open(&t, argv[1], &config);
    else
        st = train_tokenizer(&t, &text);
    printf("%-16s %59.4f s\n", argc > 1 ? "open" : "train", clock_monotonic_s() - begin);
    if (!st && argc > 2) st = file_read(argv[2], UINT64_MAX, &text);
    if (!st && argc != 2) st = measure(t, "text", &text);
    if (!st && argc < 3) st = measure_worst_case(t);
    tokenizer_close(t);
    text_release(&text);
    return st;
}

int main(int argc, char **argv)
{
    enum status st = run_benchmark(argc, argv);
    if (st) fprintf(stderr, "%s\n", status_message());
    return status_exit_code(st);
}
