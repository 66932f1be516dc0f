// SPDX-License-Identifier: Apache-2.0
#include "data/rig.h"

#include "base/checksum.h"
#include "base/json.h"
#include "tokenizer/tokenizer_impl.h"

static void check_rejected(struct rig *r, const char *cursor, enum status how, const char *why)
{
    struct json *root = NULL;
    struct loader *l = rig_open(r);
    CHECK_STATUS(OK, json_parse(cursor, strlen(cursor), "cursor", &root));
    enum status st = loader_load(l, root);
    CHECK(st == how);
    CHECK_MESSAGE(why);
    json_free(root);
    loader_close(l);
}

static void start_cursor(struct rig *r, const char *folder, enum data_packing packing,
                         struct text *cursor)
{
    rig_init(r, "bytes", 8);
    r->data.packing = packing;
    r->data.streams = 1;
    rig_add(r, test_path(folder, "*.jsonl"), 1);
    struct rows rows = {0};
    struct loader *l = rig_open(r);
    rows_read(&rows, l, 8, 1, 1);
    text_clear(cursor);
    loader_save(l, &(struct json_writer){.text = cursor});
    loader_close(l);
    rows_release(&rows);
}

TEST(loader_rejects_a_cursor_of_other_data_or_settings)
{
    struct text cursor = {0};
    const char *folder = test_folder(), *settings = "saved with different data settings";
    rig_text(folder, "a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
    for (int k = 0; k < 5; k++) {
        struct rig r;
        const char *why = settings;
        start_cursor(&r, folder, PACKING_concatenate, &cursor);
        switch (k) {
        case 0: r.data.seed = 2; break;
        case 1: r.data.shuffle_window = 5; break;
        case 2: r.data.validation_share = 0.01; break;
        case 3: r.data.packing = PACKING_best_fit; break;
        default:
            rig_text(folder, "b.jsonl", "{\"text\": \"more\"}\n");
            why = "b.jsonl: the file is new";
        }
        check_rejected(&r, cursor.data, STATUS_CONFIG, why);
        rig_release(&r);
    }
    text_release(&cursor);
}

/* The rows of a group are found again only with the same settings. */
TEST(loader_rejects_a_cursor_of_packed_rows_with_any_other_setting_of_rows)
{
    struct text cursor = {0};
    const char *folder = test_folder();
    rig_text(folder, "a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
    for (int k = 0; k < 9; k++) {
        struct rig r;
        const char *why = "saved with different data settings";
        start_cursor(&r, folder, PACKING_best_fit, &cursor);
        switch (k) {
        case 0: r.data.seed = 2; break;
        case 1: r.options.seq_len = 9; break;
        case 2: r.data.bos = false; break;
        case 3: r.data.row_overlap = false; break;
        case 4: r.objective.name = OBJECTIVE_masked; break;
        case 5: r.data.packing = PACKING_concatenate; break;
        case 6: r.sources[0].weight = 2; break;
        case 7: r.tokenizer->eos = r.tokenizer->bos; break;
        default:
            rig_add(&r, test_path(folder, "*.jsonl"), 1);
            why = "the checkpoint was written with 1 sources; configured: 2";
        }
        check_rejected(&r, cursor.data, STATUS_CONFIG, why);
        rig_release(&r);
    }
    text_release(&cursor);
}

TEST(loader_rejects_a_damaged_cursor)
{
    static const struct {
        const char *from, *to, *why;
        enum status status;
    } cases[] = {
        {"\"format\": 2", "\"format\": 3", "unknown \"format\"", STATUS_CONFIG},
        {"\"next_row\": 1", "\"next_row\": -1", "next_row", STATUS_DATA},
        {"\"next_row\": 1", "\"next_row\": 0.5", "next_row", STATUS_DATA},
        {"\"order\"", "\"ordure\"", "order", STATUS_DATA},
        {"\"tokens\": ", "\"tokens\": 1e300, \"\": ", "tokens", STATUS_DATA},
        {"\"identities\": [[0,1]]", "\"identities\": [[0,-1]]", "identities", STATUS_DATA},
        {"\"streams\"", "\"retired_sources\": [{\"label\": 1}], \"streams\"", "label", STATUS_DATA},
        {"\"streams\"",
         "\"retired_sources\": [{\"label\": \"a\", \"place\": 0, \"count\": 1, \"positions\": "
         "[0,0]}],"
         "\"streams\"",
         "expected positions of 1 streams", STATUS_DATA},
        {"\"streams\"", "\"stream\"", "has no streams", STATUS_DATA},
        {"[1,", "[-1,", "stream 0 is damaged", STATUS_DATA},
        {"[1,", "[\"1\",", "stream 0 is damaged", STATUS_DATA},
        {"[1,", "[", "stream 0 is damaged", STATUS_DATA},
        {"[1,", "[1e300,", "stream 0 is damaged", STATUS_DATA},
    };
    struct text cursor = {0}, bad = {0};
    struct rig r;
    const char *folder = test_folder();
    rig_text(folder, "a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
    start_cursor(&r, folder, PACKING_concatenate, &cursor);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *at = strstr(cursor.data, cases[i].from);
        CHECK(at);
        text_clear(&bad);
        text_add(&bad, cursor.data, (size_t)(at - cursor.data));
        text_addf(&bad, "%s%s", cases[i].to, at + strlen(cases[i].from));
        check_rejected(&r, bad.data, cases[i].status, cases[i].why);
    }
    check_rejected(&r, "[]", STATUS_DATA, "no data position");
    char *carry = strstr(cursor.data, "\n[");
    for (int i = 0; i < 4; i++) carry = strchr(carry + 1, ',');
    text_clear(&bad);
    text_add(&bad, cursor.data, (size_t)(carry - cursor.data));
    text_addf(&bad, ",259%s", strchr(carry + 1, ','));
    check_rejected(&r, bad.data, STATUS_DATA, "has token ID 259; the vocabulary size is 259");
    text_release(&cursor), text_release(&bad);
    rig_release(&r);
}

/* Replaces what lies from `from` up to `to`, which stays. */
static void replace(struct text *t, const char *from, const char *to, const char *with)
{
    struct text out = {0};
    const char *begin = strstr(t->data, from), *end = strstr(begin, to);
    text_add(&out, t->data, (size_t)(begin - t->data));
    text_addf(&out, "%s%s", with, end);
    text_release(t);
    *t = out;
}

/* The position of a run of version 1, which had one sum over all settings, and one over the options
 * of a source with its weight. */
TEST(loader_reads_a_cursor_of_format_1)
{
    const char *settings = "1 8 4 1 1 1 0 causal 0 -1 bytes 259";
    const double weight = 1;
    struct text cursor = {0}, sum = {0};
    struct rig r;
    struct rows want = {0}, got = {0};
    const char *folder = test_folder();
    rig_text(folder, "a.jsonl", "{\"text\": \"one of two\"}\n{\"text\": \"two of two\"}\n");
    start_cursor(&r, folder, PACKING_concatenate, &cursor);
    r.data.streams = 1;
    text_addf(&sum, "\"settings\": %u, ", (unsigned)checksum_crc32c(0, settings, strlen(settings)));
    replace(&cursor, "\"order\"", "\"sources\"", sum.data);
    text_clear(&sum);
    text_addf(&sum, "\"options\": %u, ",
              (unsigned)checksum_crc32c(checksum_crc32c(0, "text", 4), &weight, sizeof weight));
    replace(&cursor, "\"path\": \"/", "\"files\"", sum.data);
    replace(&cursor, "\"format\": 2", ",", "\"format\": 1");
    for (int resumes = 0; resumes < 2; resumes++) {
        struct json *root;
        struct loader *l = rig_open(&r);
        CHECK_STATUS(OK, json_parse(cursor.data, cursor.len, "cursor", &root));
        if (resumes) CHECK_STATUS(OK, loader_load(l, root));
        rows_read(resumes ? &got : &want, l, 8, 1, 20 - resumes);
        json_free(root);
        loader_close(l);
    }
    rows_check_same(&want, 1, &got, 0, 19);
    r.sources[0].weight = 2;
    check_rejected(&r, cursor.data, STATUS_CONFIG, "another column, weight");
    r.sources[0].weight = 1, r.options.seq_len = 9;
    check_rejected(&r, cursor.data, STATUS_CONFIG, "seq_len");
    rows_release(&want), rows_release(&got);
    text_release(&cursor), text_release(&sum);
    rig_release(&r);
}
