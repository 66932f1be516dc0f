// SPDX-License-Identifier: Apache-2.0
#include "hub/hub_path.h"
#include "test.h"

#include "base/escape.h"
#include "base/file.h"

static const struct {
    const char *path;
    bool is_dataset;
    const char *repo, *revision, *path_in_repo, *folder;
} good[] = {
    {"hf://datasets/org/name/data/*.jsonl", true, "org/name", "main", "data/*.jsonl",
     "/c/datasets--org--name"},
    {"hf://datasets/o-r.g/n_a.m-e@v1.0/a", true, "o-r.g/n_a.m-e", "v1.0", "a",
     "/c/datasets--o-r.g--n_a.m-e"},
    {"hf://datasets/org/name@refs%2Fpr%2F1/x/y", true, "org/name", "refs/pr/1", "x/y",
     "/c/datasets--org--name"},
    {"hf://datasets/org/name@refs/pr/12/x/y", true, "org/name", "refs/pr/12", "x/y",
     "/c/datasets--org--name"},
    {"hf://datasets/org/name@~parquet/x", true, "org/name", "refs/convert/parquet", "x",
     "/c/datasets--org--name"},
    {"hf://org/model", false, "org/model", "main", "", "/c/models--org--model"},
    {"hf://org/model/", false, "org/model", "main", "", "/c/models--org--model"},
    {"hf://org/model@dev/original/tokenizer.model", false, "org/model", "dev",
     "original/tokenizer.model", "/c/models--org--model"},
};

TEST(hub_path_parses_repository_revision_and_path)
{
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct hub_path p;
        CHECK_STATUS(OK, hub_path_parse(&p, good[i].path));
        CHECK(p.is_dataset == good[i].is_dataset && !strcmp(p.repo, good[i].repo));
        CHECK(!strcmp(p.revision, good[i].revision) && !strcmp(p.path, good[i].path_in_repo));
        char *folder = hub_path_cache_folder(&p, "/c");
        CHECK(!strcmp(folder, good[i].folder));
        free(folder);
        hub_path_release(&p);
    }
}

TEST(hub_path_rejects_malformed_paths_and_escapes_from_the_cache)
{
    static const char *const bad[] = {
        "hf://",
        "hf://org",
        "hf://org/",
        "hf:///name",
        "hf://datasets/org/name", /* a dataset needs a file or a glob */
        "hf://datasets/org/name/",
        "hf://datasets/name/",
        "hf://../name",
        "hf://org/..",
        "hf://org/.hidden",
        "hf://or--g/name",
        "hf://org/na..me",
        "hf://org/na me",
        "hf://org/name@",
        "hf://org/name@/x",
        "hf://org/name@..",
        "hf://org/name@%2F..%2F..",
        "hf://org/name@..%2F..%2Fx",
        "hf://org/name@a%2F%2Fb",
        "hf://org/name/../../x",
        "hf://org/name/a/./b",
        "hf://org/name//x",
        "hf://org/name/a/",
        "hf://org/name/a\nb",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct hub_path p;
        CHECK_STATUS(CONFIG, hub_path_parse(&p, bad[i]));
        char shown[100];
        CHECK_MESSAGE(escape_controls(shown, sizeof shown, bad[i], ""));
        CHECK_MESSAGE("hf://datasets/ORG/NAME");
    }
}

TEST(hub_path_is_contained_rejects_paths_that_leave_the_folder)
{
    static const char *const inside[] = {"a", "a/b", ".gitattributes", "a..b", "...", "a/.b"};
    static const char *const not [] = {"",     "/a",   "a/",    "a//b", "..",    ".",
                                       "../a", "a/..", "a/./b", "a\tb", "a\x7f", "a/../b"};
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
        CHECK(hub_path_is_contained(inside[i]));
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++) CHECK(!hub_path_is_contained(not [i]));
    char *longest = heap(2000);
    memset(longest, 'a', 256);
    CHECK(!hub_path_is_contained(longest)); /* longer than file systems allow */
    longest[255] = 0;
    CHECK(hub_path_is_contained(longest));
    free(longest);
}

TEST(hub_path_stores_the_commit_of_a_revision)
{
    const char *cache = test_folder();
    static const char commit[] = "0123456789abcdef0123456789abcdef01234567";
    char found[COMMIT_HEX];
    struct hub_path p;
    CHECK_STATUS(OK, hub_path_parse(&p, "hf://org/model@refs%2Fpr%2F1"));
    CHECK_STATUS(MISSING, hub_path_cached_commit(&p, cache, found));
    CHECK_STATUS(OK, hub_path_write_ref(&p, cache, commit));
    CHECK_STATUS(OK, hub_path_cached_commit(&p, cache, found));
    CHECK(!strcmp(found, commit));
    const char *ref = test_path(cache, "models--org--model/refs/refs/pr/1");
    CHECK_STATUS(OK, file_write(ref, "../../x", 7));
    CHECK_STATUS(DATA, hub_path_cached_commit(&p, cache, found));
    hub_path_release(&p);

    CHECK_STATUS(OK, hub_path_parse(&p, "hf://org/model@0123456789abcdef0123456789abcdef01234567"));
    CHECK_STATUS(OK, hub_path_cached_commit(&p, cache, found)); /* the revision is the commit */
    CHECK(!strcmp(found, commit));
    hub_path_release(&p);
}
