// SPDX-License-Identifier: Apache-2.0
#include "hub/push_server.h"
#include "test.h"

#include "base/file.h"
#include "hub/lfs.h"

static const char bytes[] = "0123456789abcdefghijklmnopqrstuvwxyz";

/* Uploads the bytes twice in chunks of this size (0: at once). */
static enum status upload(size_t chunk, enum push_fault fault, bool uploaded[2], int *num_puts)
{
    struct push_server s = {.exists = true, .chunk_bytes = chunk, .posts = {fault}};
    struct client c;
    struct hub_path repo;
    struct digest d;
    struct lfs_file f = {.path = test_path(test_folder(), "f"), .what = "f", .size = 36};
    struct hub_settings settings = {.token_from = "HF_TOKEN"};
    push_server_start(&s);
    settings.endpoint = s.endpoint, settings.token = heap_string("hf_secret", 9);
    CHECK_STATUS(OK, file_write(f.path, bytes, 36));
    digest_init(&d, DIGEST_SHA256);
    digest_add(&d, bytes, 36);
    digest_hex(&d, f.sha256);
    CHECK_STATUS(OK, client_open(&c, &settings));
    CHECK_STATUS(OK, hub_path_parse(&repo, "hf://org/name"));
    enum status st = lfs_upload(&c, &repo, &f, &uploaded[0]);
    if (!st) CHECK_STATUS(OK, lfs_upload(&c, &repo, &f, &uploaded[1]));
    *num_puts = s.num_puts;
    if (!st) CHECK(s.objects[0].is_complete && !s.leaked);
    hub_path_release(&repo);
    client_close(&c);
    free(settings.token);
    push_server_stop(&s);
    push_server_release(&s);
    return st;
}

TEST(lfs_uploads_in_chunks_of_any_size_and_only_once)
{
    if (!http_available()) skip();
    static const int chunks[] = {0, 36, 35, 18, 7, 2, 100};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        bool uploaded[2];
        int puts;
        CHECK_STATUS(OK, upload((size_t)chunks[i], PUSH_FAULT_NONE, uploaded, &puts));
        CHECK(uploaded[0] && !uploaded[1]);
        CHECK(puts == (chunks[i] ? (36 + chunks[i] - 1) / chunks[i] : 1));
    }
}

TEST(lfs_rejects_a_malformed_response)
{
    if (!http_available()) skip();
    bool uploaded[2];
    int puts;
    CHECK_STATUS(DATA, upload(0, PUSH_FAULT_MALFORMED, uploaded, &puts));
    CHECK(puts == 0);
}
