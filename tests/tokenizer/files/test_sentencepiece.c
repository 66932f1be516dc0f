// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/rig.h"

#include "base/file.h"
#include "base/json.h"
#include "tokenizer/hf_folder.h"

static struct tokenizer *open_small(const char *name)
{
    struct tokenizer *t = NULL;
    struct tokenizer_config config = {0};
    char path[128];
    snprintf(path, sizeof path, "tests/tokenizer/data/%s.model", name);
    CHECK_STATUS(OK, tokenizer_open(&t, path, &config));
    return t;
}

static void add_hex(struct text *out, const char *hex)
{
    unsigned byte;
    text_adds(out, "");
    for (; sscanf(hex, "%2x", &byte) == 1; hex += 2) text_add(out, &(char){(char)byte}, 1);
}

static bool same(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    return a_bytes == b_bytes && (!a_bytes || !memcmp(a, b, a_bytes));
}

static void check_row(const struct tokenizer *t, const struct json *row, int number)
{
    struct text given = {0}, back = {0}, want = {0};
    struct token_list ids = {0};
    const char *text;
    for (const struct json *v = json_first(json_get(row, "ids")); v; v = json_next(v)) {
        token_list_reserve(&ids, 1);
        ids.ids[ids.count++] = (int32_t)json_number(v);
    }
    if (json_get(row, "hex")) {
        add_hex(&given, json_string(json_get(row, "hex")));
        struct token_list got = encoded(t, given.data, given.len);
        if (!same(got.ids, got.count * sizeof *got.ids, ids.ids, ids.count * sizeof *ids.ids))
            fail_msg("row %d: IDs differ from sentencepiece's", number);
        token_list_release(&got);
    }
    CHECK_STATUS(OK, json_get_string(row, "text", &text));
    add_hex(&want, text);
    text_adds(&back, "");
    CHECK_STATUS(OK, tokenizer_decode(t, ids.ids, ids.count, &back));
    if (!same(back.data, back.len, want.data, want.len))
        fail_msg("row %d: the text differs from sentencepiece's", number);
    text_release(&given), text_release(&back), text_release(&want);
    token_list_release(&ids);
}

/* Expected values are from the sentencepiece library, by tests/oracle/sentences.py. */
static void check_golden(const char *name, int most)
{
    struct json *root;
    struct tokenizer *t = open_small(name);
    int number = 0, own = 0;
    CHECK_STATUS(OK, json_read("tests/tokenizer/data/sentences.json", 1 << 20, &root));
    for (const struct json *row = json_first(json_get(root, "rows")); row; row = json_next(row)) {
        const char *model;
        number++;
        CHECK_STATUS(OK, json_get_string(row, "model", &model));
        if (strcmp(model, name)) continue;
        check_row(t, row, number);
        own++;
    }
    CHECK(own >= 100 && tokenizer_vocab_size(t) == most);
    CHECK(!strcmp(tokenizer_kind(t), "SentencePiece BPE"));
    CHECK(tokenizer_bos(t) == 1 && tokenizer_eos(t) == 2);
    json_free(root);
    tokenizer_close(t);
}

TEST(byte_fallback_models_match_sentencepiece) { check_golden("sentence_bytes", 420); }

TEST(models_with_a_charsmap_match_sentencepiece) { check_golden("sentence_mapped", 150); }

TEST(models_with_user_defined_symbols_match_sentencepiece)
{
    check_golden("sentence_defined", 160);
    struct tokenizer *t = open_small("sentence_defined");
    CHECK(tokenizer_special(t, "[INST]") == 3 && !strcmp(tokenizer_special_name(t, 3), "[INST]"));
    CHECK(tokenizer_special(t, "<mask>") == 4 && !tokenizer_special_name(t, 4));
    CHECK(tokenizer_special(t, "<nothing>") == -1);
    tokenizer_close(t);
}

