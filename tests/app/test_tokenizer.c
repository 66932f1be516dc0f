// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "base/json.h"

static const char small[] = "tests/tokenizer/data/small.json";
static const char model[] = "tests/tokenizer/data/small/tokenizer.model";

/* Runs a shell's line in which "$0" is the program. */
static int shell(struct text *out, struct text *err, const char *line)
{
    const char *program = getenv("LLAMERO");
    if (!program) program = "build/llamero";
    return test_run((const char *const[]){"sh", "-c", line, program, NULL}, out, err);
}

static bool is(const struct text *got, const char *want)
{
    if (got->len == strlen(want) && !memcmp(got->data, want, got->len)) return true;
    print_error("got \"%s\", wanted \"%s\"\n", got->data, want);
    return false;
}

TEST(tokenizer_encodes_its_arguments)
{
    struct text out = {0}, err = {0};
    CHECK(LLAMERO(&out, &err, "tokenizer", "encode", "--tokenizer", "bytes", "hi!") == 0);
    CHECK(is(&out, "104 105 33\n") && err.len == 0);
    CHECK(LLAMERO(&out, &err, "tokenizer", "encode", "--tokenizer", "bytes", "a", "b") == 0);
    CHECK(is(&out, "97 32 98\n"));
    CHECK(LLAMERO(&out, &err, "tokenizer", "encode", "--tokenizer=bytes", "--", "--x") == 0);
    CHECK(is(&out, "45 45 120\n"));
    CHECK(LLAMERO(&out, &err, "tokenizer", "encode", "--tokenizer", "bytes", "") == 0);
    CHECK(is(&out, "\n"));
    text_release(&out), text_release(&err);
}

TEST(tokenizer_reads_standard_input_to_its_last_byte)
{
    struct text out = {0};
    CHECK(shell(&out, NULL, "printf 'a\\n\\000b' | \"$0\" tokenizer encode --tokenizer bytes -") ==
          0);
    CHECK(is(&out, "97 10 0 98\n"));
    CHECK(shell(&out, NULL, "printf 'ab' | \"$0\" tokenizer encode --tokenizer bytes") == 0);
    CHECK(is(&out, "97 98\n"));
    CHECK(LLAMERO(&out, NULL, "tokenizer", "encode", "--tokenizer", "bytes", "-") == 0);
    CHECK(is(&out, "\n"));
    text_release(&out);
}

TEST(tokenizer_encodes_many_texts_that_end_in_nul)
{
    struct text out = {0}, err = {0};
    const char *many =
        "printf 'a\\nb\\000\\000c\\000' | \"$0\" tokenizer encode --tokenizer bytes --null";
    CHECK(shell(&out, NULL, many) == 0);
    CHECK(is(&out, "97 10 98\n\n99\n"));
    CHECK(LLAMERO(&out, NULL, "tokenizer", "encode", "--tokenizer", "bytes", "--null") == 0);
    CHECK(is(&out, ""));
    CHECK(shell(NULL, &err,
                "printf 'a\\000b' | \"$0\" tokenizer encode --tokenizer bytes --null") == 64);
    CHECK(strstr(err.data, "NUL"));
    text_release(&out), text_release(&err);
}

TEST(tokenizer_decodes_what_it_encoded)
{
    struct text out = {0};
    CHECK(LLAMERO(&out, NULL, "tokenizer", "decode", "--tokenizer", "bytes", "104", "105") == 0);
    CHECK(is(&out, "hi"));
    CHECK(LLAMERO(&out, NULL, "tokenizer", "decode", "--tokenizer", "bytes", "104 105\n", "256") ==
          0);
    CHECK(is(&out, "hi<|begin_of_text|>"));
    CHECK(LLAMERO(&out, NULL, "tokenizer", "decode", "--tokenizer", "bytes") == 0);
    CHECK(is(&out, ""));
    CHECK(shell(NULL, NULL,
                "for t in bytes tests/tokenizer/data/small.json tests/tokenizer/data/small\n"
                "do \"$0\" tokenizer encode --tokenizer $t <README.md |\n"
                "\"$0\" tokenizer decode --tokenizer $t - | cmp - README.md || exit 1; done") == 0);
    text_release(&out);
}

TEST(tokenizer_rejects_invalid_ids)
{
    struct text err = {0};
    CHECK(LLAMERO(NULL, &err, "tokenizer", "decode", "--tokenizer", "bytes", "1", "259") == 65);
    CHECK(strstr(err.data, "259"));
    static const char *const wrong[] = {"x", "1x", "-1", "1.5", "99999999999", "0x10", "1,2"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(LLAMERO(NULL, &err, "tokenizer", "decode", "--tokenizer", "bytes", wrong[i]) == 64);
        CHECK(strstr(err.data, wrong[i]));
    }
    CHECK(shell(NULL, &err, "printf '1\\0002' | \"$0\" tokenizer decode --tokenizer bytes") == 64);
    text_release(&err);
}

