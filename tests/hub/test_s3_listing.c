// SPDX-License-Identifier: Apache-2.0
#include "hub/s3_server.h"
#include "test.h"

#include "hub/s3_listing.h"

static enum status add(struct listing *l, const char *xml, struct text *next)
{
    return s3_listing_add_page(l, xml, strlen(xml), "here", next);
}

#define OBJECT(key, etag, size)                                                                    \
    "<Contents><Key>" key "</Key><LastModified>x</LastModified><ETag>" etag "</ETag><Size>" size   \
    "</Size><Owner><ID>1</ID></Owner></Contents>"
#define LIST(text) "<ListBucketResult>" text "</ListBucketResult>"

TEST(s3_listing_parses_objects_folders_and_tokens)
{
    struct listing l = {0}, again = {0};
    struct text next = {0}, lines = {0};
    CHECK_STATUS(OK, add(&l,
                         LIST("<Prefix>no</Prefix>" OBJECT("a/b &amp; c", "&quot;e1&quot;", "7")
                                  OBJECT("a/marker/", "\"e2\"", "0") "<CommonPrefixes><Prefix>a/d/"
                                                                     "</Prefix></CommonPrefixes>"
                                                                     "<NextContinuationToken>t/1"
                                                                     "</NextContinuationToken>"),
                         &next));
    CHECK(l.count == 2 && !strcmp(next.data, "t/1"));
    CHECK(!strcmp(l.files[0].path, "a/b & c") && l.files[0].size == 7);
    CHECK(!strcmp(l.files[0].etag, "\"e1\"") && digest_is_hex(l.files[0].hash, 64));
    CHECK(l.files[1].is_folder && !strcmp(l.files[1].path, "a/d"));
    CHECK_STATUS(OK, add(&l, LIST(OBJECT("a/b", "\"e1\"", "5000000000")), &next));
    CHECK(l.count == 3 && !next.len && l.files[2].size == 5000000000);
    CHECK(strcmp(l.files[0].hash, l.files[2].hash)); /* the same ETag, another key and size */

    l.files[1].is_folder = false; /* rank 0 sends files only */
    memcpy(l.files[1].hash, l.files[0].hash, DIGEST_HEX);
    listing_write(&l, &lines);
    CHECK_STATUS(OK, listing_parse(&again, lines.data));
    CHECK(again.count == 3 && !strcmp(again.files[2].etag, "\"e1\""));
    CHECK(!strcmp(again.files[2].hash, l.files[2].hash) && !again.files[1].etag);
    listing_release(&again);
    CHECK_STATUS(DATA, listing_parse(&again, "\"e1 7 a\n"));
    listing_release(&again);
    listing_release(&l);
    text_release(&next);
    text_release(&lines);
}

TEST(s3_listing_rejects_malformed_lists)
{
    static const char *const bad[] = {
        "<html></html>",
        "<Error><Code>x</Code></Error>",
        LIST(OBJECT("a", "\"e\"", "")),
        LIST(OBJECT("a", "\"e\"", "-1")),
        LIST(OBJECT("a", "\"e\"", "1x")),
        LIST(OBJECT("a", "\"e\"", "99999999999999999999")),
        LIST(OBJECT("a", "e", "1")),
        LIST(OBJECT("a", "\"e\n\"", "1")),
        LIST(OBJECT("", "\"e\"", "1")),
        LIST("<Contents><Key>a</Key></Contents>"),
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct listing l = {0};
        struct text next = {0};
        if (!add(&l, bad[i], &next)) fail_msg("accepted: %s", bad[i]);
        CHECK_MESSAGE("here");
        listing_release(&l);
        text_release(&next);
    }
}

TEST(s3_listing_rejects_a_truncated_list_without_a_token)
{
    struct listing l = {0};
    struct text next = {0};
    const char *complete = LIST("<IsTruncated>false</IsTruncated>" OBJECT("a", "\"e\"", "1"));
    CHECK_STATUS(OK, add(&l, complete, &next));
    CHECK_STATUS(DATA, add(&l,
                           LIST("<IsTruncated>true</IsTruncated><NextMarker>a</NextMarker>" OBJECT(
                               "a", "\"e\"", "1")),
                           &next));
    CHECK_MESSAGE("truncated and has no NextContinuationToken");
    listing_release(&l);
    text_release(&next);
}

TEST(s3_listing_fetches_all_pages)
{
    if (!s3_available()) skip();
    static struct s3_server s;
    double waited;
    struct client c;
    struct hub_path p;
    struct listing l = {0};
    char name[32], commit[COMMIT_HEX], other[COMMIT_HEX];
    s.page = 3;
    s.faults[S3_LIST][1] = S3_FAULT_SLOW_DOWN;
    s3_server_start(&s);
    for (int i = 0; i < 10; i++) {
        snprintf(name, sizeof name, "data/%02d+x y.txt", i);
        s3_server_put(&s, name, "x", 1);
    }
    s3_server_put(&s, "data/deep/a", "x", 1);
    s3_server_put(&s, "database", "x", 1);
    struct hub_settings settings = s3_server_settings(&s, &waited);
    CHECK_STATUS(OK, client_open(&c, &settings));
    CHECK_STATUS(OK, hub_path_parse(&p, "s3://bucket/data/*"));
    CHECK_STATUS(OK, s3_listing_fetch(&c, &p, &(struct tree_query){.folder = "data"}, &l));
    CHECK(l.count == 11 && l.files[10].is_folder && !strcmp(l.files[10].path, "data/deep"));
    CHECK(!strcmp(l.files[9].path, "data/09+x y.txt"));
    s3_listing_commit(&l, commit);
    listing_release(&l);
    CHECK_STATUS(OK, s3_listing_fetch(
                         &c, &p, &(struct tree_query){.prefix = "data", .recursive = true}, &l));
    CHECK(l.count == 12);
    s3_listing_commit(&l, other);
    CHECK(digest_is_hex(commit, 40) && strcmp(commit, other));
    CHECK(s.num_bad_signatures == 0 && waited == 1);
    listing_release(&l);
    hub_path_release(&p);
    client_close(&c);
    s3_server_stop(&s);
    s3_server_release(&s);
    hub_settings_release(&settings);
}
