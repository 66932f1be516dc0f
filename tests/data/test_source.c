// SPDX-License-Identifier: Apache-2.0
#include "data/rig.h"

#include "base/file.h"
#include "data/source.h"

static struct source_config config_of(const char *path)
{
    return (struct source_config){.path = path, .column = "text", .weight = 1};
}

static struct source opened(struct source_config *config)
{
    struct source s;
    CHECK_STATUS(OK, source_open(&s, config));
    return s;
}

struct reading {
    struct tokenizer *tokenizer;
    struct source_tokens tokens;
    struct token_list ids;
};

static void reading_init(struct reading *r)
{
    *r = (struct reading){0};
    CHECK_STATUS(OK, tokenizer_open(&r->tokenizer, "bytes", &(struct tokenizer_config){0}));
    r->tokens = (struct source_tokens){.tokenizer = r->tokenizer, .bos = true, .eos = true};
    CHECK_STATUS(OK, encoder_make(&r->tokens.encoder, r->tokenizer));
}

static void reading_release(struct reading *r)
{
    encoder_free(r->tokens.encoder);
    tokenizer_close(r->tokenizer);
    text_release(&r->tokens.text);
    token_list_release(&r->ids);
}

/* Appends the documents of a part as text: < is BOS, > is EOS, | ends a document. */
static enum status read_part(struct source *s, uint64_t part, uint64_t num_parts, struct text *out)
{
    struct source_reader reader = {0};
    struct reading r;
    struct source_document f = {0};
    uint64_t position = s->num_positions * part / num_parts,
             end = s->num_positions * (part + 1) / num_parts;
    bool none = false;
    enum status st = STATUS_OK;
    reading_init(&r);
    text_adds(out, "");
    for (;;) {
        TRY_OUT(source_find(s, &reader, part, num_parts, &position, end, &f, &none));
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
    reading_release(&r);
    return st;
}

static void check_documents(const char *path, const char *want)
{
    struct source_config c = config_of(path);
    struct source s = opened(&c);
    struct text got = {0};
    CHECK_STATUS(OK, read_part(&s, 0, 1, &got));
    if (strcmp(got.data, want)) fail_msg("%s: %s", path, got.data);
    text_release(&got);
    source_close(&s);
}

static void check_unreadable(const char *path, const char *why)
{
    struct source_config c = config_of(path);
    struct source s = opened(&c);
    struct text got = {0};
    CHECK_STATUS(DATA, read_part(&s, 0, 1, &got));
    CHECK_MESSAGE(path);
    CHECK_MESSAGE(why);
    text_release(&got);
    source_close(&s);
}

static const char *compressed(const char *folder, const char *name, const char *text)
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

static const char lines_text[] =
    "{\"text\": \"one\"}\r\n\r\n  \n\n{\"text\": \"\"}\n{\"text\": \"two\"}";

TEST(source_reads_the_non_blank_lines_of_jsonl)
{
    const char *folder = test_folder();
    check_documents(rig_text(folder, "a.jsonl", lines_text), "<one>||<two>|");
    check_documents(compressed(folder, "a.jsonl.gz", lines_text), "<one>||<two>|");
    check_documents(compressed(folder, "a.json.gz", lines_text), "<one>||<two>|");
    check_documents(compressed(folder, "a.jsonl.zst", lines_text), "<one>||<two>|");
    check_documents(rig_text(folder, "b.jsonl", "\xEF\xBB\xBF{\"text\": \"one\"}\n"), "<one>|");
}

TEST(source_reads_the_lines_of_compressed_text)
{
    const char *folder = test_folder();
    check_documents(compressed(folder, "a.txt.gz", "one\n\ntwo\n"), "<one>|<two>|");
    check_documents(compressed(folder, "a.txt.zst", "one\n\ntwo"), "<one>|<two>|");
}

TEST(source_reads_matching_files_in_name_order)
{
    const char *folder = test_folder();
    rig_text(folder, "b.jsonl", "{\"text\": \"2\"}");
    rig_text(folder, "c.jsonl", "");
    rig_text(folder, "a.jsonl", "{\"text\": \"0\"}\n{\"text\": \"1\"}\n");
    rig_text(folder, "d.jsonl", "{\"text\": \"3\"}\n");
    check_documents(test_path(folder, "*.jsonl"), "<0>|<1>|<2>|<3>|");
    compressed(folder, "2.jsonl.gz", "{\"text\": \"b\"}");
    compressed(folder, "1.jsonl.gz", "{\"text\": \"a\"}");
    compressed(folder, "3.jsonl.gz", "\n");
    check_documents(test_path(folder, "*.jsonl.gz"), "<a>|<b>|");
}

TEST(source_reads_each_pair_of_token_files_once)
{
    const char *folder = test_folder();
    rig_tokens(folder, "a", (int[]){1}, 1, 'a');
    rig_tokens(folder, "a.b", (int[]){2}, 1, 'b');
    rig_tokens(folder, "a_c", (int[]){0, 1}, 2, 'd');
    check_documents(test_path(folder, "*"), "bc|a|d|");
    check_documents(test_path(folder, "*.bin"), "bc|a|d|");
    check_documents(test_path(folder, "*.idx"), "bc|a|d|");
    check_documents(test_path(folder, "a"), "a|");
    check_documents(test_path(folder, "a.bin"), "a|");
}

TEST(source_prefers_an_exact_file_name_to_a_prefix)
{
    const char *folder = test_folder();
    const char *path = rig_text(folder, "a.jsonl", "{\"text\": \"line\"}");
    rig_text(folder, "a.jsonl.idx", "somebody's index of the lines");
    check_documents(path, "<line>|");
}

TEST(source_reads_rows_of_a_2d_array_or_16384_tokens_of_a_1d_array)
{
    const char *folder = test_folder();
    struct source_config c = config_of(rig_array(folder, "a.npy", 3, 5));
    struct source s = opened(&c);
    struct source_tokens t = {.vocab_size = 250};
    struct token_list ids = {0};
    struct source_document f = {0};
    uint64_t position = 1;
    bool none;
    CHECK(s.holds_ids && s.num_positions == 3);
    CHECK_STATUS(OK, source_find(&s, NULL, 0, 1, &position, s.num_positions, &f, &none));
    CHECK_STATUS(OK, source_read(&s, &f, &t, &ids));
    CHECK(!none && position == 2 && ids.count == 5 && ids.ids[0] == 5 && ids.ids[4] == 9);
    source_close(&s);
    c = config_of(rig_array(folder, "b.npy", 0, 2 * 16384 + 3));
    rig_array(folder, "c.npy", 0, 1);
    rig_array(folder, "d.npy", 9, 0);
    c.path = test_path(folder, "[b-d].npy");
    s = opened(&c);
    static const uint64_t lengths[] = {16384, 16384, 3, 1};
    CHECK(s.num_positions == 4);
    position = 0;
    for (uint64_t i = 0; i < 4; i++) {
        CHECK_STATUS(OK, source_find(&s, NULL, 0, 1, &position, s.num_positions, &f, &none));
        ids.count = 0;
        CHECK_STATUS(OK, source_read(&s, &f, &t, &ids));
        CHECK(!none && ids.count == lengths[i]);
        for (uint64_t k = 0; k < ids.count; k++)
            CHECK(ids.ids[k] == (int32_t)((i == 3 ? k : i * 16384 + k) % 250));
    }
    CHECK_STATUS(OK, source_find(&s, NULL, 0, 1, &position, s.num_positions, &f, &none));
    CHECK(none);
    t.vocab_size = 249, position = 0, ids.count = 0;
    CHECK_STATUS(OK, source_find(&s, NULL, 0, 1, &position, s.num_positions, &f, &none));
    CHECK_STATUS(DATA, source_read(&s, &f, &t, &ids));
    CHECK_MESSAGE("number 249 is 249; ids are 0 to 248");
    source_close(&s);
    token_list_release(&ids);
}

/* Lines of up to 6000 bytes, so that some span a chunk and some end at its boundary. */
static void write_prose(struct text *t)
{
    for (int i = 0; t->len < 100000; i++) {
        int words = i % 7 ? i * 13 % 60 : i * 97 % 1200;
        for (int w = 0; w < words; w++) text_addf(t, "w\xC3\xA9%d ", w % 10);
        text_adds(t, "\n");
    }
}

TEST(source_text_chunks_concatenate_to_the_file_with_one_bos_and_eos)
{
    struct text prose = {0}, got = {0};
    write_prose(&prose);
    struct source_config c = config_of(rig_text(test_folder(), "a.txt", prose.data));
    struct source s = opened(&c);
    CHECK_STATUS(OK, read_part(&s, 0, 1, &got));
    size_t n = 0, chunks = 0, begins = 0, ends = 0, longest = 0, begin = 0;
    for (size_t i = 0; i < got.len; i++) {
        begins += got.data[i] == '<', ends += got.data[i] == '>';
        if (got.data[i] == '|') {
            longest = i - begin > longest ? i - begin : longest;
            begin = i + 1;
            chunks++;
        }
        if (!strchr("<>|", got.data[i])) got.data[n++] = got.data[i];
    }
    CHECK(n == prose.len && !memcmp(got.data, prose.data, n));
    CHECK(got.data[0] != '<' && begins == 1 && ends == 1);
    CHECK(chunks > prose.len / 8192 && chunks <= prose.len / 4096 + 1 && longest < 8200);
    source_close(&s);
    text_release(&prose), text_release(&got);
}

TEST(source_splits_text_without_line_breaks_at_words_or_characters)
{
    struct text plain = {0};
    for (int spaces = 0; spaces < 2; spaces++) {
        struct text got = {0};
        text_clear(&plain);
        text_adds(&plain, "x");
        while (plain.len < 20000) text_adds(&plain, spaces ? "\xE2\x82\xAC " : "\xE2\x82\xAC");
        struct source_config c = config_of(rig_text(test_folder(), "a.txt", plain.data));
        struct source s = opened(&c);
        CHECK_STATUS(OK, read_part(&s, 0, 1, &got)); /* fails on invalid UTF-8 */
        size_t chunks = 0;
        for (size_t i = 0; i < got.len; i++) {
            if (got.data[i] != '|') continue;
            CHECK(!spaces || i + 1 == got.len || got.data[i - 1] == ' ');
            chunks++;
        }
        CHECK(chunks == 5 && got.len == plain.len + chunks + 2);
        source_close(&s);
        text_release(&got);
    }
    text_release(&plain);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Splits at the bars and sorts the documents. */
static size_t cut(struct text *t, char **documents)
{
    size_t n = 0;
    for (char *at = t->data; *at; at = strchr(at, 0) + 1) {
        *strchr(at, '|') = 0;
        documents[n++] = at;
    }
    qsort(documents, n, sizeof *documents, by_text);
    return n;
}

TEST(source_parts_contain_every_document_once)
{
    enum { MAX_DOCUMENTS = 300 };
    const char *folder = test_folder();
    struct text lines = {0};
    char what[32];
    int lengths[50];
    rig_lines(&lines, "doc", 100);
    for (int i = 0; i < 50; i++) lengths[i] = i % 3 ? 1 + i % 5 : 0;
    rig_tokens(folder, "tokens", lengths, 50, '0');
    for (int part = 0; part < 5; part++) { /* several compressed files, one without a document */
        struct text some = {0};
        char name[32];
        snprintf(name, sizeof name, "part-%d.jsonl.gz", part);
        snprintf(what, sizeof what, "part %d,", part);
        rig_lines(&some, what, part == 3 ? 0 : 13 + part);
        compressed(folder, name, part == 3 ? "\n" : some.data);
        text_release(&some);
    }
    const char *paths[] = {rig_text(folder, "a.jsonl", lines.data),
                           compressed(folder, "a.jsonl.gz", lines.data),
                           test_path(folder, "tokens"), rig_text(folder, "a.txt", lines.data),
                           test_path(folder, "part-*.jsonl.gz")};
    static const uint64_t part_counts[] = {2, 3, 7, 64, 200};
    for (size_t k = 0; k < 5; k++) {
        struct source_config c = config_of(paths[k]);
        struct source s = opened(&c);
        struct text want = {0};
        char *wanted[MAX_DOCUMENTS], *found[MAX_DOCUMENTS];
        CHECK_STATUS(OK, read_part(&s, 0, 1, &want));
        size_t count = cut(&want, wanted);
        for (size_t i = 0; i < sizeof part_counts / sizeof *part_counts; i++) {
            struct text got = {0};
            for (uint64_t n = 0; n < part_counts[i]; n++)
                CHECK_STATUS(OK, read_part(&s, n, part_counts[i], &got));
            CHECK(cut(&got, found) == count);
            for (size_t d = 0; d < count; d++) CHECK(!strcmp(found[d], wanted[d]));
            text_release(&got);
        }
        text_release(&want);
        source_close(&s);
    }
    text_release(&lines);
}

TEST(source_reports_where_a_document_is_damaged)
{
    const char *folder = test_folder();
    check_unreadable(rig_text(folder, "a.jsonl", "{\"text\": \"one\"}\n{\"text\": 2}\n"),
                     "from byte 16: the value of \"text\" is not a string");
    check_unreadable(
        compressed(folder, "a.jsonl.gz", "\n{\"text\": \"one\"}\n\n{\"txt\": \"2\"}\n"),
        "line 4: the line has no key \"text\"");
    check_unreadable(rig_text(folder, "a.txt", "abc\xFF"), "from byte 0: the text is not UTF-8");
    check_unreadable(compressed(folder, "a.txt.zst", "abc\n\xC3\n"),
                     "line 2: the text is not UTF-8");
}

TEST(source_rejects_paths_it_cannot_read)
{
    const char *folder = test_folder();
    struct source s;
    struct source_config c = config_of(test_path(folder, "none*.jsonl"));
    CHECK_STATUS(MISSING, source_open(&s, &c));
    CHECK_MESSAGE("none*.jsonl");
    c.path = rig_text(folder, "a.orc", "ORC");
    CHECK_STATUS(CONFIG, source_open(&s, &c));
    CHECK_MESSAGE("a.orc: unknown file type");
    c.path = folder;
    CHECK_STATUS(CONFIG, source_open(&s, &c));
    CHECK_MESSAGE("is a folder; name its files");
    c.path = rig_text(folder, "empty.jsonl", "");
    CHECK_STATUS(DATA, source_open(&s, &c));
    CHECK_MESSAGE("empty.jsonl: the source is empty");
    rig_text(folder, "x1.jsonl", "{\"text\": \"a\"}");
    rig_text(folder, "x2.txt", "a");
    c.path = test_path(folder, "x*");
    CHECK_STATUS(CONFIG, source_open(&s, &c));
    CHECK_MESSAGE("x2.txt: all files of a source must have the same type");
    CHECK(!s.files && !s.num_files);
}

TEST(source_fingerprint_changes_with_files_and_settings)
{
    const char *folder = test_folder();
    struct source_config c = config_of(test_path(folder, "*.jsonl"));
    rig_text(folder, "a.jsonl", "{\"text\": \"a\"}");
    uint32_t seen[6];
    for (int i = 0; i < 6; i++) {
        if (i == 2) rig_text(folder, "a.jsonl", "{\"text\": \"ab\"}");
        if (i == 3) rig_text(folder, "b.jsonl", "{\"text\": \"a\"}");
        if (i == 4) c.column = "body";
        if (i == 5) c.weight = 2;
        struct source s = opened(&c);
        seen[i] = s.fingerprint;
        source_close(&s);
        for (int j = 0; j < i; j++) CHECK((seen[j] == seen[i]) == (i == 1));
    }
    c.path = test_path(folder, "t");
    rig_tokens(folder, "t", (int[]){2, 3}, 2, 1);
    struct source s = opened(&c);
    seen[0] = s.fingerprint;
    source_close(&s);
    rig_tokens(folder, "t", (int[]){3, 2}, 2, 1);
    s = opened(&c);
    CHECK(s.fingerprint != seen[0]);
    source_close(&s);
}

static const char parquet[] = "tests/oracle/data/parquet/documents.parquet";

TEST(source_reads_the_non_empty_rows_of_parquet)
{
    check_documents(parquet, "<one>|<f\xC3\xBCr>|<last>|");
}

TEST(source_reads_a_dataset_saved_to_disk)
{
    check_documents("tests/oracle/data/arrow/saved", "<one>|<two>|<three>|<four>|<five>|");
    check_documents("tests/oracle/data/arrow/saved/*1-of*.arrow", "<four>|<five>|");
    const char *folder = test_folder();
    struct source_config c = config_of(folder);
    struct source s;
    rig_text(folder, "dataset_dict.json", "{\"splits\": [\"train\"]}");
    CHECK_STATUS(CONFIG, source_open(&s, &c));
    CHECK_MESSAGE("is a folder of splits");
    c.path = folder = test_folder();
    rig_text(folder, "state.json", "{\"_data_files\": [{\"filename\": \"../x.arrow\"}]}");
    CHECK_STATUS(DATA, source_open(&s, &c));
    CHECK_MESSAGE("../x.arrow");
    rig_text(folder, "state.json", "{\"_data_files\": [{\"filename\": \"x.arrow\"}]}");
    CHECK_STATUS(MISSING, source_open(&s, &c));
    rig_text(folder, "state.json", "[1]");
    CHECK_STATUS(DATA, source_open(&s, &c));
    CHECK_MESSAGE("_data_files");
}

TEST(source_parts_of_parquet_keep_row_order)
{
    struct source_config c = config_of("tests/oracle/data/parquet/pyarrow-*.parquet");
    struct source s = opened(&c);
    struct text whole = {0}, parts = {0};
    CHECK_STATUS(OK, read_part(&s, 0, 1, &whole));
    for (uint64_t n = 0; n < 17; n++) CHECK_STATUS(OK, read_part(&s, n, 17, &parts));
    CHECK(whole.len > 5000 && whole.len == parts.len && !memcmp(whole.data, parts.data, parts.len));
    text_release(&whole), text_release(&parts);
    source_close(&s);
}

TEST(source_reads_parquet_ids_without_tokenizer_and_checks_the_vocabulary)
{
    struct source_config c = {.path = parquet, .column = "input_ids", .weight = 1};
    struct source s = opened(&c);
    struct source_reader reader = {0};
    struct source_tokens t = {.vocab_size = 8};
    struct source_document f = {0};
    struct token_list ids = {0};
    uint64_t position = 0;
    bool none;
    CHECK(s.holds_ids && s.num_positions == 5);
    CHECK_STATUS(OK, source_find(&s, &reader, 0, 1, &position, 4, &f, &none));
    CHECK(!none && f.len == 3 && position == 1);
    CHECK_STATUS(OK, source_read(&s, &f, &t, &ids));
    CHECK(ids.count == 3 && ids.ids[2] == 7);
    t.vocab_size = 7;
    CHECK_STATUS(DATA, source_read(&s, &f, &t, &ids));
    CHECK_MESSAGE("row 0 has the token ID 7");
    source_reader_trim(&reader);
    CHECK_STATUS(OK, source_find(&s, &reader, 0, 1, &position, 4, &f, &none));
    CHECK(!none && f.at == 3 && f.len == 1 && position == 4);
    token_list_release(&ids);
    text_release(&f.text);
    source_reader_close(&reader);
    source_close(&s);
}

TEST(source_reports_the_parquet_row_that_is_not_utf8)
{
    struct source_config c = {.path = parquet, .column = "not_utf8", .weight = 1};
    struct source s = opened(&c);
    struct text out = {0};
    CHECK_STATUS(DATA, read_part(&s, 0, 1, &out));
    CHECK_MESSAGE("row 0: the text is not UTF-8");
    text_release(&out);
    source_close(&s);
}

/* A document of Megatron's mock data is 1, 2, 3, ... and the end-of-text token. */
TEST(source_mock_documents_count_up_to_end_of_text)
{
    struct source_config c = config_of("mock");
    struct source s = opened(&c);
    struct reading r;
    struct source_document f = {0};
    bool none = false;
    int documents = 0;
    reading_init(&r);
    CHECK(s.num_positions == 100000 && source_num_sequences(&s) == 100000);
    for (uint64_t position = 99990; !none; documents += !none) {
        CHECK_STATUS(OK, source_find(&s, NULL, 0, 1, &position, s.num_positions, &f, &none));
        if (none) break;
        uint64_t length = source_sequence_length(&s, f.at);
        CHECK(f.at == 99990 + (uint64_t)documents && f.len == length && length < 4096);
        r.ids.count = 0;
        CHECK_STATUS(OK, source_read(&s, &f, &r.tokens, &r.ids));
        CHECK(r.ids.count == length && r.ids.ids[length - 1] == 257);
        for (uint64_t i = 0; i + 1 < length; i++)
            CHECK(r.ids.ids[i] == (int)(i + 1) % tokenizer_vocab_size(r.tokenizer));
        int32_t part[2];
        if (length > 5) CHECK_STATUS(OK, source_read_sequence(&s, f.at, 3, 2, &r.tokens, part));
        if (length > 5) CHECK(part[0] == 4 && part[1] == 5);
    }
    CHECK(documents == 10);
    const struct source_tokens unknown = {0};
    CHECK_STATUS(CONFIG, source_read_sequence(&s, 0, 0, 1, &unknown, r.ids.ids));
    CHECK_MESSAGE("mock data requires a tokenizer or model.vocab_size");
    reading_release(&r);
    source_close(&s);
}

TEST(source_has_sequences_for_a_single_token_file_pair_only)
{
    const char *folder = test_folder();
    rig_tokens(folder, "t", (int[]){3, 0, 4}, 3, 20);
    rig_tokens(folder, "u", (int[]){1}, 1, 0);
    rig_text(folder, "a.txt", "text");
    const char *pair = test_path(folder, "t");
    struct source_config c = config_of(pair);
    struct source s = opened(&c);
    int32_t ids[2];
    CHECK(source_num_sequences(&s) == 3 && source_sequence_length(&s, 2) == 4);
    struct source_tokens tokens = {.vocab_size = 26};
    CHECK_STATUS(OK, source_read_sequence(&s, 2, 1, 2, &tokens, ids));
    CHECK(ids[0] == 24 && ids[1] == 25);
    CHECK_STATUS(DATA, source_read_sequence(&s, 2, 2, 2, &tokens, ids));
    CHECK_MESSAGE("sequence 2 holds the id 26");
    source_close(&s);
    for (int i = 0; i < 2; i++) { /* none for two pairs, none for text */
        c = config_of(test_path(folder, i ? "a.txt" : "*.idx"));
        s = opened(&c);
        CHECK(source_num_sequences(&s) == 0);
        source_close(&s);
    }
}
