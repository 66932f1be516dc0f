/* url.h -- URLs of the Hub and of the hosts it redirects to. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>

/* Appends percent-encoded text: everything except letters, digits, -._~ and, with `slashes`, /
 * becomes %XX. */
void url_append_escaped(struct text *url, const char *text, bool slashes);
/* Begins with http:// or https://, in any case. */
bool url_is_http(const char *url);
/* Whether both have the same scheme, host and port. */
bool url_same_origin(const char *a, const char *b);
/* Pagination: the rel="next" address of a Link header; false if it has none. */
bool url_next_page(const char *link, struct text *url);
/* Resolves the Location of a redirect from `url`.  DATA: not http or https, or from https to
 * http. */
enum status url_redirect(const char *url, const char *location, struct text *out);
