// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "hub/client.h"
#include "hub/server.h"
#include "test.h"

#include "base/clock.h"
#include "base/signals.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct collected {
    struct sink sink; /* first */
    struct text text;
    int restarts;
};

static enum status restart(struct sink *s)
{
    struct collected *k = (struct collected *)s;
    text_clear(&k->text);
    k->restarts++;
    s->have = 0;
    return STATUS_OK;
}

static enum status append(struct sink *s, const void *bytes, size_t len)
{
    text_add(&((struct collected *)s)->text, bytes, len);
    s->have += len;
    return STATUS_OK;
}

static const char large[] = "the bytes of a large file";

/* Gets the server's LFS file l, or the small file s. */
struct client_test {
    struct server server;
    struct collected kept;
    double waited;
    const char *token;
};

static enum status get(struct client_test *g, const char *file)
{
    struct client c;
    struct text url = {0};
    g->kept = (struct collected){.sink = {.restart = restart, .append = append}};
    g->server.files[0] = (struct server_file){"l", large, true};
    g->server.files[1] = (struct server_file){"s", "small", false};
    server_start(&g->server);
    struct hub_settings settings =
        server_settings(&g->server, g->token ? g->token : "", &g->waited);
    CHECK_STATUS(OK, client_open(&c, &settings));
    text_addf(&url, "%s/datasets/org/name/resolve/%s/%s", settings.endpoint, g->server.commit,
              file);
    enum status st = client_get(&c, url.data, "what", &g->kept.sink, NULL);
    client_close(&c);
    server_stop(&g->server);
    hub_settings_release(&settings);
    text_release(&url);
    return st;
}

static void release(struct client_test *g)
{
    text_release(&g->kept.text);
    text_release(&g->server.log);
}

TEST(client_follows_redirects_and_sends_the_token_to_the_hub_only)
{
    if (!http_available()) skip();
    struct client_test g = {.token = "hf_secret", .server = {.token = "hf_secret"}};
    CHECK_STATUS(OK, get(&g, "l"));
    CHECK(!strcmp(g.kept.text.data, large));
    CHECK(!g.server.leaked && g.server.num_requests == 2);
    CHECK(g.waited == 0);
    release(&g);
}

TEST(client_retries_with_backoff)
{
    if (!http_available()) skip();
    struct client_test g = {
        .server = {.bodies = {FAULT_RETRY_AFTER, FAULT_RATE_LIMIT, FAULT_DROP, FAULT_UNAVAILABLE}}};
    CHECK_STATUS(OK, get(&g, "l"));
    CHECK(!strcmp(g.kept.text.data, large));
    CHECK(g.waited == 7 + 9 + 4 + 8); /* the first two come from the response headers */
    release(&g);
}

static enum status get_late(const struct hub_settings *s, const char *commit)
{
    struct client c;
    struct text url = {0};
    double begin = clock_monotonic_s();
    signals_catch();
    TRY(client_open(&c, s));
    text_addf(&url, "%s/datasets/org/name/resolve/%s/s", s->endpoint, commit);
    RANK_CHECK(client_get(&c, url.data, "what", NULL, NULL) == STATUS_REQUEUE);
    RANK_CHECK(clock_monotonic_s() - begin < 200); /* of the 300 that the server asks for */
    client_close(&c);
    text_release(&url);
    return STATUS_OK;
}

TEST(client_stops_waiting_at_a_signal)
{
    if (!http_available()) skip();
    struct server server = {.files = {{"s", "small", false}}, .bodies = {FAULT_RETRY_LATE}};
    const struct timespec pause = {.tv_nsec = 100000000};
    double waited, begin = clock_monotonic_s();
    int how;
    server_start(&server);
    struct hub_settings settings = server_settings(&server, "", &waited);
    settings.wait = NULL; /* really waits */
    pid_t child = fork();
    if (!child) {
        enum status st = get_late(&settings, server.commit);
        if (st) fprintf(stderr, "%s\n%s", status_message(), status_stack());
        _exit(st != STATUS_OK);
    }
    while (!server.num_bodies && clock_monotonic_s() - begin < 60) nanosleep(&pause, NULL);
    nanosleep(&pause, NULL); /* most likely the client has the response by now, and waits */
    CHECK(!kill(child, SIGTERM) && waitpid(child, &how, 0) == child && !how);
    CHECK(server.num_bodies == 1);
    server_stop(&server);
    hub_settings_release(&settings);
    text_release(&server.log);
}

