// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "hub/server.h"
#include "hub/snapshot.h"
#include "test.h"

#include "base/file.h"
#include "base/signals.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* A server with one file, data/f, and a cache. */
struct download_test {
    struct server server;
    struct hub_settings settings;
    struct hub_path place;
    struct snapshot snapshot;
    struct listing listing;
    struct client client;
    double waited;
};

static const char bytes[] = "0123456789abcdef";

static void begin(struct download_test *f, bool lfs)
{
    char commit[COMMIT_HEX];
    f->server.files[0] = (struct server_file){"data/f", bytes, lfs};
    server_start(&f->server);
    f->settings = server_settings(&f->server, "", &f->waited);
    CHECK_STATUS(OK, client_open(&f->client, &f->settings));
    CHECK_STATUS(OK, hub_path_parse(&f->place, "hf://datasets/org/name/data/f"));
    CHECK_STATUS(OK, listing_fetch_commit(&f->client, &f->place, commit));

    CHECK_STATUS(OK, listing_fetch_tree(&f->client, &f->place, commit,
                                        &(struct tree_query){.folder = "data"}, &f->listing));
    CHECK(f->listing.count == 1);
    snapshot_init(&f->snapshot, &f->place, f->settings.cache, commit);
    CHECK_STATUS(OK, snapshot_write_ref(&f->snapshot));
}

static enum status fetch(struct download_test *f)
{
    return snapshot_download(&f->snapshot, &f->client, &f->listing.files[0], NULL);
}

static const char *blob(const struct download_test *f, const char *suffix)
{
    char name[128];
    snprintf(name, sizeof name, "blobs/%s%s", f->listing.files[0].hash, suffix);
    return test_path(f->snapshot.folder, name);
}

static void end(struct download_test *f)
{
    client_close(&f->client);
    server_stop(&f->server);
    listing_release(&f->listing);
    snapshot_release(&f->snapshot);
    hub_path_release(&f->place);
    hub_settings_release(&f->settings);
    text_release(&f->server.log);
}

TEST(snapshot_download_uses_the_cache_layout_of_huggingface_hub)
{
    if (!http_available()) skip();
    for (int lfs = 0; lfs < 2; lfs++) {
        struct download_test f = {0};
        char target[256] = "";
        struct stat link;
        begin(&f, lfs);
        CHECK(!snapshot_has(&f.snapshot, &f.listing.files[0]));
        CHECK_STATUS(OK, fetch(&f));
        server_check(&f.settings, "hf://datasets/org/name/data/f", bytes);
        char *path = snapshot_path(&f.snapshot, "data/f");
        CHECK(lstat(path, &link) == 0 && S_ISLNK(link.st_mode));
        CHECK(readlink(path, target, sizeof target - 1) > 0);
        CHECK(!strncmp(target, "../../../blobs/", 15));
        CHECK(!strcmp(target + 15, f.listing.files[0].hash));
        CHECK(strlen(target + 15) == (lfs ? 64 : 40));
        CHECK(file_exists(blob(&f, "")) && !file_exists(blob(&f, ".incomplete")));
        int requests = f.server.num_requests;
        CHECK_STATUS(OK, fetch(&f)); /* in the cache */
        CHECK(f.server.num_requests == requests);
        unlink(path);
        CHECK_STATUS(OK, fetch(&f)); /* the blob still is */
        CHECK(f.server.num_requests == requests && file_exists(path));
        free(path);
        end(&f);
    }
}

TEST(snapshot_download_resumes_a_partial_file)
{
    if (!http_available()) skip();
    struct download_test f = {0};
    begin(&f, true);
    CHECK_STATUS(OK, file_make_dirs(test_path(f.snapshot.folder, "blobs")));
    CHECK_STATUS(OK, file_write(blob(&f, ".incomplete"), bytes, 5));
    CHECK_STATUS(OK, fetch(&f));
    server_check(&f.settings, "hf://datasets/org/name/data/f", bytes);
    CHECK(strstr(f.server.log.data, "Range: bytes=5-"));
    end(&f);
}

