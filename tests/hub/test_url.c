// SPDX-License-Identifier: Apache-2.0
#include "hub/url.h"
#include "test.h"

TEST(url_append_escaped_percent_encodes)
{
    struct text url = {0};
    url_append_escaped(&url, "a b/\xc3\xa9?#%.~", true);
    CHECK(!strcmp(url.data, "a%20b/%C3%A9%3F%23%25.~"));
    text_clear(&url);
    url_append_escaped(&url, "refs/pr/1", false);
    CHECK(!strcmp(url.data, "refs%2Fpr%2F1"));
    text_release(&url);
}

TEST(only_http_and_https_are_http)
{
    static const char *const others[] = {"", "http:/a", " http://a", "file://http://a", "ftp://a"};
    CHECK(url_is_http("http://a") && url_is_http("HTTPS://a/b?c"));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) CHECK(!url_is_http(others[i]));
}

TEST(url_next_page_reads_link_headers)
{
    struct text url = {0};
    CHECK(url_next_page("<https://x/y?c=1,2>; rel=\"next\"", &url));
    CHECK(!strcmp(url.data, "https://x/y?c=1,2"));
    CHECK(url_next_page("<a>; rel=\"first\", <b>; rel=\"next\"", &url) && !strcmp(url.data, "b"));
    CHECK(!url_next_page("", &url) && !url_next_page("<a", &url) &&
          !url_next_page("<a>; rel=\"prev\"", &url));
    CHECK(!url_next_page("<>; rel=\"next\"", &url));
    text_release(&url);
}

TEST(url_redirect_allows_http_but_never_downgrades_https)
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