static void add_field(struct text *out, int number, const struct text *message)
{
    text_addf(out, "%c", number << 3 | 2);
    for (size_t len = message->len; len > 127; len >>= 7)
        text_addf(out, "%c", (int)((len & 127) | 128));
    BUG_IF(message->len >> 14);
    text_addf(out, "%c", (int)(message->len > 127 ? message->len >> 7 : message->len));
    text_add(out, message->data, message->len);
}

/* Appends a piece; type 0 omits the type. */
static void add_piece(struct text *out, const char *name, float score, int type)
{
    struct text piece = {0}, text = {0};
    text_adds(&text, name);
    if (text.len) add_field(&piece, 1, &text);
    text_addf(&piece, "%c", 2 << 3 | 5);
    text_add(&piece, &score, sizeof score);
    if (type) text_addf(&piece, "%c%c", 3 << 3, type);
    add_field(out, 1, &piece);
    text_release(&piece), text_release(&text);
}

/* Appends trainer_spec with this model_type, and normalizer_spec without add_dummy_prefix and
 * remove_extra_whitespaces; then the extra fields. */
static void add_specs(struct text *out, int model_type, const char *trainer, const char *normalizer)
{
    struct text spec = {0};
    if (model_type) text_addf(&spec, "%c%c", 3 << 3, model_type);
    text_adds(&spec, trainer);
    add_field(out, 2, &spec);
    text_clear(&spec);
    text_add(&spec, "\x18\x00\x20\x00", 4);
    text_adds(&spec, normalizer);
    add_field(out, 3, &spec);
    text_release(&spec);
}

static void write_tiny(struct text *out)
{
    add_piece(out, "<unk>", 0, 2);
    add_piece(out, "<s>", 0, 3);
    add_piece(out, "ab", -1, 0);
    add_piece(out, "bc", -1, 1);
    add_piece(out, "abc", -2, 1);
    add_piece(out, "b", -3, 1);
    add_piece(out, "\xE2\x96\x81", -4, 1);
    add_specs(out, 2, "", "");
}

static struct tokenizer *open_tiny(void)
{
    struct tokenizer *t = NULL;
    struct text file = {0};
    write_tiny(&file);
    CHECK_STATUS(OK, open_bytes(&t, "tiny.model", &file));
    text_release(&file);
    return t;
}

TEST(sentencepiece_merges_by_score_from_the_left_through_characters_without_a_piece)
{
    struct tokenizer *t = open_tiny();
    struct text back = {0};
    CHECK_IDS(t, "abc", 4); /* "ab" first, then "c", which is not a piece */
    CHECK_IDS(t, "bc", 3);
    CHECK_IDS(t, "ba b", 5, 0, 6, 5);
    CHECK_IDS(t, "acxyb", 0, 5); /* four unknown characters fuse into one token */
    CHECK_IDS(t, "<s>", 0);
    CHECK(tokenizer_vocab_size(t) == 7 && tokenizer_eos(t) == -1 && tokenizer_bos(t) == 1);
    CHECK_STATUS(DATA, tokenizer_decode(t, &(int32_t){7}, 1, &back));
    CHECK_STATUS(DATA, tokenizer_decode(t, &(int32_t){-1}, 1, &back));
    CHECK_MESSAGE("unknown token ID -1");
    text_release(&back);
    tokenizer_close(t);
}

TEST(decoded_parts_concatenate_to_the_text)
{
    struct tokenizer *t = open_small("sentence_bytes");
    struct token_list ids = encoded(t, "a \xE4\xB8\xAD b", 7);
    struct text parts = {0};
    for (size_t i = 0; i < ids.count; i++)
        CHECK_STATUS(OK, tokenizer_decode_part(t, &ids.ids[i], 1, &parts));
    CHECK(parts.len == 8 && !memcmp(parts.data, " a \xE4\xB8\xAD b", 8));
    text_release(&parts);
    token_list_release(&ids);
    tokenizer_close(t);
}

