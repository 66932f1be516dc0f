// SPDX-License-Identifier: Apache-2.0
#include "hub/listing.h"
#include "hub/server.h"
#include "test.h"

#define SHA    "0123456789abcdef0123456789abcdef01234567"
#define SHA256 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static enum status add(struct listing *l, const char *json)
{
    return listing_add_page(l, json, strlen(json), "here");
}

TEST(listing_parses_the_tree_api)
{
    struct listing l = {0};
    CHECK_STATUS(OK,
                 add(&l, "[{\"type\":\"file\",\"path\":\"a/b\",\"size\":7,\"oid\":\"" SHA
                         "\",\"lfs\":null},{\"type\":\"directory\",\"path\":\"a\",\"oid\":\"" SHA
                         "\",\"size\":0}]"));
    CHECK_STATUS(OK, add(&l, "[{\"type\":\"file\",\"path\":\"c\",\"size\":130,\"oid\":\"" SHA
                             "\",\"lfs\":{\"oid\":\"" SHA256
                             "\",\"size\":5000000000,\"pointerSize\":130},\"xetHash\":\"x\"}]"));
    CHECK(l.count == 3);
    CHECK(!strcmp(l.files[0].path, "a/b") && l.files[0].size == 7 && !l.files[0].is_folder);
    CHECK(l.files[0].kind == DIGEST_SHA1 && !strcmp(l.files[0].hash, SHA));
    CHECK(l.files[1].is_folder);
    CHECK(l.files[2].size == 5000000000 && l.files[2].kind == DIGEST_SHA256);
    CHECK(!strcmp(l.files[2].hash, SHA256));

    struct text lines = {0};
    struct listing again = {0};
    l.files[1].path[0] = '/'; /* paths that leave the folder are skipped here too */
    memcpy(l.files[1].hash, SHA, sizeof SHA);
    listing_write(&l, &lines);
    CHECK_STATUS(OK, listing_parse(&again, lines.data));
    CHECK(again.count == 2 && !strcmp(again.files[1].path, "c"));
    CHECK(again.files[1].size == 5000000000 && again.files[1].kind == DIGEST_SHA256);
    listing_release(&again);
    CHECK_STATUS(DATA, listing_parse(&again, SHA "\n"));
    listing_release(&again);
    CHECK_STATUS(DATA, listing_parse(&again, SHA " 7\n"));
    listing_release(&again);
    listing_release(&l);
    text_release(&lines);
}

TEST(listing_rejects_malformed_or_truncated_json)
{
    static const char good[] =
        "[{\"type\":\"file\",\"path\":\"a\",\"size\":7,\"oid\":\"" SHA "\"}]";
    static const char *const bad[] = {
        "{}",
        "[1]",
        "[{\"type\":\"file\",\"size\":7,\"oid\":\"" SHA "\"}]",
        "[{\"path\":\"a\",\"size\":7,\"oid\":\"" SHA "\"}]",
        "[{\"type\":\"file\",\"path\":\"a\",\"oid\":\"" SHA "\"}]",
        "[{\"type\":\"file\",\"path\":\"a\",\"size\":-1,\"oid\":\"" SHA "\"}]",
        "[{\"type\":\"file\",\"path\":\"a\",\"size\":1e30,\"oid\":\"" SHA "\"}]",
        "[{\"type\":\"file\",\"path\":\"a\",\"size\":7}]",
        "[{\"type\":\"file\",\"path\":\"a\",\"size\":7,\"oid\":\"../../../../x\"}]",
        "[{\"type\":\"file\",\"path\":\"a\",\"size\":7,\"oid\":\"" SHA256 "\"}]",
        "[{\"type\":\"file\",\"path\":\"a\",\"size\":7,\"oid\":\"" SHA
        "\",\"lfs\":{\"size\":7,\"oid\":\"" SHA "\"}}]",
        "[{\"type\":\"file\",\"path\":\"../a\",\"size\":7,\"oid\":\"" SHA "\"}]",
        "[{\"type\":\"file\",\"path\":\"/a\",\"size\":7,\"oid\":\"" SHA "\"}]",
        "[{\"type\":\"directory\",\"path\":\"a/../b\"}]",
    };
    struct listing l = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_STATUS(DATA, add(&l, bad[i]));
        CHECK_MESSAGE("here");
        CHECK(!l.count);
    }
    for (size_t n = 0; n + 1 < sizeof good; n++)
        CHECK_STATUS(DATA, listing_add_page(&l, good, n, "here"));
    CHECK_STATUS(OK, add(&l, good));
    listing_release(&l);
}

TEST(listing_fetch_tree_follows_pages)
{
    if (!http_available()) skip();
    struct server s = {
        .files = {{"a/b/c", "1", true},
                  {"a/d", "2", false},
                  {"e", "3", false},
                  {"f", "4", true},
                  {"g h", "5", false}},
        .page = 2,
        .apis = {FAULT_NONE, FAULT_UNAVAILABLE, FAULT_NONE, FAULT_DROP},
    };
    struct client c;
    struct hub_path p;
    struct listing l = {0};
    double waited;
    char commit[COMMIT_HEX];
    server_start(&s);
    struct hub_settings settings = server_settings(&s, "", &waited);
    CHECK_STATUS(OK, client_open(&c, &settings));
    CHECK_STATUS(OK, hub_path_parse(&p, "hf://datasets/org/name/*"));
    CHECK_STATUS(OK, listing_fetch_commit(&c, &p, commit));
    CHECK(!strcmp(commit, s.commit));
    CHECK_STATUS(OK, listing_fetch_tree(&c, &p, commit,
                                        &(struct tree_query){.folder = "", .recursive = true}, &l));
    CHECK(l.count == 5 && waited == 2);
    for (size_t i = 0; i < 5; i++) CHECK(!strcmp(l.files[i].path, s.files[i].path));
    listing_release(&l);
    CHECK_STATUS(OK, listing_fetch_tree(&c, &p, commit, &(struct tree_query){.folder = ""}, &l));
    CHECK(l.count == 4 && l.files[0].is_folder && !strcmp(l.files[0].path, "a"));
    listing_release(&l);
    CHECK_STATUS(OK, listing_fetch_tree(&c, &p, commit, &(struct tree_query){.folder = "a"}, &l));
    CHECK(l.count == 2 && !strcmp(l.files[1].path, "a/d"));
    listing_release(&l);
    CHECK_STATUS(MISSING,
                 listing_fetch_tree(&c, &p, commit, &(struct tree_query){.folder = "none"}, &l));
    hub_path_release(&p);
    CHECK_STATUS(OK, hub_path_parse(&p, "hf://datasets/org/name@none/*"));
    CHECK_STATUS(MISSING, listing_fetch_commit(&c, &p, commit));
    CHECK_MESSAGE("hf://datasets/org/name@none/*: HTTP 404 (RevisionNotFound)");
    hub_path_release(&p);
    client_close(&c);
    server_stop(&s);
    hub_settings_release(&settings);
    text_release(&s.log);
}
