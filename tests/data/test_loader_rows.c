// SPDX-License-Identifier: Apache-2.0
#include "data/rig.h"

#include "base/rng.h"
#include "ops/cross_entropy.h"

enum { BOS = 256, MASK = 258 };

TEST(loader_sets_document_bounds_within_a_row)
{
    enum { T = 8 };
    static const char lines[] = "{\"text\": \"ab\"}\n{\"text\": \"c\"}\n";
    static const int32_t starts[T] = {0, 0, 0, 0, 4, 4, 4, 7};
    static const int32_t ends[T] = {4, 4, 4, 4, 7, 7, 7, 8};
    struct rig r;
    rig_init(&r, "bytes", T);
    r.data.streams = r.data.shuffle_window = 1;
    rig_add(&r, rig_text(test_folder(), "a.jsonl", lines), 1);
    struct rows rows = rows_of(&r, 1, 2);
    /* [<ab>] [<c>] [<, and then ab>]: the second row begins within a document */
    CHECK(!memcmp(rows.start, starts, sizeof starts));
    CHECK(!memcmp(rows.end, ends, sizeof ends));
    CHECK(rows.ids[T] == 'a' && rows.start[T] == 0 && rows.end[T] == 3);
    CHECK(rows.start[T + 3] == 3 && rows.end[T + 3] == 6);
    rows_release(&rows);
    rig_release(&r);
}

TEST(loader_masks_tokens_by_position_dependent_random_numbers)
{
    enum { T = 64, V = 4, ROWS = 400 };
    struct rig plain, r;
    rig_init(&plain, "bytes", T);
    rig_init(&r, "bytes", T);
    const char *folder = test_folder();
    rig_add_kind(&plain, folder, 1);
    rig_add_kind(&r, folder, 1);
    plain.data.row_overlap = false;
    r.objective.name = OBJECTIVE_masked;
    /* rows of T tokens end to end, without overlap or gaps */
    plain.options.seq_len = T - 1;
    struct rows rows = rows_of(&r, 5, ROWS), raw = rows_of(&plain, 5, ROWS);
    int64_t masked = 0, ends = 0;
    for (int64_t g = 0; g < ROWS; g++) {
        for (int t = 0; t < T; t++) {
            int64_t i = g * T + t, j = g * (T - 1) + t;
            int32_t token = t < T - 1 ? raw.ids[j] : raw.labels[j - 1];
            bool hit = rng_uniform(1, RNG_MASK, (uint64_t)g, (uint64_t)t) < 0.3;
            CHECK(rows.ids[i] == (hit ? MASK : token));
            CHECK(rows.labels[i] == (hit ? token : LABEL_IGNORED));
            masked += hit;
            ends += hit && token >= BOS;
        }
    }
    CHECK(rows.valid == masked && ends > 0);
    CHECK(fabs((double)masked - 0.3 * ROWS * T) < 4 * sqrt(0.3 * 0.7 * ROWS * T));
    rows_release(&rows), rows_release(&raw);
    rig_release(&plain), rig_release(&r);
}

TEST(loader_masks_nothing_or_everything_at_probability_0_and_1)
{
    for (int p = 0; p < 2; p++) {
        struct rig r;
        rig_init(&r, "bytes", 16);
        rig_add_kind(&r, test_folder(), 1);
        r.objective.name = OBJECTIVE_masked;
        r.objective.mask_probability = p;
        struct rows rows = rows_of(&r, 4, 20);
        CHECK(rows.valid == p * 20 * 16);
        for (int i = 0; i < 20 * 16; i++) CHECK((rows.ids[i] == MASK) == p);
        rows_release(&rows);
        rig_release(&r);
    }
}

TEST(loader_counts_the_bytes_of_predicted_text)
{
    struct rig r;
    rig_init(&r, "bytes", 8);
    r.data.streams = r.data.shuffle_window = 1;
    rig_add(&r, rig_text(test_folder(), "a.jsonl", "{\"text\": \"ab\"}\n"), 1);
    struct rows rows = rows_of(&r, 1, 1); /* <ab><ab>|< */
    CHECK(rows.valid == 8 && rows.bytes == 4);
    rows_release(&rows);
    rig_release(&r);
}

/* A row as text, with < for BOS, > for EOS, ? for a mask and _ for padding; . is no label. */
struct row_text {
    char ids[9], labels[9], starts[9];
};

