// SPDX-License-Identifier: Apache-2.0
#include "data/rig.h"

#include "base/file.h"
#include "data/source.h"

static const char *const paths[] = {"tests/data/motifs/small3.pkl", "tests/data/motifs/small4.pkl",
                                    "tests/data/motifs/small5.pkl"};

static void check_ids(const struct motifs *m, struct motif_session s, const int32_t *want,
                      size_t count)
{
    struct text out = {0};
    CHECK(motifs_length(m, &s) == count);
    motifs_encode(m, &s, &out);
    CHECK(out.len == 4 * count && !memcmp(out.data, want, out.len));
    text_release(&out);
}

/* The IDs come from tests/oracle/motifs.py. */
TEST(motifs_encode_each_time_step_after_a_separator)
{
    static const unsigned char three[] = {0, 1, 2, 2, 0, 1, 1, 1, 0, 0, 2, 2, 2, 0, 7};
    static const unsigned char one[] = {0, 0, 0, 1, 1, 1};
    for (int i = 0; i < 3; i++) {
        struct motifs *m;
        CHECK_STATUS(OK, motifs_open(&m, paths[i]));
        CHECK(motifs_separator(m) == 9);
        check_ids(m, (struct motif_session){three, 3, 5, 4, 0},
                  (const int32_t[]){9, 5, 8, 0, 5, 9, 8, 0, 0, 8}, 10);
        check_ids(m, (struct motif_session){one, 1, 6, 4, 0},
                  (const int32_t[]){9, 0, 0, 0, 0, 9, 8, 8, 8, 8}, 10);
        check_ids(m, (struct motif_session){(const unsigned char[]){9}, 1, 1, 4, 0},
                  (const int32_t[]){9, 0, 0, 0, 0}, 5);
        motifs_close(m);
    }
}

/* Each neuron's count identifies it modulo 4, so that the IDs show which block was drawn. */
TEST(motifs_draw_a_contiguous_block_of_neurons_per_session)
{
    enum { NEURONS = 30, WIDTH = 4 };
    static const unsigned char pickle[] = "\x80\x04}(\x8c\x09index_map}(C\x01\0K\0C\x01\1K\1C\x01\2"
                                          "K\2C\x01\3K\3u\x8c\x0apatch_sizeK\1K\1\x86\x8c\x07"
                                          "k_limitK\x08u.";
    unsigned char counts[NEURONS];
    struct motifs *m;
    bool drawn[NEURONS] = {0};
    int blocks = 0;
    CHECK_STATUS(OK, motifs_parse(&m, pickle, sizeof pickle - 1, "made"));
    for (int at = 0; at < NEURONS; at++) counts[at] = (unsigned char)(at % 4);
    for (uint64_t number = 0; number < 400; number++) {
        struct motif_session s = {counts, NEURONS, 1, WIDTH, number};
        struct text out = {0}, again = {0};
        motifs_encode(m, &s, &out), motifs_encode(m, &s, &again);
        const int32_t *ids = (const int32_t *)(const void *)out.data;
        CHECK(out.len == 4 * (WIDTH + 1) && !memcmp(out.data, again.data, out.len));
        for (int i = 2; i <= WIDTH; i++) CHECK(ids[i] == (ids[i - 1] + 1) % 4);
        drawn[ids[1]] = true;
        text_release(&out), text_release(&again);
    }
    for (int i = 0; i < 4; i++) blocks += drawn[i];
    CHECK(blocks == 4);
    motifs_close(m);
}

static void check_rejected(const char *bytes, size_t len, const char *part)
{
    struct motifs *m;
    CHECK_STATUS(DATA, motifs_parse(&m, (const unsigned char *)bytes, len, "made"));
    CHECK(!m);
    CHECK_MESSAGE(part);
}
#define CHECK_REJECTED(bytes, part) check_rejected(bytes, sizeof bytes - 1, part)

