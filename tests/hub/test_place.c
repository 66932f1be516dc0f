// SPDX-License-Identifier: Apache-2.0
#include "hub/place.h"
#include "test.h"

#include "base/file.h"

static const struct {
    const char *path;
    bool is_dataset;
    const char *repo, *revision, *below, *folder;
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

TEST(places_are_what_the_path_says)
{
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct place p;
        CHECK_STATUS(OK, place_read(&p, good[i].path));
        CHECK(p.is_dataset == good[i].is_dataset && !strcmp(p.repo, good[i].repo));
        CHECK(!strcmp(p.revision, good[i].revision) && !strcmp(p.path, good[i].below));
        char *folder = place_folder(&p, "/c");
        CHECK(!strcmp(folder, good[i].folder));
        free(folder);
        place_release(&p);
    }
}

TEST(places_that_are_none_or_leave_the_cache_are_refused)
{
    static const char *const bad[] = {
        "hf://",
        "hf://org",
        "hf://org/",
        "hf:///name",
        "hf://datasets/org/name", /* which of its files? */
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
        struct place p;
        CHECK_STATUS(CONFIG, place_read(&p, bad[i]));
        CHECK_MESSAGE(bad[i]);
        CHECK_MESSAGE("hf://datasets/ORG/NAME");
    }
}

TEST(paths_stay_inside_or_are_refused)
{
    static const char *const inside[] = {"a", "a/b", ".gitattributes", "a..b", "...", "a/.b"};
    static const char *const not [] = {"",     "/a",   "a/",    "a//b", "..",    ".",
                                       "../a", "a/..", "a/./b", "a\tb", "a\x7f", "a/../b"};
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) CHECK(is_inside(inside[i]));
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++) CHECK(!is_inside(not [i]));
    char *longest = heap(2000);
    memset(longest, 'a', 256);
    CHECK(!is_inside(longest)); /* no file system has such a name */
    longest[255] = 0;
    CHECK(is_inside(longest));
    free(longest);
}

TEST(places_keep_the_commit_of_a_revision)
{
    const char *cache = test_folder();
    static const char commit[] = "0123456789abcdef0123456789abcdef01234567";
    char found[COMMIT_HEX];
    struct place p;
    CHECK_STATUS(OK, place_read(&p, "hf://org/model@refs%2Fpr%2F1"));
    CHECK_STATUS(MISSING, place_commit(&p, cache, found));
    CHECK_STATUS(OK, place_note(&p, cache, commit));
    CHECK_STATUS(OK, place_commit(&p, cache, found));
    CHECK(!strcmp(found, commit));
    const char *note = test_path(cache, "models--org--model/refs/refs/pr/1");
    CHECK_STATUS(OK, file_write(note, "../../x", 7));
    CHECK_STATUS(DATA, place_commit(&p, cache, found));
    place_release(&p);

    CHECK_STATUS(OK, place_read(&p, "hf://org/model@0123456789abcdef0123456789abcdef01234567"));
    CHECK_STATUS(OK, place_commit(&p, cache, found)); /* is its own */
    CHECK(!strcmp(found, commit));
    place_release(&p);
}

static void forget(void)
{
    static const char *const names[] = {
        "HF_HOME",  "HF_HUB_CACHE",  "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME",       "HF_ENDPOINT",
        "HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE",        "TRANSFORMERS_OFFLINE",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
}

static void check_cache(const char *want)
{
    struct hub_settings s;
    CHECK_STATUS(OK, hub_settings_read(&s));
    CHECK(!strcmp(s.cache, want));
    hub_settings_release(&s);
}

TEST(settings_are_those_of_the_environment)
{
    char *home = getenv("HOME") ? heap_string(getenv("HOME"), strlen(getenv("HOME"))) : NULL;
    const char *folder = test_folder();
    struct hub_settings s;
    forget();
    setenv("HOME", "/h", 1);
    check_cache("/h/.cache/huggingface/hub");
    setenv("XDG_CACHE_HOME", "/x", 1);
    check_cache("/x/huggingface/hub");
    setenv("HF_HOME", folder, 1);
    check_cache(test_path(folder, "hub"));
    setenv("HF_HUB_CACHE", "/cache", 1);
    check_cache("/cache");

    CHECK_STATUS(OK, hub_settings_read(&s));
    CHECK(!strcmp(s.endpoint, "https://huggingface.co") && !s.token[0] && !s.offline);
    hub_settings_release(&s);
    CHECK_STATUS(OK, file_write(test_path(folder, "token"), " hf_file \n", 10));
    setenv("HF_ENDPOINT", "https://mirror.example//", 1);
    setenv("HF_HUB_OFFLINE", "True", 1);
    CHECK_STATUS(OK, hub_settings_read(&s));
    CHECK(!strcmp(s.endpoint, "https://mirror.example") && s.offline);
    CHECK(!strcmp(s.token, "hf_file") && !strcmp(s.token_from, "$HF_HOME/token"));
    hub_settings_release(&s);
    setenv("HF_TOKEN", "hf_given\n", 1);
    CHECK_STATUS(OK, hub_settings_read(&s));
    CHECK(!strcmp(s.token, "hf_given") && !strcmp(s.token_from, "HF_TOKEN"));
    hub_settings_release(&s);
    setenv("HF_TOKEN", "hf\r\nHost: x", 1);
    CHECK_STATUS(DATA, hub_settings_read(&s));
    forget();
    unsetenv("HOME");
    CHECK_STATUS(CONFIG, hub_settings_read(&s));
    if (home) setenv("HOME", home, 1);
    free(home);
}