TEST(client_gives_up_after_five_attempts)
{
    if (!http_available()) skip();
    struct client_test g = {
        .server = {.bodies = {FAULT_UNAVAILABLE, FAULT_UNAVAILABLE, FAULT_UNAVAILABLE,
                              FAULT_UNAVAILABLE, FAULT_UNAVAILABLE, FAULT_UNAVAILABLE}}};
    CHECK_STATUS(IO, get(&g, "s"));
    CHECK_MESSAGE("what: HTTP 503");
    CHECK(g.server.num_bodies == 5 && g.waited == 1 + 2 + 4 + 8);
    release(&g);
}

TEST(client_resumes_where_a_connection_broke)
{
    if (!http_available()) skip();
    struct client_test g = {.server = {.bodies = {FAULT_DISCONNECT, FAULT_DISCONNECT,
                                                  FAULT_DISCONNECT, FAULT_DISCONNECT}}};
    CHECK_STATUS(OK, get(&g, "l"));
    CHECK(!strcmp(g.kept.text.data, large) && !g.kept.restarts);
    CHECK(strstr(g.server.log.data, "Range: bytes=12-"));
    CHECK(g.waited == 4); /* each attempt made progress */
    release(&g);
}

TEST(client_starts_over_if_the_range_is_not_available)
{
    if (!http_available()) skip();
    static const enum fault faults[] = {FAULT_IGNORES_RANGE, FAULT_NO_RANGE};
    for (size_t i = 0; i < 2; i++) {
        struct client_test g = {.server = {.bodies = {FAULT_DISCONNECT, faults[i]}}};
        CHECK_STATUS(OK, get(&g, "l"));
        CHECK(!strcmp(g.kept.text.data, large) && g.kept.restarts == 1);
        release(&g);
    }
}

TEST(client_requests_a_new_redirect_if_the_cdn_forbids)
{
    if (!http_available()) skip();
    struct client_test g = {.server = {.bodies = {FAULT_FORBIDDEN}}};
    CHECK_STATUS(OK, get(&g, "l")); /* as if the signed URL had expired */
    CHECK(g.server.num_requests == 4);
    release(&g);
    g = (struct client_test){.server = {.bodies = {FAULT_FORBIDDEN}}};
    CHECK_STATUS(CONFIG, get(&g, "s")); /* from the Hub itself it is final */
    release(&g);
}

TEST(client_reports_which_token_was_rejected)
{
    if (!http_available()) skip();
    struct client_test g = {.server = {.token = "hf_right"}};
    CHECK_STATUS(CONFIG, get(&g, "s"));
    CHECK_MESSAGE("what: HTTP 401 (RepoNotFound)");
    CHECK_MESSAGE("set HF_TOKEN or create $HF_HOME/token");
    release(&g);
    g = (struct client_test){.token = "hf_wrong", .server = {.token = "hf_right"}};
    CHECK_STATUS(CONFIG, get(&g, "s"));
    CHECK_MESSAGE("the token in HF_TOKEN");
    CHECK(!strstr(status_message(), "hf_wrong") && g.server.num_requests == 1);
    release(&g);
    g = (struct client_test){.token = "hf_right", .server = {.token = "hf_right", .gated = true}};
    CHECK_STATUS(CONFIG, get(&g, "s"));
    CHECK_MESSAGE("HTTP 403 (GatedRepo: ask first)");
    CHECK_MESSAGE("gated");
    release(&g);
}

TEST(client_reports_what_does_not_exist)
{
    if (!http_available()) skip();
    struct client_test g = {0};
    CHECK_STATUS(MISSING, get(&g, "none"));
    CHECK_MESSAGE("what: HTTP 404 (EntryNotFound)");
    CHECK_MESSAGE("/none");
    release(&g);
}

TEST(client_stops_after_ten_redirects)
{
    if (!http_available()) skip();
    struct client_test g = {.server = {.bodies = {FAULT_LOOP, FAULT_LOOP, FAULT_LOOP, FAULT_LOOP,
                                                  FAULT_LOOP, FAULT_LOOP, FAULT_LOOP, FAULT_LOOP,
                                                  FAULT_LOOP, FAULT_LOOP, FAULT_LOOP, FAULT_LOOP}}};
    CHECK_STATUS(DATA, get(&g, "l"));
    CHECK_MESSAGE("more than 10 redirects");
    CHECK(g.server.num_requests == 11);
    release(&g);
}

TEST(client_without_libcurl_reports_what_to_install)
{
    if (http_available()) skip();
    struct client c;
    struct hub_settings settings = {0};
    CHECK_STATUS(UNSUPPORTED, client_open(&c, &settings));
    CHECK_MESSAGE("libcurl4-openssl-dev");
}