TEST(tokenizer_shows_its_kind_size_and_special_tokens)
{
    struct text out = {0};
    struct json *root;
    int64_t n;
    CHECK(LLAMERO(&out, NULL, "tokenizer", "show", "--tokenizer", "bytes") == 0);
    CHECK(strstr(out.data, "bytes") && strstr(out.data, "259 tokens"));
    CHECK(strstr(out.data, "258  <|mask|>"));
    CHECK(LLAMERO(&out, NULL, "tokenizer", "show", "--tokenizer", model, "--json") == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "show", &root));
    CHECK(!strcmp(json_string(json_get(root, "kind")), "tiktoken"));
    CHECK_STATUS(OK, json_get_int(root, "vocab_size", 997 + 256, 997 + 256, &n));
    CHECK_STATUS(OK, json_get_int(root, "bos", 997, 997, &n));
    CHECK(json_count(json_get(root, "specials")) == 256);
    CHECK_STATUS(OK, json_get_int(json_get(root, "specials"), "<|eot_id|>", 1006, 1006, &n));
    json_free(root);
    text_release(&out);
}

TEST(tokenizer_train_ignores_the_order_of_files)
{
    const char *folder = test_folder();
    const char *a = test_path(folder, "a.json"), *b = test_path(folder, "b.json");
    struct text out = {0}, err = {0}, x = {0}, y = {0};
    CHECK(LLAMERO(&out, &err, "tokenizer", "train", "--vocab-size", "500", "--output", a,
                  "README.md", "ARCHITECTURE.md") == 0);
    CHECK(out.len == 0 && strstr(err.data, "500 tokens"));
    CHECK(LLAMERO(&out, &err, "tokenizer", "train", "--vocab-size", "500", "--output", b,
                  "ARCHITECTURE.md", "README.md") == 0);
    CHECK_STATUS(OK, file_read(a, 1 << 20, &x));
    CHECK_STATUS(OK, file_read(b, 1 << 20, &y));
    CHECK(x.len == y.len && !memcmp(x.data, y.data, x.len));
    CHECK(LLAMERO(&out, &err, "tokenizer", "show", "--tokenizer", folder) == 66);
    CHECK(LLAMERO(&out, &err, "tokenizer", "show", "--tokenizer", a) == 0);
    CHECK(strstr(out.data, "500 tokens"));
    text_release(&out), text_release(&err), text_release(&x), text_release(&y);
}

TEST(tokenizer_reports_what_is_wrong)
{
    const char *to = test_path(test_folder(), "out.json"), *empty = test_path(test_folder(), "e");
    struct text err = {0}, out = {0};
    CHECK_STATUS(OK, file_write(empty, "", 0));
    CHECK(LLAMERO(NULL, &err, "tokenizer") == 64);
    CHECK(LLAMERO(NULL, &err, "tokenizer", "paint") == 64 && strstr(err.data, "paint"));
    CHECK(LLAMERO(NULL, &err, "tokenizer", "encode", "x") == 64);
    CHECK(strstr(err.data, "--tokenizer FILE is required"));
    CHECK(LLAMERO(NULL, &err, "tokenizer", "encode", "--tokenizer", "/nowhere", "x") == 66);
    CHECK(strstr(err.data, "/nowhere"));
    CHECK(LLAMERO(NULL, &err, "tokenizer", "encode", "--tokenizer", "README.md", "x") == 65);
    CHECK(strstr(err.data, "README.md: not a tokenizer: "));
    CHECK(LLAMERO(NULL, &err, "tokenizer", "encode", "--tokenizer", small, "a.b=c") == 64);
    CHECK(strstr(err.data, "a.b=c"));
    CHECK(LLAMERO(NULL, &err, "tokenizer", "train", "README.md") == 64);
    CHECK(strstr(err.data, "--output FILE is required"));
    CHECK(LLAMERO(NULL, &err, "tokenizer", "train", "--output", to) == 64);
    CHECK(LLAMERO(NULL, &err, "tokenizer", "train", "--output", to, "/nowhere.txt") == 66);
    CHECK(LLAMERO(NULL, &err, "tokenizer", "train", "--output", to, empty) == 65);
    CHECK(!file_exists(to));
    CHECK(LLAMERO(&out, &err, "tokenizer", "--help") == 0);
    CHECK(strstr(out.data, "tokenizer train") && err.len == 0);
    text_release(&err), text_release(&out);
}
