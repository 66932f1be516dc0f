// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

TEST(report_writes_a_page_with_text_of_the_newest_checkpoint)
{
    char *dump = runs_trained("training.steps=2"), *page = file_join(test_folder(), "page.html");
    struct text out = {0}, err = {0};
    CHECK(LLAMERO(NULL, &err, "report", dump, "-o", page, "--prompt", "the ", "--prompt", "a llama",
                  "--max-tokens", "8") == 0);
    CHECK(strstr(err.data, "wrote ") && strstr(err.data, page));
    CHECK_STATUS(OK, file_read(page, 1 << 24, &out));
    CHECK(strstr(out.data, "\"prompt\":\"a llama\"") && strstr(out.data, "\"step\":2,\"written\""));
    CHECK(strstr(out.data, "a Llama with "));
    text_clear(&out);
    CHECK(LLAMERO(&out, NULL, "report", dump, "--output", "-") == 0);
    CHECK(!strncmp(out.data, "<!doctype html>", 15));
    text_release(&out), text_release(&err);
    free(dump), free(page);
}

TEST(report_of_a_run_without_a_checkpoint_has_no_samples)
{
    char *dump = runs_trained("training.steps=2 checkpoint.enable=false");
    struct text out = {0}, err = {0};
    CHECK(LLAMERO(&out, &err, "report", dump, "-o", "-", "--prompt", "the ") == 0);
    CHECK(strstr(err.data, "no samples of ") && strstr(out.data, "\"samples\": ["));
    CHECK(!strstr(out.data, "\"prompt\":"));
    text_release(&out), text_release(&err);
    free(dump);
}

TEST(report_rejects_wrong_arguments)
{
    struct text err = {0};
    CHECK(LLAMERO(NULL, &err, "report") == 64);
    CHECK(LLAMERO(NULL, &err, "report", "nowhere") == 66);
    CHECK(LLAMERO(NULL, &err, "report", "nowhere", "--max-tokens", "5") == 64);
    CHECK(strstr(err.data, "--max-tokens requires --prompt"));
    CHECK(LLAMERO(NULL, &err, "report", "nowhere", "--prompt", "a", "--max-tokens", "0") == 64);
    CHECK(LLAMERO(NULL, &err, "report", test_folder(), "-o") == 64);
    CHECK(strstr(err.data, "--output requires a value"));
    text_release(&err);
}