TEST(truncated_sentencepiece_models_are_rejected_at_every_byte)
{
    struct text file = {0};
    write_tiny(&file);
    size_t whole = file.len;
    for (file.len = 1; file.len < whole; file.len++) {
        struct tokenizer *t = NULL;
        enum status st = open_bytes(&t, "tiny.model", &file);
        if (st != STATUS_DATA) fail_msg("%zu of %zu bytes: %s", file.len, whole, status_name(st));
        CHECK_MESSAGE("tiny.model");
        if (file.len > 1) CHECK_MESSAGE("truncated or corrupt SentencePiece model: ");
        if (file.len == 2) CHECK(strstr(status_stack(), "in read_field("));
    }
    text_release(&file);
}

TEST(unsupported_sentencepiece_models_are_rejected_with_the_reason)
{
    static const struct {
        const char *name;
        float score;
        int type, model_type;
        const char *trainer, *normalizer, *why;
        enum status status;
    } rows[] = {
        {"x", 0, 1, 4, "", "", "char is not supported; expected BPE or Unigram",
         STATUS_UNSUPPORTED},
        {"<0x41>", 0, 6, 1, "", "", "byte_fallback is off", STATUS_DATA},
        {"x", 0, 1, 3, "", "", "word", STATUS_UNSUPPORTED},
        {"x", 0, 1, 9, "", "", "expected BPE", STATUS_UNSUPPORTED},
        {"x", 0, 5, 2, "", "", "unused", STATUS_UNSUPPORTED},
        {"x", 0, 7, 2, "", "", "type of piece 2 is not supported", STATUS_UNSUPPORTED},
        {"x", 0, 1, 2, "\xC0\x01\x01", "", "treat_whitespace_as_suffix", STATUS_UNSUPPORTED},
        {"x", INFINITY, 1, 2, "", "", "not finite", STATUS_DATA},
        {"", 0, 1, 2, "", "", "0 bytes", STATUS_DATA},
        {"\xFF", 0, 1, 2, "", "", "UTF-8", STATUS_DATA},
        {"ab", 0, 1, 2, "", "", "same bytes", STATUS_DATA},
        {"x", 0, 2, 2, "", "", "both of type unknown", STATUS_DATA},
        {"<0x41>", 0, 6, 2, "", "", "byte_fallback is off", STATUS_DATA},
        {"<0x4a>", 0, 6, 2, "\x98\x02\x01", "", "its name is not a byte", STATUS_DATA},
        {"<0x41>", 0, 6, 2, "\x98\x02\x01", "", "0x00", STATUS_DATA},
        {"x", 0, 1, 2, "",
         "\x12\x03"
         "abc",
         "charsmap", STATUS_DATA},
        {"x", 0, 1, 2, "\x0B", "", "wire type 3", STATUS_DATA},
        {"x", 0, 1, 2, "\x01", "", "invalid field number 0", STATUS_DATA},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct text file = {0};
        struct tokenizer *t = NULL;
        add_piece(&file, "<unk>", 0, 2);
        add_piece(&file, "ab", 0, 1);
        add_piece(&file, rows[i].name, rows[i].score, rows[i].type);
        add_specs(&file, rows[i].model_type, rows[i].trainer, rows[i].normalizer);
        enum status st = open_bytes(&t, "odd.model", &file);
        if (st != rows[i].status || !strstr(status_message(), rows[i].why))
            fail_msg("row %zu: %s: %s", i, status_name(st), st ? status_message() : "");
        CHECK_MESSAGE("odd.model");
        text_release(&file);
    }
    CHECK_STATUS(DATA, opens("odd.model", "\n"));
    struct text file = {0};
    struct tokenizer *t;
    add_piece(&file, "a", 0, 1);
    add_specs(&file, 2, "", "");
    CHECK_STATUS(DATA, open_bytes(&t, "odd.model", &file));
    CHECK_MESSAGE("no piece has type unknown");
    text_release(&file);
}

