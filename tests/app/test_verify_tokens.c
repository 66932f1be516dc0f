// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

TEST(checkpoint_verify_reads_token_files)
{
    const char *folder = test_folder(), *corpus = test_path(folder, "a.jsonl");
    const char *prefix = test_path(folder, "p"), *bin = test_path(folder, "p.bin");
    struct text out = {0}, err = {0}, bytes = {0};
    struct json *v;
    runs_write_corpus(corpus, 20000);
    CHECK(LLAMERO(&out, &err, "prepare", "--tokenizer", "bytes", "--output", prefix, corpus) == 0);
    const char *names[] = {prefix, bin, test_path(folder, "p.idx"), test_path(folder, "p.sum")};
    for (int i = 0; i < 4; i++) {
        CHECK(LLAMERO(&out, &err, "checkpoint", "verify", names[i]) == 0);
        CHECK(strstr(out.data, "p.bin and .idx") && strstr(out.data, "good"));
    }
    CHECK_STATUS(OK, file_read(bin, 1 << 20, &bytes));
    bytes.data[77]++;
    CHECK_STATUS(OK, file_write(bin, bytes.data, bytes.len));
    CHECK(LLAMERO(&out, &err, "checkpoint", "verify", prefix, "--json") == 65);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "verify", &v));
    CHECK(!json_true(json_get(json_first(v), "valid")));
    CHECK(strstr(json_string(json_get(json_first(v), "reason")), "p.bin: checksum mismatch"));
    json_free(v);
    CHECK(LLAMERO(&out, &err, "checkpoint", "verify", prefix) == 65);
    CHECK(strstr(out.data, "DAMAGED"));
    CHECK(remove(names[3]) == 0);
    CHECK(LLAMERO(&out, &err, "checkpoint", "verify", prefix) == 66);
    CHECK(strstr(err.data, "p.sum: no such file: only `llamero prepare` writes checksums"));
    text_release(&out), text_release(&err), text_release(&bytes);
}