TEST(snapshot_download_starts_over_if_the_partial_file_is_damaged)
{
    if (!http_available()) skip();
    static const char *const left[] = {"01x34", "0123456789abcdeX", "0123456789abcdefgh"};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        struct download_test f = {0};
        begin(&f, true);
        CHECK_STATUS(OK, file_make_dirs(test_path(f.snapshot.folder, "blobs")));
        CHECK_STATUS(OK, file_write(blob(&f, ".incomplete"), left[i], strlen(left[i])));
        CHECK_STATUS(OK, fetch(&f));
        server_check(&f.settings, "hf://datasets/org/name/data/f", bytes);
        end(&f);
    }
}

TEST(snapshot_download_survives_network_faults)
{
    if (!http_available()) skip();
    static const enum fault faults[] = {FAULT_RETRY_AFTER, FAULT_UNAVAILABLE, FAULT_DROP,
                                        FAULT_DISCONNECT};
    for (int lfs = 0; lfs < 2; lfs++)
        for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
            struct download_test f = {
                .server = {.bodies = {faults[i], FAULT_DISCONNECT, FAULT_IGNORES_RANGE}}};
            begin(&f, lfs);
            CHECK_STATUS(OK, fetch(&f));
            server_check(&f.settings, "hf://datasets/org/name/data/f", bytes);
            CHECK(f.waited > 0 && !f.server.leaked);
            end(&f);
        }
}

/* A damaged download is not in the cache and is not resumed either. */
static void check_rejected(enum fault fault, bool lfs, const char *hash, const char *message)
{
    struct download_test f = {.server = {.bodies = {fault}, .hash = hash}};
    begin(&f, lfs);
    CHECK_STATUS(DATA, fetch(&f));
    CHECK_MESSAGE(message);
    CHECK_MESSAGE("hf://datasets/org/name/data/f");
    CHECK(!snapshot_has(&f.snapshot, &f.listing.files[0]));
    CHECK(!file_exists(blob(&f, "")) && !file_exists(blob(&f, ".incomplete")));
    if (!hash) CHECK_STATUS(OK, fetch(&f)); /* without the fault */
    end(&f);
}

TEST(snapshot_download_rejects_a_wrong_size_or_hash)
{
    if (!http_available()) skip();
    for (int lfs = 0; lfs < 2; lfs++) {
        check_rejected(FAULT_SHORT, lfs, NULL, "got 8 of 16 bytes");
        check_rejected(FAULT_LONG, lfs, NULL, "got more than the expected 16 bytes");
        check_rejected(FAULT_CORRUPT, lfs, NULL, "hash mismatch");
    }
    check_rejected(FAULT_NONE, true,
                   "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                   "expected 0123456789abcdef");
}

TEST(snapshot_download_keeps_a_partial_file_on_failure)
{
    if (!http_available()) skip();
    struct download_test f = {.server = {.bodies = {FAULT_DISCONNECT, FAULT_FORBIDDEN}}};
    uint64_t size;
    begin(&f, false);
    CHECK_STATUS(CONFIG, fetch(&f));
    CHECK_STATUS(OK, file_size(blob(&f, ".incomplete"), &size));
    CHECK(size == 8);
    CHECK_STATUS(OK, fetch(&f));
    server_check(&f.settings, "hf://datasets/org/name/data/f", bytes);
    end(&f);
}

static enum status wait_for_a_lock(int unused)
{
    struct hub_path p;
    struct snapshot s;
    (void)unused;
    TRY(hub_path_parse(&p, "hf://org/name"));
    const char *cache = test_folder();
    snapshot_init(&s, &p, cache, "0123456789abcdef0123456789abcdef01234567");
    TRY(snapshot_write_ref(&s));
    int held = open(test_path(cache, ".locks/models--org--name/refs.lock"), O_RDWR | O_CLOEXEC);
    RANK_CHECK(held >= 0 && !flock(held, LOCK_EX));
    signals_catch();
    test_raise(SIGTERM);
    RANK_CHECK(snapshot_write_ref(&s) == STATUS_REQUEUE);
    snapshot_release(&s);
    hub_path_release(&p);
    close(held);
    return STATUS_OK;
}

TEST(snapshot_that_waits_for_another_download_ends_at_a_signal)
{
    CHECK(!test_in_child(wait_for_a_lock, 0));
}
