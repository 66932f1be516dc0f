// SPDX-License-Identifier: Apache-2.0
#include "hub/client.h"
#include "hub/server.h"
#include "test.h"

struct kept {
    struct sink sink; /* first */
    struct text text;
    int restarts;
};

static enum status restart(struct sink *s)
{
    struct kept *k = (struct kept *)s;
    text_clear(&k->text);
    k->restarts++;
    s->have = 0;
    return STATUS_OK;
}

static enum status add(struct sink *s, const void *bytes, size_t len)
{
    text_add(&((struct kept *)s)->text, bytes, len);
    s->have += len;
    return STATUS_OK;
}

static const char large[] = "the bytes of a large file";

/* Gets the server's LFS file l, or the small one s. */
struct getting {
    struct server server;
    struct kept kept;
    double waited;
    const char *token;
};

static enum status get(struct getting *g, const char *file)
{
    struct client c;
    struct text url = {0};
    g->kept = (struct kept){.sink = {.restart = restart, .add = add}};
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

static void release(struct getting *g)
{
    text_release(&g->kept.text);
    text_release(&g->server.log);
}

TEST(clients_follow_redirects_and_show_the_token_to_the_hub_only)
{
    if (!http_is_there()) skip();
    struct getting g = {.token = "hf_secret", .server = {.token = "hf_secret"}};
    CHECK_STATUS(OK, get(&g, "l"));
    CHECK(!strcmp(g.kept.text.data, large));
    CHECK(!g.server.leaked && g.server.num_requests == 2);
    CHECK(g.waited == 0);
    release(&g);
}

TEST(clients_ask_again_and_wait_longer_each_time)
{
    if (!http_is_there()) skip();
    struct getting g = {.server = {.bodies = {FAULT_BUSY, FAULT_LIMITED, FAULT_DROP, FAULT_SICK}}};
    CHECK_STATUS(OK, get(&g, "l"));
    CHECK(!strcmp(g.kept.text.data, large));
    CHECK(g.waited == 7 + 9 + 4 + 8); /* the first two are what the Hub says */
    release(&g);
}

TEST(clients_give_up_after_five_tries)
{
    if (!http_is_there()) skip();
    struct getting g = {.server = {.bodies = {FAULT_SICK, FAULT_SICK, FAULT_SICK, FAULT_SICK,
                                              FAULT_SICK, FAULT_SICK}}};
    CHECK_STATUS(IO, get(&g, "s"));
    CHECK_MESSAGE("what: HTTP 503");
    CHECK(g.server.num_bodies == 5 && g.waited == 1 + 2 + 4 + 8);
    release(&g);
}

TEST(clients_go_on_where_a_connection_broke)
{
    if (!http_is_there()) skip();
    struct getting g = {.server = {.bodies = {FAULT_CUT, FAULT_CUT, FAULT_CUT, FAULT_CUT}}};
    CHECK_STATUS(OK, get(&g, "l"));
    CHECK(!strcmp(g.kept.text.data, large) && !g.kept.restarts);
    CHECK(strstr(g.server.log.data, "Range: bytes=12-"));
    CHECK(g.waited == 4); /* bytes were gained each time */
    release(&g);
}

TEST(clients_begin_anew_where_the_rest_is_not_to_be_had)
{
    if (!http_is_there()) skip();
    static const enum fault faults[] = {FAULT_WHOLE, FAULT_NO_RANGE};
    for (size_t i = 0; i < 2; i++) {
        struct getting g = {.server = {.bodies = {FAULT_CUT, faults[i]}}};
        CHECK_STATUS(OK, get(&g, "l"));
        CHECK(!strcmp(g.kept.text.data, large) && g.kept.restarts == 1);
        release(&g);
    }
}

TEST(clients_ask_the_hub_again_where_the_other_host_refuses)
{
    if (!http_is_there()) skip();
    struct getting g = {.server = {.bodies = {FAULT_DENIED}}};
    CHECK_STATUS(OK, get(&g, "l")); /* its signed address was too old */
    CHECK(g.server.num_requests == 4);
    release(&g);
    g = (struct getting){.server = {.bodies = {FAULT_DENIED}}};
    CHECK_STATUS(CONFIG, get(&g, "s")); /* the Hub itself means it */
    release(&g);
}

TEST(clients_say_which_token_was_refused)
{
    if (!http_is_there()) skip();
    struct getting g = {.server = {.token = "hf_right"}};
    CHECK_STATUS(CONFIG, get(&g, "s"));
    CHECK_MESSAGE("what: HTTP 401 (RepoNotFound)");
    CHECK_MESSAGE("neither HF_TOKEN nor $HF_HOME/token");
    release(&g);
    g = (struct getting){.token = "hf_wrong", .server = {.token = "hf_right"}};
    CHECK_STATUS(CONFIG, get(&g, "s"));
    CHECK_MESSAGE("the token in HF_TOKEN");
    CHECK(!strstr(status_message(), "hf_wrong") && g.server.num_requests == 1);
    release(&g);
    g = (struct getting){.token = "hf_right", .server = {.token = "hf_right", .gated = true}};
    CHECK_STATUS(CONFIG, get(&g, "s"));
    CHECK_MESSAGE("HTTP 403 (GatedRepo: ask first)");
    CHECK_MESSAGE("gated");
    release(&g);
}

TEST(clients_say_what_is_not_there)
{
    if (!http_is_there()) skip();
    struct getting g = {0};
    CHECK_STATUS(MISSING, get(&g, "none"));
    CHECK_MESSAGE("what: HTTP 404 (EntryNotFound)");
    CHECK_MESSAGE("/none");
    release(&g);
}

TEST(clients_do_not_go_round_in_circles)
{
    if (!http_is_there()) skip();
    struct getting g = {.server = {.bodies = {FAULT_LOOP, FAULT_LOOP, FAULT_LOOP, FAULT_LOOP,
                                              FAULT_LOOP, FAULT_LOOP, FAULT_LOOP, FAULT_LOOP,
                                              FAULT_LOOP, FAULT_LOOP, FAULT_LOOP, FAULT_LOOP}}};
    CHECK_STATUS(DATA, get(&g, "l"));
    CHECK_MESSAGE("more than 10 redirects");
    CHECK(g.server.num_requests == 11);
    release(&g);
}

TEST(clients_without_libcurl_say_what_to_install)
{
    if (http_is_there()) skip();
    struct client c;
    struct hub_settings settings = {0};
    CHECK_STATUS(UNSUPPORTED, client_open(&c, &settings));
    CHECK_MESSAGE("libcurl4-openssl-dev");
}

TEST(addresses_are_escaped)
{
    struct text url = {0};
    url_add(&url, "a b/\xc3\xa9?#%.~", true);
    CHECK(!strcmp(url.data, "a%20b/%C3%A9%3F%23%25.~"));
    text_clear(&url);
    url_add(&url, "refs/pr/1", false);
    CHECK(!strcmp(url.data, "refs%2Fpr%2F1"));
    text_release(&url);
}

TEST(link_headers_say_what_comes_next)
{
    struct text url = {0};
    CHECK(link_next("<https://x/y?c=1,2>; rel=\"next\"", &url));
    CHECK(!strcmp(url.data, "https://x/y?c=1,2"));
    CHECK(link_next("<a>; rel=\"first\", <b>; rel=\"next\"", &url) && !strcmp(url.data, "b"));
    CHECK(!link_next("", &url) && !link_next("<a", &url) && !link_next("<a>; rel=\"prev\"", &url));
    CHECK(!link_next("<>; rel=\"next\"", &url));
    text_release(&url);
}

TEST(redirects_lead_to_http_and_never_from_https_away)
{
    static const struct {
        const char *from, *location, *to;
    } good[] = {
        {"https://hub/a/b", "https://cdn/x?s=1", "https://cdn/x?s=1"},
        {"https://hub/a/b", "/c", "https://hub/c"},
        {"https://hub:8/a/b", "//cdn/x", "https://cdn/x"},
        {"http://hub/a", "https://hub/a", "https://hub/a"},
    };
    static const char *const bad[] = {"", "b", "file:///etc/passwd", "gopher://x", "http://hub/a"};
    struct text url = {0};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK_STATUS(OK, url_redirect(good[i].from, good[i].location, &url));
        CHECK(!strcmp(url.data, good[i].to));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_STATUS(DATA, url_redirect("https://hub/a", bad[i], &url));
    text_release(&url);
}