TEST(motifs_reject_malformed_files)
{
    struct motifs *m;
    CHECK_REJECTED("\x80\x04]\x2e", "expected a dictionary");
    CHECK_REJECTED("\x80\x04}.", "patch_size must be (neurons, bins)");
    CHECK_REJECTED("\x80\x04}(\x8c\x0apatch_sizeK\0K\1\x86u.", "patch_size");
    CHECK_REJECTED("\x80\x04}(\x8c\x0apatch_sizeK\x11K\x10\x86u.", "at most 256 counts");
    CHECK_REJECTED("\x80\x04}(\x8c\x0apatch_sizeK\1K\0\x86u.", "patch_size");
    CHECK_REJECTED("\x80\x04}(\x8c\x0apatch_sizeK\1K\1\x86u.", "k_limit must be an integer");
    CHECK_REJECTED("\x80\x04}(\x8c\x0apatch_sizeK\1K\1\x86\x8c\x07k_limitK\1u.",
                   "index_map must be");
    CHECK_REJECTED(
        "\x80\x04}(\x8c\x0apatch_sizeK\1K\1\x86\x8c\x07k_limitK\1\x8c\x09index_map}(C\2ab"
        "K\0uu.",
        "entry 0: the key is not 1 bytes");
    CHECK_REJECTED("\x80\x04}(\x8c\x0apatch_sizeK\1K\1\x86\x8c\x07k_limitK\1\x8c\x09index_map}(C\1a"
                   "K\2uu.",
                   "entry 0: the value is not an ID from 0 to 1");
    CHECK_STATUS(MISSING, motifs_open(&m, "/nowhere.pkl"));
}

TEST(motifs_reject_a_file_truncated_anywhere)
{
    struct text bytes = {0};
    CHECK_STATUS(OK, file_read(paths[1], 1 << 20, &bytes));
    for (size_t len = 0; len < bytes.len; len++) {
        struct motifs *m;
        CHECK_STATUS(DATA, motifs_parse(&m, (const unsigned char *)bytes.data, len, "cut"));
    }
    text_release(&bytes);
}

/* Rows of documents.parquet: [[1, 2, 3], [4, 5, 255]], two empty ones, [[9]], and one whose lists
 * differ in length. */
TEST(loader_reads_spike_counts_as_motifs)
{
    struct rig r;
    rig_init(&r, NULL, 7);
    rig_add(&r, "tests/oracle/data/parquet/documents.parquet", 1);
    r.sources[0].column = "spike_counts";
    r.sources[0].motifs = paths[1];
    r.sources[0].neurons = 3;
    r.options.vocab_size = 10, r.options.once = true;
    struct loader *l = rig_open(&r);
    struct batch b = {.B = 1, .T = 7};
    int32_t ids[7], labels[7], start[7], end[7];
    b.ids_BT = ids, b.labels_BT = labels, b.start_BT = start, b.end_BT = end;
    int rows;
    /* {1, 2, 3}, {4, 5, 255} and {9, 0, 0} are unknown patches: 0 */
    static const int32_t want[] = {9, 0, 0, 0, 9, 0, 0};
    CHECK_STATUS(OK, loader_next(l, &b, &rows));
    CHECK(rows == 1 && !memcmp(ids, want, sizeof want) && labels[3] == 9);
    CHECK_STATUS(DATA, loader_next(l, &b, &rows));
    CHECK_MESSAGE("row 4");
    loader_close(l);
    rig_release(&r);
}

TEST(motifs_require_spike_counts)
{
    struct source s;
    const struct source_config ids = {.path = "tests/oracle/data/parquet/documents.parquet",
                                      .column = "input_ids",
                                      .motifs = paths[1],
                                      .neurons = 4};
    CHECK_STATUS(CONFIG, source_open(&s, &ids));
    CHECK_MESSAGE("data.source.motifs requires spike counts");
    const char *text = rig_text(test_folder(), "a.txt", "abc\n");
    struct source_config lines = ids;
    lines.path = text;
    CHECK_STATUS(CONFIG, source_open(&s, &lines));
    CHECK_MESSAGE("data.source.motifs requires spike counts");
    lines.motifs = "/nowhere.pkl";
    CHECK_STATUS(MISSING, source_open(&s, &lines));
}

/* The IDs come from gpt-neuro-arch's own functions: patches of 2 neurons x 2 bins, padded. */
TEST(motifs_may_have_several_neurons)
{
    static const unsigned char pickle[] =
        "\x80\x04}(\x8c\x09index_map}(C\x04\0\1\1\1K\3C\x04\2\2\0\1K\5C\x04\0\0\1\0K\6C\x04\2\2\0\0"
        "K\7u\x8c\x0apatch_sizeK\2K\2\x86\x8c\x07k_limitK\x08u.";
    static const unsigned char three[] = {0, 1, 2, 2, 0, 1, 1, 1, 0, 0, 2, 2, 2, 0, 7};
    struct motifs *m;
    CHECK_STATUS(OK, motifs_parse(&m, pickle, sizeof pickle - 1, "made"));
    check_ids(m, (struct motif_session){three, 3, 5, 3, 0},
              (const int32_t[]){9, 3, 7, 9, 0, 0, 9, 0, 0}, 9);
    check_ids(m, (struct motif_session){three, 3, 5, 5, 0},
              (const int32_t[]){9, 3, 5, 0, 9, 0, 0, 0, 9, 0, 0, 0}, 12);
    motifs_close(m);
}