static char letter(int32_t id)
{
    return id == LABEL_IGNORED ? '.'
           : id == 0           ? '_'
           : id == BOS         ? '<'
           : id == BOS + 1     ? '>'
           : id == MASK        ? '?'
                               : (char)id;
}

static bool row_is(const struct rows *rows, int64_t row, const struct row_text *want)
{
    struct row_text got = {.ids = ""};
    for (int t = 0; t < 8; t++) {
        got.ids[t] = letter(rows->ids[row * 8 + t]);
        got.labels[t] = letter(rows->labels[row * 8 + t]);
        got.starts[t] = (char)('0' + rows->start[row * 8 + t]);
    }
    return !memcmp(&got, want, sizeof got);
}

TEST(packed_rows_predict_within_documents_and_end_with_padding)
{
    enum { ROWS = 60 }; /* fewer than the rows of a group */
    static const struct {
        const char *text;
        int masked;
        struct row_text rows[3]; /* in any order */
    } cases[] = {
        {"a", 0, {{"<a><a><a", "a>.a>.a>", "00033366"}}},
        {"ab", 0, {{"<ab><ab>", "ab>.ab>.", "00004444"}, {"<ab>____", "ab>.....", "00004444"}}},
        {"abcde", 0, {{"<abcde>_", "abcde>..", "00000007"}}},
        {"abcdefghij",
         0,
         {{"<abcdefg", "abcdefgh", "00000000"},
          {"hij>hij>", "ij>.ij>.", "00004444"},
          {"hij>____", "ij>.....", "00004444"}}},
        {"abcde", 1, {{"???????_", "<abcde>.", "00000007"}}},
        {"abcdefghij",
         1,
         {{"????????", "<abcdefg", "00000000"},
          {"????????", "hij>hij>", "00004444"},
          {"????____", "hij>....", "00004444"}}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct rig r;
        struct text line = {0};
        int64_t found[3] = {0}, valid = 0, padding = 0;
        text_addf(&line, "{\"text\": \"%s\"}\n", cases[c].text);
        rig_init(&r, "bytes", 8);
        r.data.streams = 1;
        r.data.packing = PACKING_best_fit;
        r.objective.mask_probability = 1;
        if (cases[c].masked) r.objective.name = OBJECTIVE_masked;
        rig_add(&r, rig_text(test_folder(), "a.jsonl", line.data), 1);
        struct rows rows = rows_of(&r, 3, ROWS);
        CHECK(rows.count == ROWS);
        for (int64_t g = 0; g < ROWS; g++) {
            int k = 0;
            while (k < 3 && !row_is(&rows, g, &cases[c].rows[k])) k++;
            if (k == 3) fail_msg("case %d: row %d", (int)c, (int)g);
            found[k]++;
            for (int t = 0; t < 8; t++) {
                valid += cases[c].rows[k].labels[t] != '.';
                padding += cases[c].rows[k].ids[t] == '_';
            }
        }
        CHECK(rows.valid == valid && rows.padding == padding);
        CHECK(found[0] && (!cases[c].rows[2].ids[0] || (found[1] && found[2] <= 1)));
        text_release(&line);
        rows_release(&rows);
        rig_release(&r);
    }
}

/* 99 documents of a row and one of a token, which no other can be packed with. */
TEST(a_packed_row_of_one_token_does_not_end_the_run)
{
    enum { T = 8, ROWS = 300, DOCUMENTS = 100 };
    struct rig r;
    int lengths[DOCUMENTS], num_empty = 0;
    const char *folder = test_folder();
    for (int d = 0; d < DOCUMENTS; d++) lengths[d] = d == 50 ? 1 : T + 1;
    rig_init(&r, NULL, T);
    r.data.streams = 1;
    r.data.packing = PACKING_best_fit;
    rig_tokens(folder, "t", lengths, DOCUMENTS, 0);
    rig_add(&r, test_path(folder, "t"), 1);
    struct rows rows = rows_of(&r, 4, ROWS);
    for (int64_t i = 0; i < rows.count * T; i++)
        num_empty += i % T == 0 && rows.labels[i] == LABEL_IGNORED;
    CHECK(rows.count == ROWS && num_empty > 0 && rows.padding == (T - 1) * num_empty);
    CHECK(rows.valid == T * (ROWS - num_empty));
    rows_release(&rows);
    rig_release(&r);
}