TEST(user_defined_symbols_of_one_text_are_rejected_with_their_ids)
{
    struct text file = {0};
    struct tokenizer *t;
    add_piece(&file, "<unk>", 0, 2);
    add_piece(&file, "ab", 0, 4);
    add_piece(&file, "ab", 0, 4);
    add_specs(&file, 2, "", "");
    CHECK_STATUS(DATA, open_bytes(&t, "odd.model", &file));
    CHECK_MESSAGE("odd.model: tokens 1 and 2 have the same bytes");
    text_release(&file);
}

TEST(copied_sentencepiece_model_opens_as_the_same_tokenizer)
{
    struct tokenizer *t = open_small("sentence_bytes"), *again = NULL;
    struct tokenizer_config config = {0};
    const char *folder = test_folder();
    CHECK_STATUS(OK, tokenizer_copy(t, folder));
    CHECK_STATUS(OK, tokenizer_open(&again, folder, &config));
    CHECK(!strcmp(tokenizer_kind(again), "SentencePiece BPE"));
    CHECK(tokenizer_vocab_size(again) == tokenizer_vocab_size(t));
    tokenizer_close(t), tokenizer_close(again);
}

TEST(sentencepiece_models_that_tokenizer_json_cannot_express_are_not_converted)
{
    static const struct hf_folder_options plain = {.bos = -1, .eos = -1};
    for (int model_type = 1; model_type <= 2; model_type++) {
        struct text file = {0};
        struct tokenizer *t;
        struct hf_folder f;
        add_piece(&file, "<unk>", 0, 2);
        add_piece(&file, "a", 0, 1);
        add_specs(&file, model_type, "", "\x28\x80"); /* escape_whitespaces = false: */
        text_add(&file, "", 1);                       /* a zero of two bytes */
        file.data[file.len - 8]++;                    /* the second belongs to the message */
        CHECK_STATUS(OK, open_bytes(&t, "plain.model", &file));
        hf_folder_make(&f, t, &plain);
        CHECK(!f.other_ids && !f.files[0].text.len);
        CHECK(strstr(f.files[1].text.data, "\"SentencePieceBackend\""));
        hf_folder_release(&f);
        tokenizer_close(t);
        text_release(&file);
    }
}

TEST(runs_of_spaces_with_equal_scores_merge_alike_after_conversion)
{
    static const struct hf_folder_options plain = {.bos = -1, .eos = -1};
    /* as in Mistral's models */
    static const int runs[] = {2, 4, 8, 5, 16, 6, 12, 13, 10, 14, 3, 9, 7, 11, 1};
    struct text file = {0}, spaces = {0};
    struct tokenizer *t, *converted;
    struct hf_folder f;
    add_piece(&file, "<unk>", 0, 2);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        text_clear(&spaces);
        for (int k = 0; k < runs[i]; k++) text_adds(&spaces, "\xE2\x96\x81");
        add_piece(&file, spaces.data, -1e9f, 1);
    }
    add_specs(&file, 2, "", "");
    CHECK_STATUS(OK, open_bytes(&t, "runs.model", &file));
    hf_folder_make(&f, t, &plain);
    CHECK(!f.other_ids);
    CHECK_STATUS(OK, open_bytes(&converted, "runs.json", &f.files[0].text));
    text_clear(&spaces);
    for (int len = 1; len < 100; len++) {
        text_adds(&spaces, " ");
        struct token_list x = encoded(t, spaces.data, spaces.len);
        struct token_list y = encoded(converted, spaces.data, spaces.len);
        CHECK(x.count == y.count && !memcmp(x.ids, y.ids, x.count * sizeof *x.ids));
        CHECK(len < 16 || x.ids[0] == 5);
        token_list_release(&x), token_list_release(&y);
    }
    hf_folder_release(&f);
    tokenizer_close(t), tokenizer_close(converted);
    text_release(&file), text_release(&spaces);
}
