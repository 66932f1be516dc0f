// SPDX-License-Identifier: Apache-2.0
#include "data/rig.h"

#include "data/corpus.h"
#include "tokenizer/tokenizer_impl.h"

static const char parquet[] = "tests/oracle/data/parquet/documents.parquet";

struct seen {
    size_t count, ids, within, neurons[8];
    int32_t last;
};

static enum status look(void *context, const struct document *d)
{
    struct seen *s = context;
    s->neurons[s->count++ % 8] = d->neurons;
    s->ids += d->count, s->within += d->within;
    s->last = d->ids[d->count - 1];
    return STATUS_OK;
}

static enum status walk(const struct source_config *sources, size_t num, uint64_t most,
                        struct seen *seen)
{
    struct corpus d = {.sources = sources, .num_sources = num, .vocab_size = 300, .max_ids = most};
    *seen = (struct seen){0};
    return corpus_each(&d, look, seen);
}

TEST(corpus_reads_source_after_source)
{
    const char *folder = test_folder();
    rig_tokens(folder, "a", (const int[]){3, 4}, 2, 0);
    rig_tokens(folder, "b", (const int[]){5}, 1, 100);
    const struct source_config sources[] = {{.path = test_path(folder, "a"), .column = "text"},
                                            {.path = test_path(folder, "b"), .column = "text"}};
    struct seen seen;
    CHECK_STATUS(OK, walk(sources, 2, 0, &seen));
    CHECK(seen.count == 3 && seen.ids == 12 && seen.within == 12 && seen.last == 104);
    CHECK(seen.neurons[0] == 0);
    CHECK_STATUS(OK, walk(sources, 2, 5, &seen));
    CHECK(seen.count == 2 && seen.ids == 7 && seen.within == 5);
    CHECK_STATUS(OK, walk(sources, 2, 7, &seen));
    CHECK(seen.count == 2 && seen.within == 7);
}

TEST(corpus_tokenizes_text_like_the_loader)
{
    struct tokenizer *t;
    const char *path = rig_text(test_folder(), "a.txt", "abc\n");
    const struct source_config source = {.path = path, .column = "text"};
    struct corpus d = {.sources = &source, .num_sources = 1, .vocab_size = 259};
    struct seen seen = {0};
    CHECK_STATUS(CONFIG, corpus_each(&d, look, &seen));
    CHECK_MESSAGE("is text: data.tokenizer is required");
    CHECK_STATUS(OK, tokenizer_open(&t, "bytes", &(struct tokenizer_config){0}));
    d.tokenizer = t, d.bos = d.eos = true;
    CHECK_STATUS(OK, corpus_each(&d, look, &seen));
    CHECK(seen.count == 1 && seen.ids == 6 && seen.last == tokenizer_eos(t));
    t->eos = t->bos;
    seen = (struct seen){0};
    CHECK_STATUS(OK, corpus_each(&d, look, &seen));
    CHECK(seen.count == 1 && seen.ids == 5 && seen.last == '\n');
    tokenizer_close(t);
}

TEST(corpus_reports_the_neurons_of_spike_count_sessions)
{
    const struct source_config spikes = {.path = parquet, .column = "spike_counts"},
                               ids = {.path = parquet, .column = "input_ids"};
    struct seen seen;
    bool are;
    CHECK_STATUS(OK, walk(&spikes, 1, 9, &seen));
    CHECK(seen.count == 1 && seen.ids == 9 && seen.neurons[0] == 2 && seen.last == 255);
    CHECK_STATUS(RECORD, walk(&spikes, 1, 0, &seen)); /* the lists of row 4 differ in length */
    CHECK(seen.count == 2 && seen.neurons[1] == 1);
    CHECK_STATUS(OK, corpus_is_spike_counts(&spikes, &are));
    CHECK(are);
    CHECK_STATUS(OK, corpus_is_spike_counts(&ids, &are));
    CHECK(!are);
    CHECK_STATUS(CONFIG, corpus_is_spike_counts(
                             &(struct source_config){.path = parquet, .column = "none"}, &are));
}

TEST(corpus_finds_a_session_by_its_row)
{
    const struct source_config spikes = {.path = parquet, .column = "spike_counts"},
                               ids = {.path = parquet, .column = "input_ids"};
    struct token_list l = {0};
    size_t neurons;
    CHECK_STATUS(OK, corpus_read_session(&spikes, 0, &l, &neurons));
    CHECK(l.count == 9 && neurons == 2 && l.ids[0] == 255 && l.ids[2] == 4);
    l.count = 0; /* rows 1 and 2 are empty */
    CHECK_STATUS(OK, corpus_read_session(&spikes, 1, &l, &neurons));
    CHECK(l.count == 2 && neurons == 1 && l.ids[1] == 9);
    CHECK_STATUS(CONFIG, corpus_read_session(&spikes, 5, &l, &neurons));
    CHECK_MESSAGE("no session at or after row 5; the source has 5 rows");
    CHECK_STATUS(CONFIG, corpus_read_session(&ids, 0, &l, &neurons));
    CHECK_MESSAGE("does not hold spike counts");
    token_list_release(&l);
}
