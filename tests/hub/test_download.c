// SPDX-License-Identifier: Apache-2.0
#include "hub/download.h"
#include "hub/server.h"
#include "test.h"

#include "base/file.h"

#include <sys/stat.h>
#include <unistd.h>

/* A server with one file, data/f, and the cache it is fetched into. */
struct fetching {
    struct server server;
    struct hub_settings settings;
    struct place place;
    struct snapshot snapshot;
    struct listing listing;
    struct client client;
    double waited;
};

static const char bytes[] = "0123456789abcdef";

static void begin(struct fetching *f, bool lfs)
{
    char commit[COMMIT_HEX];
    f->server.files[0] = (struct server_file){"data/f", bytes, lfs};
    server_start(&f->server);
    f->settings = server_settings(&f->server, "", &f->waited);
    CHECK_STATUS(OK, client_open(&f->client, &f->settings));
    CHECK_STATUS(OK, place_read(&f->place, "hf://datasets/org/name/data/f"));
    CHECK_STATUS(OK, listing_commit(&f->client, &f->place, commit));

    CHECK_STATUS(OK, listing_read(&f->client, &f->place, commit, "data", false, &f->listing));
    CHECK(f->listing.count == 1);
    snapshot_init(&f->snapshot, &f->place, f->settings.cache, commit);
    CHECK_STATUS(OK, snapshot_note(&f->snapshot));
}

static enum status fetch(struct fetching *f)
{
    return snapshot_fetch(&f->snapshot, &f->client, &f->listing.files[0], NULL);
}

static const char *blob(const struct fetching *f, const char *suffix)
{
    char name[128];
    snprintf(name, sizeof name, "blobs/%s%s", f->listing.files[0].hash, suffix);
    return test_path(f->snapshot.folder, name);
}

static void end(struct fetching *f)
{
    client_close(&f->client);
    server_stop(&f->server);
    listing_release(&f->listing);
    snapshot_release(&f->snapshot);
    place_release(&f->place);
    hub_settings_release(&f->settings);
    text_release(&f->server.log);
}

TEST(downloads_lie_in_the_cache_as_other_tools_have_them)
{
    if (!http_is_there()) skip();
    for (int lfs = 0; lfs < 2; lfs++) {
        struct fetching f = {0};
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
        CHECK_STATUS(OK, fetch(&f)); /* it is there */
        CHECK(f.server.num_requests == requests);
        unlink(path);
        CHECK_STATUS(OK, fetch(&f)); /* so is its blob */
        CHECK(f.server.num_requests == requests && file_exists(path));
        free(path);
        end(&f);
    }
}

TEST(downloads_go_on_from_what_an_earlier_one_left)
{
    if (!http_is_there()) skip();
    struct fetching f = {0};
    begin(&f, true);
    CHECK_STATUS(OK, file_make_dirs(test_path(f.snapshot.folder, "blobs")));
    CHECK_STATUS(OK, file_write(blob(&f, ".incomplete"), bytes, 5));
    CHECK_STATUS(OK, fetch(&f));
    server_check(&f.settings, "hf://datasets/org/name/data/f", bytes);
    CHECK(strstr(f.server.log.data, "Range: bytes=5-"));
    end(&f);
}

TEST(downloads_with_a_wrong_beginning_are_made_anew)
{
    if (!http_is_there()) skip();
    static const char *const left[] = {"01x34", "0123456789abcdeX", "0123456789abcdefgh"};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        struct fetching f = {0};
        begin(&f, true);
        CHECK_STATUS(OK, file_make_dirs(test_path(f.snapshot.folder, "blobs")));
        CHECK_STATUS(OK, file_write(blob(&f, ".incomplete"), left[i], strlen(left[i])));
        CHECK_STATUS(OK, fetch(&f));
        server_check(&f.settings, "hf://datasets/org/name/data/f", bytes);
        end(&f);
    }
}

TEST(downloads_survive_what_networks_do)
{
    if (!http_is_there()) skip();
    static const enum fault faults[] = {FAULT_BUSY, FAULT_SICK, FAULT_DROP, FAULT_CUT};
    for (int lfs = 0; lfs < 2; lfs++)
        for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
            struct fetching f = {.server = {.bodies = {faults[i], FAULT_CUT, FAULT_WHOLE}}};
            begin(&f, lfs);
            CHECK_STATUS(OK, fetch(&f));
            server_check(&f.settings, "hf://datasets/org/name/data/f", bytes);
            CHECK(f.waited > 0 && !f.server.leaked);
            end(&f);
        }
}

/* What is wrong is not in the cache, and not taken up either. */
static void check_refused(enum fault fault, bool lfs, const char *hash, const char *message)
{
    struct fetching f = {.server = {.bodies = {fault}, .hash = hash}};
    begin(&f, lfs);
    CHECK_STATUS(DATA, fetch(&f));
    CHECK_MESSAGE(message);
    CHECK_MESSAGE("hf://datasets/org/name/data/f");
    CHECK(!snapshot_has(&f.snapshot, &f.listing.files[0]));
    CHECK(!file_exists(blob(&f, "")) && !file_exists(blob(&f, ".incomplete")));
    if (!hash) CHECK_STATUS(OK, fetch(&f)); /* the server is well again */
    end(&f);
}

TEST(downloads_of_a_wrong_size_or_hash_are_refused)
{
    if (!http_is_there()) skip();
    for (int lfs = 0; lfs < 2; lfs++) {
        check_refused(FAULT_SHORT, lfs, NULL, "8 bytes came of 16");
        check_refused(FAULT_LONG, lfs, NULL, "more came than the 16 bytes");
        check_refused(FAULT_WRONG, lfs, NULL, "what came has the hash");
    }
    check_refused(FAULT_NONE, true,
                  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                  "the Hub says 0123456789abcdef");
}

TEST(downloads_that_end_early_leave_what_came)
{
    if (!http_is_there()) skip();
    struct fetching f = {.server = {.bodies = {FAULT_CUT, FAULT_DENIED}}};
    uint64_t size;
    begin(&f, false);
    CHECK_STATUS(CONFIG, fetch(&f));
    CHECK_STATUS(OK, file_size(blob(&f, ".incomplete"), &size));
    CHECK(size == 8);
    CHECK_STATUS(OK, fetch(&f));
    server_check(&f.settings, "hf://datasets/org/name/data/f", bytes);
    end(&f);
}
