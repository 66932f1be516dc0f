// SPDX-License-Identifier: Apache-2.0
#include "hub/http.h"
#include "hub/server.h"
#include "test.h"

static enum status collect(void *context, const struct http_response *a, const void *bytes,
                           size_t len)
{
    (void)a;
    text_add(context, bytes, len);
    return STATUS_OK;
}

static enum status reject_body(void *context, const struct http_response *a, const void *bytes,
                               size_t len)
{
    (void)context, (void)a, (void)bytes, (void)len;
    FAIL(DATA, "not this");
}

TEST(http_returns_the_response_unprocessed)
{
    if (!http_available()) skip();
    struct server s = {.files = {{"a", "small", false}, {"b", "large", true}}};
    struct http *h;
    struct http_response a;
    struct text url = {0}, body = {0};
    server_start(&s);
    CHECK_STATUS(OK, http_open(&h));
    text_addf(&url, "%s/datasets/org/name/resolve/%s/a", s.endpoint, s.commit);
    struct http_request r = {.url = url.data, .token = "", .on_body = collect, .context = &body};
    CHECK_STATUS(OK, http_send(h, &r, &a));
    CHECK(a.status == 200 && !a.broken && a.retry_s < 0 && !a.location[0]);
    CHECK(!strcmp(body.data, "small"));

    r.from = 2;
    text_clear(&body);
    CHECK_STATUS(OK, http_send(h, &r, &a));
    CHECK(a.status == 206 && a.begin == 2 && !strcmp(body.data, "all"));

    url.data[url.len - 1] = 'b'; /* a redirect is not followed */
    text_clear(&body);
    CHECK_STATUS(OK, http_send(h, &r, &a));
    CHECK(a.status == 302 && strstr(a.location, s.cdn) && !body.len);

    url.data[url.len - 1] = 'c';
    CHECK_STATUS(OK, http_send(h, &r, &a));
    CHECK(a.status == 404 && !strcmp(a.code, "EntryNotFound") && !body.len);

    url.data[url.len - 1] = 'a';
    r.on_body = reject_body;
    CHECK_STATUS(DATA, http_send(h, &r, &a));
    CHECK_MESSAGE("not this");
    http_close(h);
    server_stop(&s);
    text_release(&url);
    text_release(&body);
    text_release(&s.log);
}

TEST(http_reports_broken_connections)
{
    if (!http_available()) skip();
    struct server s = {.files = {{"a", "0123456789", false}},
                       .bodies = {FAULT_DROP, FAULT_DISCONNECT}};
    struct http *h;
    struct http_response a;
    struct text url = {0}, body = {0};
    server_start(&s);
    CHECK_STATUS(OK, http_open(&h));
    text_addf(&url, "%s/datasets/org/name/resolve/%s/a", s.endpoint, s.commit);
    struct http_request r = {.url = url.data, .token = "", .on_body = collect, .context = &body};
    CHECK_STATUS(OK, http_send(h, &r, &a));
    CHECK(a.broken && a.status == 0 && a.error[0]);
    CHECK_STATUS(OK, http_send(h, &r, &a));
    CHECK(a.broken && a.status == 200 && !strcmp(body.data, "01234"));
    server_stop(&s);
    CHECK_STATUS(OK, http_send(h, &r, &a)); /* the port is closed now */
    CHECK(a.broken && a.status == 0 && a.error[0]);
    r.url = "file:///etc/hostname";
    CHECK_STATUS(IO, http_send(h, &r, &a));
    http_close(h);
    text_release(&url);
    text_release(&body);
    text_release(&s.log);
}
